"""Read which spatial operator an index map is: blocks, pads or crops, and the order of axes.

    y[r1, r2, n; o1; o2; c] = x[n, 2*o1 + r1 - 1, 2*o2 + r2 - 1, c]      SpaceToBatch, block 2, pads from 1
    y[n, o1; r1, o2; r2, c] = x[r1, r2, n; o1, o2; c]                    BatchToSpace, block 2

The index of the output is written in digits (`Tensor.axes`): those of the batch are the places in the
block and the image. A coordinate of the input must be a sum of digits with the factors that the operator
has. Axes may be in another order on both sides: the operator then stands between Transposes.

What is read is a guess from one case, and proven by `find`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from onnx_spatial.index_map.cases import Case
from onnx_spatial.index_map.expressions import ELEMENT, ONE, ZERO, Index, product
from onnx_spatial.index_map.tensor import Tensor
from onnx_spatial.model.symbolic.polynomial import Atom, OperationKey, Polynomial
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


@dataclass(frozen=True)
class _Digit:
    """A digit of the output's index: its symbol, number of values, and factor in the index of its axis."""

    atom: Atom
    extent: int | None
    factor: Polynomial
    axis: int


class _Map:
    """An index map in one case, taken apart.

    Attributes:
        digits: digits of each axis of the output, the most significant first; none of extent 1.
        places: the index along each axis.
        coordinates: the index in the input.
    """

    def __init__(self, case: Case, y: Tensor, coordinates: Index) -> None:
        self.places = y.index()
        self.coordinates = coordinates
        self.digits: list[list[_Digit]] = []
        number = 0
        for axis, place in enumerate(self.places):
            linear = _linear(place)
            found = []
            for group in y.axes[axis].groups:
                for extent in group.extents:
                    atom = case.index(f"i{number}", extent, group).lone_atom
                    number += 1
                    if atom is not None and atom in linear:
                        found.append(_Digit(atom, extent.constant, linear[atom], axis))
            self.digits.append(found)
        self.axis_of = {d.atom: d.axis for each in self.digits for d in each}

    def parts(self, p: Polynomial) -> tuple[dict[Atom, Polynomial], Polynomial] | None:
        """Return the factor of each digit of a coordinate, and the rest; None if it is no sum of digits."""
        factors: dict[Atom, Polynomial] = {}
        rest = ZERO
        for atoms, factor in p.terms.items():
            inside = [a for a in atoms if a in self.axis_of]
            others = Polynomial({tuple(a for a in atoms if a not in self.axis_of): factor})
            if len(inside) > 1:
                return None
            if inside:
                factors[inside[0]] = factors.get(inside[0], ZERO) + others
            else:
                rest = rest + others
        return factors, rest


def _linear(p: Polynomial) -> dict[Atom, Polynomial]:
    """Return the factor of each atom of a polynomial in which it stands alone or with sizes."""
    factors: dict[Atom, Polynomial] = {}
    for atoms, factor in p.terms.items():
        for atom in atoms:
            others = list(atoms)
            others.remove(atom)
            factors[atom] = factors.get(atom, ZERO) + Polynomial({tuple(others): factor})
    return factors


def read(case: Case, source: str, x: Tensor, y: Tensor) -> Iterator[Blocks[Polynomial]]:
    """Yield the operators that the map of `y` may be, in this case; the pads are polynomials of it.

    Args:
        case: the case.
        source: name of the input.
        x: the input.
        y: the output.
    """
    if x.rank != y.rank or y.order is not None or not all(case.decide(d - 1) for d in y.dims):
        return
    element = y.at(y.index()).lone_atom
    key = element.key if element is not None else None
    if not isinstance(key, OperationKey) or key.operator != ELEMENT or key.details != (source,):
        return
    parts = _Map(case, y, tuple(key.operands))
    for batch in range(x.rank):
        for images in range(y.rank):
            for reader in (_space_to_batch, _batch_to_space):
                found = reader(parts, x, y, batch, images)
                if found is not None and max(found.block, default=1) > 1:
                    yield found


def _row_major(digits: Sequence[_Digit], factors: Mapping[Atom, Polynomial]) -> int | None:
    """Return the number of values of digits whose factors are those of a number from 0 on, else None."""
    count = 1
    for digit in reversed(digits):
        if digit.extent is None or factors.get(digit.atom) != Polynomial.of(count):
            return None
        count *= digit.extent
    return count


@dataclass(frozen=True)
class _Axis:
    """An axis of the input apart from the batch.

    Attributes:
        axis: its number.
        target: the axis of the output; None if that is any of size 1.
        block: the block.
        begin: pad or crop at its begin.
        order: what the axes of a block are sorted by, the most significant first.
    """

    axis: int
    target: int | None
    block: int
    begin: Polynomial
    order: int = 0


