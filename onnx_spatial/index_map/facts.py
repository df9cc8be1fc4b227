"""Decide whether a polynomial is 0 or more, by known inequalities.

    0 <= n < N, 0 <= w < W            is  n*W + w < N*W  ?
    N*W - 1 - n*W - w  =  W*(N - 1 - n) + (W - 1 - w)          yes: a sum of known ones

A term that may be negative is cancelled with a multiple of a fact that has such a term too, until no
such term is left. The search is bounded: that it finds nothing does not mean that the answer is no.
All numbers are integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx_spatial.model.symbolic.polynomial import Atom, Polynomial

_Product = tuple[Atom, ...]

#: The most facts that one search combines, and the most steps that it takes.
_MAX_DEPTH = 14
_MAX_STEPS = 250


class Facts:
    """Polynomials that are known to be 0 or more; `forget` takes the latest back."""

    def __init__(self) -> None:
        self._facts: list[Polynomial] = []
        self._known: dict[Polynomial, int] = {}
        self._proven: dict[Polynomial, int] = {}
        self._failed: dict[Polynomial, int] = {}
        self._positive: set[Atom] = set()
        self._version = 0
        self._steps = 0

    def __iter__(self) -> Iterator[Polynomial]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def add(self, fact: Polynomial) -> None:
        """Add a polynomial that is 0 or more."""
        fact = _tightened(fact)
        if fact in self._known or (fact.constant or -1) >= 0:
            return
        self._known[fact] = len(self._facts)
        self._facts.append(fact)
        self._version += 1
        atom = (fact + 1).lone_atom
        if atom is not None and fact.terms.get(()) == -1 and atom.nonnegative:
            self._positive.add(atom)

    def forget(self, count: int) -> None:
        """Keep the first `count` facts."""
        if count == len(self._facts):
            return
        for fact in self._facts[count:]:
            del self._known[fact]
            atom = (fact + 1).lone_atom
            if atom is not None:
                self._positive.discard(atom)
        del self._facts[count:]
        self._proven = {p: at for p, at in self._proven.items() if at <= count}
        self._failed.clear()
        self._version += 1

    def nonnegative(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more."""
        if p.constant is not None:
            return p.constant >= 0
        if p.nonnegative:
            return True
        p = _tightened(p)
        if p in self._known or p in self._proven:
            return True
        if self._failed.get(p) == self._version:
            return False
        return self._search_from(p)

    def contradictory(self) -> bool:
        """Tell whether the facts provably exclude each other."""
        return self._search_from(Polynomial.of(-1))

    def _search_from(self, p: Polynomial) -> bool:
        self._steps = _MAX_STEPS
        if self._search(p, _MAX_DEPTH, set()):
            self._proven[p] = len(self._facts)
            return True
        self._failed[p] = self._version
        return False

    def _search(self, p: Polynomial, depth: int, seen: set[Polynomial]) -> bool:
        if p in self._known or p in self._proven:
            return True
        bad = [(m, f) for m, f in p.terms.items() if f < 0 or not all(a.nonnegative for a in m)]
        if not bad:
            return True
        if depth == 0 or self._steps <= 0 or p in seen:
            return False
        seen.add(p)
        best: list[tuple[tuple[int, int, int], Polynomial]] | None = None
        for product, factor in bad:
            steps = self._cancellations(p, product, factor)
            if not steps:
                return False
            if best is None or len(steps) < len(best):
                best = steps
        assert best is not None
        for _, rest in sorted(best, key=lambda step: step[0]):
            self._steps -= 1
            if self._search(_tightened(rest), depth - 1, seen):
                return True
            if self._steps <= 0:
                return False
        return False

    def _cancellations(
        self, p: Polynomial, product: _Product, factor: int
    ) -> list[tuple[tuple[int, int, int], Polynomial]]:
        """Return what is left of `p` after cancelling one term with each fact that has such a term."""
        steps = []
        for fact in self._facts:
            for other, its_factor in fact.terms.items():
                if (its_factor < 0) != (factor < 0):
                    continue
                quotients = _apart(product, other)
                if quotients is None:
                    continue
                times, scale = quotients
                if not all(a in self._positive for a in scale):
                    continue
                if len(scale) > 1 or not all(a.nonnegative for a in times):
                    continue
                if not other and fact.constant is None and product and len(fact.terms) > 2:
                    continue  # its constant alone fits: rarely of use
                common = math.gcd(factor, its_factor)
                a, k = abs(its_factor) // common, abs(factor) // common
                scaled = Polynomial({tuple(scale): a})
                # p is an integer: p >= 0 if scaled * p > -scaled.
                rest = p * scaled + scaled - 1 - fact * Polynomial({tuple(times): k})
                weight = sum(1 for f in rest.terms.values() if f < 0)
                steps.append(((len(scale), weight, len(rest.terms)), rest))
        return steps


def _tightened(p: Polynomial) -> Polynomial:
    """Return the polynomial divided by the common factor of its terms, the constant rounded down."""
    common = math.gcd(*(f for m, f in p.terms.items() if m))
    if common <= 1:
        return p
    return Polynomial({m: f // common for m, f in p.terms.items()})


def _apart(product: _Product, other: _Product) -> tuple[list[Atom], list[Atom]] | None:
    """Return the factors of each product that the other lacks; None if they have none in common."""
    missing = list(other)
    left = []
    for atom in product:
        if atom in missing:
            missing.remove(atom)
        else:
            left.append(atom)
    if other and len(missing) == len(other):
        return None
    return left, missing
