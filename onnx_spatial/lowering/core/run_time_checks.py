"""Make a run fail where it breaks a rule of the operator that depends on run-time sizes.

Most rules cost nothing: a Reshape to exact sizes fails where a block does not divide, and parameters are
checked where they are read (`Request.sizes`). The rest are sizes at which a tensor without elements
would come out instead of an error; `guarded` refuses those too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter, Size
from onnx_spatial.lowering.core.strategy import Request


def are_open(request: Request, *, of_batch: bool = True) -> bool:
    """Tell whether a run can break a rule; without `of_batch`, the rules of the batch do not count."""
    call = request.call
    if call.operator is None:
        return True
    if not of_batch and request.shape is not None:
        request = replace(request, shape=(call.typical_batch, *request.shape[1:]))
    return not request.ranked or bool(_constraints(request.apart(), Emitter(request.opset)))


def guarded(request: Request, emit: Emitter) -> Request:
    """Return the request with its data behind a check of all rules."""
    constraints = _constraints(request, emit)
    if not constraints:
        return request
    data = request.inputs[0]
    assert data is not None
    sizes = emit.op("Add", emit.shape_of(data), zero_if_legal(emit, constraints))
    extra: dict[str, Any] = {"allowzero": 1} if emit.opset >= 14 else {}
    value = emit.op("Reshape", data, sizes, **extra)
    return replace(request, inputs=(value, *request.inputs[1:]))


def checked_zero(request: Request, emit: Emitter) -> Size:
    """Return a 0 whose computation fails where a rule is broken."""
    constraints = _constraints(request, emit)
    return zero_if_legal(emit, constraints) if constraints else 0


def zero_if_legal(emit: Emitter, constraints: Sequence[Size]) -> ir.Value:
    """Return a 0 whose computation fails where one of the sizes is negative."""
    below = emit.less(emit.vector(constraints, "constraints"), emit.ints([0], "zero"))
    broken = emit.op("ReduceMax", emit.op("Cast", below, to=int(ir.DataType.INT32)), keepdims=1)
    return emit.op("Gather", emit.ints([0], "zero"), broken, axis=0)


def _constraints(request: Request, emit: Emitter) -> list[Size]:
    """Return the `Call.constraints` that only a run can check."""
    if request.shape is not None:
        dims: Sequence[Size] = request.operand(emit).dims
    else:
        assert request.inputs[0] is not None
        dims = emit.elements(emit.shape_of(request.inputs[0]), range(request.call.axes))
    constraints = request.call.constraints(emit, dims, *request.parameters(emit))
    return [size for size in constraints if not isinstance(size, int)]
