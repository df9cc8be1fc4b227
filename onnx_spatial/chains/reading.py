"""Read what a part of a path may be, and prove it: what all searches do with a part.

    part of a path -> index map, in one case of sizes -> access form -> reader -> guess -> proof

1. The access form says which digit of the output's index goes to which axis of the input:

       y[(r, n); o; c] = x[n; 2*o + r - 1; c]         SpaceToBatch, block 2, pad 1

       digit   extent   output: axis, factor   input: axis, factor
       r       2        0, N                   1, 1
       n       N        0, 1                   0, 1
       o       O        1, 1                   1, 2        rests of the input: 0, -1, 0
       c       C        2, 1                   2, 1

   Both sides are sums of digits with factors, and a rest. So the form of the inverse is the same table
   with its sides swapped. The digits are those of the map (`Tensor.axes`); a Concat, or a Gather by a
   list, leaves none. All operators are read off this table (`blocks`, `patches`, `movements`).
2. A guess is read in one case. Where the map of a part has no form, sizes are taken for multiples of
   all usual blocks (`DividedSizes`). The proof compares the maps of the part and of the operator in all
   cases of sizes. What the operator assumes of them (that blocks divide sizes) has to hold where it
   runs: all that may be left of the sizes is tried, and either nothing is, or a node fails.

       Reshape [n, h, w, c] -> [n, h/2, 2, w/2, 2, c]        fails for odd h: elements would be left
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import NamedTuple, Protocol, TypeVar

from onnx_spatial.chains.chain_map import ChainMap, DividedSizes, GraphScope, SizeKey, UnnamedError
from onnx_spatial.chains.paths import Path
from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.compare import compare
from onnx_spatial.maps.facts import Budget
from onnx_spatial.maps.polynomial import (
    ELEMENT,
    ONE,
    Atom,
    Index,
    Polynomial,
    atoms_of,
    factor_of,
    top_atoms,
)
from onnx_spatial.maps.tensor import Tensor

_T = TypeVar("_T")

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


def parts_in_order(axes: Iterable[Sequence[_T]], order: Iterable[_T]) -> list[tuple[_T, ...]]:
    """Return the longest parts of axes that follow each other in an order of their digits."""
    following = {a: b for axis in axes for a, b in pairwise(axis)}
    parts: list[tuple[_T, ...]] = []
    for digit in order:
        if parts and following.get(parts[-1][-1]) == digit:
            parts[-1] += (digit,)
        else:
            parts.append((digit,))
    return parts


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
    extents: dict[Atom, Polynomial] = {}
    number = 0
    for axis, place in enumerate(places):
        used = top_atoms(place)
        for group in y.axes[axis].groups:
            for extent in group.extents:
                atom = case.index(f"i{number}", extent, group).lone_atom
                number += 1
                if atom in used:
                    extents[atom] = extent
    outputs, inputs = (_taken_apart(index, extents) for index in (places, coordinates))
    if outputs is None or inputs is None or extents.keys() != inputs.places.keys():
        return None
    digits = []
    for atom, extent in extents.items():
        (out_axis, out_factor), (in_axis, in_factor) = outputs.places[atom], inputs.places[atom]
        digits.append(Digit(extent, (out_axis, in_axis), (out_factor, in_factor)))
    return Access(tuple(digits), (y.dims, x.dims), (outputs.rests, inputs.rests))


class _Sums(NamedTuple):
    """An index as sums: axis and factor of each digit, and what is added along each axis."""

    places: dict[Atom, tuple[int, Polynomial]]
    rests: tuple[Polynomial, ...]


def _taken_apart(index: Index, digits: Collection[Atom]) -> _Sums | None:
    """Write an index as sums of digits; None unless each digit is in one place."""
    places: dict[Atom, tuple[int, Polynomial]] = {}
    rests: list[Polynomial] = []
    for axis, rest in enumerate(index):
        for digit in top_atoms(rest).intersection(digits):
            factor, rest = factor_of(rest, digit)
            if digit in places or factor is None or not atoms_of(factor).isdisjoint(digits):
                return None
            places[digit] = axis, factor
        if not atoms_of(rest).isdisjoint(digits):
            return None
        rests.append(rest)
    return _Sums(places, tuple(rests))


def _index_in_source(source: str, y: Tensor, index: Index) -> Index | None:
    """Return the index in the input of an element of the output; None for padding and others."""
    key = y.at(index).operation
    return tuple(key.operands) if (key.operator, key.details) == (ELEMENT, (source,)) else None


#: Processor seconds for the chains of a model: many times of what the steps of its budget take.
MODEL_SECONDS = 300.0

#: The most cases in which a part is read, and the most guesses of what it is that are proven.
MAX_READINGS = 24

#: Reads operators off the access form of a chain.
Reader = Callable[[ChainMap, Access], Iterator[_T]]

#: Yields sizes to take for multiples, see `DividedSizes`.
Attempts = Callable[[DividedSizes], Iterator[Mapping[SizeKey, int]]]

#: A size, and the number that divides it.
Division = tuple[Polynomial, int]


class Operator(Protocol):
    """What a chain may be: `Blocks`, `Patches` or `SlicedRearrange`."""

    def expected(self, case: Case, chain: ChainMap, /) -> Tensor | None:
        """Return the map of the operator on the chain's data; None where the chain does not run."""

    def divisions(self, case: Case, chain: ChainMap, /) -> Sequence[Division] | None:
        """Return the sizes that it divides, and by what; None if it may assume that it can."""


