"""Read which spatial operator an index map is from single elements.

    y[0, i] = x[0, 2*i - 1]    y[N, i] = x[0, 2*i]    SpaceToBatch: steps of 2, of 1 along the batch

Slices, Concat and Gather leave no digits in the index of a map (`reading`). But the elements in the
middle of the output, one step apart along each axis, tell the block and the pads. What is read is a
guess, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx_spatial.chains.reading import Axis, Blocks, assembled
from onnx_spatial.index_map.cases import Case
from onnx_spatial.index_map.expressions import ELEMENT, ONE, ZERO, Index
from onnx_spatial.index_map.tensor import Tensor
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

#: The largest block of an axis, and the largest product of blocks, that are tried.
_LARGEST, _MOST = 64, 1024

#: The element of an axis of unknown size from which on the others are read.
_MIDDLE = 3 * _LARGEST


def probe(case: Case, source: str, x: Tensor, y: Tensor) -> Iterator[Blocks[Polynomial]]:
    """Yield the operators that the map of `y` may be, in one case; see `reading.read`."""
    if x.rank != y.rank or y.order is not None or ZERO in y.dims:
        return
    for dim in (*x.dims, *y.dims):
        if dim.constant is None:
            case.assume(dim - 2 * _MIDDLE)  # the elements that are read are inside
    probes = _Probes(case, source, x, y)
    for reader in (_space_to_batch, _batch_to_space):
        blocks = reader(probes)
        if blocks is not None and max(blocks.block, default=1) > 1:
            yield blocks


@dataclass
class _Probes:
    """Elements of an output `y`, and where in the input `x` they come from."""

    case: Case
    source: str
    x: Tensor
    y: Tensor

    def place(self, index: Index) -> Index | None:
        """Return the index in the input of an element; None for padding and for other elements."""
        self.case.check_budget()
        element = self.y.at(index).lone_atom
        key = element.key if element is not None else None
        if not isinstance(key, OperationKey) or key.operator != ELEMENT:
            return None
        return tuple(key.operands) if key.details == (self.source,) else None

    @property
    def middle(self) -> Index:
        """The index of an element in the middle of all axes but the first, and in the first image."""
        return (ZERO, *(self._middle(d) for d in self.y.dims[1:]))

    @staticmethod
    def _middle(dim: Polynomial) -> Polynomial:
        return Polynomial.of(_MIDDLE if dim.constant is None else dim.constant // 2)

    def moved(self, index: Index, axis: int, by: Polynomial) -> Index:
        """Return an index moved along an axis."""
        return (*index[:axis], index[axis] + by, *index[axis + 1 :])

    def is_inside(self, index: Index, axis: int) -> bool:
        """Return whether an index is within a known dim, from 0 on."""
        dim, place = self.y.dims[axis].constant, index[axis].constant
        return dim is None or (place is not None and 0 <= place < dim)

    def difference(self, index: Index, other: Index) -> dict[int, Polynomial] | None:
        """Return the axes of the input along which two elements differ, and how far they are apart."""
        a, b = self.place(index), self.place(other)
        if a is None or b is None:
            return None
        return {axis: q - p for axis, (p, q) in enumerate(zip(a, b, strict=True)) if q != p}


def _space_to_batch(probes: _Probes) -> Blocks[Polynomial] | None:
    """Read SpaceToBatch with the batch in front: a step in the output is a block in the input."""
    middle = probes.middle
    start = probes.place(middle)
    if start is None:
        return None
    axes: list[Axis] = []
    for axis in range(1, probes.y.rank):
        step = ONE if probes.is_inside(probes.moved(middle, axis, ONE), axis) else -ONE
        apart = probes.difference(middle, probes.moved(middle, axis, step))
        block = 1
        if apart is not None and probes.is_inside(probes.moved(middle, axis, step), axis):
            if list(apart) != [axis]:
                return None
            block = (apart[axis] * step).constant or 0
        if not 1 <= block <= _LARGEST:
            return None
        axes.append(Axis(axis, axis, block, middle[axis] * block - start[axis]))
    blocked = {a.axis: a.block for a in axes if a.block > 1}
    order: list[int] = []
    count, images = 1, probes.x.dims[0]
    while len(order) < len(blocked) and count <= _MOST:
        apart = probes.difference(middle, probes.moved(middle, 0, images * count))
        if apart is None or len(apart) != 1:
            return None
        ((axis, step),) = apart.items()
        if axis not in blocked or axis in order or step != ONE:
            return None
        order.insert(0, axis)
        count *= blocked[axis]
    return assembled(SpaceToBatch, probes.x, probes.y, 0, 0, axes, order)


def _batch_to_space(probes: _Probes) -> Blocks[Polynomial] | None:
    """Read BatchToSpace with the batch in front: a cell of the input is a block of the output."""
    middle = probes.middle
    axes: list[Axis] = []
    strides: dict[int, Polynomial] = {}
    for axis in range(1, probes.y.rank):
        read = _cell(probes, middle, axis)
        if read is None:
            return None
        each, stride = read
        axes.append(each)
        if each.block > 1:
            strides[axis] = stride
    order: list[int] = []
    stride = probes.y.dims[0]
    while len(order) < len(strides):
        nearest = [a for a, s in strides.items() if s == stride and a not in order]
        if not nearest:
            return None
        order.insert(0, nearest[0])
        stride = stride * next(a.block for a in axes if a.axis == nearest[0])
    return assembled(BatchToSpace, probes.x, probes.y, 0, 0, axes, order)


def _cell(probes: _Probes, middle: Index, axis: int) -> tuple[Axis, Polynomial] | None:
    """Return block and crop of an axis, and how far apart in the batch neighbours are."""
    starts: list[tuple[int, Polynomial]] = []  # where cells start, from the middle on and before
    index = middle
    low = max(-_LARGEST, -(middle[axis].constant or 0))
    places: dict[int, Index] = {}
    for offset in range(low, _LARGEST + 1):
        index = probes.moved(middle, axis, Polynomial.of(offset))
        place = probes.place(index) if probes.is_inside(index, axis) else None
        if place is None:
            break
        before = places.get(offset - 1)
        places[offset] = place
        if before is not None and before[axis] != place[axis]:
            starts.append((offset, place[axis]))
        if len(starts) == 2:
            break
    if len(starts) < 2:
        return None
    (first, cell), (second, _) = starts[:2]
    block = second - first
    begin = cell * block - (middle[axis] + first)
    stride = places[first + 1][0] - places[first][0] if block > 1 else ZERO
    return Axis(axis, axis, block, begin), stride
