"""Fuse BatchToSpace with a SpaceToBatch of the same blocks directly behind it.

    BatchToSpace crops c -> SpaceToBatch pads p     pads by (p - c) / block

A Pad, a Slice or an Identity is left, written as one of the two operators with blocks of 1. Cropped
elements do not come back, so on one side of an axis only one of the two may do anything, and only by
multiples of the block. SpaceToBatch -> BatchToSpace is a region without nodes (`dilated_conv`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

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


def _match_pair(subject: MatchedOp, matcher: Matcher) -> _Pair | Reason | None:
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
        return f"{where} other nodes read the value between the two"
    assert isinstance(other.request.call, BlockCall)
    if subject.request.checked and any(are_open(s.request) for s in (subject, other)):
        return f"{where} without the two operators no run would be checked"
    left = combine_pair(call, other.request.call)
    if isinstance(left, str):
        return f"{where} {left}"
    return _Pair(subject, other, left)


def _rewrite_pair(pair: _Pair, lower: Lower) -> Rewrite:
    first, second = pair.first, pair.second
    lowered = lower(replace(first.request, call=pair.remainder, inputs=first.request.inputs[:1]))
    outputs = (second.node.outputs[0],)
    return Rewrite(lowered, (first, second), (), outputs, second.info.output_shape)


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


#: BatchToSpace and SpaceToBatch cancel each other.
RULE = Rule("cancelled", _match_pair, _rewrite_pair)