class Readings:
    """What the parts of the paths of a graph may be.

    Args:
        graph: the graph.
        budget: of the search.
        steps: of the budget for reading a part, and for a proof.
    """

    def __init__(self, graph: GraphScope, budget: Budget, steps: int = 40_000) -> None:
        self._graph, self._budget, self._steps = graph, budget, steps

    def _new_case(self) -> Case:
        return Case(Budget(self._steps, within=self._budget))

    def read_path(
        self, path: Path, reader: Reader[_T], attempts: Attempts | None = DividedSizes.as_multiples
    ) -> Iterator[_T]:
        """Yield what a path may be: of any sizes, else where blocks divide one of them, or all.

        Args:
            path: the path.
            reader: reads operators off its form.
            attempts: which sizes to take for multiples; None if the operators divide no axes.
        """
        divided = DividedSizes()
        for multiples in itertools.chain(({},), attempts(divided) if attempts else ()):
            found, case = False, self._new_case()
            body = partial(self._read_in, case, path, multiples, reader, divided)
            try:
                for each in itertools.chain.from_iterable(islice(case.all(body), MAX_READINGS)):
                    found = True
                    yield each
            except (UndecidedError, ArithmeticError, LookupError, TypeError, ValueError):
                pass
            if found:
                return

    def _read_in(
        self,
        case: Case,
        path: Path,
        multiples: Mapping[SizeKey, int],
        reader: Reader[_T],
        divided: DividedSizes,
    ) -> list[_T]:
        """Return what a path may be in one case; note the sizes that its nodes divide."""
        chain = ChainMap(case, self._graph, path, multiples)
        try:
            form = of_digits(case, chain.source, chain.x, chain.y)
            return [] if form is None else list(reader(chain, form))
        except (IllegalError, UnnamedError):
            return []  # other sizes may be legal, or have a name
        finally:
            divided.note_sizes(case, chain.x.dims)

    def is_operator(self, path: Path, operator: Operator) -> bool:
        """Return whether a path is provably an operator, in every run that succeeds."""
        needs_division = False

        def maps(case: Case) -> tuple[Tensor, Tensor]:
            nonlocal needs_division
            chain = ChainMap(case, self._graph, path)
            result = operator.expected(case, chain)
            needs_division = operator.divisions(case, chain) is not None
            return (chain.x, chain.x) if result is None else (result, chain.y)

        comparison = compare(self._new_case(), maps)
        if comparison.equal and comparison.assumptions and needs_division:
            return self._runs_only_divided(path, operator)
        return comparison.equal

    def _runs_only_divided(self, path: Path, operator: Operator) -> bool:
        """Return whether a path provably fails where a number does not divide its size."""
        case = self._new_case()

        def fails_or_divides() -> bool:
            chain = ChainMap(case, self._graph, path)
            pairs = operator.divisions(case, chain) or ()
            try:
                exact = (
                    case.are_equal(case.floor_div(p, Polynomial.of(b)) * b, p) for p, b in pairs
                )
                if not chain.may_run() or all(exact):
                    return True
            except UndecidedError:
                pass  # it may be known where it is known what is left of each size
            left = [case.residue(p, b) for p, b in pairs]
            if any(left):  # then the other sizes may say that a node fails
                for dim, block in itertools.product(chain.x.dims, {b for _, b in pairs}):
                    case.residue(dim, block)
            return not any(left)

        try:
            return all(case.all(fails_or_divides))
        except UndecidedError:
            return False


def limit_of(budget: Budget, steps: int) -> str:
    """Return what has stopped a search, for people."""
    return f"{MODEL_SECONDS:.0f} seconds" if budget.is_timed_out else f"{steps:,} steps"
