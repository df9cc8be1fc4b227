"""Lower operators without a general Transpose: to strided Slices and Concats, or to SpaceToDepth.

    SpaceToBatch    Pad -> one strided Slice for each offset in the block -> Concat along the batch
    BatchToSpace    Split the batch -> Concat and Reshape for each blocked axis -> Slice
    patches         Pad -> one strided Slice for each place in the window -> Concat along the channel

SpaceToBatch and patches need no Reshape either, for targets that lack both. Square blocks over the last
two axes:

    SpaceToBatch, NCHW    SpaceToDepth [N, b*b*C, Hb, Wb] -> Reshape [N, b*b, rest] -> T[1,0,2]
    BatchToSpace, NCHW    Reshape [b*b, N, rest] -> T[1,0,2] -> DepthToSpace

One image needs no Transpose at all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering import cost_model
from onnx_spatial.lowering.cost_model import Work
from onnx_spatial.lowering.emitter import INT64_MAX, Emitter, Size, Tensor
from onnx_spatial.lowering.permutation import Order, Rearrangement, transposed
from onnx_spatial.lowering.request import Request
from onnx_spatial.lowering.windows import Place, Windows, patches, window_slice
from onnx_spatial.operators import ExtractPatches, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall

#: The most Slices of one operator.
MAX_SLICES = 256


def slices(request: Request, emit: Emitter) -> ir.Value:
    """Emit one Slice, or output of a Split, for each position in a block or window."""
    places, operator = _positions_of(request), request.call.operator
    if request.shape is None:
        raise ConversionError("the rank of the input is unknown")
    if places is None:
        raise ConversionError("the block is computed at run time")
    if isinstance(operator, ExtractPatches) and operator.major == "channel":
        raise ConversionError("it puts the places of a window before the channels")
    if math.prod(places) > MAX_SLICES:
        raise ConversionError(f"it would take {math.prod(places)} Slices")
    if request.call.kind is ExtractPatches:
        return _slice_patches(request, emit).value
    r = Rearrangement.of(request, emit)
    return (_space_to_batch if request.call.kind is SpaceToBatch else _batch_to_space)(r, emit)


def _positions_of(request: Request) -> tuple[int, ...] | None:
    """Return the positions in a block or window along each axis; None if unknown."""
    call = request.call
    if isinstance(call, BlockCall):
        return call.block.values
    return call.operator.positions if call.operator is not None else None


def _space_to_batch(r: Rearrangement, emit: Emitter) -> ir.Value:
    """Emit one Slice for each offset."""
    offsets = {axis[1]: number for number, axis in enumerate(r.inputs) if len(axis) == 2}
    if not offsets:
        raise ConversionError("no axis is split")
    left = [tuple(f for f in axis if f not in offsets) for axis in r.inputs]
    if left != [tuple(f for f in axis if f not in offsets) for axis in r.outputs]:
        raise ConversionError("the axes come out in another order")
    target = next(n for n, axis in enumerate(r.outputs) if set(axis) & set(offsets))
    order = [f for f in r.outputs[target] if f in offsets]
    if tuple(order) != r.outputs[target][: len(order)]:
        raise ConversionError("the offsets are not in front")
    x = r.padded(emit)
    dims = [emit.product([r.sizes[f] for f in axis]) for axis in left]
    parts = []
    for place in itertools.product(*(range(_known(r, f)) for f in order)):
        steps = {offsets[f]: (start, _known(r, f)) for f, start in zip(order, place, strict=True)}
        parts.append(_strided_slice(emit, x, {a: v for a, v in steps.items() if v[1] > 1}, dims))
    if r.checks_division:
        # Where a block does not divide, the part of the last offsets is smaller than the first, and this
        # Reshape fails. Concat would skip an empty part and leave its share of the result undefined.
        last = parts[-1]
        value = emit.op("Reshape", last.value, emit.shape_of(parts[0].value))
        parts[-1] = emit.tensor(value, last.dims, last.itemsize)
    return r.finished(emit, emit.concat(parts, target))


def _batch_to_space(r: Rearrangement, emit: Emitter) -> ir.Value:
    """Emit a Split, then join the parts along each blocked axis, the last one first."""
    offsets = [axis[1] for axis in r.outputs if len(axis) == 2]
    if not offsets:
        raise ConversionError("no axis is split")
    source = next(n for n, axis in enumerate(r.inputs) if set(axis) & set(offsets))
    rest = tuple(f for axis in r.inputs for f in axis if f not in offsets)
    if source != 0 or rest != tuple(f for axis in r.outputs for f in axis if f not in offsets):
        raise ConversionError("the axes come in another order")
    order = r.inputs[0][: len(offsets)]
    x = r.padded(emit)
    count = math.prod(_known(r, f) for f in order)
    parts = emit.split(x, 0, count) if count > 1 else [x]
    places = list(itertools.product(*(range(_known(r, f)) for f in order)))
    by_place = dict(zip(places, parts, strict=True))
    tail: Size = 1
    for axis in reversed(r.outputs):
        if len(axis) == 1:
            tail = emit.mul(tail, r.sizes[axis[0]])
            continue
        cell, offset = axis
        if _known(r, offset) > 1:
            rows = emit.product([r.sizes[f] for f in rest[: rest.index(cell) + 1]])
            by_place = _join_parts(emit, by_place, order.index(offset), [rows, tail])
        tail = emit.product([tail, r.sizes[cell], r.sizes[offset]])
    (whole,) = by_place.values()
    return r.finished(emit, whole)


def _join_parts(
    emit: Emitter, parts: dict[tuple[int, ...], Tensor], axis: int, dims: Sequence[Size]
) -> dict[tuple[int, ...], Tensor]:
    """Join the parts that differ in one offset row by row; `dims`: rows of a part and their length."""
    groups: dict[tuple[int, ...], list[Tensor]] = {}
    for place in sorted(parts):
        groups.setdefault((*place[:axis], 0, *place[axis + 1 :]), []).append(parts[place])
    joined = {}
    for place, group in groups.items():
        joined[place] = emit.concat([emit.reshape(part, dims) for part in group], 1)
    return joined


def _known(r: Rearrangement, factor: int) -> int:
    size = r.sizes[factor]
    assert isinstance(size, int)
    return size


def _slice_patches(request: Request, emit: Emitter) -> Tensor:
    op, windows = patches(request), Windows.of(request, emit)
    dims = list(windows.x.dims)
    for axis, count in zip(op.spatial_axes, windows.counts, strict=True):
        dims[axis] = count
    parts = []
    for place in itertools.product(*map(range, op.kernel)):
        window = {
            axis: Place.of(op, number, place[number], windows.counts[number])
            for number, axis in enumerate(op.spatial_axes)
        }
        parts.append(window_slice(emit, windows.x, window, dims))
    return emit.concat(parts, op.channel_axis)


def _strided_slice(
    emit: Emitter, x: Tensor, steps: dict[int, tuple[int, int]], dims: Sequence[Size]
) -> Tensor:
    if not steps:
        return x
    starts = [start for start, _ in steps.values()]
    ends = [INT64_MAX] * len(steps)
    return emit.slice(x, list(steps), starts, ends, dims, [step for _, step in steps.values()])


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
