"""Read which spatial operator an index map is from single elements.

    y[0, i] = x[0, 2*i - 1]    y[N, i] = x[0, 2*i]    SpaceToBatch: steps of 2, of 1 along the batch

Slices, Concat and Gather leave no digits in the index of a map (`reading`). But the elements in the
middle of the output, one step apart along each axis, tell the block and the pads. What is read is a
guess, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnx_spatial.chains.reading import Axis, Blocks, assembled
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.expressions import ELEMENT, ONE, ZERO, Index
from onnx_spatial.maps.polynomial import OperationKey, Polynomial
from onnx_spatial.maps.tensor import Tensor
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
    for batch, images in itertools.product(range(x.rank), repeat=2):
        row = [
            blocks
            for reader in (_space_to_batch, _batch_to_space)
            if (blocks := reader(_Probes(case, source, x, y, batch, images))) is not None
            and max(blocks.block, default=1) > 1
        ]
        yield from row
        if row:
            return  # the axis of the batch is found


class _Probes:
    """Elements of an output, and where in the input they come from.

    Args:
        case: the case.
        source: name of the input.
        x, y: input and output.
        batch, images: axis of the batch in both.

    Attributes:
        middle: index of an element in the middle of all axes but the batch, and in the first image.
        axes: axes of the output apart from the batch.
        left: axes of the input apart from the batch, without those that belong to an axis of the output.
    """

    def __init__(
        self, case: Case, source: str, x: Tensor, y: Tensor, batch: int, images: int
    ) -> None:
        self._case, self._source = case, source
        self.x, self.y, self.batch, self.images = x, y, batch, images
        middle = [_MIDDLE if d.constant is None else d.constant // 2 for d in y.dims]
        middle[images] = 0
        self.middle: Index = tuple(map(Polynomial.of, middle))
        self.axes = [axis for axis in range(y.rank) if axis != images]
        self.left = [axis for axis in range(x.rank) if axis != batch]

    def place(self, axis: int, by: Polynomial) -> Index | None:
        """Return the index in the input of an element, some steps from the middle along an axis.

        Returns:
            None for padding, for elements of other tensors, and outside of a known dim.
        """
        self._case.check_budget()
        index = (*self.middle[:axis], self.middle[axis] + by, *self.middle[axis + 1 :])
        dim, number = self.y.dims[axis].constant, index[axis].constant
        if dim is not None and number is not None and not 0 <= number < dim:
            return None
        element = self.y.at(index).lone_atom
        key = element.key if element is not None else None
        if not isinstance(key, OperationKey) or key.operator != ELEMENT:
            return None
        return tuple(key.operands) if key.details == (self._source,) else None

    def step(self, axis: int, by: Polynomial) -> tuple[int, Polynomial] | None:
        """Return the only axis of the input in which an element differs from the middle, and by what."""
        start, place = self.place(axis, ZERO), self.place(axis, by)
        return None if start is None or place is None else _only_difference(start, place)

    def assembled(
        self,
        kind: type[SpaceToBatch] | type[BatchToSpace],
        axes: Sequence[Axis],
        order: Sequence[int],
    ) -> Blocks[Polynomial] | None:
        """Return the operator, see `reading.assembled`."""
        return assembled(kind, self.x, self.y, self.batch, self.images, axes, order)


def _only_difference(a: Index, b: Index) -> tuple[int, Polynomial] | None:
    """Return the only axis along which two indices differ, and how far; None if they are several."""
    apart = [(axis, q - p) for axis, (p, q) in enumerate(zip(a, b, strict=True)) if q != p]
    return apart[0] if len(apart) == 1 else None


def _space_to_batch(probes: _Probes) -> Blocks[Polynomial] | None:
    """Read SpaceToBatch: a step along an axis of the output is a block of the input."""
    start, places = (
        probes.place(probes.images, ZERO),
        exact(probes.y.dims[probes.images], probes.x.dims[probes.batch]),
    )
    count = None if places is None else places.constant
    if start is None or count is None or not 1 < count <= _MOST:
        return None
    axes: dict[int, Axis] = {}
    for target in probes.axes:
        steps = ((sign, probes.step(target, sign)) for sign in (ONE, -ONE))
        sign, apart = next((each for each in steps if each[1] is not None), (ONE, None))
        if apart is None:
            continue  # an axis with a single element that is no padding
        axis, distance = apart
        block = (distance * sign).constant or 0
        if axis not in probes.left or not 1 <= block <= _LARGEST:
            return None
        probes.left.remove(axis)
        axes[axis] = Axis(axis, target, block, probes.middle[target] * block - start[axis])
    axes |= {axis: Axis(axis, None, begin=-start[axis]) for axis in probes.left}
    order: list[int] = []
    done = 1
    while done < count:
        apart = probes.step(probes.images, probes.x.dims[probes.batch] * done)
        if apart is None or apart[0] not in axes or apart[0] in order or apart[1] != ONE:
            return None
        order.insert(0, apart[0])
        each = axes[apart[0]]
        if each.target is None:
            each = axes[each.axis] = replace(each, block=count // done)
        done *= each.block
    if done != count or any(a.block > 1 and a.axis not in order for a in axes.values()):
        return None
    return probes.assembled(SpaceToBatch, [axes[axis] for axis in sorted(axes)], order)


def _batch_to_space(probes: _Probes) -> Blocks[Polynomial] | None:
    """Read BatchToSpace: a cell of the input is a block of the output."""
    axes: list[Axis] = []
    strides: dict[int, Polynomial] = {}
    for target in probes.axes:
        if probes.y.dims[target] == ONE:
            continue
        read = _cells(probes, target)
        if read is None or read[0].axis not in probes.left:
            return None
        each, stride = read
        probes.left.remove(each.axis)
        axes.append(each)
        if each.block > 1:
            strides[each.axis] = stride
    start = probes.place(probes.images, ZERO)
    if start is None:
        return None
    axes += [Axis(axis, None, begin=-start[axis]) for axis in probes.left]
    order: list[int] = []
    stride = probes.y.dims[probes.images]
    while len(order) < len(strides):
        nearest = [a for a, s in strides.items() if s == stride and a not in order]
        if not nearest:
            return None
        order.insert(0, nearest[0])
        stride = stride * next(a.block for a in axes if a.axis == nearest[0])
    return probes.assembled(BatchToSpace, sorted(axes, key=lambda a: a.axis), order)


def _cells(probes: _Probes, target: int) -> tuple[Axis, Polynomial] | None:
    """Return the axis of the input whose cells are along an axis, and how far apart places are.

    Cells start where the index along the axis of the input changes; from one to the next it is a block.
    """
    starts: list[int] = []  # from the middle on, and before
    places: dict[int, Index] = {}
    low = max(-_LARGEST, -(probes.middle[target].constant or 0))
    axis: int | None = None
    for offset in range(low, _LARGEST + 1):
        place = probes.place(target, Polynomial.of(offset))
        if place is None:
            break
        before = places.get(offset - 1)
        places[offset] = place
        if before is None:
            continue
        changed = {a for a, b, c in zip(range(len(place)), before, place, strict=True) if b != c}
        changed -= {probes.batch}
        if len(changed) > 1 or (axis is not None and not changed <= {axis}):
            return None
        if changed:
            (axis,) = changed
            starts.append(offset)
        if len(starts) == 2:
            break
    if axis is None:
        return None
    first, *others = starts
    # With one start the larger one of both parts is a block, unless both are cropped.
    block = others[0] - first if others else max(first - low, max(places) + 1 - first)
    begin = places[first][axis] * block - (probes.middle[target] + first)
    inside = next((o for o in places if o + 1 in places and o + 1 not in starts), None)
    if inside is None:
        return Axis(axis, target, 1, begin), ZERO
    stride = places[inside + 1][probes.batch] - places[inside][probes.batch]
    return Axis(axis, target, block, begin), stride
