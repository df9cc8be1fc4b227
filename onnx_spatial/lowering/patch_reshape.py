"""ExtractPatches whose windows tile the image (stride = kernel, rate 1): a blocking Transpose.

channels last:   Slice or Pad -> Reshape [N, o1, k1, .., C] -> Transpose -> Reshape
channels first:  Slice or Pad -> Reshape [N, C, o1, k1, ..] -> Transpose -> Reshape
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.dialects import PatchCall
from onnx_spatial.lowering.block_transpose import permute
from onnx_spatial.lowering.emit import Emitter
from onnx_spatial.lowering.padding import passes
from onnx_spatial.lowering.patch_gather import sampled, trimmed
from onnx_spatial.lowering.request import Request


class PatchReshape:
    """Every element belongs to one window at most."""

    name = "reshape"

    def refuse(self, request: Request) -> str | None:
        """Only windows that touch without gap or overlap."""
        if not isinstance(request.call, PatchCall):
            return "not a patch operator"
        op = request.call.operator
        for k, s, r in zip(op.kernel, op.strides, op.rates, strict=True):
            if k != s or (k > 1 and r > 1):
                return "the windows do not tile the image (stride differs from kernel, or rate > 1)"
        return None

    def cost(self, request: Request) -> float:
        """One pass and what padding costs."""
        assert isinstance(request.call, PatchCall)
        op = request.call.operator
        padded = 0 if op.auto_pad == "valid" else len(op.kernel)
        return 1 + passes(padded, request.element_types, request.opset)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        assert isinstance(request.call, PatchCall)
        op = request.call.operator
        x = request.data(emit)
        axes = sampled(emit, op, x)
        x = trimmed(emit, op, x, axes, request.element_types)
        spatial = [f for k, axis in zip(op.kernel, axes, strict=True) for f in (axis.count, k)]
        first, count = op.spatial_axes.start, len(op.kernel)
        factors = [*x.dims[:first], *spatial, *x.dims[first + count :]]
        windows = [first + 2 * i for i in range(count)]
        inside = [first + 2 * i + 1 for i in range(count)]
        if op.layout == "channels_last":
            perm = [0, *windows, *inside, len(factors) - 1]
        else:
            perm = [0, *inside, 1, *windows]
        out = list(x.dims)
        for axis, sample in zip(op.spatial_axes, axes, strict=True):
            out[axis] = sample.count
        out[op.channel_axis] = emit.product([*op.kernel, x.dims[op.channel_axis]])
        return permute(emit, x, factors, perm, out).value
