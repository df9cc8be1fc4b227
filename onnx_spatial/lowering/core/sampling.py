"""How ExtractPatches samples its spatial axes, where sizes may be known at run time only."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor, same
from onnx_spatial.operators import ExtractPatches


@dataclass(frozen=True)
class Sampling:
    """One spatial axis: how many windows, and the zeros around it (negative: elements cut off)."""

    count: Size
    begin: Size
    end: Size


def sampled(emit: Emitter, op: ExtractPatches, x: Tensor) -> list[Sampling]:
    """How each spatial axis is sampled; what depends on unknown sizes is computed at run time."""
    found = []
    for number, axis in enumerate(op.spatial_axes):
        size = x.dims[axis]
        if same(size, 0):  # nothing to sample, and nothing to cut off
            found.append(Sampling(op.output_size(number, 0), 0, 0))
        elif isinstance(size, int):
            found.append(Sampling(op.output_size(number, size), *op.padding(number, size)))
        else:
            found.append(_sampled_at_run_time(emit, op, number, size))
    return found


def _sampled_at_run_time(emit: Emitter, op: ExtractPatches, number: int, size: Size) -> Sampling:
    stride, extent = op.strides[number], op.extent(number)
    if op.auto_pad == "valid":
        count = emit.div(emit.add(size, stride - extent), stride)
        if extent >= 2 * stride:  # a window beyond the image: no Slice may take -1 for its last
            count = emit.max(count, 0)
        return Sampling(count, 0, 0)
    count = emit.div(emit.add(size, stride - 1), stride)
    if stride == 1:  # total = extent - 1, whatever the size
        total: Size = extent - 1
    else:
        total = emit.sub(emit.add(emit.mul(count, stride), extent - stride), size)
        if op.auto_pad != "same_unclamped":
            total = emit.max(total, 0)
        elif stride > extent:  # an empty axis has nothing to cut off
            total = emit.max(total, emit.sub(0, size))
    before = emit.add(total, 1) if op.auto_pad == "same_lower" else total
    begin = emit.div(before, 2)
    return Sampling(count, begin, emit.sub(total, begin))
