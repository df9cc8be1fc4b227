"""Enumerate the cases that sizes, parameters and indices can be in.

    is i - 2 >= 0?      facts say yes, or no; else two cases: one with the fact i >= 2, one with i <= 1

A rule calls `Case.decide` where its result depends on an inequality: is this element inside the image?
Where the facts do not decide it, the case is split: the computation continues with the answer yes, and
is repeated with the answer no. A split keeps the facts and the replaced symbols from before it, to go
back to. Results that were computed before it are kept, and those that were computed since are forgotten.

    def body(): return "inside" if case.decide(place) else "outside"
    list(case.all(body))     ["inside", "outside"]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps import division, values
from onnx_spatial.maps.facts import Budget, Facts
from onnx_spatial.maps.polynomial import (
    ONE,
    PARAMETER,
    ZERO,
    Atom,
    Index,
    IndexKind,
    Polynomial,
    Symbol,
    atoms_of,
    bases_of,
    is_inside_of,
    show,
    substitute,
)
from onnx_spatial.maps.values import MAX_DECIDED, SIZE_LIMIT, Values, evaluate, grid_of

_T = TypeVar("_T")

#: The most cases of one comparison.
MAX_CASES = 4096

#: The most values of an index that are tried one by one.
MAX_VALUES = 512

#: The most elements of a small tensor, such as a list of sizes, that are followed one by one.
MAX_ENTRIES = 64

_serials = itertools.count()


class UndecidedError(Exception):
    """Failure to compute or compare a map; the message says why.

    Attributes:
        unmet: what would have to be 0 or more for a node to succeed, and may be negative.
    """

    def __init__(self, message: str, *unmet: Polynomial) -> None:
        """Fail with a message."""
        super().__init__(message)
        self.unmet = unmet


class IllegalError(UndecidedError):
    """Failure of a node in all runs of a case."""


class AgainError(Exception):
    """Signal that a symbol was replaced: the computation starts again."""


@dataclass
class _Split:
    """State before a split, and the alternatives that are left.

    Attributes:
        facts: the facts before the split.
        replaced: the replaced symbols before the split.
        left: alternatives; each adds its fact, or replaces its symbol.
        made: keys of the results that were computed since.
    """

    facts: Facts
    replaced: Mapping[Atom, Polynomial] = field(default_factory=dict)
    left: list[Callable[[], None]] = field(default_factory=list)
    made: list[Hashable] = field(default_factory=list)


class Splits:
    """The facts of one case, the results that were computed from them, and the cases that are left."""

    #: Whether it splits where facts do not decide; `sizes.OpenCase` leaves that open.
    splits = True

    def __init__(self, budget: Budget) -> None:
        """Begin with no facts; `budget` is for all computations."""
        self._budget = budget
        self.facts = Facts(budget)
        self._replaced: Mapping[Atom, Polynomial] = {}
        self._splits = [_Split(self.facts)]
        self._memo: dict[Hashable, Any] = {}
        self._ticks = 0

    # The facts of this case

    def assume(self, fact: Polynomial) -> None:
        """Add a fact that holds by definition."""
        self.facts.add(fact)

    def replaced(self, p: Polynomial) -> Polynomial:
        """Return a polynomial after all replacements of symbols."""
        return substitute(p, self._replaced) if self._replaced else p

    def replace(self, atom: Atom, p: Polynomial) -> NoReturn:
        """Replace a symbol by a polynomial, also in the facts.

        Raises:
            AgainError: always; the maps must be computed again.
        """
        # A quotient of the symbol becomes another quotient, which comes with its own facts.
        facts = [fact for fact in self.facts if not is_inside_of(atom, fact)]
        self._set(atom, p, facts)
        if atom.nonnegative and p.constant is None and not p.nonnegative:
            self.facts.add(p)
        if isinstance(atom.key, Symbol) and atom.key.kind == PARAMETER:
            self.facts.add(SIZE_LIMIT - 1 - p)  # which `Facts` knows of symbols
        self._memo.clear()
        raise AgainError

    def _set(self, atom: Atom, p: Polynomial, facts: Sequence[Polynomial]) -> None:
        """Replace a symbol in earlier replacements and in some facts; forget the others."""
        value = {atom: p}
        self._replaced = {a: substitute(q, value) for a, q in self._replaced.items()} | value
        self.facts = self.facts.emptied()
        for fact in facts:
            self.facts.add(substitute(fact, value))

    # Splits

    def _split_by(self, p: Polynomial) -> bool:
        """Return whether `p` is 0 or more: True in this case, and False in a later one if it can be."""
        before = self._split([lambda: self.facts.add(-p - 1)])
        self.facts.add(p)
        if self.facts.contradictory():
            self._splits.pop()
            self.facts = before
            self.facts.add(-p - 1)
            return False
        return True

    def _split_into(self, count: int, fix: Callable[[int], None]) -> None:
        """Split by a number below `count`, and begin with 0; `fix` replaces a symbol for a number."""
        self._split([partial(fix, value) for value in reversed(range(1, count))])
        fix(0)

    def _split(self, left: list[Callable[[], None]]) -> Facts:
        """Begin a split with some alternatives left; return the facts before it."""
        before, self.facts = self.facts, self.facts.copy()
        self._splits.append(_Split(before, self._replaced, left))
        return before

    # Results and cases

    def once(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return the result of `compute`, kept by its key in the split that it was computed in."""
        if key in self._memo:
            result: _T = self._memo[key]
            return result
        self._budget.spend()
        result = compute()
        self._memo[key] = result
        self._splits[-1].made.append(key)
        return result

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
                except AgainError:
                    possible = not self.facts.contradictory()
            if not self._next():
                return
        raise UndecidedError(f"there are more than {MAX_CASES} cases")

    def _next(self) -> bool:
        """Go to the next case; return False if there is none."""
        while len(self._splits) > 1:
            split = self._splits.pop()
            for key in split.made:
                self._memo.pop(key, None)
            self.facts, self._replaced = split.facts, split.replaced
            if split.left:
                go = split.left.pop()
                self._split(split.left)
                go()
                if not self.facts.contradictory():
                    return True
        return False

    def _check_now_and_then(self) -> None:
        """Count a step; check the budget at every eighth: the clock is slow."""
        self._budget.spend()
        self._ticks += 1
        if self._ticks % 8 == 0:
            self.check_budget()

    def check_budget(self) -> None:
        """Stop a proof that takes too many steps.

        Raises:
            UndecidedError: the budget is exhausted.
        """
        if self._budget.is_exhausted:
            raise UndecidedError("no steps are left")


