"""Find how much of each value in the regions of one graph is needed.

After the walk forward (`propagate`), a walk back from each BatchToSpace keeps the nodes that lead to
one, finds the values that nodes outside read, and computes the demand of each value.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.nested import Reblocking
from onnx_spatial.fusion.dilated_conv.pad_amounts import (
    NOTHING,
    PadAmount,
    PadPairs,
    combined,
    common,
    flat,
    reordered,
    whole,
)
from onnx_spatial.fusion.dilated_conv.propagate import SHAPES
from onnx_spatial.fusion.dilated_conv.region import RegionEnd, RegionNode, Regions
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.model import traversal

#: Most nodes that are followed behind a Shape to see whether its value is used outside of regions.
_FAR = 200


def walk_back(
    graph: traversal.GraphLike,
    view: GraphView,
    matcher: Matcher,
    regions: Regions,
    *,
    drop_shapes: bool,
) -> None:
    """Keep what leads to an exit, and fill in how much of each value is needed.

    With `drop_shapes`, shapes of values in blocks count as dead if only pads, crops and shapes of
    regions are computed from them.
    """
    _WalkBack(graph, view, matcher, regions).run(drop_shapes=drop_shapes)


class _WalkBack:
    def __init__(
        self, graph: traversal.GraphLike, view: GraphView, matcher: Matcher, regions: Regions
    ) -> None:
        self._graph, self._view, self._matcher = graph, view, matcher
        self._regions = regions

    def run(self, *, drop_shapes: bool) -> None:
        self._keep_live()
        self._inside = {step.node for step in self._regions.steps}
        self._ends = {end.subject.node for end in self._regions.exits}
        self._look_outside(drop_shapes=drop_shapes)
        if self._dead_are_read():
            self._regions.shared, self._regions.dead = set(), set()
            self._regions.measured = {}
            self._look_outside(drop_shapes=False)
        self._look_back()

    def _dead_are_read(self) -> bool:
        """Return whether a SpaceToBatch that stays, because its output is shared, reads a dead value."""
        dead = {value for node in self._regions.dead for value in node.outputs}
        entries = self._regions.entries
        stay = [entries[name].subject.node for name in self._regions.shared if name in entries]
        return any(not dead.isdisjoint(node.inputs) for node in stay)

    def _keep_live(self) -> None:
        """Keep the steps that lead to an exit, and the entries that lead to them."""
        regions = self._regions
        live = {end.name for end in regions.exits}
        steps: dict[ir.Node, RegionNode] = {}
        for name, step in reversed(regions.step_of.items()):
            if name in live:
                steps[step.node] = step
                live.update(step.names)
        regions.steps = list(reversed(steps.values()))
        regions.entries = {n: entry for n, entry in regions.entries.items() if n in live}

    def _look_outside(self, *, drop_shapes: bool) -> None:
        """Find the values in blocks that nodes outside of regions read."""
        regions, inside = self._regions, self._inside | self._ends
        nodes = [entry.subject.node for entry in regions.entries.values()]
        nodes += [step.node for step in regions.steps]
        for value in (value for node in nodes for value in node.outputs if value.name):
            everybody = self._matcher.readers(value)
            readers = [node for node, _ in everybody if node not in inside]
            # An exit may read its crops from a value in blocks.
            crops = any(self._is_parameter(node, index) for node, index in everybody)
            name = value.name or ""
            if self._matcher.is_named(value) or crops or not self._are_shapes(name, readers):
                regions.shared.add(name)
                continue
            for node in readers:
                dead = self._dead(node, inside) if drop_shapes else None
                if dead is None:
                    regions.measured.setdefault(name, []).append(node)
                else:
                    regions.dead |= dead

    def _are_shapes(self, name: str, readers: Sequence[ir.Node]) -> bool:
        """Return whether nodes read only the shape of a value in blocks, and may read that of u."""
        types = {self._matcher.op_type(node) for node in readers}
        return not types or (types <= SHAPES - {"Size"} and not self._regions.layouts[name].rows)

    def _is_parameter(self, node: ir.Node, index: int) -> bool:
        return index > 0 and self._matcher.subject(node) is not None

    def _dead(self, shape: ir.Node, inside: set[ir.Node]) -> set[ir.Node] | None:
        """Return all nodes behind a run-time shape, if only regions use them; None if others do."""
        seen: set[ir.Node] = set()
        todo = [shape]
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if len(seen) > _FAR or self._matcher.op_type(node) is None:
                return None
            for value in node.outputs:
                if self._matcher.is_named(value):
                    return None
                for reader, index in self._matcher.readers(value):
                    if not self._is_dropped(reader, index):
                        if reader in inside or self._matcher.subject(reader) is not None:
                            return None
                        todo.append(reader)
        return seen

    def _is_dropped(self, node: ir.Node, index: int) -> bool:
        """Return whether an input is unused once the region is written: pads, crops, a shape."""
        if index == 0:
            return False
        name = node.outputs[0].name or ""
        if self._matcher.subject(node) is not None:
            return name in self._regions.entries or node in self._ends or node in self._inside
        step = self._regions.step_of.get(name)
        if step is None or node not in self._inside or not isinstance(step.rewrite, RuleResult):
            return False
        return bool(step.rewrite.forms) and index not in step.rewrite.read_operands

    def _look_back(self) -> None:
        """Compute the demand of each value from that of its readers."""
        demands: dict[str, list[PadPairs]] = {}
        for end in self._regions.exits:
            demands.setdefault(end.name, []).append(self._crops(end))
        for name in self._regions.shared & self._regions.layouts.keys():
            axes = len(self._regions.layouts[name].axes)
            demands.setdefault(name, []).append(whole(axes))
        for step in reversed(self._regions.steps):
            outputs = [n for n in step.outputs if n in demands]
            demand = needed = common([crop for name in outputs for crop in demands[name]])
            rewrite = step.rewrite
            if isinstance(rewrite, BlockedConv):
                (name,) = step.names
                demand = self._sheltered(step, rewrite, demand)
                needed = rewrite.input_crop(demand, self._view.lengths(name, rewrite.layout.axes))
            elif isinstance(rewrite, Reblocking):
                border = self._regions.borders.get(step.names[0])
                zeros = border is not None and border[1] == 0
                needed = self._known_in_front(step, rewrite.input_crop(demand, zeros=zeros))
            self._regions.demand.update(dict.fromkeys(outputs, demand))
            for name, layout in step.inputs:
                crop = reordered(needed, layout.axes, self._regions.layouts[name].axes)
                demands.setdefault(name, []).append(crop)

    def _known_in_front(self, step: RegionNode, crop: PadPairs) -> PadPairs:
        """Drop what is computed from sizes of the region from the crop of the input of a step."""
        entries = [self._regions.entries[n] for n in sorted(self._regions.origins[step.names[0]])]

        def known(amount: PadAmount) -> PadAmount:
            names = {element.name for element, _ in amount.elements}
            return NOTHING if self._depend_on_region(names, entries) else amount

        return combined(known, crop)

    def _sheltered(self, step: RegionNode, conv: BlockedConv, demand: PadPairs) -> PadPairs:
        ((name, layout),) = step.inputs
        border, axes = self._regions.borders.get(name), self._regions.layouts[name].axes
        crop = None
        if border is not None and border[1] == conv.pad_value:
            crop = reordered(border[0], axes, layout.axes)
        lengths = self._view.lengths(step.outputs[0], conv.layout.axes)
        return conv.sheltered(demand, crop, lengths)

    def _crops(self, end: RegionEnd) -> PadPairs:
        """Return the crops of an exit, as pads of its entries plus a number where that is possible.

        Crops that are computed from a value of the region are unknown inside it: nothing is cropped
        before the end then.
        """
        entries = [self._regions.entries[n] for n in sorted(self._regions.origins[end.name])]
        axes = self._regions.layouts[end.name].axes
        pads = [entry.pads for entry in entries if entry.layout.axes == axes]
        related = combined(PadAmount.in_terms_of, end.pads[: len(axes)], *pads)
        read = {element.name for amount in flat(related) for element, _ in amount.elements}
        if self._depend_on_region(read.intersection(end.sources), entries):
            return whole(len(axes))
        return related

    def _depend_on_region(self, names: set[str], entries: Sequence[RegionEnd]) -> bool:
        if not names:
            return False
        start = min(self._regions.places[e.name] for e in entries)
        seen: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            node = self._matcher.producer(self._graph, name)
            if name in seen or node is None or self._regions.places[name] < start:
                continue
            seen.add(name)
            if node in self._inside:
                return True
            message = self._matcher.message(node)
            assert message is not None
            todo.extend(traversal.needs(message))
        return False
