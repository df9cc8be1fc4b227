"""Walk forward from each SpaceToBatch and say of every value behind it how it is blocked.

That ends at an operator that cannot be had without the blocks, with the reason, and at a BatchToSpace
that takes them out again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import onnx
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv import conv, ends, rules, rules_axes
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView, NodeView
from onnx_spatial.fusion.dilated_conv.pad_amounts import NOTHING, PadPairs, same
from onnx_spatial.fusion.dilated_conv.region import RegionEnd, RegionNode
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.lowering import are_open
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic.polynomial import quotient
from onnx_spatial.model.symbolic.symbolic_values import Polynomial
from onnx_spatial.operators import BatchToSpace, SpaceToBatch
from onnx_spatial.operators.spellings import Conflict

#: Why an operator is no end of a region in a model that is to check every run.
_UNCHECKED = "only the run can tell whether its sizes are legal, and it is to be checked"

#: Operators that look at the shape of a value only.
SHAPES = op_traits.having(Trait.SIZES)
#: Operators behind one that may be taken for several that are asked which of them they can do with.
_AHEAD = 32


@dataclass
class Propagated:
    """What a walk through one graph found.

    Attributes:
        entries: each SpaceToBatch whose output is followed, by the name of that.
        exits: each BatchToSpace that takes blocks out again.
        states: how values are blocked, by name.
        origins: names of the entries that each of these comes from.
        steps: the nodes that give them, by name.
        borders: of values that still have the border that SpaceToBatch gave them: how wide it is, and
            of what number.
        places: how far along in the graph each value of it is given.
        declined: why not, by the node of a spatial operator.
    """

    entries: dict[str, RegionEnd] = field(default_factory=dict)
    exits: list[RegionEnd] = field(default_factory=list)
    states: dict[str, BlockedLayout] = field(default_factory=dict)
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    steps: dict[str, RegionNode] = field(default_factory=dict)
    borders: dict[str, tuple[PadPairs, int]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    declined: dict[ir.Node, list[str]] = field(default_factory=dict)


def follow(
    graph: traversal.GraphLike, view: GraphView, around: Matcher, without: Collection[str] = ()
) -> Propagated:
    """Walk through one graph.

    Args:
        graph: the graph.
        view: its sizes and known values.
        around: its nodes.
        without: outputs of SpaceToBatch that are not followed.
    """
    walker = _Walk(graph, view, around, without)
    for place, message in enumerate(traversal.in_order(graph)):
        walker.found.places.update(dict.fromkeys(message.output, place))
        walker.visit(message)
    return walker.found


class _Walk:
    def __init__(
        self,
        graph: traversal.GraphLike,
        view: GraphView,
        around: Matcher,
        without: Collection[str],
    ) -> None:
        self._graph = graph
        self._without = without
        self._view = view
        self._around = around
        self._lost: dict[str, str] = {}  # why a value is not in blocks any more
        self.found = Propagated()

    def visit(self, message: onnx.NodeProto) -> None:
        node = self._around.node(self._graph, message)
        if node is None:
            return
        subject = self._around.subject(node)
        kind = None if subject is None else subject.request.call.kind
        if subject is not None and kind in (SpaceToBatch, BatchToSpace):
            enter_or_leave = self._enter if kind is SpaceToBatch else self._leave
            enter_or_leave(subject, message)
            return
        states = tuple(self.found.states.get(name) for name in message.input)
        if not any(states):
            self._pass_on(message)
            return
        passage = self._passage(node, message, states)
        origins = frozenset[str]().union(
            *(
                self.found.origins[n]
                for n, s in zip(message.input, states, strict=True)
                if s is not None
            )
        )
        if message.op_type in SHAPES:
            return
        if isinstance(passage, str):
            reason = f"{message.op_type} {traversal.label(message)!r}: {passage}"
            self._decline(origins, reason)
            self._lost.update((name, reason) for name in message.output if name)
            return
        if isinstance(passage.passage, RuleResult) and passage.passage.others:
            passage = self._settled(passage, passage.passage)
        for name, state in zip(message.output, passage.after, strict=False):
            if name:
                self.found.states[name], self.found.origins[name] = state, origins
                self.found.steps[name] = passage
                if isinstance(passage.passage, RuleResult):
                    self._note_sizes(passage, name, state)
                    self._note_border(passage, passage.passage, name)

    def _settled(self, step: RegionNode, passage: RuleResult) -> RegionNode:
        """A step that may be taken for several, as the one that the fewest of those behind refuse."""
        name = step.read.message.output[0]
        # Before anything behind it is asked for its size; sizes are the same for all.
        self._note_sizes(step, name, passage.states[0])
        ways = [replace(step, passage=way) for way in (passage, *passage.others)]
        return min(ways, key=self._refusals)

    def _refusals(self, step: RegionNode) -> int:
        """How many operators behind a step could not be had on the values themselves.

        As far as convolutions, ends, and operators of which it cannot be said yet.
        """
        states = {step.read.message.output[0]: step.after[0]}
        todo, seen, refusals = [step.node], set[ir.Node](), 0
        while todo and len(seen) < _AHEAD:
            values = todo.pop().outputs
            for reader in (reader for value in values for reader, _ in self._around.readers(value)):
                message = self._around.message(reader)
                if (
                    reader in seen
                    or message is None
                    or message.op_type in SHAPES | rules_axes.SHAPED
                ):
                    continue
                given = tuple(states.get(n) or self.found.states.get(n) for n in message.input)
                subject = self._around.subject(reader)
                if subject is None and not self._is_told(message, given):
                    continue
                seen.add(reader)
                if subject is not None:
                    refusals += given[0] is not None and bool(ends.refusal(subject, given[0]))
                    continue
                found = self._passage(reader, message, given)
                if isinstance(found, str):
                    refusals += 1
                elif isinstance(found.passage, RuleResult):
                    states.update(zip(message.output, found.after, strict=False))
                    todo.append(reader)
        return refusals

    def _is_told(self, message: onnx.NodeProto, states: Sequence[BlockedLayout | None]) -> bool:
        """Whether it is known of every input of a node whether, and how, it is in blocks."""
        return all(
            state is not None
            or name in self.found.places
            or self._around.producer(self._graph, name) is None
            for name, state in zip(message.input, states, strict=True)
        )

    def _note_border(self, step: RegionNode, passage: RuleResult, name: str) -> None:
        """Take down that a value still has the border that SpaceToBatch gave it."""
        borders = [self.found.borders.get(given) for given in step.names()]
        first = borders[0]
        if first is None or any(b is None or not same(b[0], first[0]) for b in borders):
            return
        outside = passage.outside([b[1] for b in borders if b is not None])
        if outside is not None:
            self.found.borders[name] = (first[0], outside)

    def _note_sizes(self, step: RegionNode, name: str, state: BlockedLayout) -> None:
        """Take down that what treats all places alike keeps the sizes of batch and blocked axes."""
        index, before = next((i, s) for i, s in enumerate(step.states) if s is not None)
        sizes = self._view.sizes
        given, found = sizes.dims(step.read.message.input[index]), sizes.dims(name)
        if given is None:
            return
        dims = [Polynomial.atom((name, axis), nonnegative=True) for axis in range(state.rank)]
        if found is not None and len(found) == state.rank:
            dims = list(found)
        for old, new in zip(before.taken, state.taken, strict=True):
            dims[new] = given[old]
        sizes.note(name, dims)

    def _pass_on(self, message: onnx.NodeProto) -> None:
        reason = next((self._lost[n] for n in message.input if n in self._lost), None)
        if reason is not None:
            self._lost.update((name, reason) for name in message.output if name)

    def _passage(
        self, node: ir.Node, message: onnx.NodeProto, states: tuple[BlockedLayout | None, ...]
    ) -> RegionNode | str:
        if not op_traits.is_standard(message) or self._around.is_local(message):
            return f"{message.domain}:{message.op_type} is not known to treat all places alike"
        if any(traversal.subgraphs(message)):
            return "it has graphs of its own"
        read = NodeView.of(message, self._view)
        if any(isinstance(value, Conflict) for value in read.attributes.values()):
            return "its attributes are left to the callers of the function that holds it"
        rule = conv if message.op_type in conv.KERNELS else rules
        passage = rule.passage(read, states)
        return passage if isinstance(passage, str) else RegionNode(node, read, states, passage)

    def _enter(self, subject: MatchedOp, message: onnx.NodeProto) -> None:
        name = message.output[0]
        if name in self._without:
            what = f"{message.op_type} {traversal.label(message)!r}"
            self._lost[name] = f"the region that {what} begins cannot be written"
            return
        request = subject.request
        if request.checked and are_open(request):
            self._decline_at(subject, _UNCHECKED)
            self._lost[name] = f"{message.op_type} {traversal.label(message)!r}: {_UNCHECKED}"
            return
        blocks = ends.blocks(subject)
        shape = subject.request.shape
        if blocks is None or shape is None:
            what = "the block" if blocks is None else "the rank of the data"
            self._decline_at(subject, f"{what} is not known before the model runs")
            self._lost[name] = (
                f"{message.op_type} {traversal.label(message)!r}: {what} is not known"
            )
            return
        window, sources = ends.window(subject, message, self._view)
        kept = [
            i
            for i, (block, pair) in enumerate(zip(blocks, window, strict=True))
            if block > 1 or any(amount.constant != 0 for amount in pair)
        ]
        state = BlockedLayout(
            tuple(blocks[i] for i in kept),
            tuple(i + 1 for i in kept),
            0,
            len(shape),
            subject.info.element_types,
        )
        end = RegionEnd(subject, name, state, tuple(window[i] for i in kept), sources)
        self._note_blocks(message, blocks, window)
        self.found.entries[name] = end
        self.found.states[name], self.found.origins[name] = state, frozenset({name})
        self.found.borders[name] = (end.window, 0)

    def _note_blocks(
        self, message: onnx.NodeProto, blocks: Sequence[int], window: PadPairs
    ) -> None:
        """Take down what SpaceToBatch makes of the sizes: shapes may be computed from those in front."""
        sizes = self._view.sizes
        given = sizes.dims(message.input[0])
        if given is None or len(given) <= len(blocks):
            return
        dims = [given[0] * math.prod(blocks), *given[1:]]
        for axis, (block, pair) in enumerate(zip(blocks, window, strict=True), 1):
            padded = given[axis] + pair[0].expression + pair[1].expression
            dims[axis] = quotient(padded, Polynomial.of(block))
        sizes.note(message.output[0], dims)

    def _leave(self, subject: MatchedOp, message: onnx.NodeProto) -> None:
        name = message.input[0]
        state = self.found.states.get(name)
        if state is None:
            if name in self._lost:
                self._decline_at(subject, self._lost[name])
            return
        found = self._exit(subject, message, state)
        if isinstance(found, str):
            reason = f"{message.op_type} {traversal.label(message)!r}: {found}"
            self._decline(self.found.origins[name], reason)
            self._decline_at(subject, found)
            return
        self.found.exits.append(found)

    def _exit(
        self, subject: MatchedOp, message: onnx.NodeProto, state: BlockedLayout
    ) -> RegionEnd | str:
        if subject.request.checked and are_open(subject.request, of_batch=False):
            return _UNCHECKED
        if reason := ends.refusal(subject, state):
            return reason
        window, sources = ends.window(subject, message, self._view)
        pairs = {i + 1: pair for i, pair in enumerate(window)}
        for axis, pair in pairs.items():
            if axis not in state.axes and any(amount.constant != 0 for amount in pair):
                return f"it crops axis {axis}, which is not blocked"
        crops = tuple(pairs.get(axis, (NOTHING, NOTHING)) for axis in state.axes)
        return RegionEnd(subject, message.input[0], state, crops, sources)

    def _decline(self, origins: frozenset[str], reason: str) -> None:
        for name in sorted(origins):
            self._decline_at(self.found.entries[name].subject, reason)

    def _decline_at(self, subject: MatchedOp, reason: str) -> None:
        reasons = self.found.declined.setdefault(subject.node, [])
        if reason not in reasons:
            reasons.append(reason)
