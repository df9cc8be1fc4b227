"""Operators that move nothing: an Identity, or zeros where a tensor is known to be empty."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter, Size
from onnx_spatial.lowering.core.padding import filled
from onnx_spatial.lowering.core.run_time_checks import checked_zero
from onnx_spatial.lowering.core.sampling import sampled
from onnx_spatial.lowering.core.strategy import Parameters, Request
from onnx_spatial.operators import SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall


class Copy:
    """Blocks of 1 without padding, windows of 1 with stride 1: the output is the input."""

    name = "identity"

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are written out."""
        return False

    def refuse(self, request: Request) -> str | None:
        """Only what is known to change nothing."""
        call = request.call
        if isinstance(call, BlockCall):
            op = call.operator
            amounts = (*(call.begins.values or ()), *(call.ends.values or ()))
            known = request.shape is not None and request.ranked
            still = op is not None and known and set(op.block_shape) <= {1} and not any(amounts)
        else:
            still = set(call.operator.kernel) == {1} and set(call.operator.strides) == {1}
        return None if still else "the operator moves data"

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """One Identity, so that the output keeps its name and its consumers stay as they are."""
        return emit.op("Identity", request.inputs[0])


class Empty:
    """Input or output hold no elements: what comes out is zeros of a known or computed shape.

    Reshape cannot be used there before opset 14, where a 0 in its shape copies a dim.
    """

    name = "empty"

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are written out."""
        return False

    def refuse(self, request: Request) -> str | None:
        """Only tensors that are known to be empty."""
        if request.shape is None or len(request.element_types) > 1:
            return "the shape is unknown, or the element type is"
        if 0 in request.shape or 0 in request.call.output_shape(request.shape):
            return None
        return "the tensor is not known to be empty"

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Zeros: padding an empty tensor up gives nothing else."""
        dims = list(_output_dims(request, emit))
        dims[0] = emit.add(dims[0], checked_zero(request, emit))  # there may be zeros that came in
        emit.tensor(request.inputs[0], dims)  # type: ignore[arg-type]
        return filled(emit, dims, min(request.element_types, default=1))


def _output_dims(request: Request, emit: Emitter) -> Sequence[Size]:
    x, call = request.data(emit), request.call
    dims = list(x.dims)
    if not isinstance(call, BlockCall):
        for axis, sample in zip(
            call.operator.spatial_axes, sampled(emit, call.operator, x), strict=True
        ):
            dims[axis] = sample.count
        channel = call.operator.channel_axis
        dims[channel] = emit.product([*call.operator.kernel, dims[channel]])
        return dims
    p = Parameters.of(request, emit)
    factor = emit.product(p.block)
    to_batch = call.kind is SpaceToBatch
    dims[0] = emit.mul(dims[0], factor) if to_batch else emit.div(dims[0], factor)
    for i, (b, begin, end) in enumerate(zip(p.block, p.begins, p.ends, strict=True), start=1):
        if to_batch:
            dims[i] = emit.div(emit.add(emit.add(dims[i], begin), end), b)
        else:
            dims[i] = emit.sub(emit.sub(emit.mul(dims[i], b), begin), end)
    return dims
