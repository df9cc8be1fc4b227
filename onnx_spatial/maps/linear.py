"""Prove by linear programming that a polynomial is 0 or more: a sum of multiples of facts.

    p = sum of c_i * fact_i + terms that are 0 or more + a number above -1      p is an integer

Products of atoms are unknowns of their own. Factors are found in floating point, and checked exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps.polynomial import Atom, Polynomial

_Product = tuple[Atom, ...]

#: The most facts and products of atoms that are combined, and steps of the simplex method.
_MAX_FACTS = 80
_MAX_PRODUCTS = 80
_MAX_STEPS = 120

_EPSILON = 1e-9
#: How far above -1 the number that is left must be at least.
_MIN_REMAINDER = 1 / 64
_MAX_DENOMINATOR = 4096


def follows_from(p: Polynomial, facts: Sequence[Polynomial]) -> bool:
    """Tell whether `p` is provably 0 or more as a sum of multiples of facts."""
    if not facts or len(facts) > _MAX_FACTS:
        return False
    products = list(dict.fromkeys(m for q in (p, *facts) for m in q.terms if m))
    if len(products) > _MAX_PRODUCTS:
        return False
    # One row for each product: its factor in the sum is at most its factor in p.
    rows = [[float(f.terms.get(m, 0)) for f in facts] for m in products]
    bounds = [float(p.terms.get(m, 0)) for m in products]
    for m, row, bound in zip(products, rows[: len(products)], list(bounds), strict=True):
        if not all(atom.nonnegative for atom in m):
            rows.append([-value for value in row])
            bounds.append(-bound)
    rows.append([float(f.terms.get((), 0)) for f in facts])
    bounds.append(p.terms.get((), 0) + 1 - _MIN_REMAINDER)
    factors = _feasible_point(np.array(rows), np.array(bounds))
    if factors is None:
        return False
    exact = [Fraction(float(c)).limit_denominator(_MAX_DENOMINATOR) for c in factors]
    return all(c >= 0 for c in exact) and _is_sum(p, facts, exact)


def related_facts(p: Polynomial, facts: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the facts that share products of atoms with `p`, or with one of these facts."""
    seen = {m for m in p.terms if m}
    if not seen:
        return list(facts)
    left, found = list(facts), list[Polynomial]()
    while True:
        new = [f for f in left if not seen.isdisjoint(f.terms)]
        if not new:
            return found
        found += new
        left = [f for f in left if seen.isdisjoint(f.terms)]
        seen.update(m for f in new for m in f.terms if m)


def _is_sum(p: Polynomial, facts: Sequence[Polynomial], factors: Sequence[Fraction]) -> bool:
    """Tell whether `p` minus multiples of facts is above -1, term by term and exactly."""
    rest: dict[_Product, Fraction] = {m: Fraction(f) for m, f in p.terms.items()}
    for fact, factor in zip(facts, factors, strict=True):
        if factor:
            for m, f in fact.terms.items():
                rest[m] = rest.get(m, Fraction(0)) - factor * f
    number = rest.pop((), Fraction(0))
    return number > -1 and all(
        not f or (f > 0 and all(atom.nonnegative for atom in m)) for m, f in rest.items()
    )


def _feasible_point(
    matrix: npt.NDArray[np.float64], bounds: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | None:
    """Return some x of 0 or more with matrix * x at most `bounds`; None if there is none."""
    count, size = matrix.shape
    negative = np.flatnonzero(bounds < 0)
    table = np.zeros((count + 1, size + count + len(negative) + 1))
    table[:count, :size] = matrix
    table[:count, size : size + count] = np.eye(count)
    table[:count, -1] = bounds
    table[negative] *= -1
    basis = size + np.arange(count)
    for number, start in enumerate(negative):
        artificial = size + count + number
        table[start, artificial] = 1
        basis[start] = artificial
        table[-1] -= table[start]
        table[-1, artificial] = 0
    for _ in range(_MAX_STEPS):
        if table[-1, -1] > -_EPSILON:
            x = np.zeros(table.shape[1] - 1)
            x[basis] = table[:count, -1]
            return x[:size]
        # The steepest column would be fast, the first one never runs in circles.
        candidates = np.flatnonzero(table[-1, : size + count] < -_EPSILON)
        if not len(candidates):
            return None
        column = int(candidates[0])
        entries = table[:count, column]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(entries > _EPSILON, table[:count, -1] / entries, np.inf)
        least = ratios.min()
        if not np.isfinite(least):
            return None
        ties = np.flatnonzero(ratios <= least + _EPSILON)
        row = int(ties[np.argmin(basis[ties])])
        table[row] /= table[row, column]
        others = np.arange(count + 1) != row
        table[others] -= np.outer(table[others, column], table[row])
        basis[row] = column
    return None
