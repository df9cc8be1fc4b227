"""Infer what holds in all runs: a case that never splits.

    proof        is h even?    a case where it is, and a case where it is not
    inference    is h even?    open: a size that depends on it is a new unknown, an integer is an
                               unknown function of what it depends on

The rules of operators are the same for both. All nodes are legal here: a run succeeds. The facts are
those of a whole graph, but a question looks at few: those about no other sizes than the ones that it
asks for, and what these are computed from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from onnx_spatial.maps import division
from onnx_spatial.maps.budget import Budget
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.expressions import FLOOR, top_atoms, unknown
from onnx_spatial.maps.facts import Facts
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial

#: The most sizes near a question: those of a chain of a few roundings.
_MAX_ATOMS = 24

#: Searches without an answer until none is begun any more: a large graph has thousands of questions.
_MAX_FRUITLESS = 256

#: Factors and divisors are below: all strides and blocks of a model together.
_MAX_NUMBER = 1 << 16

#: Steps of the search for an answer, see `Budget`.
_MAX_STEPS = 32


class NearFacts(Facts):
    """Facts of a whole graph, of which a question looks at those near it."""

    def __init__(self) -> None:
        """Begin without facts."""
        super().__init__()
        self._by_youngest: dict[Atom, dict[Polynomial, None]] = {}
        #: For each question, how many facts were near it, and the answer.
        self._answers: dict[Polynomial, tuple[int, bool]] = {}
        self._fruitless = 0

    def __iter__(self) -> Iterator[Polynomial]:
        return (fact for facts in self._by_youngest.values() for fact in facts)

    def add(self, fact: Polynomial) -> None:
        """Add a polynomial that is 0 or more."""
        if fact.constant is None and not fact.nonnegative:
            youngest = max(top_atoms(fact), key=lambda atom: atom.serial)
            self._by_youngest.setdefault(youngest, {}).setdefault(fact)

    def nonnegative(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more."""
        if p.constant is not None:
            return p.constant >= 0
        if p.nonnegative:
            return True
        near = _near_atoms(p)
        about = (fact for atom in near for fact in self._by_youngest.get(atom, ()))
        facts = [fact for fact in about if top_atoms(fact) <= near.keys()]
        count, answer = self._answers.get(p, (-1, False))
        if answer or count == len(facts) or self._fruitless > _MAX_FRUITLESS:
            return answer
        answer = self._follows(p, near, facts)
        self._answers[p] = (len(facts), answer)
        return answer

    def _follows(self, p: Polynomial, near: Iterable[Atom], facts: Iterable[Polynomial]) -> bool:
        for atom in near:
            if not _is_quotient(atom):
                self.samples.define(atom, 0)
        budget = Budget(_MAX_STEPS)
        local = Facts(budget)
        local.samples = self.samples
        for fact in facts:
            local.add(fact)
        answer = local.nonnegative(p)
        self._fruitless += bool(budget.spent and not answer)
        return answer


def _is_quotient(atom: Atom) -> bool:
    return isinstance(atom.key, OperationKey) and atom.key.operator == FLOOR


def _near_atoms(p: Polynomial) -> dict[Atom, None]:
    """Return the atoms of a polynomial, and of the operands of those, up to a number of them."""
    near = dict.fromkeys(top_atoms(p))
    todo = list(near)
    while todo and len(near) < _MAX_ATOMS:
        atom = todo.pop(0)
        if isinstance(atom.key, OperationKey):
            inner = [a for q in atom.key.operands for a in top_atoms(q) if a not in near]
            near.update(dict.fromkeys(inner))
            todo += dict.fromkeys(inner)
    return near


@dataclass(frozen=True, slots=True)
class OpenKey:
    """Key of the atom for a size that is open."""

    case: int
    number: int


