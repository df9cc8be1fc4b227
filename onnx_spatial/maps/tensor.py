"""The map of a tensor: its dims, and the element at any index.

An element is a polynomial: a number (a size, an index, the 0 of a padding), or an atom. The atom for an
element of an input holds its name and index: x[n, 2*h + 1, w].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.polynomial import (
    ELEMENT,
    PARAMETER,
    ZERO,
    Index,
    Polynomial,
    computed,
    flat,
    product,
    show,
)

Dims = tuple[Polynomial, ...]

_serial = count()

#: The longest list of integers that is computed one by one.
_MAX_LENGTH = 1024


class Digits(NamedTuple):
    """Digits of an index i, 0 <= i < dim: row-major, they are those of start + i.

    `start` is not 0 where a crop took elements away in front.
    """

    extents: tuple[Polynomial, ...]
    start: Polynomial
    dim: Polynomial


class Axis:
    """The digits of the index of an axis.

    They are those of the definition of an operator: an output index of BatchToSpace is cell * block +
    offset - crop. A merged axis has the digits of all axes that it was made of.
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
        """Return the axis that several axes are merged to."""
        axis = cls(())
        axis.groups = tuple(group for each in axes for group in each.groups)
        return axis

    def cropped(self, first: Polynomial, dim: Polynomial) -> Axis:
        """Return `dim` elements of the axis from `first` on; digits of merged parts of axes are lost."""
        if len(self.groups) == 1:
            (group,) = self.groups
            return Axis(group.extents, group.start + first, dim)
        if all(g.start == ZERO and product(g.extents) == g.dim for g in self.groups):
            return Axis([extent for group in self.groups for extent in group.extents], first, dim)
        return Axis([dim])

    @property
    def extents(self) -> list[Polynomial]:
        """Extents of the digits that take all values independently of each other."""
        extents: list[Polynomial] = []
        for group in self.groups:
            whole = group.start == ZERO and product(group.extents) == group.dim
            extents += group.extents if whole else [group.dim]
        return extents

    def covers(self, dim: Polynomial) -> bool:
        """Tell whether the digits give all indices of an axis of this size."""
        return product([group.dim for group in self.groups]) == dim


class Tensor:
    """The map of a tensor.

    Attributes:
        dims: the dims.
        whole: whether the elements are integers or truth values that rules may compute with.
        type: ONNX element type; 0 if it is unknown.
        axes: digits of the index of each axis.
        leading: digits of the first part of an axis, by axis: of the first tensor of a Concat.
        order: extents of the digits of the position in memory, for an operator that is defined by it;
            else None.
        extremes: least and largest number of a stored table of integers; None for other tensors.
    """

    __slots__ = (
        "_at",
        "_case",
        "_serial",
        "axes",
        "dims",
        "extremes",
        "leading",
        "order",
        "type",
        "whole",
    )

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
        extremes: tuple[int, int] | None = None,
    ) -> None:
        self.order = order
        self.extremes = extremes
        self.leading = leading or {}
        self.dims: Dims = tuple(dims)
        for size in self.dims:
            if case.splits or (size.constant or 0) < 0:
                case.require(size, "a dim may be negative")
            else:
                case.assume(size)
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
        key = (self._serial, self._case.use, index)
        return self._case.once(key, lambda: self._at(index))

    def index(self) -> Index:
        """Return a symbolic index: one symbol for each digit of each axis; every dim is 1 or more."""
        case, numbers = self._case, count()

        def place_in(group: Digits) -> Polynomial:
            digits = [case.index(f"i{next(numbers)}", e, group) for e in group.extents]
            place = flat(digits, group.extents) - group.start
            case.assume(place)
            case.assume(group.dim - 1 - place)
            return place

        axes = self.axes if self.order is None else [Axis([size]) for size in self.order]
        places = [flat(list(map(place_in, a.groups)), [g.dim for g in a.groups]) for a in axes]
        if self.order is not None:
            places = case.digits_of(flat(places, self.order), self.dims)
        return tuple(places)

    def elements(self) -> list[Polynomial]:
        """Return all elements of a list.

        Raises:
            UndecidedError: the length is unknown or large, or the rank is not 1.
        """
        return [self.at((Polynomial.of(i),)) for i in range(self.length())]

    def length(self) -> int:
        """Return the length of a list.

        Raises:
            UndecidedError: the length is unknown or large, or the rank is not 1.
        """
        if len(self.dims) != 1:
            raise UndecidedError(f"a list of integers has rank {len(self.dims)}")
        length = self.dims[0].constant
        if length is None or length > _MAX_LENGTH:
            raise UndecidedError(f"a list of integers has {show(self.dims[0])} elements")
        return length


def moved(
    x: Tensor,
    case: Case,
    dims: Sequence[Polynomial],
    at: Callable[[Index], Polynomial],
    axes: Sequence[Axis] | None = None,
) -> Tensor:
    """Return a tensor whose elements are elements of `x`, or its padding; see `Tensor`."""
    return Tensor(case, dims, at, whole=x.whole, type=x.type, axes=axes)


def input_map(
    case: Case, name: str, dims: Sequence[Polynomial], *, whole: bool = False, type: int = 0
) -> Tensor:
    """Return the map of an input.

    The elements of a whole tensor are parameters, such as pads: they are 0 or more.
    """

    def at(index: Index) -> Polynomial:
        if whole and all(i.constant is not None for i in index):
            place = ",".join(show(i) for i in index)
            return case.symbol(f"{name}[{place}]", 0, kind=PARAMETER)
        return computed(ELEMENT, index, (name,))

    return Tensor(case, dims, at, whole=whole, type=type)


def only_dims(case: Case, dims: Sequence[Polynomial], reason: str, type: int = 0) -> Tensor:
    """Return a tensor whose elements have no map.

    Raises:
        UndecidedError: the case splits: a proof has to know that the node succeeds.
    """

    def at(index: Index) -> Polynomial:
        raise UndecidedError(reason)

    if case.splits:
        raise UndecidedError(reason)
    return Tensor(case, dims, at, whole=False, type=type)


def filled_tensor(
    case: Case, dims: Sequence[Polynomial], value: Polynomial, *, whole: bool, type: int = 0
) -> Tensor:
    """Return a tensor with one value everywhere."""
    return Tensor(case, dims, lambda _: value, whole=whole, type=type)


def vector_of(case: Case, elements: Sequence[Polynomial]) -> Tensor:
    """Return a list of sizes as a tensor."""
    table = list(elements)

    def at(index: Index) -> Polynomial:
        place = index[0].constant
        if place is None:
            return choose_entry(case, index[0], table)
        return table[place]

    return Tensor(case, [Polynomial.of(len(table))], at, whole=True, type=TensorProto.INT64)


def choose_entry(case: Case, place: Polynomial, table: Sequence[Polynomial]) -> Polynomial:
    """Return the element of a list at an unknown place; split by the place."""
    if len(set(table)) == 1:
        return table[0]
    for position in range(len(table) - 1):
        if case.decide(position - place):
            return table[position]
    return table[-1]
