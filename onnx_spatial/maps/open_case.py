"""Infer what holds in all runs: a case that never splits.

    proof        is h even?    a case where it is, and a case where it is not
    inference    is h even?    open: what depends on it becomes a new unknown

Questions are many and small here, so only the facts near a question are looked at: those about no
other sizes than the ones that it asks for, and what these are quotients of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.maps.budget import Budget
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.expressions import FLOOR, UNKNOWN, unknown
from onnx_spatial.maps.facts import Facts
from onnx_spatial.maps.operators import CaseArithmetic
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.maps.samples import Values
from onnx_spatial.maps.splits import UndecidedError

#: The most sizes near a question: those of a chain of a few roundings.
_MAX_ATOMS = 24

#: Searches without an answer until none is begun any more.
_MAX_FRUITLESS = 256

#: Factors and divisors are below: all strides and blocks of a model together.
_MAX_NUMBER = 1 << 16

#: Steps of the search for an answer, see `Budget`.
_MAX_STEPS = 32


def _truncated(a: Values, b: Values) -> Values:
    quotients: Values = np.abs(a) // np.maximum(np.abs(b), 1) * np.sign(a) * np.sign(b)
    return quotients


#: Values of operators at samples.
_SAMPLED: dict[str, Callable[..., Values]] = {
    f"{UNKNOWN}Abs": np.abs,
    f"{UNKNOWN}Div": _truncated,
    f"{UNKNOWN}Max": lambda *rows: np.max(rows, axis=0),
    f"{UNKNOWN}Min": lambda *rows: np.min(rows, axis=0),
}


class NearFacts(Facts):
    """Facts of a whole graph, of which a question looks at those near it."""

    def __init__(self) -> None:
        """Begin without facts."""
        super().__init__()
        self._about: dict[Atom, dict[Polynomial, None]] = {}
        self._derived: set[Atom] = set()
        #: Of each fact that was near a question, at which samples it holds.
        self._holds: dict[Polynomial, npt.NDArray[np.bool_]] = {}
        self._fruitless = 0
        self._yes: set[Polynomial] = set()
        self._no: dict[Polynomial, int] = {}

    def __iter__(self) -> Iterator[Polynomial]:
        return (fact for facts in self._about.values() for fact in facts)

    def add(self, fact: Polynomial) -> None:
        """Add a polynomial that is 0 or more."""
        if fact.constant is None and not fact.nonnegative:
            youngest = max((a for m in fact.terms for a in m), key=lambda atom: atom.serial)
            self._about.setdefault(youngest, {}).setdefault(fact)

    def nonnegative(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more."""
        if p.constant is not None:
            return p.constant >= 0
        if p.nonnegative or p in self._yes:
            return True
        near = _near(p)
        facts = [
            f for atom in near for f in self._about_atom(atom) if near.keys() >= _atoms(f).keys()
        ]
        if self._no.get(p) == len(facts):
            return False
        self._no[p] = len(facts)
        if self._is_refuted(p, near, facts) or self._fruitless > _MAX_FRUITLESS:
            return False
        local = Facts(Budget(_MAX_STEPS))
        local.samples = self.samples
        for fact in facts:
            local.add(fact)
        if local.nonnegative(p):
            self._yes.add(p)
            return True
        self._fruitless += 1
        return False

    def _is_refuted(
        self, p: Polynomial, near: dict[Atom, None], facts: Iterable[Polynomial]
    ) -> bool:
        """Tell whether `p` is negative at a sample where the facts near it hold."""
        for atom in reversed(near):  # operands first
            if not _is_quotient(atom):
                self._define(atom)
        values = self.samples.evaluate(p)
        if values is None:
            return False
        negative = values < 0
        for fact in facts if negative.any() else ():
            holds = self._holds.get(fact)
            if holds is None:
                at_samples = self.samples.evaluate(fact)
                if at_samples is None:
                    return False
                holds = self._holds[fact] = at_samples >= 0
            negative = negative & holds
        return bool(negative.any())

    def _define(self, atom: Atom) -> None:
        """Draw values of a size, or compute those of the result of an operator."""
        key = atom.key
        compute = _SAMPLED.get(key.operator) if isinstance(key, OperationKey) else None
        if compute is not None and not self.samples.is_defined(atom):
            rows = [self.samples.evaluate(q) for q in key.operands]  # type: ignore[attr-defined]
            if not any(row is None for row in rows):
                self.samples.set(atom, compute(*rows))
        self.samples.define(atom, 0)

    def _about_atom(self, atom: Atom) -> Iterable[Polynomial]:
        """Return the facts of which an atom is the youngest; of a quotient these follow from its key."""
        if _is_quotient(atom) and atom not in self._derived:
            self._derived.add(atom)
            a, b = atom.key.operands  # type: ignore[attr-defined]
            quotient = Polynomial({(atom,): 1})
            known = self._about.setdefault(atom, {})
            known.update(dict.fromkeys((a - b * quotient, b * quotient + b - 1 - a)))
        return self._about.get(atom, ())


