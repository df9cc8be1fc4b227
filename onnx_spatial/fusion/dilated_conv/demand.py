"""Find what lies between SpaceToBatch and BatchToSpace in one graph, and what of it can do without.

Behind what a walk forward says (`follow`), a walk back from each BatchToSpace keeps what leads to one,
sees what others read, and says how much of each value is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.pad_amounts import PadAmount, PadPairs, common, whole
from onnx_spatial.fusion.dilated_conv.propagate import SHAPES, Propagated, follow
from onnx_spatial.fusion.dilated_conv.region import RegionEnd, RegionNode, Regions
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.model import traversal

#: Nodes that are followed behind a Shape to see whether its value is of use to others.
_FAR = 200


def find(
    graph: traversal.GraphLike,
    view: GraphView,
    around: Matcher,
    *,
    doom: bool = True,
    without: Collection[str] = (),
) -> Regions:
    """The regions of one graph.

    Args:
        graph: the graph.
        view: its sizes and known values.
        around: its nodes.
        without: outputs of SpaceToBatch that no region may begin with.
        doom: take it that shapes of values in blocks, where they only serve to compute pads, crops
            and shapes of the region, are not needed any more.
    """
    return _Search(graph, view, around, follow(graph, view, around, without), doom).run()


class _Search:
    def __init__(
        self,
        graph: traversal.GraphLike,
        view: GraphView,
        around: Matcher,
        followed: Propagated,
        doom: bool,
    ) -> None:
        self._graph = graph
        self._doom = doom
        self._view = view
        self._around = around
        self._followed = followed
        self._found = Regions(
            exits=followed.exits, declined=followed.declined, origins=followed.origins
        )

    def run(self) -> Regions:
        self._keep_live()
        self._inside = {step.node for step in self._found.steps}
        self._ends = {end.subject.node for end in self._found.exits}
        self._look_outside()
        if self._doomed_are_read():
            self._doom = False
            self._found.outside, self._found.doomed = set(), set()
            self._look_outside()
        self._look_back()
        return self._found

    def _doomed_are_read(self) -> bool:
        """Whether an operator that stays, because others read it too, reads a doomed value."""
        doomed = {value for node in self._found.doomed for value in node.outputs}
        entries = self._found.entries
        stay = [entries[name].subject.node for name in self._found.outside if name in entries]
        return any(not doomed.isdisjoint(node.inputs) for node in stay)

    def _keep_live(self) -> None:
        """Keep the steps that lead to an exit, and the entries that lead to them."""
        live = {end.name for end in self._found.exits}
        steps: dict[ir.Node, RegionNode] = {}
        for name, step in reversed(self._followed.steps.items()):
            if name in live:
                steps[step.node] = step
                live.update(step.names())
        self._found.steps = list(reversed(steps.values()))
        entries = self._followed.entries
        self._found.entries = {name: entry for name, entry in entries.items() if name in live}

    def _values(self) -> Iterator[str]:
        yield from self._found.entries
        for step in self._found.steps:
            yield from (name for name in step.read.message.output if name)

    def _value(self, name: str) -> ir.Value:
        node = self._around.producer(self._graph, name)
        assert node is not None
        return next(value for value in node.outputs if value.name == name)

    def _look_outside(self) -> None:
        """Find the values in blocks that others read."""
        inside = self._inside | self._ends
        for name in self._values():
            value = self._value(name)
            everybody = self._around.readers(value)
            readers = [node for node, _ in everybody if node not in inside]
            # An exit may read its crops from a value in blocks.
            crops = any(self._is_parameter(node, index) for node, index in everybody)
            doomed = self._doomed(readers, inside) if readers else set()
            if self._around.is_named(value) or crops or doomed is None:
                self._found.outside.add(name)
            else:
                self._found.doomed |= doomed

    def _is_parameter(self, node: ir.Node, index: int) -> bool:
        return index > 0 and self._around.subject(node) is not None

    def _doomed(self, readers: Sequence[ir.Node], inside: set[ir.Node]) -> set[ir.Node] | None:
        """All that follows from run-time shapes, if it only serves regions; None if others need it."""
        if not self._doom or any(self._around.op_type(node) not in SHAPES for node in readers):
            return None
        seen: set[ir.Node] = set()
        todo = list(readers)
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if len(seen) > _FAR or self._around.op_type(node) is None:
                return None
            for value in node.outputs:
                if self._around.is_named(value):
                    return None
                for reader, index in self._around.readers(value):
                    if not self._is_told(reader, index):
                        if reader in inside or self._around.subject(reader) is not None:
                            return None
                        todo.append(reader)
        return seen

    def _is_told(self, node: ir.Node, index: int) -> bool:
        """Whether an input only tells a region what it can do without: pads, crops, a shape."""
        if index == 0:
            return False
        name = node.outputs[0].name or ""
        if self._around.subject(node) is not None:
            return name in self._found.entries or node in self._ends
        step = self._followed.steps.get(name)
        rewritten = step is not None and isinstance(step.passage, RuleResult) and step.passage.forms
        return bool(rewritten) and node in self._inside

    def _look_back(self) -> None:
        """What each value need not hold, from what is taken of it."""
        wanted: dict[str, list[PadPairs]] = {}
        for end in self._found.exits:
            wanted.setdefault(end.name, []).append(self._crops(end))
        for name in self._found.outside:
            if name in self._followed.states:
                wanted.setdefault(name, []).append(whole(len(self._followed.states[name].axes)))
        for step in reversed(self._found.steps):
            outputs = [n for n in step.read.message.output if n in wanted]
            out = common([window for name in outputs for window in wanted[name]])
            if isinstance(step.passage, BlockedConv):
                out = self._sheltered(step, step.passage, out)
                (name,) = step.names()
                needed = step.passage.needed(out, self._view.lengths(name, step.passage.state.axes))
            else:
                needed = out
            self._found.demand.update(dict.fromkeys(outputs, out))
            for name in step.names():
                wanted.setdefault(name, []).append(needed)

    def _sheltered(self, step: RegionNode, passage: BlockedConv, wanted: PadPairs) -> PadPairs:
        (name,) = step.names()
        border = self._followed.borders.get(name)
        given = border[0] if border is not None and border[1] == passage.pad_value else None
        lengths = self._view.lengths(step.read.message.output[0], passage.state.axes)
        return passage.sheltered(wanted, given, lengths)

    def _crops(self, end: RegionEnd) -> PadPairs:
        """The crops of an exit, in terms of the pads in front where they are as good as known.

        Those that are computed from a value of the region cannot be known before it: there nothing is
        cropped before the end.
        """
        entries = [self._found.entries[n] for n in sorted(self._followed.origins[end.name])]
        related = tuple(
            (
                _in_terms_of(pair[0], [e.window[i][0] for e in entries]),
                _in_terms_of(pair[1], [e.window[i][1] for e in entries]),
            )
            for i, pair in enumerate(end.window)
        )
        read = {name for pair in related for amount in pair for (name, _), _ in amount.elements}
        if self._depend_on_region(read.intersection(end.sources), entries):
            return whole(len(end.window))
        return related

    def _depend_on_region(self, names: set[str], entries: Sequence[RegionEnd]) -> bool:
        if not names:
            return False
        start = min(self._followed.places[e.name] for e in entries)
        seen: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            node = self._around.producer(self._graph, name)
            if name in seen or node is None or self._followed.places[name] < start:
                continue
            seen.add(name)
            if node in self._inside:
                return True
            message = self._around.message(node)
            assert message is not None
            todo.extend(traversal.needs(message))
        return False


def _in_terms_of(amount: PadAmount, pads: Sequence[PadAmount]) -> PadAmount:
    if amount.constant is not None:
        return amount
    for pad in pads:
        difference = (amount - pad).constant
        if difference is not None:
            return pad + PadAmount.known(difference)
    return amount
