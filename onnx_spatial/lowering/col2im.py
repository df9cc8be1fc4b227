"""Write Col2Im, the sum of overlapping windows, as a sum of shifted parts: along one axis after another.

    x [A, k, L]         the places of the windows (k) along an axis, the windows (L)
    y [A, I]            y[a, l * s + q * d] += x[a, q, l]        s the stride, d the dilation

An offset q * d is t whole strides and a phase r < s. Places with the same t make one part [A, s, L],
zeros in the phases that it lacks. The parts are padded by t windows and added, and a Transpose puts the
phases between two strides. Ranks up to 4 are used.

Where windows overlap, onnxruntime adds in another order: floats differ within rounding. No index map
proves this form; it is for runtimes that lack the operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor, same
from onnx_spatial.lowering.core.padding import pad


@dataclass(frozen=True)
class Windows:
    """The windows of a Col2Im along each axis.

    Attributes:
        kernel, strides, dilations: places, distance of windows and of their places.
        begins, ends: pads of the image, which are cut off.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]


def emit_col2im(
    emit: Emitter, x: Tensor, image: Sequence[Size], windows: Windows, element_types: frozenset[int]
) -> Tensor:
    """Emit the nodes.

    Args:
        emit: collects them.
        x: [N, C * places, windows].
        image: sizes of the image.
        windows: the windows.
        element_types: ONNX element types that the data may have.

    Returns:
        [N, C, *image].
    """
    batch, channels = x.dims[0], emit.div(x.dims[1], math.prod(windows.kernel))
    images = emit.product([batch, channels])
    counts = [
        emit.add(emit.div(emit.sub(emit.add(size, begin + end), d * (k - 1) + 1), s), 1)
        for size, k, s, d, begin, end in zip(
            image,
            windows.kernel,
            windows.strides,
            windows.dilations,
            windows.begins,
            windows.ends,
            strict=True,
        )
    ]
    for axis in reversed(range(len(image))):
        part = _Axis(
            front=emit.product([images, math.prod(windows.kernel[:axis])]),
            between=emit.product(counts[:axis]),
            count=counts[axis],
            behind=emit.product(image[axis + 1 :]),
            kernel=windows.kernel[axis],
            stride=windows.strides[axis],
            dilation=windows.dilations[axis],
            begin=windows.begins[axis],
            size=image[axis],
        )
        x = part.summed(emit, x, element_types)
    return emit.reshape(x, [batch, channels, *image])


@dataclass(frozen=True)
class _Axis:
    """One axis: the tensor is [front, kernel, between, count, behind].

    Attributes:
        front, between, behind: sizes of what lies around.
        count: number of windows.
        kernel, stride, dilation: places of a window, and the distances.
        begin: what is cut off in front.
        size: of the image.
    """

    front: Size
    between: Size
    count: Size
    behind: Size
    kernel: int
    stride: int
    dilation: int
    begin: int
    size: Size

    def summed(self, emit: Emitter, x: Tensor, element_types: frozenset[int]) -> Tensor:
        """Emit the sum, [front * between, size, behind]."""
        parts, shifts = self._parts(emit, x, element_types)
        cells = self._cells(emit)
        rows = emit.product([self.front, self.stride, self.between])
        total: Tensor | None = None
        for part, shift in zip(parts, shifts, strict=True):
            left = emit.sub(emit.sub(cells, self.count), shift)
            part = emit.reshape(part, [rows, self.count, self.behind])
            part = pad(emit, part, [(0, 0), (shift, left), (0, 0)], element_types)
            if total is not None:
                value = emit.op("Add", total.value, part.value)
                part = emit.tensor(value, part.dims, part.itemsize)
            total = part
        assert total is not None
        y = total
        if self.stride > 1:
            lines = emit.product([self.between, cells])
            y = emit.reshape(y, [self.front, self.stride, lines, self.behind])
            y = emit.permute(y, [0, 2, 1, 3])
        length, stop = emit.mul(cells, self.stride), emit.add(self.size, self.begin)
        images = emit.product([self.front, self.between])
        y = emit.reshape(y, [images, length, self.behind])
        if self.begin == 0 and same(length, stop):
            return y
        dims = [images, self.size, self.behind]
        return emit.slice(y, [1], [self.begin], [stop], dims)

    def _parts(
        self, emit: Emitter, x: Tensor, element_types: frozenset[int]
    ) -> tuple[list[Tensor], list[int]]:
        """Return the parts [front, stride, ..], and by how many windows each is shifted."""
        at: dict[int, list[int | None]] = {}
        for place in range(self.kernel):
            shift, phase = divmod(place * self.dilation, self.stride)
            at.setdefault(shift, [None] * self.stride)[phase] = place
        table = [place for row in at.values() for place in row]
        rest = emit.product([self.between, self.count, self.behind])
        x = emit.reshape(x, [self.front, self.kernel, rest])
        missing = len(table) - self.kernel
        if table[: self.kernel] == list(range(self.kernel)):
            x = pad(emit, x, [(0, 0), (0, missing), (0, 0)], element_types)
        else:
            x = pad(emit, x, [(0, 0), (0, min(missing, 1)), (0, 0)], element_types)
            rows = emit.ints([self.kernel if p is None else p for p in table], "places")
            x = emit.gather(x, emit.tensor(rows, [len(table)]), 1)
        return emit.split(x, 1, len(at)) if len(at) > 1 else [x], list(at)

    def _cells(self, emit: Emitter) -> Size:
        """Return a number of strides that all places and the image lie in."""
        last = self.dilation * (self.kernel - 1) // self.stride
        if isinstance(self.count, int) and isinstance(self.size, int):
            return max(self.count + last, -(-(self.begin + self.size) // self.stride))
        return emit.add(self.count, last + 1)
