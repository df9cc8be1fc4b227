"""Rules for an operator and its direct neighbours: its inverse, and Transposes.

`cancel_pair`        BatchToSpace crops c -> SpaceToBatch pads p         pads by (p - c) / block

A Pad, a Slice or an Identity is left, written as one of the two operators with blocks of 1. Cropped
elements do not come back, so on one side of an axis only one of the two may do anything, and only by
multiples of the block. SpaceToBatch -> BatchToSpace is a region without nodes (`dilated_conv`).

`absorb_transposes`  x -> Transpose -> operator -> Transpose -> y        x -> permutation -> y

Converters put such pairs around every operator, to change between NHWC and NCHW. A Transpose in front
with other readers stays for them. Behind, all readers must be Transposes of one permutation, and the
operator's output must be unknown elsewhere: then the outputs of these Transposes are one value. Costs
decide which of them are absorbed: the nodes to write, against those and the Transposes that stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
import onnx_ir as ir

from onnx_spatial.errors import ConversionError, OperatorError
from onnx_spatial.fusion.rules import Lower, Reason, Rewrite, blame, describe
from onnx_spatial.fusion.views import MatchedOp, Matcher
from onnx_spatial.lowering import Lowered, Request, are_open, transpose_cost
from onnx_spatial.lowering.emitter import TYPICAL_DIM
from onnx_spatial.model import traversal
from onnx_spatial.operators import BatchToSpace, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall, Vector

# Opposite operators


def cancel_pair(subject: MatchedOp, matcher: Matcher, lower: Lower) -> Rewrite | Reason | None:
    """Write a BatchToSpace and the SpaceToBatch behind it as the operator that is left of the two."""
    call = subject.request.call
    if not isinstance(call, BlockCall) or call.kind is not BatchToSpace:
        return None
    output = subject.node.outputs[0]
    readers = matcher.readers(output)
    others = [s for n, i in readers if i == 0 and (s := matcher.subject(n)) is not None]
    opposite = [s for s in others if s.request.call.kind is SpaceToBatch]
    if not opposite:
        return None
    other = opposite[0]
    where = blame(other.node)
    if len(readers) > 1 or matcher.is_named(output):
        return f"{where} other nodes read the value between the two"
    assert isinstance(other.request.call, BlockCall)
    if subject.request.checked and any(are_open(s.request) for s in (subject, other)):
        return f"{where} without the two operators no run would be checked"
    left = combine_pair(call, other.request.call)
    if isinstance(left, str):
        return f"{where} {left}"
    lowered = lower(replace(subject.request, call=left, inputs=subject.request.inputs[:1]))
    outputs, shape = (other.node.outputs[0],), other.info.output_shape
    return Rewrite(lowered, (subject, other), (), outputs, shape, name="cancelled")


def combine_pair(first: BlockCall, second: BlockCall) -> BlockCall | Reason:
    """Combine the two into one operator with blocks of 1, or say why that is impossible."""
    crops, pads = first.operator, second.operator
    if crops is None or pads is None:
        return "their parameters are computed at run time"
    if crops.block_shape != pads.block_shape:
        return "their blocks differ"
    assert isinstance(pads, SpaceToBatch) and isinstance(crops, BatchToSpace)
    added, taken = np.ravel(pads.pads), np.ravel(crops.crops)
    blocks = np.repeat(crops.block_shape, 2)
    if np.logical_and(added, taken).any():
        return "it pads the side that was cropped"
    if (added % blocks).any() or (taken % blocks).any():
        return "crops or paddings are not multiples of the block"
    grown = (added - taken) // blocks
    if grown.min(initial=0) < 0 < grown.max(initial=0):
        return "together they both pad and crop"
    kind = BatchToSpace if grown.min(initial=0) < 0 else SpaceToBatch
    begins, ends = (Vector(first.blocked, tuple(abs(grown[i::2]).tolist())) for i in (0, 1))
    ones = Vector(first.blocked, (1,) * first.blocked)
    return BlockCall(kind, ones, begins, ends, first.dialect, first.rank)


# Transposes

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


def absorb_transposes(
    subject: MatchedOp, matcher: Matcher, lower: Lower
) -> Rewrite | Reason | None:
    """Absorb the Transposes in front of an operator, behind it, both or none, whichever is cheapest."""
    if subject.request.shape is None:
        return None
    sides = _front_transpose(subject, matcher), _transpose_behind(subject, matcher)
    reasons = [side for side in sides if isinstance(side, str)]
    options = [[None, side] if isinstance(side, _Transposes) else [None] for side in sides]
    if all(len(each) == 1 for each in options):
        return "; ".join(reasons) or None
    forms: list[tuple[float, Lowered, _Transposes | None, _Transposes | None]] = []
    for front, behind in itertools.product(*options):
        try:
            lowered = lower(_extend_request(subject.request, front, behind))
        except ConversionError:
            if front is None and behind is None:
                raise
            continue
        saved = sum(side.cost for side in (front, behind) if side is not None)
        forms.append((lowered.cost - saved, lowered, front, behind))
    _, lowered, front, behind = min(forms, key=itemgetter(0))
    if front is None and behind is None:
        kept = "the Transposes around it cost no more than absorbing them"
        return "; ".join([*reasons, kept])
    absorbed = front.nodes if front is not None else ()
    outputs: tuple[ir.Value, ...] = (subject.node.outputs[0],)
    shape = subject.info.output_shape
    if behind is not None:
        absorbed, outputs = absorbed + behind.nodes, behind.outputs
        shape = tuple(shape[axis] for axis in behind.perm) if shape is not None else None
    return Rewrite(lowered, (subject,), absorbed, outputs, shape)


def _front_transpose(subject: MatchedOp, matcher: Matcher) -> _Transposes | Reason | None:
    """Return the Transpose in front, or why it cannot be absorbed; None if there is none."""
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
    if perm == _TO_CHANNELS_LAST and matcher.follows_window(node):
        cost = 0.0
    return _Transposes((node,), perm, cost, node.inputs[0])


def _transpose_behind(subject: MatchedOp, matcher: Matcher) -> _Transposes | Reason | None:
    """Return the Transposes behind, or why they cannot be absorbed; None if there are none."""
    sizes, output = subject.sizes, subject.node.outputs[0]
    readers = [reader for reader, _ in matcher.readers(output)]
    shape = _output_shape(subject, sizes)
    perms = [matcher.perm(reader, len(shape)) for reader in readers]
    transposes = [n for n, perm in zip(readers, perms, strict=True) if perm is not None]
    perm = next((perm for perm in perms if perm is not None), None)
    if perm is None:
        return None
    where = blame(transposes[0])
    if matcher.is_named(output):
        return f"{where} the output before it is a graph output or read by name elsewhere"
    if None in perms:
        other = readers[perms.index(None)]
        return f"{where} {describe(other)} also reads the output before it"
    if any(other != perm for other in perms):
        return f"{where} other Transposes of the output have another permutation"
    costs = [
        0.0
        if perm == _TO_CHANNELS_FIRST and matcher.leads_to_window(transpose)
        else transpose_cost(shape, perm, subject.request.itemsize)
        for transpose in transposes
    ]
    outputs = [transpose.outputs[0] for transpose in transposes]
    named = [v for v in outputs if matcher.is_named(v)]
    read = [v for v in outputs if v not in named and matcher.readers(v)]
    # The first keeps its name at no cost; every other one becomes a copy.
    kept = (*named, *read) or (outputs[0],)
    return _Transposes(tuple(transposes), perm, sum(costs), outputs=kept)


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
