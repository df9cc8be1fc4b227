"""Read which spatial operator an index map is: blocks, pads or crops, and the order of axes.

    y[r1, r2, n; o1; o2; c] = x[n, 2*o1 + r1 - 1, 2*o2 + r2 - 1, c]    SpaceToBatch, block 2, pads 1
    y[n, o1; r1, o2; r2, c] = x[r1, r2, n; o1, o2; c]                  BatchToSpace, block 2

The index of the output is written in digits (`Tensor.axes`): those of the batch are the places in the
block and the image. A coordinate of the input must be a sum of digits with the factors that the operator
has. Axes may be in another order on both sides: the operator then stands between Transposes.

What is read is a guess from one case, and proven by `proof`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.expressions import ELEMENT, ONE, ZERO, Index
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

_T = TypeVar("_T")


@dataclass(frozen=True)
class Blocks(Generic[_T]):
    """A SpaceToBatch or BatchToSpace between Transposes.

    Attributes:
        kind: the operator.
        block: block of each axis behind the batch, up to the last that is blocked, padded or cropped.
        begins, ends: the pads or crops of these axes.
        before: permutation of the axes in front of the operator.
        behind: permutation of the axes behind it.
    """

    kind: type[SpaceToBatch] | type[BatchToSpace]
    block: tuple[int, ...]
    begins: tuple[_T, ...]
    ends: tuple[_T, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]

    @property
    def transposes(self) -> int:
        """Number of Transposes that are not the identity."""
        return sum(list(perm) != sorted(perm) for perm in (self.before, self.behind))


def read(case: Case, source: str, x: Tensor, y: Tensor) -> Iterator[Blocks[Polynomial]]:
    """Yield the operators that the map of `y` may be, in this case; the pads are polynomials of it.

    Args:
        case: the case.
        source: name of the input.
        x: the input.
        y: the output.
    """
    parts = IndexMap.of(case, source, x, y) if x.rank == y.rank else None
    if parts is None:
        return
    for batch in range(x.rank):
        for images in range(y.rank):
            for reader in (_space_to_batch, _batch_to_space):
                blocks = reader(parts, batch, images)
                if blocks is not None and max(blocks.block, default=1) > 1:
                    yield blocks


@dataclass(frozen=True)
class Digit:
    """A digit of the output's index: its symbol, extent, and factor in the index of its axis."""

    atom: Atom
    extent: Polynomial
    factor: Polynomial


class IndexMap:
    """An index map in one case, taken apart.

    Attributes:
        x, y: the input and the output.
        digits: digits of each axis of the output, the most significant first; none of extent 1.
        places: the index along each axis of the output.
        coordinates: the index in the input.
        is_linear: whether each coordinate is a sum of digits with factors, and a rest.
        factors: factor of each digit in each coordinate.
        axis_of: axis of each digit.
    """

    @classmethod
    def of(cls, case: Case, source: str, x: Tensor, y: Tensor) -> IndexMap | None:
        """Take the map of `y` apart; None unless its elements are those of the input, linearly.

        Args:
            case: the case.
            source: name of the input.
            x: the input.
            y: the output.
        """
        if y.order is not None or not all(case.decide(d - 1) for d in y.dims):
            return None
        element = y.at(y.index()).lone_atom
        key = element.key if element is not None else None
        if not isinstance(key, OperationKey) or key.operator != ELEMENT or key.details != (source,):
            return None
        parts = cls(case, x, y, tuple(key.operands))
        return parts if parts.is_linear else None

    def __init__(self, case: Case, x: Tensor, y: Tensor, coordinates: Index) -> None:
        self.x, self.y, self.coordinates = x, y, coordinates
        self.places = y.index()
        self.digits: list[list[Digit]] = []
        number = 0
        for axis, place in enumerate(self.places):
            linear = _factors(place)
            digits = []
            for group in y.axes[axis].groups:
                for extent in group.extents:
                    atom = case.index(f"i{number}", extent, group).lone_atom
                    number += 1
                    if atom is not None and atom in linear:
                        digits.append(Digit(atom, extent, linear[atom]))
            self.digits.append(digits)
        self.axis_of = {d.atom: axis for axis, each in enumerate(self.digits) for d in each}
        self.is_linear = not any(map(self._mixes, coordinates))
        self.factors = [self.factors_of(c) for c in coordinates]

    def _mixes(self, p: Polynomial) -> bool:
        return any(sum(atom in self.axis_of for atom in product) > 1 for product in p.terms)

    def factors_of(self, p: Polynomial) -> dict[Atom, Polynomial]:
        """Return the factor of each digit in a sum of digits."""
        return {a: f for a, f in _factors(p).items() if a in self.axis_of and f != ZERO}

    def is_number(self, p: Polynomial) -> bool:
        """Return whether a polynomial holds no digit."""
        return not any(atom in self.axis_of for product in p.terms for atom in product)

    def value(self, digits: Sequence[Digit], factors: Mapping[Atom, Polynomial]) -> Polynomial:
        """Return the sum of some digits with factors."""
        return sum((Polynomial({(d.atom,): 1}) * factors[d.atom] for d in digits), ZERO)


