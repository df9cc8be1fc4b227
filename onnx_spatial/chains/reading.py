"""Read what a part of a path may be, and prove it: what all searches do with a part.

    part of a path -> index map, in one case of sizes -> access form -> reader -> guess -> proof

A guess is read in one case. Where the map of a part has no form, sizes are taken for multiples of all
usual blocks (`divided_sizes`). The proof compares the maps of the part and of the operator in all cases
of sizes. What the operator's definition assumes of them (that blocks divide sizes) has to hold wherever
the part runs: all that may be left of the sizes is tried, and either nothing is, or a node fails.

    Reshape [n, h, w, c] -> [n, h/2, 2, w/2, 2, c]        fails for odd h, because elements would be left
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from onnx_spatial.chains import access
from onnx_spatial.chains.access import Access
from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.divided_sizes import DividedSizes, SizeKey
from onnx_spatial.chains.formulas import UnnamedError
from onnx_spatial.chains.paths import Path
from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.compare import compare
from onnx_spatial.maps.facts import Budget
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.tensor import Tensor

_T = TypeVar("_T")
_Operator = TypeVar("_Operator", contravariant=True)

#: The most cases in which a part is read.
_MAX_CASES = 24

#: Reads operators off the access form of a chain.
Reader = Callable[[ChainMap, Access], Iterator[_T]]

#: Yields sizes to take for multiples, see `DividedSizes`.
Attempts = Callable[[DividedSizes], Iterator[Mapping[SizeKey, int]]]

#: A size, and the number that divides it.
Division = tuple[Polynomial, int]


class Definition(Protocol[_Operator]):
    """What an operator computes of the data of a chain: `blocks`, `patches` or `rearrangements`."""

    def expected(self, operator: _Operator, case: Case, chain: ChainMap, /) -> Tensor | None:
        """Return the map of the operator on the chain's data; None where the chain does not run."""

    def divisions(
        self, operator: _Operator, case: Case, chain: ChainMap, /
    ) -> Sequence[Division] | None:
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
                for each in itertools.chain.from_iterable(islice(case.all(body), _MAX_CASES)):
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
            form = access.of_digits(case, chain.source, chain.x, chain.y)
            return [] if form is None else list(reader(chain, form))
        except (IllegalError, UnnamedError):
            return []  # other sizes may be legal, or have a name
        finally:
            divided.note_sizes(case, chain.x.dims)

    def is_operator(
        self, path: Path, definition: Definition[_Operator], operator: _Operator
    ) -> bool:
        """Return whether a path is provably an operator, in every run that succeeds."""
        needs_division = False

        def maps(case: Case) -> tuple[Tensor, Tensor]:
            nonlocal needs_division
            chain = ChainMap(case, self._graph, path)
            result = definition.expected(operator, case, chain)
            needs_division = definition.divisions(operator, case, chain) is not None
            return (chain.x, chain.x) if result is None else (result, chain.y)

        comparison = compare(self._new_case(), maps)
        if comparison.equal and comparison.assumptions and needs_division:
            return self._runs_only_divided(path, partial(definition.divisions, operator))
        return comparison.equal

    def _runs_only_divided(
        self, path: Path, divisions: Callable[[Case, ChainMap], Sequence[Division] | None]
    ) -> bool:
        """Return whether a path provably fails where a number does not divide its size."""
        case = self._new_case()

        def fails_or_divides() -> bool:
            chain = ChainMap(case, self._graph, path)
            pairs = divisions(case, chain) or ()
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