class OpenCase(Case):
    """A case that never splits: a question that its facts do not decide stays open."""

    splits = False

    def __init__(self) -> None:
        """Begin with no facts."""
        super().__init__()
        self.facts: NearFacts = NearFacts()

    def _split_by(self, p: Polynomial) -> bool:
        raise UndecidedError("the sign of a number is open")

    def _split_into(self, *_: object) -> NoReturn:
        raise UndecidedError("the value of a number is open")

    def sizes(
        self, compute: Callable[[], tuple[Polynomial, ...]], count: int
    ) -> Sequence[Polynomial]:
        """Return some sizes that a rule computes, or new unknowns, see `is_open`."""
        try:
            return compute()
        except UndecidedError:
            return self.unknown_sizes(count)

    def unknown_sizes(self, count: int) -> list[Polynomial]:
        """Return new unknowns for some sizes."""
        first, self._fresh = self._fresh, self._fresh + count
        keys = (OpenKey(self._serial, first + i) for i in range(count))
        return [Polynomial.atom(key, nonnegative=True) for key in keys]

    @staticmethod
    def is_open(size: Polynomial) -> bool:
        """Tell whether a size is one that a rule left open, or is computed from such."""
        return any(isinstance(atom.key, OpenKey) for atom in top_atoms(size))

    def function(
        self,
        op_type: str,
        details: tuple[Hashable, ...],
        operands: Callable[[], Sequence[Polynomial]],
        compute: Callable[[], Polynomial],
    ) -> Polynomial:
        """Return an integer that a rule computes, or an unknown function of its operands.

        It is computed once: what facts decide later does not change it.
        """
        row = tuple(operands())

        def known_or_unknown() -> Polynomial:
            try:
                return compute()
            except UndecidedError:
                return self._unknown_integer(op_type, details, row)

        return self.once((op_type, details, row), known_or_unknown)

    def _unknown_integer(
        self, op_type: str, details: tuple[Hashable, ...], row: Sequence[Polynomial]
    ) -> Polynomial:
        result = unknown(op_type, details, row)
        is_nonnegative = _NONNEGATIVE.get(op_type)
        if is_nonnegative is not None and is_nonnegative(map(self.surely, row)):
            (atom,) = top_atoms(result)
            result = Polynomial.atom(atom.key, nonnegative=True)
        for operand in row:
            if op_type == "Max":
                self.assume(result - operand)
            elif op_type == "Min":
                self.assume(operand - result)
        return result

    def floor_div(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return `a / b` rounded down; `b` is 1 or more.

        Raises:
            UndecidedError: a factor or divisor is large.
        """
        divisor = b.constant or 0
        if divisor < 1:
            return super().floor_div(a, b)
        quotient = Polynomial({m: f // divisor for m, f in a.terms.items()})
        rest = a - quotient * divisor
        if rest.constant is not None:
            return quotient
        lone = rest.lone_atom
        if lone is not None and _is_quotient(lone):
            inner, by = lone.key.operands  # type: ignore[attr-defined]
            return quotient + self.floor_div(inner, by * divisor)
        if max(map(abs, (divisor, *rest.terms.values()))) >= _MAX_NUMBER:
            raise UndecidedError("a factor or divisor is large")
        several = sum(map(bool, rest.terms)) > 1
        if several and any(isinstance(atom.key, OperationKey) for atom in top_atoms(rest)):
            return super().floor_div(a, b)
        # Nothing bounds one size: only a common factor of all can make the quotient simpler.
        common = math.gcd(divisor, *(f for m, f in rest.terms.items() if m))
        rest = Polynomial({m: f // common for m, f in rest.terms.items()})
        if common == divisor:
            return quotient + rest
        return quotient + division.new_quotient(self.facts, rest, Polynomial.of(divisor // common))

    def divide(self, a: Polynomial, b: Polynomial, what: str) -> Polynomial:
        """Return `a / b`, which is an integer in all runs that succeed."""
        quotient = self.floor_div(a, b)
        self.assume(quotient * b - a)
        return quotient


_TRUTHS = "And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Xor".split()

#: Whether a result is 0 or more, of whether the operands are.
_NONNEGATIVE: dict[str, Callable[[Iterable[bool]], bool]] = {
    **dict.fromkeys(("Abs", *_TRUTHS), lambda operands: True),
    **dict.fromkeys(("Div", "Min"), all),
    "Max": any,
}
