"""Lower operators that move nothing to an Identity, and empty tensors to zeros of the shape."""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.padding import filled
from onnx_spatial.lowering.core.strategy import Request, checked_zero


def copy(request: Request, emit: Emitter) -> ir.Value:
    """Emit an Identity, so that the output keeps its name.

    For blocks of 1 without padding, windows of 1 with stride 1, and the like.
    """
    operator = request.call.operator
    known = request.shape is not None and request.ranked
    if not known or operator is None or not operator.is_identity:
        raise ConversionError("the operator moves data")
    return emit.op("Identity", request.inputs[0])


def zeros(request: Request, emit: Emitter) -> ir.Value:
    """Emit zeros of the output's shape where input or output hold no elements.

    An empty tensor that is padded holds nothing else. Before opset 14 Reshape does not serve: a 0 in its
    shape copies a dim.
    """
    if request.shape is None or len(request.element_types) > 1:
        raise ConversionError("the shape is unknown, or the element type is")
    if 0 not in request.shape and 0 not in request.call.output_shape(request.shape):
        raise ConversionError("the tensor is not known to be empty")
    x = request.data(emit)
    dims = request.call.output_dims(emit, x.dims, *request.parameters(emit))
    dims[0] = emit.add(dims[0], checked_zero(request, emit))
    emit.tensor(request.inputs[0], dims)  # type: ignore[arg-type]
    return filled(emit, dims, min(request.element_types, default=1))
