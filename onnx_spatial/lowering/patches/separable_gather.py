"""Lower ExtractPatches one spatial axis at a time: a Gather with a [windows, kernel] index for each.

    Pad -> Gather(axis 1) -> Gather(axis 3) -> Transpose -> Reshape
    [N,H,W,C] -> [N,o1,k1,W,C] -> [N,o1,k1,o2,k2,C] -> [N,o1,o2,k1,k2,C] -> [N,o1,o2,k1*k2*C]

An axis with a kernel of 1 needs no Gather: a strided Slice takes its samples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core.builder import INT64_MAX, Emitter, Size, Tensor, same
from onnx_spatial.lowering.core.sampling import padded
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.patches import windows
from onnx_spatial.operators import ExtractPatches

#: Elements of an index that is stored in the file; longer ones are computed at run time.
_LARGEST_INDEX = 2**20


class SeparableGather(Strategy):
    """One Gather per spatial axis."""

    name = "separable-gather"
    accepts = (ExtractPatches,)
    majors = frozenset({"place", "channel"})

    def refuse(self, request: Request) -> str | None:
        """Refuse strings: onnxruntime's Gather takes one string of each slice."""
        if TensorProto.STRING in request.element_types:
            return "onnxruntime's Gather is wrong for strings"
        return None

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        op, x = windows.patches(request), request.data(emit)
        return extract(op, emit, x, request.element_types).value


def extract(
    op: ExtractPatches,
    emit: Emitter,
    x: Tensor,
    element_types: frozenset[int],
    pad_value: npt.NDArray[np.generic] | None = None,
) -> Tensor:
    """Emit the operator on `x`, padded with `pad_value` or zeros."""
    batch, channels = x.dims[0], x.dims[op.channel_axis]
    x, counts = padded(emit, op, x, element_types, pad_value)
    for number in reversed(range(len(counts))):
        x = _windows(emit, op, x, number, counts[number])
    outside, inside, axis = [], [], op.spatial_axes.start
    for kernel in op.kernel:
        outside.append(axis)
        inside += [axis + 1] if kernel > 1 else []
        axis += 2 if kernel > 1 else 1
    positions = emit.product([*op.kernel, channels])
    last = op.layout == "channels_last"
    channel = x.rank - 1 if last else 1
    parts = [*inside, channel] if op.major == "place" else [channel, *inside]
    if last:
        perm = [0, *outside, *parts]
        out = [batch, *counts, positions]
    else:
        perm = [0, *parts, *outside]
        out = [batch, positions, *counts]
    moving = [axis for axis in perm if not same(x.dims[axis], 1)]
    if moving != sorted(moving):
        x = emit.transpose(x, perm)
    return emit.reshape(x, out)


def _windows(emit: Emitter, op: ExtractPatches, x: Tensor, number: int, count: Size) -> Tensor:
    """Replace spatial axis number `number` by [windows, kernel], or [windows] for a kernel of 1."""
    axis = op.spatial_axes[number]
    kernel, stride, rate = op.kernel[number], op.strides[number], op.rates[number]
    if kernel == 1:
        if stride == 1:
            return x
        # The axis ends with the last window, or fewer than `stride` elements behind it.
        dims = (*x.dims[:axis], count, *x.dims[axis + 1 :])
        return emit.slice(x, [axis], [0], [INT64_MAX], dims, [stride])
    if kernel > _LARGEST_INDEX:
        raise ConversionError(f"a window of {kernel} samples needs an index of as many")
    samples = np.arange(kernel, dtype=np.int64) * rate
    if isinstance(count, int) and count * kernel <= _LARGEST_INDEX:
        starts = np.arange(count, dtype=np.int64) * stride
        index = emit.constant((starts[:, None] + samples).astype(np.int32), "index")
    else:
        column = emit.op("Reshape", emit.range(count, stride), emit.ints([-1, 1], "column"))
        index = emit.op("Add", column, emit.constant(samples[None], "samples"))
    return emit.gather(x, emit.tensor(index, (count, kernel)), axis)