class ElementUse(NamedTuple):
    """Use of an element.

    Attributes:
        sums: number of sums that the element is in: each has indices of its own.
        opaque: whether the element is only compared, so that an integer needs no formula.
    """

    sums: int = 0
    opaque: bool = False


class Case(Splits):
    """The symbols of one case, and what its facts say of them."""

    def __init__(self, budget: Budget | None = None) -> None:
        """Begin with no facts; `budget` is for all computations, without a bound if it is omitted."""
        super().__init__(Budget() if budget is None else budget)
        self._serial = next(_serials)
        self.assumptions: dict[str, None] = {}
        self._symbols: dict[Atom, None] = {}
        self._fresh = 0
        #: Use of the elements that are computed now.
        self.use = ElementUse()
        #: Known extents of indices.
        self.extents: dict[Atom, int] = {}
        #: Integers that are parameters of an operator, and so below `values.SIZE_LIMIT`.
        self.bounded: set[Atom] = set()
        #: Names of given tensors whose elements are all finite.
        self.finite: set[str] = set()
        #: Whether a sum of one element times 1 and of others times 0 is that element (`FINITE_DATA`).
        self.copies = False
        #: Numbers of elements of tensors of the model, and so below `values.MAX_ELEMENTS`.
        self.counts: list[Polynomial] = []
        #: Calls of the original of operators without a rule, see `UnknownRule`.
        self.calls: set[Hashable] = set()
        #: Checks of all elements of a tensor, without which a run may fail, by node.
        self.obligations: dict[str, Callable[[], None]] = {}

    # Symbols

    def symbol(self, name: str, least: int | None = 1, *, kind: Hashable = "size") -> Polynomial:
        """Return a symbol for a size or parameter.

        Args:
            name: in messages.
            least: the least value, 0 or more; None if there is none.
            kind: symbols of the same name and different kinds are different.
        """
        atom = self._symbol(kind, name, nonnegative=least is not None)
        self.facts.samples.define(atom, least or 0)
        p = self.replaced(Polynomial({(atom,): 1}))
        if least:
            self.assume(p - least)
        return p

    def index(self, name: str, extent: Polynomial, axis: Hashable = None) -> Polynomial:
        """Return a symbol for an index that takes all values from 0 to `extent` - 1.

        Equal arguments give the same index, so every fact about it must follow from them.

        Args:
            name: in messages.
            extent: number of values, 1 or more.
            axis: definition of the axis that the index is a digit of, if facts are assumed of it.
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
        """All symbols in the order in which they were made, replaced ones included."""
        return list(self._symbols)

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
        return self._split_by(p)

    def is_zero(self, p: Polynomial) -> bool:
        """Tell whether `p` is 0, in this case."""
        if p.constant is not None:
            return p.constant == 0
        return self.decide(p) and self.decide(-p)

    def surely(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more, without a split."""
        self._check_now_and_then()
        return self.facts.nonnegative(p)

    def are_equal(self, a: Polynomial, b: Polynomial) -> bool:
        """Tell whether two numbers are provably equal, without a split."""
        if a == b or (self.surely(a - b) and self.surely(b - a)):
            return True
        return self.everywhere(a - b, lambda values: values == 0)

    def everywhere(self, p: Polynomial, holds: Callable[[Values], npt.NDArray[np.bool_]]) -> bool:
        """Tell whether a polynomial has a property for all values of indices of known extents."""
        return values.holds_everywhere(p, holds, self.extents, self.facts)

    def is_inside(self, place: Polynomial, extents: Sequence[Polynomial]) -> bool:
        """Tell whether `place` is provably an index of an axis whose digits have these extents."""
        for extent in reversed(extents[1:]):
            if extent == ONE:
                continue
            quotient = division.known_quotient(self.facts, place, extent)
            if quotient is None:
                return False
            place = quotient
        return self.surely(place) and self.surely(extents[0] - 1 - place)

    def require(self, p: Polynomial, problem: str) -> None:
        """Fail unless `p` is provably 0 or more.

        Raises:
            UndecidedError: it may be negative; `problem` says in a sentence what this means.
        """
        if not self.surely(p) and not self.everywhere(p, lambda values: values >= 0):
            self.check_budget()
            raise UndecidedError(f"{problem} ({show(p)} < 0)", p)

    def require_equal(self, a: Polynomial, b: Polynomial, problem: str) -> None:
        """Fail unless two sizes are provably equal.

        Raises:
            IllegalError: they differ; `problem` says in a sentence what this means.
            UndecidedError: they may differ.
        """
        if not self.are_equal(a, b):
            self.check_budget()
            differ = self.surely(a - b - 1) or self.surely(b - a - 1)
            kind = IllegalError if differ else UndecidedError
            raise kind(f"{problem} ({show(a)} and {show(b)})", a - b, b - a)

    def split_by_value(self, atoms: set[Atom]) -> NoReturn:
        """Split by the values of one of several indices, the one with the fewest.

        Raises:
            AgainError: always.
        """
        atom = min(atoms, key=lambda a: (self.extents[a], a.serial))
        self.each_value(atom, self.extents[atom])

    def each_value(self, atom: Atom, count: int) -> NoReturn:
        """Split by the values of an index, which is below `count`.

        Raises:
            AgainError: always; the index is replaced by its first value.
            UndecidedError: there are too many values.
        """
        if count > MAX_VALUES:
            raise UndecidedError(f"there are too many cases: an index has {count} values")
        self.check_budget()

        def fix(value: int) -> None:
            self._set(atom, Polynomial.of(value), tuple(self.facts))

        self._split_into(count, fix)
        raise AgainError

    @staticmethod
    def is_size(p: Polynomial) -> bool:
        """Tell whether a polynomial is a symbol plus a number."""
        atom = (p - p.terms.get((), 0)).lone_atom
        return atom is not None and isinstance(atom.key, Symbol)

    def residue(self, p: Polynomial, count: int) -> int:
        """Return what is left of a number divided by `count`; split by the values that may be left.

        Raises:
            AgainError: a size that it is the sum of was replaced by a multiple plus what is left.
            UndecidedError: it is no size plus a number, or there are too many values.
        """
        divisor = Polynomial.of(count)
        left = self.mod(p, divisor).constant
        if left is not None:
            return left
        added = p.terms.get((), 0)
        atom = (p - added).lone_atom
        if not self.is_size(p) or count > MAX_VALUES:
            raise UndecidedError(f"the rest of {show(p)} divided by {count} is unknown")
        assert atom is not None and isinstance(atom.key, Symbol)
        self._fresh += 1
        name = f"{atom.key.name}'{self._fresh}"

        def fix(value: int) -> None:
            part = self.symbol(name, 0, kind="quotient") * count + (value - added)
            self._set(atom, part, [f for f in self.facts if not is_inside_of(atom, f)])
            self.facts.add(part - 1)
            self._memo.clear()

        self._split_into(count, fix)
        raise AgainError

    def value_of(self, p: Polynomial, count: int) -> int:
        """Return the value of a polynomial from 0 to `count` - 1; split by its values.

        Raises:
            AgainError: an index that it depends on was replaced by a value.
            UndecidedError: there are too many values.
        """
        if p.constant is not None:
            return p.constant
        known = {a for a in atoms_of(p) if a in self.extents and a not in self._replaced}
        if known:
            self.split_by_value(known)
        if count > MAX_VALUES:
            raise UndecidedError(f"there are too many cases: an integer has {count} values")
        for value in range(count - 1):
            if self.decide(value - p):
                return value
        return count - 1

    def for_all(
        self,
        node: str,
        dims: Sequence[Polynomial],
        check: Callable[[Index], None],
        index: Callable[[], Index] | None = None,
    ) -> None:
        """Check all elements of a tensor: at once if they are few, else after the comparison.

        A run computes all elements, also those that no output depends on.

        Args:
            node: name of a node's output; there is one check for each node.
            dims: dims of the tensor.
            check: raises UndecidedError if the element at an index may fail.
            index: returns the index of any element, made of its digits.
        """
        sizes = [d.constant for d in dims]
        if all(s is not None and s <= MAX_ENTRIES for s in sizes):
            known = [s for s in sizes if s is not None]
            if math.prod(known) <= MAX_ENTRIES:
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
        """Compute elements for another use, see `ElementUse`; `sums` are added to those of now."""
        before = self.use
        self.use = ElementUse(before.sums + sums, opaque)
        try:
            yield
        finally:
            self.use = before

    def sizes(
        self, compute: Callable[[], tuple[Polynomial, ...]], count: int
    ) -> Sequence[Polynomial]:
        """Return some sizes that a rule computes; an open case has new unknowns where they are open."""
        return compute()

    def size(self, compute: Callable[[], Polynomial]) -> Polynomial:
        """Return a size that a rule computes, see `sizes`."""
        (result,) = self.sizes(lambda: (compute(),), 1)
        return result

    def function(
        self,
        op_type: str,
        details: tuple[Hashable, ...],
        operands: Callable[[], Sequence[Polynomial]],
        compute: Callable[[], Polynomial],
    ) -> Polynomial:
        """Return an integer that a rule computes; an open case has an unknown function where it is open.

        Args:
            op_type: the operator.
            details: attributes and element types that the integer depends on.
            operands: returns what it is a function of.
            compute: returns the integer.
        """
        return compute()

    # Division

    def floor_div(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return `a / b` rounded down; `b` is 1 or more, as a dim is that an index is inside of."""
        if b == ONE:
            return a
        if b.constant is not None and b.constant <= 0:
            raise UndecidedError("a divisor may be 0")
        if a.constant is not None and b.constant is not None:
            return Polynomial.of(a.constant // b.constant)
        return self.once(("floor", a, b), lambda: division.floor_div(self.facts, a, b))

    def mod(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return `a - b * floor(a / b)`."""
        return a - b * self.floor_div(a, b)

    def digits_of(self, place: Polynomial, extents: Sequence[Polynomial]) -> list[Polynomial]:
        """Return the digits of an index along an axis, see `flat`; the first one holds what is left."""
        digits = [ZERO] * len(extents)
        numbers = [number for number, extent in enumerate(extents) if extent != ONE]
        for number in numbers[:0:-1]:
            quotient = self.floor_div(place, extents[number])
            digits[number], place = place - quotient * extents[number], quotient
        for number in numbers[:1]:
            digits[number] = place
        return digits

    def divide(self, a: Polynomial, b: Polynomial, what: str) -> Polynomial:
        """Return `a / b`, assumed to be an integer by a rule of the operator, which `what` says.

        The first size that is a term of `a` is replaced by what makes `a` a multiple of `b`.
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
