"""Lower SpaceToBatch and BatchToSpace to SpaceToDepth and DepthToSpace.

    SpaceToBatch, NCHW    SpaceToDepth [N, b*b*C, Hb, Wb] -> Reshape [N, b*b, rest] -> T[1,0,2]
    BatchToSpace, NCHW    Reshape [b*b, N, rest] -> T[1,0,2] -> DepthToSpace

For square blocks over the last two axes. One image needs no Transpose at all.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size
from onnx_spatial.lowering.core.cost_model import Work
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.factored_axes import Order, Rearrangement
from onnx_spatial.lowering.stages import transposed

#: Element types whose kernels all supported releases of onnxruntime have.
_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})


def depth(request: Request, emit: Emitter) -> ir.Value:
    """Emit one SpaceToDepth or DepthToSpace, and the blocks moved to or from the front."""
    if not request.element_types or not request.element_types <= _TYPES:
        raise ConversionError("onnxruntime has SpaceToDepth for float32 and float64")
    r = Rearrangement.of(request, emit)
    for order, emit_op in ((r.before, _space_to_depth), (r.after, _depth_to_space)):
        block = _square_block(order, r)
        if block is not None:
            return emit_op(r, emit, order, block)
    raise ConversionError("the last two axes are not split into equal blocks")


def _square_block(order: Order, r: Rearrangement) -> int | None:
    """Return the block of the last two axes if both are split by it, else None."""
    if len(order) < 4:
        return None
    rows, row_block, columns, column_block = order[-4:]
    pairs = {axis for axis in (*r.inputs, *r.outputs) if len(axis) == 2}
    if not {(rows, row_block), (columns, column_block)} <= pairs:
        return None
    block = r.sizes[row_block]
    return block if isinstance(block, int) and block == r.sizes[column_block] else None


def _emit_image(r: Rearrangement, emit: Emitter, order: Order, block: int) -> list[Size]:
    """Return [1, leading factors, height, width]."""
    lead = emit.product([r.sizes[f] for f in order[:-4]])
    rows, _, columns, _ = order[-4:]
    return [1, lead, emit.mul(r.sizes[rows], block), emit.mul(r.sizes[columns], block)]


def _blocks_first(order: Order) -> Order:
    rows, row_block, columns, column_block = order[-4:]
    return (row_block, column_block, *order[:-4], rows, columns)


def _space_to_depth(r: Rearrangement, emit: Emitter, order: Order, block: int) -> ir.Value:
    rows, _, columns, _ = order[-4:]
    x = emit.reshape(r.padded(emit), _emit_image(r, emit, order, block))
    dims = [1, emit.mul(x.dims[1], block * block), r.sizes[rows], r.sizes[columns]]

    def work() -> Work:
        count, cells = emit.elements_in(dims), emit.guess(r.sizes[columns])
        return cost_model.depth(count, count * x.itemsize, cells, to_depth=True)

    y = emit.tensor(emit.op("SpaceToDepth", x.value, blocksize=block, work=work), dims, x.itemsize)
    return r.finished(emit, transposed(emit, r, y, _blocks_first(order), r.after))


def _depth_to_space(r: Rearrangement, emit: Emitter, order: Order, block: int) -> ir.Value:
    rows, _, columns, _ = order[-4:]
    x = transposed(emit, r, r.padded(emit), r.before, _blocks_first(order))
    image = _emit_image(r, emit, order, block)
    x = emit.reshape(x, [1, emit.mul(image[1], block * block), r.sizes[rows], r.sizes[columns]])

    def work() -> Work:
        count = emit.elements_in(image)
        return cost_model.depth(count, count * x.itemsize, block, to_depth=False)

    # Before opset 11 it had no modes and computed DCR.
    mode = {"mode": "DCR"} if emit.opset >= 11 else {}
    y = emit.op("DepthToSpace", x.value, blocksize=block, work=work, **mode)
    return r.finished(emit, emit.tensor(y, image, x.itemsize))
