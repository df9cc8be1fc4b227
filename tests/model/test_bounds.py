"""The least and the most that a polynomial over sizes can be."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from onnx_spatial.model.symbolic.bounds import Bounds, bounds
from onnx_spatial.model.symbolic.polynomial import (
    Polynomial,
    maximum,
    minimum,
    quotient,
    remainder,
)

SIZE = Polynomial.atom("size", nonnegative=True)
ANYTHING = Polynomial.atom("anything")
FOUR = Polynomial.of(4)


def left(p: Polynomial, divisor: int = 4) -> Polynomial:
    """A remainder as converters write it: with Div, Mul and Sub."""
    return p - divisor * quotient(p, Polynomial.of(divisor))


def filled(p: Polynomial, divisor: int = 4) -> Polynomial:
    """What TensorFlow pads by to make whole blocks."""
    return left(divisor - left(p, divisor), divisor)


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (Polynomial.of(3), (3, 3)),
        (SIZE, (0, None)),
        (ANYTHING, (None, None)),
        (2 - SIZE, (None, 2)),
        (SIZE * ANYTHING, (None, None)),
        (SIZE * SIZE + 1, (1, None)),
        (left(SIZE), (0, 3)),
        (left(-SIZE), (-3, 0)),
        (left(ANYTHING), (-3, 3)),
        (4 - left(SIZE), (1, 4)),
        (filled(SIZE + 3), (0, 3)),
        (2 + filled(SIZE) * 2, (2, 8)),
        (filled(SIZE, 2) + filled(Polynomial.atom("w", nonnegative=True), 3), (0, 3)),
        (SIZE - 4 * quotient(SIZE + 1, FOUR), (-1, 2)),
        (SIZE + 4 * quotient(SIZE, FOUR), (0, None)),
        (SIZE - 3 * quotient(SIZE, FOUR), (None, None)),
        (remainder(SIZE, FOUR), (0, 3)),
        (remainder(ANYTHING, FOUR), (0, 3)),
        (remainder(ANYTHING, FOUR, truncated=True), (-3, 3)),
        (remainder(ANYTHING, -FOUR), (None, None)),
        (quotient(left(SIZE, 9), FOUR), (0, 2)),
        (maximum([ANYTHING, Polynomial.of(0)]), (0, None)),
        (minimum([ANYTHING, Polynomial.of(5)]), (None, 5)),
        (minimum([SIZE, Polynomial.of(5)]), (0, 5)),
    ],
)
def test_bounds(p: Polynomial, expected: tuple[int | None, int | None]) -> None:
    assert bounds(p) == Bounds(*expected)


def test_no_value_is_out_of_bounds() -> None:
    """Random expressions, each also computed with numbers for its atoms."""
    rng = Random(5)
    operations: list[tuple[Callable[..., Polynomial], Callable[..., int]]] = [
        (lambda a, b, k: a + b, lambda a, b, k: a + b),
        (lambda a, b, k: a - b * k, lambda a, b, k: a - b * k),
        (lambda a, b, k: quotient(a, Polynomial.of(k)), lambda a, b, k: int(a / k)),
        (lambda a, b, k: left(a, k), lambda a, b, k: a - k * int(a / k)),
        (lambda a, b, k: remainder(a, Polynomial.of(k)), lambda a, b, k: a % k),
        (lambda a, b, k: maximum([a, b + k]), lambda a, b, k: max(a, b + k)),
        (lambda a, b, k: minimum([a, b + k]), lambda a, b, k: min(a, b + k)),
    ]
    bounded = 0
    for _ in range(200):
        symbols = [SIZE, Polynomial.atom("w", nonnegative=True), ANYTHING]
        rows = [[rng.randint(0, 40), rng.randint(0, 40), rng.randint(-40, 40)] for _ in range(8)]
        for _ in range(5):
            symbolic, numeric = rng.choice(operations)
            (i, j), k = rng.choices(range(len(symbols)), k=2), rng.randint(1, 5)
            symbols.append(symbolic(symbols[i], symbols[j], k))
            for row in rows:
                row.append(numeric(row[i], row[j], k))
        for p, values in zip(symbols, zip(*rows, strict=True), strict=True):
            least, most = bounds(p)
            bounded += (least is not None) + (most is not None)
            assert least is None or least <= min(values)
            assert most is None or max(values) <= most
    assert bounded > 700


def test_a_chain_of_quotients_is_followed_only_so_far() -> None:
    p = SIZE
    for _ in range(5_000):
        p = quotient(p + 1, Polynomial.of(3))
    assert bounds(p) == Bounds(0, None)
