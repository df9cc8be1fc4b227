"""Fuse BatchToSpace with a SpaceToBatch of the same blocks directly behind it.

    BatchToSpace crops c -> SpaceToBatch pads p     whole cells: pads by (p - c) / block

A Pad, a Slice or an Identity is left, written as one of the two operators with blocks of 1. Cropped
elements do not come back, so on one side of an axis only one of the two may do anything, and only to
whole cells. SpaceToBatch -> BatchToSpace is a region without nodes (`dilated_conv`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Reason, Rewrite, Rule, blame
from onnx_spatial.lowering import are_open
from onnx_spatial.operators import BatchToSpace, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall, Vector


@dataclass(frozen=True)
class _Pair:
    """A BatchToSpace, the SpaceToBatch behind it, and the operator that is left of the two."""

    first: MatchedOp
    second: MatchedOp
    remainder: BlockCall


def _match(subject: MatchedOp, matcher: Matcher) -> _Pair | Reason | None:
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
    if len(readers) > 1 or matcher.is_named(output) or other.node.graph is not subject.node.graph:
        return f"{where} others read its output too"
    assert isinstance(other.request.call, BlockCall)
    if subject.request.checked and any(are_open(s.request) for s in (subject, other)):
        return f"{where} without the two no run would be checked"
    left = remainder(call, other.request.call)
    if isinstance(left, str):
        return f"{where} {left}"
    return _Pair(subject, other, left)


def _rewrite(pair: _Pair, lower: Lower) -> Rewrite:
    first, second = pair.first, pair.second
    lowered = lower(replace(first.request, call=pair.remainder, inputs=first.request.inputs[:1]))
    outputs = (second.node.outputs[0],)
    return Rewrite(lowered, (first, second), (), outputs, second.info.output_shape)


def remainder(first: BlockCall, second: BlockCall) -> BlockCall | Reason:
    """Combine the two into one operator with blocks of 1, or say why that is impossible."""
    crops, pads = first.operator, second.operator
    if crops is None or pads is None:
        return "their parameters are computed at run time"
    if crops.block_shape != pads.block_shape:
        return "their blocks differ"
    assert isinstance(pads, SpaceToBatch) and isinstance(crops, BatchToSpace)
    added = [amount for pair in pads.pads for amount in pair]
    taken = [amount for pair in crops.crops for amount in pair]
    blocks = [b for b in crops.block_shape for _ in range(2)]
    if any(a and t for a, t in zip(added, taken, strict=True)):
        return "it pads anew what was cropped"
    if any(n % b for n, b in zip((*added, *taken), blocks * 2, strict=True)):
        return "crops or pads are not of whole cells"
    added = [a // b for a, b in zip(added, blocks, strict=True)]
    taken = [t // b for t, b in zip(taken, blocks, strict=True)]
    grown = [a - t for a, t in zip(added, taken, strict=True)]
    if min(grown, default=0) < 0 < max(grown, default=0):
        return "together they both pad and crop"
    kind = BatchToSpace if min(grown, default=0) < 0 else SpaceToBatch
    amounts = [abs(n) for n in grown]
    blocked = first.blocked
    ones = Vector(blocked, (1,) * blocked)
    begins, ends = _known(amounts[::2]), _known(amounts[1::2])
    return BlockCall(kind, ones, begins, ends, first.dialect, first.rank)


def _known(values: Sequence[int]) -> Vector:
    return Vector(len(values), tuple(values))


#: BatchToSpace and SpaceToBatch cancel each other.
RULE = Rule("cancelled", _match, _rewrite)