def _factors(p: Polynomial) -> dict[Atom, Polynomial]:
    """Return the factor of each atom in the terms that hold it."""
    factors: dict[Atom, Polynomial] = {}
    for product, factor in p.terms.items():
        for atom in product:
            others = list(product)
            others.remove(atom)
            factors[atom] = factors.get(atom, ZERO) + Polynomial({tuple(others): factor})
    return factors


def _count(digits: Sequence[Digit], factors: Mapping[Atom, Polynomial]) -> int | None:
    """Return the number of values of digits that count from 0 on in order, None if they do not."""
    count = 1
    for digit in reversed(digits):
        extent = digit.extent.constant
        if extent is None or factors.get(digit.atom) != Polynomial.of(count):
            return None
        count *= extent
    return count


@dataclass(frozen=True)
class Axis:
    """An axis of the input apart from the batch.

    Attributes:
        axis: its number.
        target: the axis of the output; None if that is any of size 1.
        block: the block.
        begin: pad or crop at its begin.
    """

    axis: int
    target: int | None
    block: int = 1
    begin: Polynomial = ZERO


def _space_to_batch(m: IndexMap, batch: int, images: int) -> Blocks[Polynomial] | None:
    """Read SpaceToBatch: the digits of the batch are the places in the block, then the image."""
    left = list(m.digits[images])
    count = len(m.factors[batch])
    of_image = left[len(left) - count :]
    left = left[: len(left) - count]
    if m.coordinates[batch] != m.value(of_image, {d.atom: d.factor for d in of_image}):
        return None
    if not of_image and m.x.dims[batch] != ONE:
        return None
    position = {d.atom: i for i, d in enumerate(left)}
    axes: list[Axis] = []
    firsts: dict[int, int] = {}  # position of the first digit of each block
    for axis, factors in enumerate(m.factors):
        if axis == batch:
            continue
        inner = sorted(position[a] for a in factors if a in position)
        if inner:
            firsts[axis] = inner[0]
            if inner != list(range(inner[0], inner[-1] + 1)):
                return None
        block = _count([left[i] for i in inner], factors)
        targets = {m.axis_of[a] for a in factors if a not in position}
        if block is None or len(targets) > 1 or images in targets:
            return None
        target = min(targets, default=None)
        begin = m.value([left[i] for i in inner], factors) - m.coordinates[axis]
        if target is not None:
            begin = begin + m.places[target] * block
        if not m.is_number(begin):
            return None
        axes.append(Axis(axis, target, block, begin))
    if sum(a in position for f in m.factors for a in f) != len(left):
        return None
    order = sorted(firsts, key=lambda axis: firsts[axis])
    return assembled(SpaceToBatch, m.x, m.y, batch, images, axes, order)


