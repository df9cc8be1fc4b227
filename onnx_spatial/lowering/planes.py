"""Lower overlapping patches plane by plane: dense Slices along the last axis, then whole rows.

    [N, C, H, W] -> kw Slices [N*C*H, ow] -> Concat [kw*N*C*H, ow] -> one Gather of rows
    channels first   rows in the order N, kh, kw, C, oh; an unknown N stays an axis in front
    channels last    rows in the order kh, kw, C, N, oh; then [kh*kw*C, N*oh*ow] -> T[1,0]

With a stride s the last axis is split into its s phases first, so that the taps are dense: by a
Transpose and a Reshape that joins the phases with the rows, or by Split for a single row, where
onnxruntime's optimizer would push the Transpose through the Slices. Channels-last data is transposed
to planes first: it is small compared to the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import Term, index
from onnx_spatial.lowering.core.padding import has_pad_kernel, pad
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.windows import (
    Place,
    Windows,
    axes_of,
    computes_padding,
    patches,
    window_slice,
    windows_and_pads,
)
from onnx_spatial.operators import ExtractPatches, Layout

#: Bytes of the elements that onnxruntime transposes in tiles.
_FAST = (1, 2, 4)

#: The most Slices, one for each place of a window along the last axis.
_MOST_SLICES = 64

#: The most phases of a stride: outputs of a Split.
_MOST_PHASES = 16


def planes(request: Request, emit: Emitter) -> ir.Value:
    """Emit dense Slices along the last axis and a Gather of rows along the others."""
    request.refuse_strings()
    op = patches(request)
    if op.kernel[-1] > _MOST_SLICES:
        raise ConversionError(f"the window has more than {_MOST_SLICES} places along the last axis")
    w, spare = _pad_planes(op, request, emit)
    taps = _emit_taps(op, request, emit, w, spare)
    depth = emit.product([*op.kernel, w.channels])
    batch = w.x.dims[0]
    last = _layout_behind(request) == "channels_last"
    rows = _rows_of_taps(op, emit, w, taps, images_inside=last)
    if not last:
        return emit.reshape(rows, [batch, depth, *w.counts]).value
    if _leading_axes(op, w):
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
    last, spare = op.spatial_axes[-1], 0
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
    return Windows(x, tuple(counts), "channels_first"), spare


def _splits_phases(op: ExtractPatches) -> bool:
    """Tell whether the last axis is split into the phases of its stride."""
    return op.kernel[-1] > 1 and 1 < op.strides[-1] <= _MOST_PHASES


def _leading_axes(op: ExtractPatches, w: Windows) -> list[Size]:
    """Return the axes in front of the rows: an unknown batch, so that no index holds it."""
    batch = w.x.dims[0]
    return [] if isinstance(batch, int) or computes_padding(op) else [batch]


def _emit_taps(
    op: ExtractPatches, request: Request, emit: Emitter, w: Windows, spare: int
) -> Tensor:
    """Return [.., positions in the window along the last axis * rows, windows along that axis]."""
    last = len(op.kernel) - 1
    kernel, stride, rate = op.kernel[last], op.strides[last], op.rates[last]
    size, count = w.size(last), w.counts[last]
    lead = _leading_axes(op, w)
    lines = [*lead, emit.product(w.x.dims[len(lead) : -1])]
    axis = len(lines)
    if not _splits_phases(op):
        x = emit.reshape(w.x, [*lines, size])
        parts = [
            window_slice(emit, x, {axis: Place.of(op, last, i, count)}, [*lines, count])
            for i in range(kernel)
        ]
        return emit.concat(parts, axis - 1)
    # [rows * cells, phases]: tap i is cells of phase i * rate % stride
    if isinstance(size, int) and isinstance(count, int):
        cells: Size = max(-(-((count - 1) * stride + (kernel - 1) * rate + 1) // stride), 0)
        length = emit.mul(cells, stride)
        more = emit.sub(length, size)
        x = emit.reshape(w.x, [*lines, size])
        if isinstance(more, int) and more < 0:
            x = emit.slice(x, [axis], [0], [length], [*lines, length])
        else:
            x = pad(emit, x, [*[(0, 0)] * axis, (0, more)], request.element_types)
        left = 0
    else:
        x, left = w.x, spare
        cells = emit.add(count, left)
    taps = []
    for i in range(kernel):
        start, phase = divmod(i * rate, stride)
        taps.append((phase, Place(start, 1, count, left - start)))
    return _of_phases(emit, x, [*lines, cells], stride, taps)


def _of_phases(
    emit: Emitter, x: Tensor, dims: list[Size], stride: int, taps: Sequence[tuple[int, Place]]
) -> Tensor:
    """Split rows of cells into the phases of each cell; return the taps, each in one phase, joined."""
    *lines, _ = dims
    rows, axis = emit.product(lines), len(lines)
    x = emit.reshape(x, [emit.product(dims), stride])
    parts = []
    if x.itemsize not in _FAST or rows == 1:
        split = [emit.reshape(phase, dims) for phase in emit.split(x, 1, stride)]
        for phase, tap in taps:
            parts.append(window_slice(emit, split[phase], {axis: tap}, [*lines, tap.count]))
        return emit.concat(parts, axis - 1)
    moved = emit.transpose(x, [1, 0])
    if isinstance(rows, int):
        joined = emit.reshape(moved, [stride * rows, dims[-1]])
        for phase, tap in taps:
            window = {0: Place(phase * rows, 1, rows, 0), 1: tap}
            parts.append(window_slice(emit, joined, window, [rows, tap.count]))
        return emit.concat(parts, 0)
    phases = emit.reshape(moved, [stride, *dims])
    for phase, tap in taps:
        window = {0: Place(phase, 1, 1, 0), axis + 1: tap}
        parts.append(window_slice(emit, phases, window, [1, *lines, tap.count]))
    if axis > 1:
        return emit.concat(parts, axis)
    return emit.reshape(emit.concat(parts, 0), [emit.mul(rows, len(parts)), taps[0][1].count])


def _rows_of_taps(
    op: ExtractPatches,
    emit: Emitter,
    w: Windows,
    taps: Tensor,
    *,
    images_inside: bool,
) -> Tensor:
    """Return the rows of the taps: places, images, windows; or images, places, windows."""
    batch, channels = w.x.dims[0], w.channels
    outside, inside, stride = w.row_terms(emit, op, 1, len(op.kernel) - 1)
    channel = Term(channels, stride)
    stride = emit.mul(stride, channels)
    images: list[Term] = []
    if not _leading_axes(op, w):
        images = [Term(batch, stride)]
        stride = emit.mul(stride, batch)
    inside.append(Term(op.kernel[-1], stride))
    parts = [*inside, channel] if op.major == "place" else [channel, *inside]
    terms = [*parts, *images, *outside] if images_inside else [*images, *parts, *outside]
    axis = taps.rank - 2
    if _in_order(terms, taps.dims[axis]):
        return taps
    return emit.gather(taps, index(emit, terms), axis)


def _in_order(order: Sequence[Term], rows: Size) -> bool:
    """Tell whether the index is 0, 1, 2, ... up to the last row, which changes nothing."""
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
