"""ReorgYolo as one Transpose where the cells divide the channels, else as one Gather of elements.

    Reshape [N, q*H, s, W, s] -> Transpose [N, s, s, q*H, W] -> Reshape [N, C*s*s, H/s, W/s]
    Reshape [N*C*H*W] -> Gather by a sum of one term for each of N, C, H, W -> Reshape

The Gather also serves where the number of channels is known to the run only, or no tensor may have as
many dims as the Transpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import LARGEST, constant_index
from onnx_spatial.lowering.core.run_time_checks import nothing
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.operators import ReorgYolo


class Reorg:
    """One Transpose or one Gather."""

    name = "reorg"
    accepts = (ReorgYolo,)

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are written out."""
        return False

    def refuse(self, request: Request) -> str | None:
        """Refuse nothing."""
        return None

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        op = request.call.operator
        assert isinstance(op, ReorgYolo)
        s, x = op.stride, request.data(emit)
        batch, channels, height, width = x.dims
        moved = _transposed(op, emit, x) or _gathered(op, emit, x)
        # A run whose sizes the stride does not divide fails in this Reshape.
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
        index, dims = constant_index(emit, op.index(known))
        return emit.gather(flat, index, dims, 0)
    total: ir.Value | None = None
    for axis, term in enumerate(_terms(op, emit, x.dims)):
        column = emit.reshape_to(term, [-1 if a == axis else 1 for a in range(x.rank)])
        total = column if total is None else emit.op("Add", total, column)
    assert total is not None
    return emit.gather(flat, emit.tensor(total, x.dims).value, x.dims, 0)


def _terms(op: ReorgYolo, emit: Emitter, dims: Sequence[Size]) -> list[ir.Value]:
    """`ReorgYolo.index` for sizes of which the run knows some."""
    s, (batch, channels, height, width) = op.stride, dims
    images: Size
    if isinstance(channels, int):
        count = channels // (s * s)
        offsets, of_offset = np.divmod(np.arange(channels), count)
        images, offset = count, emit.constant(offsets, "offset")
        image = emit.constant(of_offset, "image")
    else:
        # No quotient of 0 may be divided by: too few channels fail here.
        checked = emit.add(channels, nothing(emit, [emit.sub(channels, s * s)]))
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
    """The remainder."""
    return emit.op("Sub", dividend, emit.op("Mul", quotient, emit.size(divisor)))
