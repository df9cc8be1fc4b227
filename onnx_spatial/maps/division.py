"""Divide polynomials and round down; the quotient is a polynomial where the facts allow it.

floor((2*h + k) / 2)  with  0 <= k < 2      is      h
floor((4*h + 2*k) / (2*w))                  is      floor((2*h + k) / w)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx_spatial.maps.facts import Facts
from onnx_spatial.maps.polynomial import (
    FLOOR,
    ONE,
    ZERO,
    Atom,
    Polynomial,
    apart,
    computed,
    shared_atoms,
)


def exact(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """Return `a / b` if it is a polynomial, else None."""
    if b == ZERO:
        return None
    return next((quotient for quotient, rest in _divisions(a, b) if rest == ZERO), None)


def floor_div(facts: Facts, a: Polynomial, b: Polynomial) -> Polynomial:
    """Return `a / b` rounded down; `b` is 1 or more."""
    known = known_quotient(facts, a, b)
    if known is not None:
        return known
    *_, (quotient, rest) = _divisions(a, b)
    if rest.operation.operator == FLOOR:
        inner, divisor = rest.operation.operands
        return quotient + floor_div(facts, inner, divisor * b)
    reduced = _reduce(facts, rest, b)
    if reduced is not None:
        dividend, divisor = reduced
        return quotient + (dividend if divisor == ONE else floor_div(facts, dividend, divisor))
    return quotient + new_quotient(facts, rest, b)


def new_quotient(facts: Facts, a: Polynomial, b: Polynomial) -> Polynomial:
    """Return the atom for `a / b` rounded down; the facts learn its bounds."""
    quotient = computed(FLOOR, (a, b), nonnegative=facts.nonnegative(a))
    facts.add(a - b * quotient)
    facts.add(b * quotient + b - 1 - a)
    return quotient


def known_quotient(facts: Facts, a: Polynomial, b: Polynomial) -> Polynomial | None:
    """Return `a / b` rounded down if it is provably a polynomial, else None."""
    for quotient, rest in _divisions(a, b):
        for shift in (0, -1, 1):
            if facts.nonnegative(rest - b * shift) and facts.nonnegative(
                b * (shift + 1) - 1 - rest
            ):
                return quotient + shift
    return None


def _reduce(facts: Facts, a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """Return a smaller dividend and divisor with the same quotient, or None.

    floor((g*x + y) / (g*z)) is floor(x / z) for 0 <= y < g.
    """
    for g in _common_factors(b):
        for x, y in _divisions(a, g):
            if x != ZERO and facts.nonnegative(y) and facts.nonnegative(g - 1 - y):
                divisor = exact(b, g)
                if divisor is not None:
                    return x, divisor
    return None


def _common_factors(b: Polynomial) -> Iterator[Polynomial]:
    """Yield common factors of all terms of `b`, the largest first."""
    content = math.gcd(*b.terms.values())
    shared = shared_atoms(b)
    largest = Polynomial({tuple(shared): content})
    seen = {largest, ONE}
    if len(b.terms) > 1 and largest != ONE:
        yield largest
    for i in range(len(shared)):
        for g in (
            Polynomial({(*shared[:i], *shared[i + 1 :]): content}),
            Polynomial({(shared[i],): 1}),
        ):
            if g not in seen:
                seen.add(g)
                yield g
    if content > 1:
        for g in (Polynomial.of(content), *(Polynomial.of(d) for d in _divisors_of(content))):
            if g not in seen and g != b:
                seen.add(g)
                yield g


def _divisors_of(n: int) -> Iterator[int]:
    yield from (d for d in range(min(n // 2, 64), 1, -1) if n % d == 0)


def _divisions(a: Polynomial, b: Polynomial) -> Iterator[tuple[Polynomial, Polynomial]]:
    """Yield ways to write `a` as quotient * b + rest; the last one is the canonical one."""
    constant = b.constant
    if constant is not None:
        exact = {m: f for m, f in a.terms.items() if f % constant == 0 or not m}
        quotient = Polynomial({m: f // constant for m, f in exact.items()})
        yield quotient, a - quotient * constant
        quotient = Polynomial({m: f // constant for m, f in a.terms.items()})
        yield quotient, a - quotient * constant
        return
    leads = sorted((m for m in b.terms if m), key=lambda m: (-len(m), [atom.serial for atom in m]))
    ways = [_long_division(a, b, lead) for lead in leads]
    yield from reversed(ways)


def _long_division(
    a: Polynomial, b: Polynomial, lead: tuple[Atom, ...]
) -> tuple[Polynomial, Polynomial]:
    """Divide by one term of `b`; by a small one the rest may grow without end."""
    quotient, rest = ZERO, a
    factor, most = b.terms[lead], max(_degree_of(a), _degree_of(b))
    for _ in range(32):
        for product, f in rest.terms.items():
            if f % factor:
                continue
            left, missing = apart(product, lead)
            if not missing:
                step = Polynomial({tuple(left): f // factor})
                break
        else:
            break
        smaller = rest - step * b
        if _degree_of(smaller) > most:
            break
        quotient, rest = quotient + step, smaller
    return quotient, rest


def _degree_of(p: Polynomial) -> int:
    return max(map(len, p.terms), default=0)
