"""SpaceToBatch and BatchToSpace through SpaceToDepth and DepthToSpace.

    SpaceToBatch, NCHW    SpaceToDepth [N, b*b*C, Hb, Wb] -> Reshape [N, b*b, rest] -> T[1,0,2]
    BatchToSpace, NCHW    Reshape [b*b, N, rest] -> T[1,0,2] -> DepthToSpace

For square blocks over the last two axes. One image needs no Transpose at all.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.permutation import factored_axes, stages
from onnx_spatial.lowering.permutation.factored_axes import Order, Rearrangement
from onnx_spatial.lowering.permutation.stage_plan import Stage

#: onnxruntime has had these kernels in all releases that are supported.
_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})


class Depth:
    """One SpaceToDepth or DepthToSpace, and the blocks moved to or from the front."""

    name = "space-to-depth"
    accepts = factored_axes.OPERATORS

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are part of the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Only types that have a kernel."""
        if not request.element_types or not request.element_types <= _TYPES:
            return "onnxruntime has SpaceToDepth for float32 and float64"
        return factored_axes.refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        r = Rearrangement.of(request, emit)
        for inward in (True, False):
            found = _split_in_two(r.before if inward else r.after, r)
            if found is not None:
                lead, space = found
                return (
                    _to_depth(r, emit, lead, space) if inward else _to_space(r, emit, lead, space)
                )
        raise ConversionError("the last two axes are not split into equal blocks")


def _split_in_two(order: Order, r: Rearrangement) -> tuple[Order, Order] | None:
    """(factors in front, cells and offsets of the last two axes), if their blocks are equal."""
    lead, space = order[:-4], order[-4:]
    if len(space) < 4:
        return None
    sizes = [r.sizes[f] for f in space]
    rows, row_block, columns, column_block = space
    pairs = {axis for axis in (*r.inputs, *r.outputs) if len(axis) == 2}
    if not {(rows, row_block), (columns, column_block)} <= pairs:
        return None
    same_block = isinstance(sizes[1], int) and sizes[1] == sizes[3]
    return (lead, space) if same_block else None


def _shape(r: Rearrangement, emit: Emitter, lead: Order, space: Order) -> list[Size]:
    rows, block, columns, _ = (r.sizes[f] for f in space)
    return [
        1,
        emit.product([r.sizes[f] for f in lead]),
        emit.mul(rows, block),
        emit.mul(columns, block),
    ]


def _to_depth(r: Rearrangement, emit: Emitter, lead: Order, space: Order) -> ir.Value:
    rows, row_block, columns, column_block = space
    block = r.sizes[row_block]
    assert isinstance(block, int)
    x = emit.reshape(r.padded(emit), _shape(r, emit, lead, space))
    dims = [1, emit.mul(x.dims[1], block * block), r.sizes[rows], r.sizes[columns]]
    count = emit.elements_in(dims)
    cells = emit.guess(r.sizes[columns])
    work = cost_model.depth(count, count * x.itemsize, cells, to_depth=True)
    y = emit.op("SpaceToDepth", x.value, blocksize=block, work=work)
    order = (row_block, column_block, *lead, rows, columns)
    return _rest(r, emit, emit.tensor(y, dims, x.itemsize), order, r.after)


def _to_space(r: Rearrangement, emit: Emitter, lead: Order, space: Order) -> ir.Value:
    rows, row_block, columns, column_block = space
    block = r.sizes[row_block]
    assert isinstance(block, int)
    order = (row_block, column_block, *lead, rows, columns)
    plan = [] if r.before == order else [Stage("transpose", r.before, order)]
    x, _ = stages.moved(emit, r, r.padded(emit), plan)
    shape = _shape(r, emit, lead, space)
    x = emit.reshape(x, [1, emit.mul(shape[1], block * block), r.sizes[rows], r.sizes[columns]])
    count = emit.elements_in(shape)
    work = cost_model.depth(count, count * x.itemsize, block, to_depth=False)
    # DCR is what it did before there were modes, in opset 11.
    mode = {"mode": "DCR"} if emit.opset >= 11 else {}
    y = emit.op("DepthToSpace", x.value, blocksize=block, work=work, **mode)
    return r.finished(emit, emit.tensor(y, shape, x.itemsize))


def _rest(r: Rearrangement, emit: Emitter, x: Tensor, order: Order, after: Order) -> ir.Value:
    plan = [] if order == after else [Stage("transpose", order, after)]
    x, done = stages.moved(emit, r, x, plan)
    return r.finished(emit, x, done)