def _is_quotient(atom: Atom) -> bool:
    return isinstance(atom.key, OperationKey) and atom.key.operator == FLOOR


def _atoms(p: Polynomial) -> dict[Atom, None]:
    return {atom: None for product in p.terms for atom in product}


def _near(p: Polynomial) -> dict[Atom, None]:
    """Return the atoms of a polynomial, and of the operands of those, up to a number of them."""
    found = _atoms(p)
    todo = list(found)
    while todo and len(found) < _MAX_ATOMS:
        atom = todo.pop(0)
        if isinstance(atom.key, OperationKey):
            inner = [a for q in atom.key.operands for a in _atoms(q) if a not in found]
            found.update(dict.fromkeys(inner))
            todo += dict.fromkeys(inner)
    return found


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
        if several and any(isinstance(atom.key, OperationKey) for atom in _atoms(rest)):
            return super().floor_div(a, b)
        # Nothing bounds a dim: only a common factor of all can make the quotient simpler.
        common = math.gcd(divisor, *(f for m, f in rest.terms.items() if m))
        rest = Polynomial({m: f // common for m, f in rest.terms.items()})
        if common == divisor:
            return quotient + rest
        key = OperationKey(FLOOR, (), (rest, Polynomial.of(divisor // common)))
        return quotient + Polynomial.atom(key, nonnegative=self.facts.nonnegative(rest))

    def divide(self, a: Polynomial, b: Polynomial, what: str) -> Polynomial:
        """Return `a / b`, which is an integer in all runs that succeed."""
        quotient = self.floor_div(a, b)
        self.assume(quotient * b - a)
        return quotient

    def computed(
        self, op_type: str, details: tuple[object, ...], row: Sequence[Polynomial]
    ) -> Polynomial:
        """Return the result of an operator that facts do not decide: an unknown, with its bounds.

        Args:
            op_type: an operator that computes an integer or a truth value of some.
            details: attributes and element type.
            row: its operands.
        """
        result = unknown(op_type, details, row)
        least = _LEAST.get(op_type)
        if op_type in _TRUTHS or (least is not None and least(self, row)):
            (atom,) = (a for m in result.terms for a in m)
            result = Polynomial.atom(atom.key, nonnegative=True)
        for fact in _bounds(op_type, result, row):
            self.assume(fact)
        return result


_TRUTHS = frozenset("And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Xor".split())

#: Whether the result of an operator is 0 or more.
_LEAST: dict[str, Callable[[Case, Sequence[Polynomial]], bool]] = {
    "Abs": lambda case, row: True,
    "Div": lambda case, row: all(map(case.surely, row)),
    "Max": lambda case, row: any(map(case.surely, row)),
    "Min": lambda case, row: all(map(case.surely, row)),
    "Where": lambda case, row: all(map(case.surely, row[1:])),
}


def _bounds(op_type: str, result: Polynomial, row: Sequence[Polynomial]) -> Iterator[Polynomial]:
    """Yield what is 0 or more by the definition of an operator."""
    if op_type in _TRUTHS:
        yield 1 - result
    elif op_type == "Max":
        yield from (result - p for p in row)
    elif op_type == "Min":
        yield from (p - result for p in row)
    elif op_type == "Abs":
        yield from (result - row[0], result + row[0])
    elif op_type == "Div" and (row[1].constant or 0) > 0:
        rest = row[0] - row[1] * result
        yield from (rest + row[1] - 1, row[1] - 1 - rest)


class OpenArithmetic(CaseArithmetic):
    """Arithmetic on sizes whose comparisons may be open, see `operators.Arithmetic`."""

    def __init__(self, case: OpenCase) -> None:
        """Compute in a case."""
        super().__init__(case)
        self._open = case

    def max(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return the larger of two sizes."""
        one, other = self.polynomial(a), self.polynomial(b)
        if self._open.surely(one - other):
            return one
        if self._open.surely(other - one):
            return other
        return self._open.computed("Max", (int(TensorProto.INT64),) * 2, (one, other))
