"""Read blocks, pads and crops of the operators at the ends of a region."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.pad_amounts import PadAmount, PadPairs
from onnx_spatial.fusion.matcher import MatchedOp
from onnx_spatial.model.symbolic.symbolic_values import Polynomial
from onnx_spatial.operators import BatchToSpace
from onnx_spatial.operators.spellings import BlockCall, Vector


def blocks(subject: MatchedOp) -> tuple[int, ...] | None:
    """Return the block of each axis of an operator; None if it is computed at run time."""
    call = subject.request.call
    return call.block.values if isinstance(call, BlockCall) else None


def refusal(subject: MatchedOp, layout: BlockedLayout) -> str | None:
    """Say why a BatchToSpace cannot end the region of a value; None if it can, or is no BatchToSpace."""
    call, known = subject.request.call, blocks(subject)
    if not isinstance(call, BlockCall) or call.kind is not BatchToSpace:
        return None
    if known is None:
        return "its block is not known before the model runs"
    if layout.batch != 0:
        return "the batch axis is not the first any more"
    order = tuple((i + 1, block) for i, block in enumerate(known) if block > 1)
    if order != layout.order:
        return f"its blocks {list(known)} are not those of the SpaceToBatch in front"
    return None


def amounts(
    subject: MatchedOp, message: onnx.NodeProto, view: GraphView
) -> tuple[PadPairs, Mapping[str, ir.Value]]:
    """Read the pads or crops of all axes of an operator, and the values that hold them at run time."""
    call = subject.request.call
    assert isinstance(call, BlockCall)
    sources: dict[str, ir.Value] = {}
    sides = []
    for vector in (call.begins, call.ends):
        sides.append(_amounts(vector, subject, message, view, sources))
    return tuple(zip(*sides, strict=True)), sources


def _amounts(
    vector: Vector,
    subject: MatchedOp,
    message: onnx.NodeProto,
    view: GraphView,
    sources: dict[str, ir.Value],
) -> list[PadAmount]:
    if vector.values is not None:
        return [PadAmount.known(value) for value in vector.values]
    assert vector.input is not None
    name = message.input[vector.input]
    value = subject.node.inputs[vector.input]
    assert value is not None
    sources[name] = value
    entries = view.sizes.entries(name)
    places = range(vector.start, vector.start + vector.length * vector.step, vector.step)
    if entries is None or len(entries) <= places[-1]:
        unknown = (Polynomial.atom(("parameter", name, place)) for place in places)
        return [PadAmount.read((name, p), e) for p, e in zip(places, unknown, strict=True)]
    return [PadAmount.read((name, place), entries[place]) for place in places]
