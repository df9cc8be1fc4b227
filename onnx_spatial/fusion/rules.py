"""Fusion rules: their shape, and the one that absorbs Transposes next to an operator.

    match(operator, matcher)  -> None         the pattern is not there
                              -> a Reason     the pattern is there, but the check declines
                              -> a match      rewrite(match, lower) -> a Rewrite, or a Reason

    x -> Transpose -> operator -> Transpose -> y        x -> permutation -> y

Converters put such pairs around every operator, to change between NHWC and NCHW. A Transpose in front
with other readers stays for them. Behind, all readers must be Transposes of one permutation, and the
operator's output must be unknown elsewhere: then the outputs of these Transposes are one value. Costs
decide which of them are absorbed: the nodes to write, against those and the Transposes that stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Generic, TypeVar

import onnx_ir as ir

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ConversionError, OperatorError
from onnx_spatial.fusion.graph_view import MatchedOp, Matcher
from onnx_spatial.lowering import Lowered, Request, transpose_cost
from onnx_spatial.lowering.emitter import TYPICAL_DIM
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.replace_nodes import Draft, GraphEdit
from onnx_spatial.operators import Dim

#: Lowers a request. Raises ConversionError where that cannot be done.
Lower = Callable[[Request], Lowered]

#: The same for an operator of the model.
Writer = Callable[[Request, OperatorInfo], Lowered]

#: Why a check declines, in one line: it is reported as data (`OperatorReport.declined`).
Reason = str

Match = TypeVar("Match")


def blame(node: ir.Node) -> Reason:
    """Return the start of a reason that blames a node behind the operator."""
    return f"the following {node.op_type} {traversal.label(node)!r}:"


@dataclass(frozen=True)
class Rewrite:
    """Drafted nodes that replace spatial operators and their neighbours.

    Attributes:
        lowered: the new nodes, not yet in any graph.
        subjects: the spatial operators that go; the new nodes stand in the place of the last, unless
            `at` is given.
        absorbed: other nodes that go with them.
        outputs: values of these nodes that equal the output of the new ones; all of them keep their
            names. Every value that is read elsewhere, or known by name elsewhere, must be listed.
        shape: of these values, as far as it is known.
        at: the one of `absorbed` whose place, name, documentation and metadata the new nodes take.
    """

    lowered: Lowered
    subjects: tuple[MatchedOp, ...]
    absorbed: tuple[ir.Node, ...]
    outputs: tuple[ir.Value, ...]
    shape: tuple[Dim, ...] | None
    at: ir.Node | None = None

    @property
    def edit(self) -> GraphEdit:
        """The edit of the graph."""
        old = [*(subject.node for subject in self.subjects), *self.absorbed]
        place = self.at or self.subjects[-1].node
        output, emitted = self.lowered.output, self.lowered.emitted
        draft = Draft(place, emitted.nodes, emitted.constants, documented=output.producer())
        draft.results = dict.fromkeys(self.outputs, output)
        return GraphEdit([draft], [node for node in old if node is not place])

    @classmethod
    def lower_alone(cls, lowered: Lowered, subject: MatchedOp) -> Rewrite:
        """Lower an operator on its own."""
        shape = subject.info.output_shape
        return cls(lowered, (subject,), (), (subject.node.outputs[0],), shape)


@dataclass(frozen=True)
class Rule(Generic[Match]):
    """A fusion rule.

    Attributes:
        name: reported in the place of the lowering's strategy; None to report the strategy.
        match: find the pattern around an operator and check it.
        rewrite: draft the nodes; may still decline where they would not be faster. Raises
            ConversionError where the operator cannot be written at all.
    """

    name: str | None
    match: Callable[[MatchedOp, Matcher], Match | Reason | None]
    rewrite: Callable[[Match, Lower], Rewrite | Reason]

    def apply_to(
        self, subject: MatchedOp, matcher: Matcher, lower: Lower
    ) -> Rewrite | Reason | None:
        """Match and rewrite an operator: a rewrite, why there is none, or None without a match."""
        match = self.match(subject, matcher)
        if match is None or isinstance(match, Reason):
            return match
        rewrite = self.rewrite(match, lower)
        if self.name is None or isinstance(rewrite, Reason):
            return rewrite
        return replace(rewrite, lowered=replace(rewrite.lowered, strategy=self.name))


#: Next to a convolution these cost nothing: onnxruntime's convolutions of blocked channels read and
#: write either layout (ReorderInput and ReorderOutput with channels_last).
_TO_CHANNELS_LAST = (0, 2, 3, 1)
_TO_CHANNELS_FIRST = (0, 3, 1, 2)


@dataclass(frozen=True)
class _Transposes:
    """Transposes on one side of an operator.

    Attributes:
        nodes: those that go if they are absorbed; none where the only one has other readers.
        perm: of all of them.
        cost: microseconds that are saved without them.
        value: input of the Transpose in front; None behind.
        outputs: outputs of the Transposes behind, as in `Rewrite`.
    """

    nodes: tuple[ir.Node, ...]
    perm: tuple[int, ...]
    cost: float
    value: ir.Value | None = None
    outputs: tuple[ir.Value, ...] = ()


@dataclass(frozen=True)
class _Match:
    """An operator with the Transposes in front of it, behind it, or both.

    Attributes:
        subject: the operator.
        front, behind: the Transposes of a side; None if it has none, or none that may go.
        reasons: why the Transposes of a side may not go.
    """

    subject: MatchedOp
    front: _Transposes | None
    behind: _Transposes | None
    reasons: tuple[Reason, ...]


def _match_transposes(subject: MatchedOp, matcher: Matcher) -> _Match | Reason | None:
    if subject.request.shape is None:
        return None
    sides = _front_transpose(subject, matcher), _transpose_behind(subject, matcher)
    reasons = tuple(side for side in sides if isinstance(side, str))
    front, behind = (side if isinstance(side, _Transposes) else None for side in sides)
    if front is None and behind is None:
        return "; ".join(reasons) or None
    return _Match(subject, front, behind, reasons)


def _absorb_cheapest(match: _Match, lower: Lower) -> Rewrite | Reason:
    """Absorb the Transposes of one side, both or none, whichever is cheapest."""
    forms: list[tuple[float, Lowered, _Transposes | None, _Transposes | None]] = []
    sides = (match.front, match.behind)
    options = [[None] if side is None else [None, side] for side in sides]
    for front, behind in itertools.product(*options):
        try:
            lowered = lower(_extend_request(match.subject.request, front, behind))
        except ConversionError:
            if front is None and behind is None:
                raise
            continue
        saved = sum(side.cost for side in (front, behind) if side is not None)
        forms.append((lowered.cost - saved, lowered, front, behind))
    _, lowered, front, behind = min(forms, key=itemgetter(0))
    if front is None and behind is None:
        kept = "the Transposes around it cost no more than absorbing them"
        return "; ".join([*match.reasons, kept])
    info, node = match.subject.info, match.subject.node
    absorbed = front.nodes if front is not None else ()
    outputs: tuple[ir.Value, ...] = (node.outputs[0],)
    shape = info.output_shape
    if behind is not None:
        absorbed, outputs = absorbed + behind.nodes, behind.outputs
        shape = tuple(shape[axis] for axis in behind.perm) if shape is not None else None
    return Rewrite(lowered, (match.subject,), absorbed, outputs, shape)


def _front_transpose(subject: MatchedOp, matcher: Matcher) -> _Transposes | Reason | None:
    sizes = subject.sizes
    data = subject.node.inputs[0]
    node = data.producer() if data is not None else None
    perm = matcher.perm(node, len(sizes))
    if data is None or node is None or perm is None or node.graph is not subject.node.graph:
        return None
    if any(value is data for value in subject.node.inputs[1:]):
        return f"the output of Transpose {traversal.label(node)!r} is a parameter as well"
    if matcher.is_named(data) or matcher.readers(data) != [(subject.node, 0)]:
        return _Transposes((), perm, 0.0, node.inputs[0])
    dims = [sizes[perm.index(axis)] for axis in range(len(perm))]
    cost = transpose_cost(dims, perm, subject.request.itemsize)
    if perm == _TO_CHANNELS_LAST and matcher.follows_convolution(node):
        cost = 0.0
    return _Transposes((node,), perm, cost, node.inputs[0])


def _transpose_behind(subject: MatchedOp, matcher: Matcher) -> _Transposes | Reason | None:
    sizes, output = subject.sizes, subject.node.outputs[0]
    readers = matcher.readers(output)
    shape = _output_shape(subject, sizes)
    perms = [matcher.perm(node, len(shape)) for node, _ in readers]
    transposes = [(n, p) for (n, _), p in zip(readers, perms, strict=True) if p is not None]
    if not transposes:
        return None
    node, perm = transposes[0]
    where = blame(node)
    if matcher.is_named(output):
        return f"{where} the output before it is a graph output or read by name elsewhere"
    if None in perms:
        other = readers[perms.index(None)][0]
        return f"{where} {other.op_type} {traversal.label(other)!r} also reads the output before it"
    if any(p != perm for _, p in transposes):
        return f"{where} other Transposes of the output have another permutation"
    if any(n.graph is not subject.node.graph for n, _ in transposes):
        return f"{where} not all Transposes of the output are in the graph of the operator"
    costs = [
        0.0
        if perm == _TO_CHANNELS_FIRST and matcher.leads_to_convolution(n)
        else transpose_cost(shape, perm, subject.request.itemsize)
        for n, _ in transposes
    ]
    nodes = tuple(n for n, _ in transposes)
    outputs = [n.outputs[0] for n in nodes]
    named = [v for v in outputs if matcher.is_named(v)]
    read = [v for v in outputs if v not in named and matcher.readers(v)]
    # The first keeps its name at no cost; every other one becomes a copy.
    return _Transposes(nodes, perm, sum(costs), outputs=(*named, *read) or (outputs[0],))


def _output_shape(subject: MatchedOp, sizes: Sequence[int]) -> list[int]:
    """Return the shape of the output for that of the input, with estimates of unknown dims."""
    try:
        shape = subject.request.call.output_shape(sizes)
    except OperatorError:  # the size guessed for an unknown dim is not legal
        shape = subject.info.output_shape or tuple(sizes)
    guesses = sizes if len(shape) == len(sizes) else (TYPICAL_DIM,) * len(shape)
    return [d if isinstance(d, int) else guess for d, guess in zip(shape, guesses, strict=True)]


def _extend_request(
    request: Request, front: _Transposes | None, behind: _Transposes | None
) -> Request:
    """Extend a request by the Transposes that are absorbed."""
    if front is not None:
        inputs = (front.value, *request.inputs[1:])
        request = replace(request, inputs=inputs, before=front.perm)
    if behind is not None:
        request = replace(request, after=behind.perm)
    return request


#: Transposes around an operator become part of it; the lowering has the name that is reported.
ABSORBED = Rule(None, _match_transposes, _absorb_cheapest)
