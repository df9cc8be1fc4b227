"""Lower operators by Slices and Concats: of planes, or of positions in a block or window.

1. Planes, for overlapping patches: dense Slices along the last axis, then whole rows.

       [N, C, H, W] -> kw Slices [N*C*H, ow] -> Concat [kw*N*C*H, ow] -> one Gather of rows
       channels first   rows in the order N, kh, kw, C, oh; an unknown N stays an axis in front
       channels last    rows in the order kh, kw, C, N, oh; then [kh*kw*C, N*oh*ow] -> T[1,0]

   With a stride s the last axis is split into its s phases first, so that the taps are dense: by a
   Transpose and a Reshape that joins the phases with the rows, or by Split for a single row, where
   onnxruntime's optimizer would push the Transpose through the Slices. Channels-last data is
   transposed to planes first: it is small compared to the output.
2. Strided Slices. SpaceToBatch and patches need no Reshape either, for targets that lack both.

       SpaceToBatch    Pad -> one strided Slice for each offset in the block -> Concat along the batch
       BatchToSpace    Split the batch -> Concat and Reshape for each blocked axis -> Slice
       patches         Pad -> one strided Slice for each place in the window -> Concat along the channel

3. SpaceToDepth and DepthToSpace, for square blocks over the last two axes. One image needs no Transpose.

       SpaceToBatch, NCHW    SpaceToDepth [N, b*b*C, Hb, Wb] -> Reshape [N, b*b, rest] -> T[1,0,2]
       BatchToSpace, NCHW    Reshape [b*b, N, rest] -> T[1,0,2] -> DepthToSpace
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
from onnx_spatial.lowering.emitter import (
    AxisPart,
    Emitter,
    Size,
    Tensor,
    Term,
    has_pad_kernel,
    index,
    pad,
)
from onnx_spatial.lowering.permutation import Order, Rearrangement, transposed
from onnx_spatial.lowering.request import (
    Request,
    Windows,
    axes_of,
    computes_padding,
    patches,
    windows_and_pads,
)
from onnx_spatial.operators import ExtractPatches, Layout, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall

#: The most Slices of one operator, and the most outputs of a Split.
MAX_SLICES = 256

# 1. Planes

#: Bytes of the elements that onnxruntime transposes in tiles.
_FAST = (1, 2, 4)


def planes(request: Request, emit: Emitter) -> ir.Value:
    """Emit dense Slices along the last axis and a Gather of rows along the others."""
    request.refuse_strings()
    op = patches(request)
    if op.kernel[-1] > MAX_SLICES:
        raise ConversionError(f"the window has more than {MAX_SLICES} places along the last axis")
    w, spare = _pad_planes(op, request, emit)
    taps = _emit_taps(request, emit, w, spare)
    depth = emit.product([*op.kernel, w.channels])
    batch = w.x.dims[0]
    last = _layout_behind(request) == "channels_last"
    rows = _rows_of_taps(emit, w, taps, images_inside=last)
    if not last:
        return emit.reshape(rows, [batch, depth, *w.counts]).value
    if _leading_axes(w):
        images = emit.reshape(rows, [batch, depth, emit.product(w.counts)])
        turned = emit.transpose(images, [0, 2, 1])
    else:
        flat = emit.reshape(rows, [depth, emit.product([batch, *w.counts])])
        turned = emit.transpose(flat, [1, 0])
    return emit.reshape(turned, [batch, *w.counts, depth]).value


def ends_in_a_layout(request: Request) -> bool:
    """Tell whether the output behind `Request.after` has one of the layouts."""
    return _layout_behind(request) is not None


def _layout_behind(request: Request) -> Layout | None:
    """Return the layout of the output behind `Request.after`, None if it is neither."""
    op = patches(request)
    if request.after is None:
        return op.layout
    layouts: tuple[Layout, ...] = ("channels_last", "channels_first")
    return next((layout for layout in layouts if list(request.after) == axes_of(op, layout)), None)


def _pad_planes(op: ExtractPatches, request: Request, emit: Emitter) -> tuple[Windows, int]:
    """Pad the data and transpose it to planes.

    Returns:
        The windows; and the cells of one stride along the last axis beyond their number, if the size
        of that axis is unknown and it is padded to whole cells.
    """
    x = request.operand(emit)
    counts, pads = windows_and_pads(emit, op, x)
    # axis of the value for each axis of the operator, and back
    perm = list(request.before or range(x.rank))
    back = [perm.index(axis) for axis in range(x.rank)]
    last = op.spatial_axes[-1]
    spare = 0
    if _splits_phases(op) and not isinstance(x.dims[last], int):
        phases = op.strides[-1]
        spare = (op.extent(len(counts) - 1) - 1) // phases
        cuts = has_pad_kernel(request.element_types, emit.opset) and back[-1] == last
        if op.auto_pad == "valid" and not cuts:
            # so that nothing is cut off: a Pad does that fast on the last axis alone
            spare += 1
        length = emit.mul(emit.add(counts[-1], spare), phases)
        begin, _ = pads[last]
        pads[last] = (begin, emit.sub(emit.sub(length, x.dims[last]), begin))
    x = emit.tensor(x.value, [x.dims[axis] for axis in back], x.itemsize)
    pads = [pads[axis] for axis in back]
    x = pad(emit, x, pads, request.element_types, signed=op.signed_pads)
    x = emit.permute(x, [perm[axis] for axis in axes_of(op, "channels_first")])
    return Windows(op, x, tuple(counts), "channels_first"), spare


def _splits_phases(op: ExtractPatches) -> bool:
    """Tell whether the last axis is split into the phases of its stride."""
    return op.kernel[-1] > 1 and 1 < op.strides[-1] <= MAX_SLICES


def _leading_axes(w: Windows) -> list[Size]:
    """Return the axes in front of the rows: an unknown batch, so that no index holds it."""
    batch = w.x.dims[0]
    return [] if isinstance(batch, int) or computes_padding(w.op) else [batch]


def _emit_taps(request: Request, emit: Emitter, w: Windows, spare: int) -> Tensor:
    """Return [.., positions in the window along the last axis * rows, windows along that axis]."""
    op, last = w.op, len(w.op.kernel) - 1
    kernel, stride, rate = op.kernel[last], op.strides[last], op.rates[last]
    size, count = w.size(last), w.counts[last]
    lead = _leading_axes(w)
    lines = [*lead, emit.product(w.x.dims[len(lead) : -1])]
    axis = len(lines)  # of the cells, or elements, of a line
    if not _splits_phases(op):
        x = emit.reshape(w.x, [*lines, size])
        parts = [emit.slice(x, {axis: w.part(last, i)}) for i in range(kernel)]
        return emit.concat(parts, axis - 1)
    # [rows * cells, phases]: tap i is cells of phase i * rate % stride
    if isinstance(size, int) and isinstance(count, int):
        cells: Size = max(-(-((count - 1) * stride + (kernel - 1) * rate + 1) // stride), 0)
        length = emit.mul(cells, stride)
        lacking = emit.sub(length, size)
        x = emit.reshape(w.x, [*lines, size])
        if isinstance(lacking, int) and lacking < 0:
            x = emit.slice(x, {axis: AxisPart(0, length)})
        else:
            x = pad(emit, x, [*[(0, 0)] * axis, (0, lacking)], request.element_types)
        cells_behind: int | None = None  # the windows, whose ends are known
    else:
        x = w.x
        cells = emit.add(count, spare)
        cells_behind = spare
    taps = []
    for i in range(kernel):
        start, phase = divmod(i * rate, stride)
        left = None if cells_behind is None else cells_behind - start
        taps.append((phase, AxisPart(start, count, left)))
    return _of_phases(emit, x, [*lines, cells], stride, taps)


def _of_phases(
    emit: Emitter, x: Tensor, dims: list[Size], stride: int, taps: Sequence[tuple[int, AxisPart]]
) -> Tensor:
    """Split lines of cells into the phases of each cell; return the taps, joined in front of the cells.

    Args:
        emit: collects the nodes.
        x: the elements, `stride` of which are a cell.
        dims: lines, and the number of cells in a line.
        stride: number of phases.
        taps: the phase of each, and which cells of a line it takes.
    """
    *lines, _ = dims
    axis = len(lines)
    rows = emit.product(lines)
    x = emit.reshape(x, [emit.product(dims), stride])
    parts = []
    if x.itemsize not in _FAST or rows == 1:
        split = [emit.reshape(phase, dims) for phase in emit.split(x, 1, stride)]
        for phase, tap in taps:
            parts.append(emit.slice(split[phase], {axis: tap}))
        return emit.concat(parts, axis - 1)
    moved = emit.transpose(x, [1, 0])
    if isinstance(rows, int):
        joined = emit.reshape(moved, [stride * rows, dims[-1]])
        for phase, tap in taps:
            parts.append(emit.slice(joined, {0: AxisPart(phase * rows, rows), 1: tap}))
        return emit.concat(parts, 0)
    phases = emit.reshape(moved, [stride, *dims])
    for phase, tap in taps:
        parts.append(emit.slice(phases, {0: AxisPart(phase, 1), axis + 1: tap}))
    if axis > 1:
        return emit.concat(parts, axis)
    return emit.reshape(emit.concat(parts, 0), [emit.mul(rows, len(parts)), taps[0][1].count])


def _rows_of_taps(emit: Emitter, w: Windows, taps: Tensor, *, images_inside: bool) -> Tensor:
    """Return the rows of the taps: places, images, windows; or images, places, windows."""
    op, batch, channels = w.op, w.x.dims[0], w.channels
    outside, inside, stride = w.row_terms(emit, 1, len(op.kernel) - 1)
    channel = Term(channels, stride)
    stride = emit.mul(stride, channels)
    images: list[Term] = []
    if not _leading_axes(w):
        images = [Term(batch, stride)]
        stride = emit.mul(stride, batch)
    inside.append(Term(op.kernel[-1], stride))
    parts = [*inside, channel] if op.major == "place" else [channel, *inside]
    terms = [*parts, *images, *outside] if images_inside else [*images, *parts, *outside]
    axis = taps.rank - 2
    if _is_identity(terms, taps.dims[axis]):
        return taps
    return emit.gather(taps, index(emit, terms), axis)


def _is_identity(order: Sequence[Term], rows: Size) -> bool:
    """Tell whether an index is 0, 1, 2, ... up to the last row, which changes nothing."""
    stride = 1
    for term in reversed(order):
        count = term.count
        if not isinstance(count, int) or not term.known:
            return False
        if count == 1 and not term.offsets().any():
            continue
        if term.offsets().tolist() != [i * stride for i in range(count)]:
            return False
        stride *= count
    return stride == rows


# 2. Strided Slices


def slices(request: Request, emit: Emitter) -> ir.Value:
    """Emit one Slice, or output of a Split, for each position in a block or window."""
    places = _positions_of(request)
    operator = request.call.operator
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
    cells = [tuple(f for f in axis if f not in offsets) for axis in r.inputs]
    if cells != [tuple(f for f in axis if f not in offsets) for axis in r.outputs]:
        raise ConversionError("the axes come out in another order")
    target = next(n for n, axis in enumerate(r.outputs) if set(axis) & set(offsets))
    order = [f for f in r.outputs[target] if f in offsets]
    x = r.padded(emit)
    counts = [r.size(emit, axis) for axis in cells]
    parts = []
    for starts in itertools.product(*(range(_block_size(r, f)) for f in order)):
        window = {}
        for factor, start in zip(order, starts, strict=True):
            axis, step = offsets[factor], _block_size(r, factor)
            if step > 1:
                window[axis] = AxisPart(start, counts[axis], 0, step)
        parts.append(emit.slice(x, window))
    if r.checks_division:
        # Where a block does not divide, the part of the last offsets is smaller than the first, and this
        # Reshape fails. Concat would skip an empty part and leave its share of the result undefined.
        last = parts[-1]
        value = emit.op("Reshape", last.value, emit.op("Shape", parts[0].value))
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
    count = math.prod(_block_size(r, f) for f in order)
    parts = emit.split(x, 0, count) if count > 1 else [x]
    places = list(itertools.product(*(range(_block_size(r, f)) for f in order)))
    by_place = dict(zip(places, parts, strict=True))
    tail: Size = 1
    for axis in reversed(r.outputs):
        if len(axis) == 1:
            tail = emit.mul(tail, r.sizes[axis[0]])
            continue
        cell, offset = axis
        if _block_size(r, offset) > 1:
            rows = r.size(emit, rest[: rest.index(cell) + 1])
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


def _block_size(r: Rearrangement, factor: int) -> int:
    size = r.sizes[factor]
    assert isinstance(size, int)
    return size


def _slice_patches(request: Request, emit: Emitter) -> Tensor:
    w = Windows.of(request, emit)
    parts = []
    for places in itertools.product(*map(range, w.op.kernel)):
        axes = zip(w.op.spatial_axes, places, strict=True)
        window = {axis: w.part(number, place) for number, (axis, place) in enumerate(axes)}
        parts.append(emit.slice(w.x, window))
    return emit.concat(parts, w.op.channel_axis)


# 3. SpaceToDepth

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
    lead = r.size(emit, order[:-4])
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
