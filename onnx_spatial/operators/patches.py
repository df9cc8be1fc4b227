"""Define ExtractPatches: move the sliding windows of an image or volume to the channel axis.

Kernel k, stride s and rate r per spatial axis; a window spans eff = (k-1)*r + 1 elements:

    valid           out = (in - eff + s) / s, truncated like C
    same_upper      out = ceil(in/s), total = max(0, (out-1)*s + eff - in), begin = total // 2
    same_lower      the same with begin = (total + 1) // 2
    same_unclamped  total may be negative, begin = trunc(total / 2): sampling starts inside

Output channel = (patch position, row-major) * C + c: patch position major, input channel minor, in
both layouts. torch.nn.Unfold is the other way round, c * positions + position (`major`). Elements
outside the image are 0.
`same_unclamped` is TensorFlow's ExtractVolumePatches with stride > kernel; its ExtractImagePatches
clamps. Checked against TensorFlow 2.21 and OpenVINO 2026.4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.operator import (
    INT32_MAX,
    Arithmetic,
    Dim,
    FixedOperator,
    Size,
    check_entries,
    integers,
    show,
)
from onnx_spatial.operators.strided_copies import Move, Plan, View, gaps, kept

AutoPad = Literal["valid", "same_upper", "same_lower", "same_unclamped"]
Layout = Literal["channels_last", "channels_first"]
Major = Literal["place", "channel"]


@dataclass(frozen=True)
class ExtractPatches(FixedOperator):
    """Collect the window around every output position into the channel axis.

    Attributes:
        kernel: window size per spatial axis, in samples; each >= 1.
        strides: distance of neighbouring windows, in elements; each >= 1.
        rates: distance of neighbouring samples inside a window, in elements; each >= 1.
        auto_pad: "valid", "same_upper", "same_lower" or "same_unclamped", see the module.
        layout: "channels_last" [N, spatial.., C] or "channels_first" [N, C, spatial..].
        clamp_negative: a "valid" window larger than the image gives an empty output (OpenVINO)
            where it is an error otherwise (TensorFlow).
        major: what an output channel counts slowly: the places of a window, or the input channels.

    Raises:
        OperatorError: a value breaks one of these rules.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    rates: tuple[int, ...]
    auto_pad: AutoPad
    layout: Layout = "channels_last"
    clamp_negative: bool = False
    major: Major = "place"

    name = "ExtractPatches"
    noun = "patch"
    positions_of = "windows"

    def __post_init__(self) -> None:
        for field in ("kernel", "strides", "rates"):
            values = integers(f"{self.name}: {field}", getattr(self, field))
            if len(values) != len(self.kernel):
                raise OperatorError(
                    f"{self.name}: {field} has {len(values)} entries, kernel {len(self.kernel)}",
                    code=Code.ATTRIBUTE,
                )
            check_entries(f"{self.name}: {field}", values, 1)
            for axis, value in enumerate(values):
                if value > INT32_MAX:  # as in TensorFlow; sums of them then fit into int64
                    raise OperatorError(
                        f"{self.name}: {field}[{axis}] is {value}; it must fit into 32 bits",
                        code=Code.OUT_OF_RANGE,
                    )
            object.__setattr__(self, field, values)
        if self.auto_pad not in get_args(AutoPad):
            raise OperatorError(
                f"{self.name}: unknown padding {self.auto_pad!r}", code=Code.ATTRIBUTE
            )
        if self.layout not in get_args(Layout):
            raise OperatorError(f"{self.name}: unknown layout {self.layout!r}", code=Code.ATTRIBUTE)
        if self.major not in get_args(Major):
            raise OperatorError(
                f"{self.name}: unknown order of channels {self.major!r}", code=Code.ATTRIBUTE
            )

    @property
    def rank(self) -> int:
        """Rank of the input: batch, spatial axes, channels."""
        return len(self.kernel) + 2

    @property
    def spatial_axes(self) -> range:
        """Positions of the spatial axes in the input (and output) shape."""
        first = 1 if self.layout == "channels_last" else 2
        return range(first, first + len(self.kernel))

    @property
    def channel_axis(self) -> int:
        """Position of the channel axis in the input (and output) shape."""
        return self.rank - 1 if self.layout == "channels_last" else 1

    @property
    def positions(self) -> tuple[int, ...]:
        """Samples of a window along each axis."""
        return self.kernel

    @property
    def is_identity(self) -> bool:
        """Whether windows and strides are 1."""
        return set(self.kernel) == {1} and set(self.strides) == {1}

    @property
    def may_pad(self) -> bool:
        """Whether windows may reach beyond the image."""
        return self.auto_pad != "valid"

    @property
    def signed_pads(self) -> bool:
        """Whether amounts of `padding` may be negative."""
        return self.auto_pad == "same_unclamped"

    def extent(self, axis: int) -> int:
        """Return the elements that a window spans on spatial axis number `axis`: (k-1)*r + 1."""
        return (self.kernel[axis] - 1) * self.rates[axis] + 1

    def output_size(self, axis: int, size: int) -> int:
        """Return the number of windows on spatial axis number `axis` of `size` elements.

        Raises:
            OperatorError: it would be negative and `clamp_negative` is not set.
        """
        stride = self.strides[axis]
        if self.auto_pad != "valid":
            return -(-size // stride)
        span = size - self.extent(axis) + stride
        count = span // stride if span >= 0 else -(-span // stride)
        if count < 0 and not self.clamp_negative:
            raise OperatorError(
                f"{self.name}: spatial axis {axis}: a window of {self.extent(axis)} elements on "
                f"size {size} gives the negative output size {count}",
                code=Code.WINDOW,
            )
        return max(0, count)

    def padding(self, axis: int, size: int) -> tuple[int, int]:
        """Return the zeros before and behind spatial axis number `axis`; negative ones cut off."""
        if self.auto_pad == "valid":
            return 0, 0
        total = (self.output_size(axis, size) - 1) * self.strides[axis] + self.extent(axis) - size
        if self.auto_pad == "same_unclamped":
            begin = int(total / 2) if abs(total) < 2**52 else total // 2
        else:
            total = max(0, total)
            begin = (total + 1) // 2 if self.auto_pad == "same_lower" else total // 2
        return begin, total - begin

    def check(self, shape: Sequence[Dim]) -> None:
        """Check the rank; `output_size` refuses sizes that are too small."""
        if len(shape) != self.rank:
            raise OperatorError(
                f"{self.name}: the input must have rank {self.rank}, not {show(shape)}",
                code=Code.RANK,
            )

    def windows(self, sizes: Arithmetic, axis: int, size: Size) -> tuple[Size, Size, Size]:
        """Compute `output_size`, and begin and end of `padding`, for a size that may be unknown."""
        if isinstance(size, int):
            # On an axis of no elements there is nothing to cut off.
            return (self.output_size(axis, size), *(self.padding(axis, size) if size else (0, 0)))
        stride, extent = self.strides[axis], self.extent(axis)
        if self.auto_pad == "valid":
            count = sizes.div(sizes.add(size, stride - extent), stride)
            if extent >= 2 * stride:  # negative for a window beyond the image
                count = sizes.max(count, 0)
            return count, 0, 0
        count = sizes.div(sizes.add(size, stride - 1), stride)
        if stride == 1:  # total = extent - 1, whatever the size
            total = extent - 1
        else:
            total = sizes.sub(sizes.add(sizes.mul(count, stride), extent - stride), size)
            if self.auto_pad != "same_unclamped" and stride > extent:
                total = sizes.max(total, 0)
            elif stride > extent:  # an empty axis has nothing to cut off
                total = sizes.max(total, sizes.sub(0, size))
        before = sizes.add(total, 1) if self.auto_pad == "same_lower" else total
        begin = sizes.div(before, 2)
        return count, begin, sizes.sub(total, begin)

    def output_dims(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Compute [N, windows.., prod(kernel)*C] for [N, spatial.., C], or with the channels first."""
        out = list(dims)
        for number, axis in enumerate(self.spatial_axes):
            out[axis] = self.windows(sizes, number, dims[axis])[0]
        out[self.channel_axis] = sizes.product([*self.kernel, dims[self.channel_axis]])
        return out

    def constraints(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Return how much each image exceeds the smallest legal one; SAME has no smallest one."""
        if self.auto_pad != "valid" or self.clamp_negative:
            return []
        constraints = []
        for number, axis in enumerate(self.spatial_axes):
            least = self.extent(number) - 2 * self.strides[number] + 1
            if least > 0:
                constraints.append(sizes.sub(dims[axis], least))
        return constraints

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """Return the copies for an input [N, spatial.., C] or [N, C, spatial..]."""
        out = self.output_sizes(shape)
        axis, channels = self.channel_axis, shape[self.channel_axis]
        parts = (*self.kernel, channels) if self.major == "place" else (channels, *self.kernel)
        dims = (*out[:axis], *parts, *out[axis + 1 :])
        first = axis + (self.major == "channel")
        places = range(first, first + len(self.kernel))
        order = (*places, *(a for a in range(len(dims)) if a not in places))
        moves = kept(math.prod(self.kernel), partial(self._list_moves, shape))
        together = self.layout == "channels_last" and self.major == "place"
        return Plan(out, View(shape), View(dims, order), moves, int(together))

    def _list_moves(self, shape: tuple[int, ...]) -> Iterator[Move]:
        """Yield the moves from an input of that shape to [kernel.., output with C channels]."""
        sizes = [shape[a] for a in self.spatial_axes]
        windows = [self.output_size(axis, size) for axis, size in enumerate(sizes)]
        pads = [self.padding(axis, size)[0] for axis, size in enumerate(sizes)]
        first_axis = self.spatial_axes.start
        lead = (slice(None),) * first_axis
        for position in itertools.product(*map(range, self.kernel)):
            cells, elements = [], []
            for sample, s, r, begin, size, count in zip(
                position, self.strides, self.rates, pads, sizes, windows, strict=True
            ):
                shift = sample * r - begin  # window o reads element o*s + shift
                first = min(max(0, -(shift // s)), count)
                last = max(first, min(count, -((shift - size) // s)))
                cells.append(slice(first, last))
                start = max(0, first * s + shift)
                elements.append(slice(start, start + (last - first) * s, s))
            outside = gaps(first_axis, cells, windows)
            yield Move(position, (*lead, *cells), (*lead, *elements), outside)
