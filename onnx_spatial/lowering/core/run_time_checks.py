"""The rules of an operator that only a run can break, and a run that fails where one is.

Most of them cost nothing: a Reshape to sizes that are computed exactly refuses what a block does not
divide, and parameters are looked at where they are read (`Request.sizes`). What is left are sizes at
which a tensor without elements comes out in place of an error; `guarded` refuses those too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter, Size
from onnx_spatial.lowering.core.strategy import Request


def are_open(request: Request, *, of_batch: bool = True) -> bool:
    """Whether a run can break a rule of the operator; `of_batch`: that of its batch counts as well."""
    call = request.call
    if call.operator is None:
        return True
    if not of_batch and request.shape is not None:
        request = replace(request, shape=(call.typical_batch, *request.shape[1:]))
    return not request.ranked or bool(_margins(request.apart(), Emitter(request.opset)))


def guarded(request: Request, emit: Emitter) -> Request:
    """The request on data that can only be had where no rule is broken."""
    margins = _margins(request, emit)
    if not margins:
        return request
    data = request.inputs[0]
    assert data is not None
    sizes = emit.op("Add", emit.shape_of(data), nothing(emit, margins))
    extra: dict[str, Any] = {"allowzero": 1} if emit.opset >= 14 else {}
    value = emit.op("Reshape", data, sizes, **extra)
    return replace(request, inputs=(value, *request.inputs[1:]))


def checked_zero(request: Request, emit: Emitter) -> Size:
    """A 0 that can only be had where no rule is broken."""
    margins = _margins(request, emit)
    return nothing(emit, margins) if margins else 0


def nothing(emit: Emitter, margins: Sequence[Size]) -> ir.Value:
    """A 0 that can only be had where none of the sizes is negative."""
    below = emit.less(emit.vector(margins, "margins"), emit.ints([0], "zero"))
    broken = emit.op("ReduceMax", emit.op("Cast", below, to=int(ir.DataType.INT32)), keepdims=1)
    return emit.op("Gather", emit.ints([0], "zero"), broken, axis=0)


def _margins(request: Request, emit: Emitter) -> list[Size]:
    """Sizes that are negative where a rule is broken, of the rules that are left to the run."""
    dims = _dims(request, emit)
    found = request.call.margins(emit, dims, *request.parameters(emit))
    return [margin for margin in found if not isinstance(margin, int)]


def _dims(request: Request, emit: Emitter) -> Sequence[Size]:
    """Of the axes that the operator looks at."""
    if request.shape is not None:
        return request.operand(emit).dims
    assert request.inputs[0] is not None
    return emit.elements(emit.shape_of(request.inputs[0]), range(request.call.axes))
