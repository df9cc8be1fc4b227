"""Lower operators that move nothing to an Identity, and empty tensors to zeros of the shape."""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.padding import filled
from onnx_spatial.lowering.core.strategy import Request, Strategy, checked_zero
from onnx_spatial.operators import Operator


class Copy(Strategy):
    """Identity for blocks of 1 without padding, windows of 1 with stride 1, and the like."""

    name = "identity"
    accepts = (Operator,)

    def refuse(self, request: Request) -> str | None:
        """Refuse operators that may change their input."""
        operator = request.call.operator
        known = request.shape is not None and request.ranked
        if known and operator is not None and operator.is_identity:
            return None
        return "the operator moves data"

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit an Identity, so that the output keeps its name."""
        return emit.op("Identity", request.inputs[0])


class Empty(Strategy):
    """Zeros of the output's shape where input or output hold no elements.

    Before opset 14 Reshape does not serve: a 0 in its shape copies a dim.
    """

    name = "empty"
    accepts = (Operator,)

    def refuse(self, request: Request) -> str | None:
        """Refuse tensors that are not known to be empty."""
        if request.shape is None or len(request.element_types) > 1:
            return "the shape is unknown, or the element type is"
        if 0 in request.shape or 0 in request.call.output_shape(request.shape):
            return None
        return "the tensor is not known to be empty"

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit zeros: an empty tensor that is padded holds nothing else."""
        x = request.data(emit)
        dims = request.call.output_dims(emit, x.dims, *request.parameters(emit))
        dims[0] = emit.add(dims[0], checked_zero(request, emit))
        emit.tensor(request.inputs[0], dims)  # type: ignore[arg-type]
        return filled(emit, dims, min(request.element_types, default=1))