def _batch_to_space(m: IndexMap, batch: int, images: int) -> Blocks[Polynomial] | None:
    """Read BatchToSpace: the input's batch is the places along axes of the output, and the image."""
    of_places = m.coordinates[batch] - m.places[images]
    strides = m.factors_of(of_places)
    if of_places != sum((Polynomial({(a,): 1}) * f for a, f in strides.items()), ZERO):
        return None
    if any(m.axis_of[a] == images for a in strides):
        return None
    axes: list[Axis] = []
    for axis, factors in enumerate(m.factors):
        targets = {m.axis_of[a] for a in factors}
        if axis == batch:
            continue
        if len(targets) > 1 or images in targets:
            return None
        axes.append(Axis(axis, min(targets, default=None)))
    # An axis of size 1 in blocks leaves no digit but the places: any such axis is it.
    free = sorted({m.axis_of[a] for a in strides} - {a.target for a in axes})
    for i, each in enumerate(axes):
        if free and each.target is None and m.x.dims[each.axis] == ONE:
            axes[i] = replace(each, target=free.pop(0))
    stride_of: dict[int, Polynomial] = {}
    for i, each in enumerate(axes):
        if each.target is None:
            axes[i] = replace(each, begin=-m.coordinates[each.axis])
            continue
        inner = [d for d in m.digits[each.target] if d.atom in strides]
        own = {d.atom: d.factor for d in inner}
        block = _count(inner, own)
        if block is None:
            return None
        begin = m.coordinates[each.axis] * block + m.value(inner, own) - m.places[each.target]
        if not m.is_number(begin):
            return None
        axes[i] = replace(each, block=block, begin=begin)
        if inner:
            stride_of[each.axis] = strides[inner[-1].atom]
            if any(strides[d.atom] != d.factor * stride_of[each.axis] for d in inner):
                return None
    order: list[int] = []  # from the place with the smallest stride, that of one image, on
    stride = m.y.dims[images]
    block_of = {a.axis: a.block for a in axes}
    while len(order) < len(stride_of):
        nearest = [a for a, s in stride_of.items() if s == stride and a not in order]
        if not nearest:
            return None
        order.insert(0, nearest[0])
        stride = stride * block_of[nearest[0]]
    return None if free else assembled(BatchToSpace, m.x, m.y, batch, images, axes, order)


def assembled(
    kind: type[SpaceToBatch] | type[BatchToSpace],
    x: Tensor,
    y: Tensor,
    batch: int,
    images: int,
    axes: Sequence[Axis],
    order: Sequence[int],
) -> Blocks[Polynomial] | None:
    """Return the operator with the batch first, and the blocked axes in the order of their places.

    Args:
        kind: the operator.
        x, y: its input and output.
        batch, images: axis of the batch in both.
        axes: the other axes.
        order: the blocked ones; the place along the last has the smallest stride in the batch.
    """
    target = {a.axis: a.target for a in axes if a.target is not None}
    if len(set(target.values())) != len(target):
        return None
    free = [t for t in range(y.rank) if t != images and t not in target.values()]
    for each in axes:
        if each.target is None:
            target[each.axis] = free.pop(0)
    others = [a.axis for a in axes if a.axis not in order]
    row = [*order, *others]
    if batch == 0 and list(order) == sorted(order):
        row.sort()
    of = {a.axis: a for a in axes}
    begins, ends = [of[a].begin for a in row], []
    for axis in row:
        before, behind = x.dims[axis], y.dims[target[axis]]
        cells, size = (behind, before) if kind is SpaceToBatch else (before, behind)
        rest = cells * of[axis].block - of[axis].begin
        ends.append(rest - size)
    block = [of[a].block for a in row]
    used = [
        i for i, each in enumerate(zip(block, begins, ends, strict=True)) if each != (1, ZERO, ZERO)
    ]
    count = max(used, default=-1) + 1
    result = [images, *(target[a] for a in row)]
    return Blocks(
        kind,
        tuple(block[:count]),
        tuple(begins[:count]),
        tuple(ends[:count]),
        (batch, *row),
        tuple(result.index(axis) for axis in range(y.rank)),
    )
