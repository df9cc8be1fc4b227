"""Lower overlapping patches plane by plane; the windows of patches of unknown sizes serve others, too.

    row of the sample at place i of window o along axis a = (o * stride + i * rate) * (rows of a step)

Begins and ends of the padding, and the number of windows, come from `ExtractPatches.windows`. Planes are
dense Slices along the last axis, then whole rows:

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
from dataclasses import dataclass

import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.emitter import (
    INT64_MAX,
    Emitter,
    Size,
    Tensor,
    Term,
    has_pad_kernel,
    index,
    pad,
)
from onnx_spatial.lowering.request import Request
from onnx_spatial.operators import ExtractPatches, Layout


def patches(request: Request) -> ExtractPatches:
    """Return the operator of a request for patches."""
    operator = request.call.operator
    assert isinstance(operator, ExtractPatches)
    return operator


def windows_and_pads(
    emit: Emitter, op: ExtractPatches, x: Tensor
) -> tuple[list[Size], list[tuple[Size, Size]]]:
    """Return the number of windows along each spatial axis, and the zeros around each axis of `x`.

    Negative amounts of zeros cut elements off.
    """
    counts: list[Size] = []
    pads: list[tuple[Size, Size]] = [(0, 0)] * x.rank
    for number, axis in enumerate(op.spatial_axes):
        count, begin, end = op.windows(emit, number, x.dims[axis])
        counts.append(count)
        pads[axis] = (begin, end)
    return counts, pads


def computes_padding(op: ExtractPatches) -> bool:
    """Tell whether the padding depends on the size of the image: such lowerings are hard to prove."""
    return op.auto_pad != "valid" and max(op.strides) > 1


def axes_of(op: ExtractPatches, layout: Layout) -> list[int]:
    """Return the operator's axes in the order of a layout."""
    if layout == "channels_last":
        return [0, *op.spatial_axes, op.channel_axis]
    return [0, op.channel_axis, *op.spatial_axes]


@dataclass(frozen=True)
class Windows:
    """The padded data of a patch operator.

    Attributes:
        x: [N, spatial.., C] or [N, C, spatial..], padded.
        counts: windows along each spatial axis.
        layout: which of the two layouts.
    """

    x: Tensor
    counts: tuple[Size, ...]
    layout: Layout

    @classmethod
    def of(cls, request: Request, emit: Emitter) -> Windows:
        """Pad the data of a request without Transposes around it."""
        op, x = patches(request), request.data(emit)
        counts, pads = windows_and_pads(emit, op, x)
        x = pad(emit, x, pads, request.element_types, signed=op.signed_pads)
        return cls(x, tuple(counts), op.layout)

    def size(self, number: int) -> Size:
        """Return the size of spatial axis number `number`."""
        return self.x.dims[number + (1 if self.layout == "channels_last" else 2)]

    @property
    def channels(self) -> Size:
        """Number of channels."""
        return self.x.dims[-1 if self.layout == "channels_last" else 1]

    def row_terms(
        self, emit: Emitter, op: ExtractPatches, stride: Size, axes: int
    ) -> tuple[list[Term], list[Term], Size]:
        """Describe the rows of the first spatial axes.

        Args:
            emit: collects the nodes.
            op: the operator.
            stride: rows from one entry of the innermost of these axes to the next.
            axes: number of these axes.

        Returns:
            A term for the windows along each axis, one for the positions in the window along each that
            has several, and the number of rows of these axes together.
        """
        outside: list[Term] = []
        inside: list[Term] = []
        for number in reversed(range(axes)):
            outside.insert(0, Term(self.counts[number], stride, op.strides[number]))
            if op.kernel[number] > 1:
                inside.insert(0, Term(op.kernel[number], stride, op.rates[number]))
            stride = emit.mul(stride, self.size(number))
        return outside, inside, stride


@dataclass(frozen=True)
class Place:
    """The elements of an axis at one place of all windows.

    Attributes:
        start: the first one.
        step: from one to the next.
        count: number of elements.
        left: elements behind the last one that are not taken; with a step, fewer may be left.
    """

    start: int
    step: int
    count: Size
    left: int

    @classmethod
    def of(cls, op: ExtractPatches, number: int, place: int, count: Size) -> Place:
        """Return a place of the windows along padded spatial axis number `number`."""
        start = place * op.rates[number]
        return cls(start, op.strides[number], count, op.extent(number) - 1 - start)


def window_slice(
    emit: Emitter, x: Tensor, window: dict[int, Place], dims: Sequence[Size]
) -> Tensor:
    """Slice `x` at one place of its windows, without bounds that change nothing."""
    axes, starts, ends, steps = [], [], [], []
    for axis, place in window.items():
        if (place.start, place.step) == (0, 1) and x.dims[axis] == place.count:
            continue
        axes.append(axis)
        starts.append(place.start)
        steps.append(place.step)
        if isinstance(place.count, int):
            # One step beyond the last element; Slice clamps an end beyond the axis.
            ends.append(place.start + place.count * place.step)
        else:  # counted from the end of the axis, so that nothing is computed
            ends.append(-place.left or INT64_MAX)
    return emit.slice(x, axes, starts, ends, dims, steps) if axes else x


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
