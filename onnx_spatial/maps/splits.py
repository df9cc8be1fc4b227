"""Repeat a computation for each answer to the questions that facts do not decide.

The computation continues with the first answer, and is repeated with the others. A split keeps the
facts and the replaced symbols from before it, to go back to. Results that were computed before a split
are kept, and those that were computed since are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeVar

from onnx_spatial.maps.budget import Budget
from onnx_spatial.maps.expressions import PARAMETER, Symbol, is_inside_of, substitute
from onnx_spatial.maps.facts import Facts
from onnx_spatial.maps.limits import LIMIT
from onnx_spatial.maps.polynomial import Atom, Polynomial

_T = TypeVar("_T")

#: The most cases of one comparison.
MAX_CASES = 4096


class UndecidedError(Exception):
    """Failure to compute or compare a map; the message says why.

    Attributes:
        unmet: what would have to be 0 or more for a node to succeed, and may be negative.
    """

    def __init__(self, message: str, *unmet: Polynomial) -> None:
        """Fail with a message."""
        super().__init__(message)
        self.unmet = unmet


class AgainError(Exception):
    """Signal that a symbol was replaced: the computation starts again."""


@dataclass
class _Split:
    """State before a split, and the alternatives that are left.

    Attributes:
        facts: number of facts before the split.
        left: alternatives; each adds its fact, or replaces its symbol.
        made: keys of the results that were computed since.
        before: facts and replaced symbols before the split, if symbols were replaced since.
    """

    facts: int
    left: list[Callable[[], None]] = field(default_factory=list)
    made: list[Hashable] = field(default_factory=list)
    before: tuple[Facts, dict[Atom, Polynomial]] | None = None


class Splits:
    """The facts of one case, the results that were computed from them, and the cases that are left."""

    #: Whether it splits where facts do not decide; `open_case` leaves that open.
    splits = True

    def __init__(self, budget: Budget) -> None:
        """Begin with no facts; `budget` is for all computations."""
        self._budget = budget
        self.facts = Facts(budget)
        self._replaced: dict[Atom, Polynomial] = {}
        self._splits = [_Split(0)]
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
        split = self._splits[-1]
        if split.before is None:
            split.before = (self.facts.saved(), dict(self._replaced))
        # A quotient of the symbol becomes another quotient, which comes with its own facts.
        facts = [fact for fact in self.facts if not is_inside_of(atom, fact)]
        self._set(atom, p, facts)
        if atom.nonnegative and p.constant is None and not p.nonnegative:
            self.facts.add(p)
        if isinstance(atom.key, Symbol) and atom.key.kind == PARAMETER:
            self.facts.add(LIMIT - 1 - p)  # which `Facts` knows of symbols
        self._memo.clear()
        raise AgainError

    def _set(self, atom: Atom, p: Polynomial, facts: Sequence[Polynomial]) -> None:
        """Replace a symbol in earlier replacements and in some facts; forget the others."""
        value = {atom: p}
        self._replaced = {a: substitute(q, value) for a, q in self._replaced.items()} | value
        self.facts.forget(0)
        for fact in facts:
            self.facts.add(substitute(fact, value))

    # Splits

    def _split_by(self, p: Polynomial) -> bool:
        """Return whether `p` is 0 or more: True in this case, and False in a later one if it can be."""
        self._splits.append(_Split(len(self.facts), [lambda: self.facts.add(-p - 1)]))
        self.facts.add(p)
        if self.facts.contradictory():
            self.facts.forget(self._splits.pop().facts)
            self.facts.add(-p - 1)
            return False
        return True

    def _split_into(self, count: int, fix: Callable[[int], None]) -> None:
        """Split by a number below `count`, and begin with 0; `fix` replaces a symbol for a number."""
        split = _Split(len(self.facts))
        split.left = [partial(fix, value) for value in reversed(range(1, count))]
        split.before = (self.facts.saved(), dict(self._replaced))
        self._splits.append(split)
        fix(0)

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
            if split.before is not None:
                facts, replaced = split.before
                self.facts.restore(facts)
                self._replaced = dict(replaced)
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
