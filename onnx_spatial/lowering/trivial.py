"""Operators that move nothing: an Identity, or zeros where a tensor is known to be empty."""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.padding import filled
from onnx_spatial.lowering.core.run_time_checks import checked_zero
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.operators import Operator


class Copy:
    """Blocks of 1 without padding, windows of 1 with stride 1, ...: the output is the input."""

    name = "identity"
    accepts = (Operator,)

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are written out."""
        return False

    def refuse(self, request: Request) -> str | None:
        """Only what is known to change nothing."""
        operator = request.call.operator
        known = request.shape is not None and request.ranked
        still = operator is not None and known and operator.is_identity
        return None if still else "the operator moves data"

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """One Identity, so that the output keeps its name and its consumers stay as they are."""
        return emit.op("Identity", request.inputs[0])


class Empty:
    """Input or output hold no elements: what comes out is zeros of a known or computed shape.

    Reshape cannot be used there before opset 14, where a 0 in its shape copies a dim.
    """

    name = "empty"
    accepts = (Operator,)

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
        x = request.data(emit)
        dims = request.call.output_dims(emit, x.dims, *request.parameters(emit))
        dims[0] = emit.add(dims[0], checked_zero(request, emit))  # there may be zeros that came in
        emit.tensor(request.inputs[0], dims)  # type: ignore[arg-type]
        return filled(emit, dims, min(request.element_types, default=1))
