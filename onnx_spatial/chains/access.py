"""The access form of an index map: which digit of the output's index goes to which axis of the input.

    y[(r, n); o; c] = x[n; 2*o + r - 1; c]         SpaceToBatch, block 2, pad 1

    digit   extent   output: axis, factor   input: axis, factor
    r       2        0, N                   1, 1
    n       N        0, 1                   0, 1
    o       O        1, 1                   1, 2        rests of the input: 0, -1, 0
    c       C        2, 1                   2, 1

Both sides are sums of digits with factors, and a rest. So the form of the inverse is the same table with
its sides swapped: BatchToSpace is SpaceToBatch swapped. All operators are read off this table (`blocks`,
`rearrangements`, `patches`), and each reading is a guess that a proof confirms.

The digits are those of the map (`Tensor.axes`); a Concat, or a Gather by a list, leaves none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.polynomial import (
    ELEMENT,
    ONE,
    ZERO,
    Atom,
    Index,
    OperationKey,
    Polynomial,
    atoms_of,
)
from onnx_spatial.maps.tensor import Tensor

#: Numbers of the two sides.
OUT, IN = 0, 1


@dataclass(frozen=True)
class Digit:
    """A digit: its extent, and its axis and factor in the output and in the input."""

    extent: Polynomial
    axes: tuple[int, int]
    factors: tuple[Polynomial, Polynomial]


@dataclass(frozen=True)
class Access:
    """An access form.

    Attributes:
        digits: the digits, in the order of the output, the most significant of an axis first.
        dims: the dims of the output and of the input.
        rests: what is added to the digits along each axis of both.
    """

    digits: tuple[Digit, ...]
    dims: tuple[tuple[Polynomial, ...], tuple[Polynomial, ...]]
    rests: tuple[tuple[Polynomial, ...], tuple[Polynomial, ...]]

    def swapped(self) -> Access:
        """Return the form of the inverse."""
        digits = (Digit(d.extent, d.axes[::-1], d.factors[::-1]) for d in self.digits)
        return Access(tuple(digits), self.dims[::-1], self.rests[::-1])

    def digits_along(self, side: int, axis: int) -> list[Digit]:
        """Return the digits along an axis of a side."""
        return [d for d in self.digits if d.axes[side] == axis]


def stack_digits(digits: Iterable[Digit], side: int) -> list[Digit] | None:
    """Order digits so that each counts what those before it have counted; None if they do not count."""
    left, row, count = list(digits), list[Digit](), ONE
    while left:
        nearest = next((d for d in left if d.factors[side] == count), None)
        if nearest is None:
            return None
        left.remove(nearest)
        row.append(nearest)
        count = count * nearest.extent
    return row


def of_digits(case: Case, source: str, x: Tensor, y: Tensor) -> Access | None:
    """Return the form of a map in one case, by its digits; None if it is no such map.

    Args:
        case: the case.
        source: name of the input.
        x, y: input and output.
    """
    if y.order is not None or not all(case.decide(d - 1) for d in y.dims):
        return None
    places = y.index()
    coordinates = _index_in_source(source, y, places)
    if coordinates is None:
        return None
    found: dict[Atom, tuple[int, Polynomial]] = {}
    number = 0
    for axis, place in enumerate(places):
        inside = {atom for product in place.terms for atom in product}
        for group in y.axes[axis].groups:
            for extent in group.extents:
                atom = case.index(f"i{number}", extent, group).lone_atom
                number += 1
                if atom in inside:
                    found[atom] = axis, extent
    sides = [_taken_apart(row, found) for row in (places, coordinates)]
    outputs, inputs = sides
    if outputs is None or inputs is None or found.keys() != inputs[0].keys():
        return None
    digits = [
        Digit(extent, (axis, inputs[0][atom][0]), (outputs[0][atom][1], inputs[0][atom][1]))
        for atom, (axis, extent) in found.items()
    ]
    return Access(tuple(digits), (y.dims, x.dims), (outputs[1], inputs[1]))


_Sums = tuple[dict[Atom, tuple[int, Polynomial]], tuple[Polynomial, ...]]


def _taken_apart(index: Index, digits: Mapping[Atom, object]) -> _Sums | None:
    """Return axis and factor of each digit, and the rests; None unless each is in one place."""
    places: dict[Atom, tuple[int, Polynomial]] = {}
    rests: list[Polynomial] = []
    for axis, p in enumerate(index):
        factors: dict[Atom, Polynomial] = {}
        rest = p
        for product, factor in p.terms.items():
            own = [atom for atom in product if atom in digits]
            if len(own) > 1:
                return None
            if own:
                others = tuple(atom for atom in product if atom is not own[0])
                part = Polynomial({others: factor})
                factors[own[0]] = factors.get(own[0], ZERO) + part
                rest = rest - Polynomial({product: factor})
        if places.keys() & factors.keys() or any(atom in digits for atom in atoms_of(rest)):
            return None
        places |= {atom: (axis, factor) for atom, factor in factors.items()}
        rests.append(rest)
    return places, tuple(rests)


def _index_in_source(source: str, y: Tensor, index: Index) -> Index | None:
    """Return the index in the input of an element of the output; None for padding and others."""
    element = y.at(index).lone_atom
    key = element.key if element is not None else None
    if not isinstance(key, OperationKey) or key.operator != ELEMENT or key.details != (source,):
        return None
    return tuple(key.operands)
