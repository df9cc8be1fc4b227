"""Transposes next to a spatial operator become part of its movement.

    x -> Transpose -> operator -> Transpose -> y        x -> movement -> y

Converters put such pairs around every operator, to change between NHWC and NCHW. A Transpose in front
that others read too stays for them. Behind, all readers must be Transposes of one permutation, and
nobody else may know the operator's output; then all their outputs are one value. What is absorbed is
a matter of cost: the two are taken in if what is written then is estimated to take less time than what
would be written beside the Transposes that would be saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_spatial.errors import ConversionError, OperatorError
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Rewrite
from onnx_spatial.lowering import Lowered, Request, transpose_cost
from onnx_spatial.model import traversal
from onnx_spatial.operators import Dim

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
        value: what the one in front reads; None behind.
        cost: what is saved if they go, in microseconds.
    """

    nodes: tuple[ir.Node, ...]
    perm: tuple[int, ...]
    value: ir.Value | None
    cost: float


def absorb(subject: MatchedOp, around: Matcher, lower: Lower) -> Rewrite | str | None:
    """Take in the Transposes in front of an operator, behind it, or both, where that is cheapest."""
    request = subject.request
    if request.shape is None:
        return None
    sizes = _sizes(request, request.shape)
    front = _front(subject, around, sizes)
    behind = _behind(subject, around, sizes)
    reasons = [side for side in (front, behind) if isinstance(side, str)]
    fronts = [None, front] if isinstance(front, _Transposes) else [None]
    behinds = [None, behind] if isinstance(behind, _Transposes) else [None]
    if len(fronts) + len(behinds) == 2:
        return "; ".join(reasons) or None
    everything = sum(side.cost for side in (*fronts, *behinds) if side is not None)
    best: tuple[Lowered, _Transposes | None, _Transposes | None] | None = None
    least = math.inf
    for before, after in ((f, b) for f in fronts for b in behinds):
        try:
            lowered = lower(_with(request, before, after))
        except ConversionError:
            if before is None and after is None:
                raise
            continue
        saved = sum(side.cost for side in (before, after) if side is not None)
        cost = lowered.cost + everything - saved
        if cost < least:
            best, least = (lowered, before, after), cost
    assert best is not None
    lowered, before, after = best
    if before is None and after is None:
        return "; ".join([*reasons, "the Transposes around it cost no more than absorbing them"])
    return _rewrite(subject, around, lowered, before, after)


def _front(subject: MatchedOp, around: Matcher, sizes: Sequence[int]) -> _Transposes | str | None:
    data = subject.node.inputs[0]
    node = data.producer() if data is not None else None
    perm = around.perm(node, len(sizes))
    if data is None or node is None or perm is None or node.graph is not subject.node.graph:
        return None
    if any(value is data for value in subject.node.inputs[1:]):
        return f"the output of Transpose {traversal.label(node)!r} is a parameter as well"
    if around.is_named(data) or around.readers(data) != [(subject.node, 0)]:
        return _Transposes((), perm, node.inputs[0], 0.0)
    given = [sizes[perm.index(axis)] for axis in range(len(perm))]
    cost = transpose_cost(given, perm, subject.request.itemsize)
    if perm == _TO_CHANNELS_LAST and around.follows_convolution(node):
        cost = 0.0
    return _Transposes((node,), perm, node.inputs[0], cost)


def _behind(subject: MatchedOp, around: Matcher, sizes: Sequence[int]) -> _Transposes | str | None:
    output = subject.node.outputs[0]
    readers = around.readers(output)
    perms = [around.perm(node, len(sizes)) for node, _ in readers]
    found = [(n, p) for (n, _), p in zip(readers, perms, strict=True) if p is not None]
    if not found:
        return None
    node, perm = found[0]
    where = f"behind it stands Transpose {traversal.label(node)!r}, but"
    if around.is_named(output):
        return f"{where} its output is one of the graph, or read elsewhere by name"
    if None in perms:
        other = readers[perms.index(None)][0]
        return f"{where} {other.op_type} {traversal.label(other)!r} also reads its output"
    if any(p != perm for _, p in found):
        return f"{where} others permute its output differently"
    if any(n.graph is not subject.node.graph for n, _ in found):
        return f"{where} others stand in another graph"
    try:
        moved = subject.request.call.output_shape(sizes)
    except OperatorError:  # unknown dims, taken to be of a size that is not legal
        moved = tuple(sizes)
    dims = [d if isinstance(d, int) else s for d, s in zip(moved, sizes, strict=True)]
    each = [
        0.0
        if perm == _TO_CHANNELS_FIRST and around.leads_to_convolution(n)
        else transpose_cost(dims, perm, subject.request.itemsize)
        for n, _ in found
    ]
    cost = sum(each)
    return _Transposes(tuple(n for n, _ in found), perm, None, cost)


def _with(request: Request, before: _Transposes | None, after: _Transposes | None) -> Request:
    near = request.near
    if before is not None:
        inputs = (before.value, *request.inputs[1:])
        near = (False, near[1])
        request = replace(request, inputs=inputs, before=before.perm)
    if after is not None:
        near = (near[0], False)
        request = replace(request, after=after.perm)
    return replace(request, near=near)


def _rewrite(
    subject: MatchedOp,
    around: Matcher,
    lowered: Lowered,
    before: _Transposes | None,
    after: _Transposes | None,
) -> Rewrite:
    shape = subject.info.output_shape
    gone = before.nodes if before is not None else ()
    gives = [subject.node.outputs[0]]
    if after is not None:
        gone += after.nodes
        shape = tuple(shape[axis] for axis in after.perm) if shape is not None else None
        outputs = [node.outputs[0] for node in after.nodes]
        named = [v for v in outputs if around.is_named(v)]
        read = [v for v in outputs if v not in named and around.readers(v)]
        # The first keeps its name for nothing, every other one for a copy.
        gives = [*named, *read] or outputs[:1]
    return Rewrite(lowered, (subject,), gone, tuple(gives), shape)


def _sizes(request: Request, shape: Sequence[Dim]) -> list[int]:
    """The shape of the operator's data, unknown dims guessed."""
    return [
        dim if isinstance(dim, int) else request.typical(axis) for axis, dim in enumerate(shape)
    ]
