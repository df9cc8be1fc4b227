"""Describe the windows of patches where sizes may be known at run time only; shared by lowerings.

    row of the sample at place i of window o along axis a = (o * stride + i * rate) * (rows of a step)

Begins and ends of the padding, and the number of windows, come from `ExtractPatches.windows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_spatial.lowering.core.builder import INT64_MAX, Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import Term
from onnx_spatial.lowering.core.padding import pad
from onnx_spatial.lowering.core.strategy import Request
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
