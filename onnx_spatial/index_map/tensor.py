"""A tensor as a map: its dims, and the element at any index.

An element is a polynomial, too: a computed number (a size, an index, the zero of a padding), or an atom
for an element of a given value: `element("x", (n, 2*h + 1, w))`. Elements of given values that are not
integers are only moved: no rule looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from onnx import TensorProto

from onnx_spatial.index_map.cases import PARAMETER, Case, UndecidedError
from onnx_spatial.index_map.expressions import ELEMENT, ZERO, Index, product, show
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial

Dims = tuple[Polynomial, ...]

_serial = count()

#: The most elements of a small tensor, such as a shape, that are computed one by one.
MAX_ELEMENTS = 1024


class Digits(NamedTuple):
    """Digits of a number, row-major, less `start`: all those that give 0 to below `dim`."""

    extents: tuple[Polynomial, ...]
    start: Polynomial
    dim: Polynomial


class Axis:
    """How an index of one axis is made of digits.

    The digits in which an operator is defined: BatchToSpace's output position is cell * block + offset
    - crop. Where axes are merged, their digits follow each other.
    """

    __slots__ = ("groups",)

    def __init__(
        self,
        extents: Sequence[Polynomial],
        start: Polynomial = ZERO,
        dim: Polynomial | None = None,
    ) -> None:
        self.groups: tuple[Digits, ...] = (
            Digits(tuple(extents), start, product(extents) if dim is None else dim),
        )

    @classmethod
    def joined(cls, axes: Sequence[Axis]) -> Axis:
        """Return the axis that several ones are merged to."""
        axis = cls(())
        axis.groups = tuple(group for each in axes for group in each.groups)
        return axis

    def cropped(self, first: Polynomial, dim: Polynomial) -> Axis:
        """Return a part of the axis; its digits are kept if they are those of one number."""
        if len(self.groups) != 1:
            return Axis([dim])
        (group,) = self.groups
        return Axis(group.extents, group.start + first, dim)

    @property
    def extents(self) -> list[Polynomial]:
        """Extents of digits that are independent of each other."""
        extents: list[Polynomial] = []
        for group in self.groups:
            whole = group.start == ZERO and product(group.extents) == group.dim
            extents += group.extents if whole else [group.dim]
        return extents

    def covers(self, dim: Polynomial) -> bool:
        """Tell whether the digits give exactly the places of an axis of this size."""
        return product([group.dim for group in self.groups]) == dim


class Tensor:
    """The map of a tensor.

    Attributes:
        dims: polynomials.
        whole: whether the elements are integers (or bool), with which rules may compute.
        type: ONNX element type; 0 if it is unknown.
        axes: digits of the index of each axis.
        leading: digits of a leading part of an axis, by axis, where that is better known than all of it:
            rows that are followed by one row of zeros.
        order: sizes of the digits of the index of the whole tensor in memory, where the digits of
            each axis do not explain it; else None.
    """

    __slots__ = ("_at", "_case", "_serial", "axes", "dims", "leading", "order", "type", "whole")

    def __init__(
        self,
        case: Case,
        dims: Sequence[Polynomial],
        at: Callable[[Index], Polynomial],
        *,
        whole: bool,
        type: int = 0,
        axes: Sequence[Axis] | None = None,
        order: Sequence[Polynomial] | None = None,
        leading: Mapping[int, Axis] | None = None,
    ) -> None:
        self.order = order
        self.leading = leading or {}
        self.dims: Dims = tuple(dims)
        for size in self.dims:
            case.require(size, "a size")
        self.whole = whole
        self.type = type
        self.axes = tuple(axes) if axes is not None else tuple(Axis([d]) for d in self.dims)
        self._case = case
        self._at = at
        self._serial = next(_serial)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.dims)

    def at(self, index: Index) -> Polynomial:
        """Return the element at an index."""
        key = (self._serial, self._case.context, index)
        return self._case.once(key, lambda: self._at(index))

    def index(self) -> Index:
        """Return the index of any element, made of the digits of each axis; no dim may be 0."""
        case = self._case
        axes = self.axes
        if self.order is not None:
            axes = tuple(Axis([size]) for size in self.order)
        places = []
        number = 0
        for axis in axes:
            place = ZERO
            for group in axis.groups:
                digits = ZERO
                for extent in group.extents:
                    digits = digits * extent + case.index(f"i{number}", extent, group)
                    number += 1
                digits = digits - group.start
                case.assume(digits)
                case.assume(group.dim - 1 - digits)
                place = place * group.dim + digits
            places.append(place)
        if self.order is not None:
            flat = ZERO
            for place, size in zip(places, self.order, strict=True):
                flat = flat * size + place
            places = []
            for dim in reversed(self.dims[1:]):
                quotient = case.floor_div(flat, dim)
                places.insert(0, flat - quotient * dim)
                flat = quotient
            return (flat, *places)
        return tuple(places)

    def elements(self) -> list[Polynomial]:
        """Return all elements of a tensor of one axis, of known length.

        Raises:
            UndecidedError: its length is unknown, or its rank is another.
        """
        return [self.at((Polynomial.of(i),)) for i in range(self.length())]

    def length(self) -> int:
        """Return the length of a tensor of one axis.

        Raises:
            UndecidedError: it is unknown, or large.
        """
        if len(self.dims) != 1:
            raise UndecidedError(f"a list of sizes has rank {len(self.dims)}")
        length = self.dims[0].constant
        if length is None or length > MAX_ELEMENTS:
            raise UndecidedError(f"a list of sizes has the length {show(self.dims[0])}")
        return length


def moved(
    x: Tensor, case: Case, dims: Sequence[Polynomial], at: Callable[[Index], Polynomial]
) -> Tensor:
    """Return a tensor of elements of another one."""
    return Tensor(case, dims, at, whole=x.whole, type=x.type)


def given(
    case: Case, name: str, dims: Sequence[Polynomial], *, whole: bool = False, type: int = 0
) -> Tensor:
    """Return a tensor of which only the dims are known.

    The elements of one of integers are 0 or more: parameters, such as pads.
    """

    def at(index: Index) -> Polynomial:
        if whole and all(i.constant is not None for i in index):
            place = ",".join(show(i) for i in index)
            return case.symbol(f"{name}[{place}]", 0, kind=PARAMETER)
        return Polynomial.atom(OperationKey(ELEMENT, (name,), index))

    return Tensor(case, dims, at, whole=whole, type=type)


def filled(
    case: Case, dims: Sequence[Polynomial], value: Polynomial, *, whole: bool, type: int = 0
) -> Tensor:
    """Return a tensor with one value everywhere."""
    return Tensor(case, dims, lambda _: value, whole=whole, type=type)


def vector(case: Case, elements: Sequence[Polynomial]) -> Tensor:
    """Return a list of sizes as a tensor."""
    table = list(elements)

    def at(index: Index) -> Polynomial:
        place = index[0].constant
        if place is None:
            return choose(case, index[0], table)
        return table[place]

    return Tensor(case, [Polynomial.of(len(table))], at, whole=True, type=TensorProto.INT64)


def choose(case: Case, place: Polynomial, table: Sequence[Polynomial]) -> Polynomial:
    """Return the element of a short list at a place that is not known: one case for each."""
    if len(set(table)) == 1:
        return table[0]
    for position in range(len(table) - 1):
        if case.decide(position - place):
            return table[position]
    return table[-1]
