"""Draft the dilated convolutions of one graph: find its regions and write those that can be written."""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv import front_pad
from onnx_spatial.fusion.dilated_conv.demand import walk_back
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.propagate import follow
from onnx_spatial.fusion.dilated_conv.region import Regions
from onnx_spatial.fusion.dilated_conv.write import RegionEdit, UnwritableError, write
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.fusion.rule import Writer
from onnx_spatial.model import traversal


def fuse(
    graph: traversal.GraphLike, view: GraphView, matcher: Matcher, lower: Writer
) -> tuple[Regions, RegionEdit]:
    """Find the regions of a graph and draft them without blocks.

    `lower` writes SpaceToBatch of the values in blocks that nodes outside the regions read too.
    """
    drop_shapes, without, apart, padded = True, frozenset[str](), set[str](), set[str]()
    reasons: dict[ir.Node, list[str]] = {}
    while True:
        regions = follow(graph, view, matcher, without, apart, padded)
        walk_back(graph, view, matcher, regions, drop_shapes=drop_shapes)
        fronts = {n: e.front.node for n, e in regions.entries.items() if e.front is not None}
        # A region inside one that does not end may still be one of its own.
        alone = {n for n in regions.nested if regions.step_of[n] not in regions.steps}
        if alone:
            apart |= alone
            continue
        try:
            edit = write(regions, view, matcher, lower)
        except UnwritableError as error:
            if error.entries & fronts.keys():  # perhaps with the Pads in front as they are
                padded |= error.entries
                continue
            for name in sorted(error.entries):
                reasons.setdefault(regions.entries[name].subject.node, []).append(str(error))
            without |= error.entries
            continue
        if drop_shapes and edit.elements & {v.name for n in regions.dead for v in n.outputs}:
            drop_shapes = False  # a shape that seemed dead is read
            continue
        if stay := front_pad.needed(fronts.values(), edit.elements, graph, matcher):
            padded |= {name for name, node in fronts.items() if node in stay}
            continue
        for node, each in reasons.items():
            regions.declined[node] = [*each, *regions.declined.get(node, ())]
        return regions, edit
