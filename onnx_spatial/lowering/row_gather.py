"""Any operator as one Gather of rows: run the operator on row numbers, then fetch the rows.

    Reshape [rows, rest] -> Concat with one row of zeros -> Gather -> Reshape

The index is the operator's own result on an array that holds the number of each row, padded with
-1, which Gather reads as the last row: the zeros. With static shapes the index is a constant made
by the numpy kernel; otherwise it is computed at run time by the operator's other lowering, on int64,
where Pad always has a kernel. So this works for every element type, padding and crops included.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.dialects import BlockCall, PatchCall
from onnx_spatial.lowering import block_transpose, patch_gather
from onnx_spatial.lowering.emit import Emitter, Size, Tensor
from onnx_spatial.lowering.padding import filled
from onnx_spatial.lowering.request import Parameters, Request

#: Index constants up to this many entries (int32, 4 MiB) are written into the model.
_LARGEST_INDEX = 1 << 20

_ZERO_ROW = np.array(-1, np.int64)


class RowGather:
    """One Gather; the rows are whatever lies behind the axes that the operator looks at."""

    name = "row-gather"

    def refuse(self, request: Request) -> str | None:
        """The rank must be known, and one type to make the row of zeros of."""
        if request.shape is None:
            return "the rank of the input is unknown"
        if len(request.element_types) > 1:
            return "the function is called with several element types"
        return None

    def cost(self, request: Request) -> float:
        """Gather, Concat where zeros come in; short rows cost more per element than long ones, and
        an index that is computed at run time is two more passes over a tensor of its own."""
        assert request.shape is not None
        rest = request.shape[_lead(request) :]
        row = max(1, math.prod(d if isinstance(d, int) else 16 for d in rest))
        lead = request.shape[: _lead(request)]
        known = request.call.operator is not None and all(isinstance(d, int) for d in lead)
        return 1.2 + _pads(request) + 3 / row + (0 if known else 2)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        x = request.data(emit)
        lead = _lead(request)
        rest = x.dims[lead:]
        index, found = self._index(request, emit, x.dims[:lead])
        rows = emit.reshape(x, [emit.product(x.dims[:lead]), emit.product(rest)])
        if _pads(request):
            zero = filled(emit, [1, rows.dims[1]], min(request.element_types, default=1))
            padded = [emit.add(rows.dims[0], 1), rows.dims[1]]
            rows = emit.tensor(emit.op("Concat", rows.value, zero, axis=0), padded)
        count = emit.product(found)
        if TensorProto.STRING in request.element_types:
            # onnxruntime's Gather takes only the first string of each row; GatherND takes all.
            column = emit.reshape(Tensor(index, (count,)), (count, 1)).value
            value = emit.op("GatherND", rows.value, column)
            moved = emit.tensor(value, (count, rows.dims[1]))
        else:
            moved = emit.gather(rows, index, [count], 0)
        out = list(found)
        if isinstance(request.call, PatchCall) and rest:
            out[-1] = emit.product([out[-1], *rest])  # patch position major, channel minor
        else:
            out += rest
        return emit.reshape(moved, out).value

    def _index(
        self, request: Request, emit: Emitter, lead: tuple[Size, ...]
    ) -> tuple[ir.Value, tuple[Size, ...]]:
        """(the row number of each row of the output as a 1-D value, the dims they stand for)"""
        call = request.call
        channel = isinstance(call, PatchCall) and call.operator.layout == "channels_last"
        dims = (*lead, 1) if channel else lead  # patches lay their positions out on a channel axis
        known = [d for d in dims if isinstance(d, int)]
        operator = call.operator
        if operator is not None and len(known) == len(dims):
            size = math.prod([d for d in operator.output_shape(known) if isinstance(d, int)])
            if max(size, math.prod(known)) <= _LARGEST_INDEX:
                numbers = np.arange(math.prod(known), dtype=np.int32).reshape(known)
                index = operator(numbers, pad_value=-1)
                if TensorProto.STRING in request.element_types:  # GatherND has int64 only
                    index = index.astype(np.int64)
                return emit.constant(index.reshape(-1), "rows"), index.shape
        count = emit.product(dims)
        rows = emit.reshape(Tensor(emit.range(count), (count,)), dims)
        if isinstance(call, BlockCall):
            parameters = Parameters.of(request, emit)
            moved = block_transpose.move(request, emit, rows, parameters, _ZERO_ROW)
        else:
            moved = patch_gather.move(call.operator, emit, rows, frozenset(), _ZERO_ROW)
        return emit.reshape(moved, [emit.product(moved.dims)]).value, moved.dims


def _lead(request: Request) -> int:
    """Number of leading axes that the operator looks at."""
    call = request.call
    if isinstance(call, BlockCall):
        return call.blocked + 1
    return call.rank - 1 if call.operator.layout == "channels_last" else call.rank


def _pads(request: Request) -> bool:
    """Whether zeros may come in."""
    call = request.call
    if isinstance(call, PatchCall):
        return call.operator.auto_pad != "valid"
    amounts = (call.begins.values, call.ends.values)
    return "SpaceToBatch" in call.kind.name and any(a is None or any(a) for a in amounts)
