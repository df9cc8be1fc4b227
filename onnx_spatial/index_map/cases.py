"""Go through all cases that the sizes, the parameters and the index of an element can be in.

A rule asks `Case.decide` where its result depends on an inequality: is this element inside the image?
If the facts do not say, the case is split: the rule goes on as if the answer were yes, and all is run a
second time with the answer no. Results that were computed before the split are kept.

    def body(): return "inside" if case.decide(place) else "outside"
    list(case.all(body))     ["inside", "outside"]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import thread_time
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from onnx_spatial.index_map import division
from onnx_spatial.index_map.expressions import (
    ONE,
    ZERO,
    Index,
    IndexKind,
    Symbol,
    atoms_of,
    bases_of,
    is_inside_of,
    show,
    substitute,
)
from onnx_spatial.index_map.facts import Facts
from onnx_spatial.index_map.grids import MAX_DECIDED, Values, evaluate, everywhere, grid_of
from onnx_spatial.index_map.limits import LIMIT
from onnx_spatial.model.symbolic.polynomial import Atom, Polynomial

_T = TypeVar("_T")

#: The most elements that are checked one by one.
_FEW = 64

#: Kind of the symbols for elements of parameters of operators.
PARAMETER = "parameter"

#: The most cases of one comparison, and seconds that it takes.
MAX_CASES = 4096
MAX_SECONDS = 2.0

#: The most values of an index that are tried one by one.
MAX_VALUES = 512


_serials = itertools.count()


class UndecidedError(Exception):
    """Failure to follow a map; the message says why."""


class _AgainError(Exception):
    """Signal that a symbol was replaced, so that the case begins anew."""


@dataclass
class _Split:
    """A split: what was known before it, and what is left to try."""

    facts: int
    left: list[Callable[[], None]] = field(default_factory=list)
    made: list[Hashable] = field(default_factory=list)
    before: tuple[Facts, dict[Atom, Polynomial]] | None = None


class Case:
    """What is known in one case, and the results computed in it."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        """Begin with no facts.

        Args:
            seconds: of processor time of this thread.
        """
        self._serial = next(_serials)
        self._deadline = thread_time() + seconds
        self.facts = Facts(self._deadline)
        self.assumptions: dict[str, None] = {}
        self._pins: dict[Atom, Polynomial] = {}
        self._splits = [_Split(0)]
        self._memo: dict[Hashable, Any] = {}
        self._symbols: dict[Atom, None] = {}
        self._fresh = 0
        self._ticks = 0
        #: How many sums enclose what is computed, and whether integers are only compared.
        self.context = (0, False)
        #: Number of values of each index that has a known one.
        self.extents: dict[Atom, int] = {}
        #: Integers of the model that are parameters of an operator: they are no larger than sizes.
        self.bounded: set[Atom] = set()
        #: Numbers of elements of tensors in the model: they fit every type of sizes and indices.
        self.counts: list[Polynomial] = []
        #: What must hold of all elements of some tensors, so that no run fails; by node.
        self.obligations: dict[str, Callable[[], None]] = {}

    # Symbols

    def symbol(self, name: str, least: int | None = 1, *, kind: str = "size") -> Polynomial:
        """Return a size or parameter of which only the least value is known: 0 or more, or None."""
        atom = self._symbol(kind, name, nonnegative=least is not None)
        self.facts.samples.define(atom, least or 0)
        p = self.replaced(Polynomial({(atom,): 1}))
        if least:
            self.assume(p - least)
        return p

    def index(self, name: str, extent: Polynomial, axis: Hashable = None) -> Polynomial:
        """Return an index that takes every value from 0 below `extent`, which is 1 or more.

        Equal arguments give the same index. All that is assumed of an index must follow from `axis`.
        """
        if extent == ONE:
            return ZERO
        atom = self._symbol(IndexKind(extent, axis), name)
        self.facts.samples.define(atom, 0, extent)
        if extent.constant is not None:
            self.extents[atom] = extent.constant
        p = self.replaced(Polynomial({(atom,): 1}))
        self.assume(extent - 1 - p)
        return p

    def _symbol(self, kind: Hashable, name: str, *, nonnegative: bool = True) -> Atom:
        p = Polynomial.atom(Symbol(self._serial, kind, name), nonnegative=nonnegative)
        ((atom,),) = p.terms
        self._symbols.setdefault(atom)
        return atom

    @property
    def symbols(self) -> list[Atom]:
        """All symbols, replaced ones included, in the order in which they came up."""
        return list(self._symbols)

    def replaced(self, p: Polynomial) -> Polynomial:
        """Return a polynomial with the symbols replaced that were found to depend on others."""
        return substitute(p, self._pins) if self._pins else p

    def replace(self, atom: Atom, p: Polynomial) -> NoReturn:
        """Replace a symbol by a polynomial from now on: in the facts, too.

        Raises:
            _AgainError: always; all maps are to be computed again.
        """
        split = self._splits[-1]
        if split.before is None:
            split.before = (self.facts.saved(), dict(self._pins))
        pins = {a: substitute(q, {atom: p}) for a, q in self._pins.items()} | {atom: p}
        # Facts about quotients are found again with the quotients.
        facts = [substitute(fact, {atom: p}) for fact in self.facts if not is_inside_of(atom, fact)]
        if atom.nonnegative and p.constant is None and not p.nonnegative:
            facts.append(p)
        if isinstance(atom.key, Symbol) and atom.key.kind == PARAMETER:
            facts.append(LIMIT - 1 - p)  # which `Facts` knows of symbols
        self._pins = pins
        self.facts.forget(0)
        for fact in facts:
            self.facts.add(fact)
        self._memo.clear()
        raise _AgainError

    # Decisions

    def decide(self, p: Polynomial) -> bool:
        """Tell whether `p` is 0 or more, in this case."""
        if p.constant is not None:
            return p.constant >= 0
        if self.facts.nonnegative(p):
            return True
        if self.facts.nonnegative(-p - 1):
            return False
        bases = bases_of(p)
        if all(atom in self.extents for atom in bases):
            grid = grid_of(bases, self.extents, self.facts, MAX_DECIDED)
            if grid is not None:
                values = evaluate(p, grid) >= 0
                if values.all() or not values.any():
                    return bool(values.all())
        self._check_now_and_then()
        self._splits.append(_Split(len(self.facts), [lambda: self.facts.add(-p - 1)]))
        self.facts.add(p)
        if self.facts.contradictory():
            self.facts.forget(self._splits.pop().facts)
            self.facts.add(-p - 1)
            return False
        return True

    def is_zero(self, p: Polynomial) -> bool:
        """Tell whether `p` is 0, in this case."""
        if p.constant is not None:
            return p.constant == 0
        return self.decide(p) and self.decide(-p)

    def surely(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more, without a split."""
        return self.facts.nonnegative(p)

    def are_equal(self, a: Polynomial, b: Polynomial) -> bool:
        """Tell whether two numbers are provably equal, without a split."""
        if a == b or (self.surely(a - b) and self.surely(b - a)):
            return True
        return self.everywhere(a - b, lambda values: values == 0)

    def everywhere(self, p: Polynomial, holds: Callable[[Values], npt.NDArray[np.bool_]]) -> bool:
        """Tell whether a polynomial has a property for all values of indices of known extents."""
        return everywhere(p, holds, self.extents, self.facts)

    def is_inside(self, place: Polynomial, extents: Sequence[Polynomial]) -> bool:
        """Tell whether a place is provably one of an axis that is made of digits."""
        for extent in reversed(extents[1:]):
            if extent == ONE:
                continue
            quotient = division.known_quotient(self.facts, place, extent)
            if quotient is None:
                return False
            place = quotient
        return self.surely(place) and self.surely(extents[0] - 1 - place)

    def require(self, p: Polynomial, what: str) -> None:
        """Fail unless `p` is provably 0 or more.

        Raises:
            UndecidedError: it is not.
        """
        if not self.surely(p) and not self.everywhere(p, lambda values: values >= 0):
            self.check_budget()
            raise UndecidedError(f"{what}: {show(p)} may be negative")

    def require_equal(self, a: Polynomial, b: Polynomial, what: str) -> None:
        """Fail unless two sizes are provably equal.

        Raises:
            UndecidedError: they are not.
        """
        if not self.are_equal(a, b):
            self.check_budget()
            raise UndecidedError(f"{what}: {show(a)} and {show(b)} may differ")

    def assume(self, fact: Polynomial) -> None:
        """Add something that holds by definition in this case."""
        self.facts.add(fact)

    def split_by_value(self, atoms: set[Atom]) -> NoReturn:
        """Split by the values of the one of several indices that has the fewest.

        Raises:
            _AgainError: always.
        """
        atom = min(atoms, key=lambda a: (self.extents[a], a.serial))
        self.each_value(atom, self.extents[atom])

    def each_value(self, atom: Atom, count: int) -> NoReturn:
        """Split by the value of an index below `count`.

        Raises:
            _AgainError: always, with the first value in place of the index.
            UndecidedError: there are too many.
        """
        if count > MAX_VALUES:
            raise UndecidedError(f"an index has {count} values to distinguish")
        self.check_budget()
        split = _Split(len(self.facts))

        def fix(value: int) -> Callable[[], None]:
            def go() -> None:
                self._pin_index(atom, value)

            return go

        split.left = [fix(value) for value in reversed(range(1, count))]
        split.before = (self.facts.saved(), dict(self._pins))
        self._splits.append(split)
        self._pin_index(atom, 0)
        raise _AgainError

    def value_of(self, p: Polynomial, count: int) -> int:
        """Return the value of a number from 0 below `count`: one case for each.

        Raises:
            _AgainError: one of the indices that it depends on was replaced by a value.
            UndecidedError: there are too many.
        """
        if p.constant is not None:
            return p.constant
        known = {a for a in atoms_of(p) if a in self.extents and a not in self._pins}
        if known:
            self.split_by_value(known)
        if count > MAX_VALUES:
            raise UndecidedError(f"a number has {count} values to distinguish")
        for value in range(count - 1):
            if self.decide(value - p):
                return value
        return count - 1

    def _pin_index(self, atom: Atom, value: int) -> None:
        p = Polynomial.of(value)
        self._pins = {a: substitute(q, {atom: p}) for a, q in self._pins.items()} | {atom: p}
        facts = [substitute(fact, {atom: p}) for fact in self.facts]
        self.facts.forget(0)
        for fact in facts:
            self.facts.add(fact)

    def for_all(
        self,
        node: str,
        dims: Sequence[Polynomial],
        check: Callable[[Index], None],
        index: Callable[[], Index] | None = None,
    ) -> None:
        """Check something of all elements of a tensor: few at once, many after the comparison.

        A run computes them all, also those that no output depends on.

        Args:
            node: name of a node's output; one check for each.
            dims: of the tensor.
            check: raises UndecidedError if an element may not fulfil it.
            index: makes the index of any element, if its digits are known.
        """
        sizes = [d.constant for d in dims]
        if all(s is not None and s <= _FEW for s in sizes):
            known = [s for s in sizes if s is not None]
            if math.prod(known) <= _FEW:
                for place in itertools.product(*map(range, known)):
                    check(tuple(map(Polynomial.of, place)))
                return

        def check_any() -> None:
            if all(self.decide(d - 1) for d in dims):
                places = (self.index(f"i{a}", d) for a, d in enumerate(dims))
                check(index() if index is not None else tuple(places))

        self.obligations[node] = check_any

    # Results

    @contextmanager
    def within(self, *, sums: int = 0, opaque: bool = False) -> Iterator[None]:
        """Compute inside further sums, or elements that are only compared.

        Args:
            sums: how many more sums enclose it: each has indices of its own.
            opaque: whether integers of tables need no formula.
        """
        before = self.context
        self.context = (before[0] + sums, opaque)
        try:
            yield
        finally:
            self.context = before

    def once(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return what `compute` gives, computed once for a key as long as the case allows."""
        if key in self._memo:
            result: _T = self._memo[key]
            return result
        result = compute()
        self._memo[key] = result
        self._splits[-1].made.append(key)
        return result

    # Cases

    def all(self, body: Callable[[], _T]) -> Iterator[_T]:
        """Yield the results of `body` in every case.

        Raises:
            UndecidedError: there are too many cases.
        """
        self.check_budget()
        for _ in range(MAX_CASES):
            possible = True
            while possible:
                self._check_now_and_then()
                try:
                    yield body()
                    break
                except _AgainError:
                    possible = not self.facts.contradictory()
            if not self._next():
                return
        raise UndecidedError(f"more than {MAX_CASES} cases")

    def _next(self) -> bool:
        """Turn to the next case; return False if there is none."""
        while len(self._splits) > 1:
            split = self._splits.pop()
            for key in split.made:
                self._memo.pop(key, None)
            if split.before is not None:
                facts, pins = split.before
                self.facts.restore(facts)
                self._pins = dict(pins)
            self.facts.forget(split.facts)
            if not split.left:
                continue
            go = split.left.pop()
            self._splits.append(_Split(split.facts, split.left, [], split.before))
            go()
            if not self.facts.contradictory():
                return True
        return False

    def _check_now_and_then(self) -> None:
        """Check the budget at every eighth call: the clock is slow."""
        self._ticks += 1
        if self._ticks % 8 == 0:
            self.check_budget()

    def check_budget(self) -> None:
        """Give up once the time is over.

        Raises:
            UndecidedError: it is.
        """
        if thread_time() > self._deadline:
            raise UndecidedError("it takes too long")

    # Division

    def floor_div(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return `a / b` rounded down; `b` is 1 or more."""
        if b == ONE:
            return a
        if b.constant is not None and b.constant <= 0:
            raise UndecidedError("a division by 0")
        if a.constant is not None and b.constant is not None:
            return Polynomial.of(a.constant // b.constant)
        return self.once(("floor", a, b), lambda: division.floor_div(self.facts, a, b))

    def mod(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return `a - b * floor(a / b)`."""
        return a - b * self.floor_div(a, b)

    def divide(self, a: Polynomial, b: Polynomial, what: str) -> Polynomial:
        """Return `a / b`, which is assumed to be an integer: a rule of the operator says so.

        The first size that `a` holds on its own is replaced by the multiple of `b` that this makes it.
        """
        quotient = division.exact(a, b)
        if quotient is not None:
            return quotient
        floor = self.floor_div(a, b)
        if self.are_equal(floor * b, a):
            return floor
        self.assumptions[what] = None
        for product, factor in sorted(a.terms.items(), key=lambda t: t[0][0].serial if t[0] else 0):
            atom = product[0] if len(product) == 1 else None
            if atom is None or abs(factor) != 1 or not isinstance(atom.key, Symbol):
                continue
            rest = a - Polynomial({product: factor})
            if any(atom in atoms_of(p) for p in (rest, b)):
                continue
            self._fresh += 1
            least = 1 if self.surely(a - 1) else 0
            part = self.symbol(f"{atom.key.name}'{self._fresh}", least, kind="quotient")
            multiple = b * part - rest
            self.replace(atom, multiple if factor > 0 else -multiple)
        self.assume(floor * b - a)
        return floor
