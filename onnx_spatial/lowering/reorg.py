"""Lower ReorgYolo to one Transpose where s*s divides the channels, else to one Gather of elements.

    Reshape [N, q*H, s, W, s] -> Transpose [N, s, s, q*H, W] -> Reshape [N, C*s*s, H/s, W/s]
    Reshape [N*C*H*W] -> Gather by a sum of one term for each of N, C, H, W -> Reshape

The Gather also serves where the number of channels is unknown, or the Transpose exceeds the rank limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import LARGEST, constant_index
from onnx_spatial.lowering.core.run_time_checks import zero_if_legal
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.operators import ReorgYolo


class Reorg(Strategy):
    """One Transpose or one Gather."""

    name = "reorg"
    accepts = (ReorgYolo,)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        op = request.call.operator
        assert isinstance(op, ReorgYolo)
        s, x = op.stride, request.data(emit)
        batch, channels, height, width = x.dims
        moved = _transposed(op, emit, x) or _gathered(op, emit, x)
        # If the stride does not divide the sizes of a run, this Reshape fails.
        image = [emit.quotient(size, s) for size in (height, width)]
        return emit.reshape(moved, [batch, emit.mul(channels, s * s), *image]).value


def _transposed(op: ReorgYolo, emit: Emitter, x: Tensor) -> Tensor | None:
    s, (batch, channels, height, width) = op.stride, x.dims
    if not isinstance(channels, int) or channels % (s * s):
        return None
    dims, perm = [emit.mul(height, channels // (s * s)), s, width, s], [1, 3, 0, 2]
    if batch != 1:
        dims, perm = [batch, *dims], [0, *(axis + 1 for axis in perm)]
    if emit.rank_limit is not None and len(dims) > emit.rank_limit:
        return None
    return emit.transpose(emit.reshape(x, dims), perm)


def _gathered(op: ReorgYolo, emit: Emitter, x: Tensor) -> Tensor:
    flat = emit.reshape(x, [emit.product(x.dims)])
    known = [dim for dim in x.dims if isinstance(dim, int)]
    if len(known) == x.rank and math.prod(known) <= LARGEST:
        return emit.gather(flat, constant_index(emit, op.index(known)), 0)
    total = emit.sum(
        emit.reshape_to(term, [-1 if a == axis else 1 for a in range(x.rank)])
        for axis, term in enumerate(_terms(op, emit, x.dims))
    )
    return emit.gather(flat, emit.tensor(total, x.dims), 0)


def _terms(op: ReorgYolo, emit: Emitter, dims: Sequence[Size]) -> list[ir.Value]:
    """Emit `ReorgYolo.index` for sizes that may be unknown."""
    s, (batch, channels, height, width) = op.stride, dims
    images: Size
    if isinstance(channels, int):
        count = channels // (s * s)
        offsets, of_offset = np.divmod(np.arange(channels), count)
        images, offset = count, emit.constant(offsets, "offset")
        image = emit.constant(of_offset, "image")
    else:
        # Too few channels fail here: they would give a divisor of 0.
        checked = emit.add(channels, zero_if_legal(emit, [emit.sub(channels, s * s)]))
        images = emit.div(checked, s * s)
        place = emit.range(checked)
        offset = emit.op("Div", place, emit.size(images))
        image = _remainder(emit, place, offset, images)
    plane = emit.product([s * s, height, width])
    rows = emit.op("Div", offset, emit.size(s))
    channel = emit.op("Mul", image, emit.size(plane))
    channel = emit.op("Add", channel, emit.op("Mul", rows, emit.size(emit.mul(width, s))))
    channel = emit.op("Add", channel, _remainder(emit, offset, rows, s))
    return [
        emit.op("Mul", emit.range(batch), emit.size(emit.mul(plane, images))),
        channel,
        emit.op("Mul", emit.range(height), emit.size(emit.mul(width, s * s))),
        emit.op("Mul", emit.range(width), emit.size(s)),
    ]


def _remainder(emit: Emitter, dividend: ir.Value, quotient: ir.Value, divisor: Size) -> ir.Value:
    return emit.op("Sub", dividend, emit.op("Mul", quotient, emit.size(divisor)))