def _space_to_batch(
    map_: _Map, x: Tensor, y: Tensor, batch: int, images: int
) -> Blocks[Polynomial] | None:
    """Read SpaceToBatch: the digits of the batch are the places in the block, then the image."""
    left = list(map_.digits[images])
    axes: list[_Axis] = []
    parts = [map_.parts(c) for c in map_.coordinates]
    if any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    factors, rest = known[batch]
    if factors:
        count = len(factors)
        if rest != ZERO or set(factors) != {d.atom for d in left[-count:]}:
            return None
        if any(factors[d.atom] != d.factor for d in left[-count:]):
            return None
        left = left[:-count]
    elif x.dims[batch] != ONE:
        return None
    position = {d.atom: i for i, d in enumerate(left)}
    for axis, (factors, _) in enumerate(known):
        if axis == batch:
            continue
        inner = sorted(position[a] for a in factors if a in position)
        block = _row_major([left[i] for i in inner], factors)
        if block is None or inner != list(range(inner[0], inner[0] + len(inner)) if inner else []):
            return None
        outer = {a: f for a, f in factors.items() if a not in position}
        targets = {map_.axis_of[a] for a in outer}
        if len(targets) > 1 or images in targets:
            return None
        target = min(targets, default=None)
        begin = -map_.coordinates[axis]
        for i in inner:
            begin = begin + Polynomial({(left[i].atom,): 1}) * factors[left[i].atom]
        if target is not None:
            begin = begin + map_.places[target] * block
        if _holds_digits(map_, begin):
            return None
        axes.append(_Axis(axis, target, block, begin, inner[0] if inner else 0))
    used = sum(1 for f, _ in known for a in f if a in position)
    if used != len(left):
        return None
    blocked = sorted((a for a in axes if a.block > 1), key=lambda a: a.order)
    return _assembled(SpaceToBatch, map_, x, y, batch, images, axes, blocked)


def _holds_digits(map_: _Map, p: Polynomial) -> bool:
    return any(atom in map_.axis_of for atoms in p.terms for atom in atoms)


def _batch_to_space(
    map_: _Map, x: Tensor, y: Tensor, batch: int, images: int
) -> Blocks[Polynomial] | None:
    """Read BatchToSpace: the digits of the batch in the input are places along axes of the output."""
    parts = map_.parts(map_.coordinates[batch] - map_.places[images])
    if parts is None or parts[1] != ZERO:
        return None
    places = parts[0]
    if any(map_.axis_of[a] == images for a in places):
        return None
    axes: list[_Axis] = []
    free = {map_.axis_of[a] for a in places}
    for axis, coordinate in enumerate(map_.coordinates):
        if axis == batch:
            continue
        own = map_.parts(coordinate)
        if own is None:
            return None
        targets = {map_.axis_of[a] for a in own[0]}
        if len(targets) > 1 or images in targets:
            return None
        if not targets:
            axes.append(_Axis(axis, None, 1, -coordinate))
            continue
        (target,) = targets
        free.discard(target)
        axes.append(_Axis(axis, target, 1, ZERO))
    # A size of 1 in blocks leaves no digit but the places: any of these axes is it.
    lone = sorted(free)
    axes = [
        _Axis(a.axis, lone.pop(0), 1, ZERO) if a.target is None and lone and x.dims[a.axis] == ONE
        else a
        for a in axes
    ]  # fmt: skip
    if lone:
        return None
    left: list[tuple[_Axis, Polynomial]] = []
    done: list[_Axis] = []
    for each in axes:
        if each.target is None:
            done.append(each)
            continue
        inner = [d for d in map_.digits[each.target] if d.atom in places]
        own = {d.atom: d.factor for d in map_.digits[each.target]}
        block = _row_major(inner, own)
        if block is None:
            return None
        begin = map_.coordinates[each.axis] * block - map_.places[each.target]
        for digit in inner:
            begin = begin + Polynomial({(digit.atom,): 1}) * own[digit.atom]
        if _holds_digits(map_, begin):
            return None
        read = _Axis(each.axis, each.target, block, begin)
        if not inner:
            done.append(read)
            continue
        stride = places[inner[-1].atom]
        if any(places[d.atom] != own[d.atom] * stride for d in inner):
            return None
        left.append((read, stride))
    blocked: list[_Axis] = []
    stride = y.dims[images]
    while left:
        found = next((pair for pair in left if pair[1] == stride), None)
        if found is None:
            return None
        left.remove(found)
        blocked.insert(0, found[0])
        stride = stride * found[0].block
    return _assembled(BatchToSpace, map_, x, y, batch, images, [*done, *blocked], blocked)


def _assembled(
    kind: type[SpaceToBatch] | type[BatchToSpace],
    map_: _Map,
    x: Tensor,
    y: Tensor,
    batch: int,
    images: int,
    axes: Sequence[_Axis],
    blocked: Sequence[_Axis],
) -> Blocks[Polynomial] | None:
    """Put the axes in an order that the operator has: the batch first, blocked axes as in the block."""
    taken = {a.target for a in axes if a.target is not None}
    if len(taken) != sum(a.target is not None for a in axes):
        return None
    free = [t for t in range(y.rank) if t != images and t not in taken]
    target = {a.axis: a.target for a in axes}
    for axis in sorted(target):
        if target[axis] is None:
            target[axis] = free.pop(0)
    of = {a.axis: a for a in axes}
    order = [a.axis for a in blocked]
    if batch == 0 and order == sorted(order):
        row = sorted(of)
    else:
        row = [*order, *(axis for axis in sorted(of) if axis not in order)]
    begins = [of[a].begin for a in row]
    block = [of[a].block for a in row]
    if kind is SpaceToBatch:
        ends = [y.dims[target[a]] * of[a].block - x.dims[a] - of[a].begin for a in row]  # type: ignore[index]
    else:
        ends = [x.dims[a] * of[a].block - of[a].begin - y.dims[target[a]] for a in row]  # type: ignore[index]
    count = max(
        (i + 1 for i in range(len(row)) if (block[i], begins[i], ends[i]) != (1, ZERO, ZERO)),
        default=0,
    )
    result = [images, *(target[a] for a in row)]
    behind = tuple(result.index(axis) for axis in range(y.rank))
    return Blocks(
        kind,
        tuple(block[:count]),
        tuple(begins[:count]),
        tuple(ends[:count]),
        (batch, *row),
        behind,
    )
