"""Turn SpaceToBatch -> Conv -> BatchToSpace back into dilated convolutions.

    x -> SpaceToBatch D, pads P -> Conv dilations d, pads p -> BatchToSpace D, crops Q -> y
    x -> Conv dilations D d, pads P - Q + D p -> y

A *region* is all that lies between SpaceToBatch and BatchToSpace. Every *value in blocks* t in it is
SpaceToBatch of some u, and every node is written on u instead. Each step is exact on its own:

    Conv(SpaceToBatch u) = SpaceToBatch(dilated Conv u)      `nodes`
    op(SpaceToBatch u) = SpaceToBatch(op u)                  `nodes`: the table of operators
    SpaceToBatch, pads P = SpaceToBatch(zeros around u)      `amounts`: what is padded and cropped
    BatchToSpace(SpaceToBatch u) = u                         `region`: from the one to the other

so several convolutions, branches, gates and residual sums need no rules of their own, and a node that
is not in the table ends the region. `write` drafts the nodes on u.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.region import Regions, UnwritableError, find_regions
from onnx_spatial.fusion.dilated_conv.write import RegionEdit, write_regions
from onnx_spatial.fusion.rules import Reason
from onnx_spatial.fusion.views import GraphView
from onnx_spatial.model import traversal

__all__ = ["RegionEdit", "Regions", "fuse_regions"]


def fuse_regions(graph: traversal.GraphLike, view: GraphView) -> tuple[Regions, RegionEdit]:
    """Find the regions of a graph and draft them without blocks; those that cannot be written stay."""
    reasons: dict[str, Reason] = {}
    while True:
        try:
            regions = find_regions(graph, view, reasons)
            edit = write_regions(regions, view)
        except UnwritableError as error:
            reasons |= error.reasons
            continue
        for name, reason in reasons.items():
            node = view.matcher.producer(graph, name)
            assert isinstance(node, ir.Node)
            regions.declined[node] = [reason, *regions.declined.get(node, ())]
        return regions, edit
