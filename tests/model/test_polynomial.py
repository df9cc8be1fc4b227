"""Polynomials over numbers that only the run knows: equal, constant, never below zero."""

from __future__ import annotations

import gc

import pytest

from onnx_spatial.model.symbolic import polynomial
from onnx_spatial.model.symbolic.polynomial import (
    MAX_TERMS,
    Polynomial,
)

H = Polynomial.atom("h", nonnegative=True)
W = Polynomial.atom("w", nonnegative=True)
K = Polynomial.atom("k")
of = Polynomial.of


def test_the_normal_form_does_not_depend_on_how_a_number_is_written():
    assert (H + 1) * (W - 2) == H * W - 2 * H + W - 2
    assert hash((H + 1) * (W - 2)) == hash(W * H + W - (2 + 2 * H))
    assert 3 - H == -(H - 3)
    assert H + W - H == W
    assert H != W
    assert H + 1 != H


def test_equal_keys_are_equal_atoms_while_somebody_refers_to_them():
    assert Polynomial.atom(("x", 1)) == Polynomial.atom(("x", 1))
    assert Polynomial.atom(("x", 1)) != Polynomial.atom(("x", 2))
    assert Polynomial.atom("k") != Polynomial.atom("k", nonnegative=True)  # another claim


@pytest.mark.parametrize(
    ("expression", "constant"),
    [(of(5), 5), (of(0), 0), (H - H, 0), (H + 3 - H, 3), (0 * H, 0), (H, None), (H + 1, None)],
)
def test_a_constant_is_seen_where_nothing_else_is_left(expression, constant):
    assert expression.constant == constant


@pytest.mark.parametrize("expression", [of(0), of(3), H, 2 * H + W * H + 1, polynomial.absolute(K)])
def test_nonnegative(expression):
    assert expression.nonnegative


@pytest.mark.parametrize("expression", [of(-1), K, H - 1, H - W, K * K, K * H])
def test_not_provably_nonnegative(expression):
    assert not expression.nonnegative


def test_quotients_are_rounded_toward_zero_and_exact_where_all_is_divisible():
    quotient = polynomial.quotient
    assert quotient(of(7), of(2)) == of(3)
    assert quotient(of(-7), of(2)) == quotient(of(7), of(-2)) == of(-3)
    assert quotient(4 * H - 6 * K + 8, of(-2)) == 3 * K - 2 * H - 4
    assert quotient(K, of(1)) == K
    assert quotient(H + 1, of(2)) == quotient(1 + H, of(2))


@pytest.mark.parametrize(
    ("a", "b"), [(H + 1, of(2)), (2 * H + 1, of(2)), (2 * H, of(4)), (H, W), (H, H), (H, of(0))]
)
def test_other_quotients_stay_quotients(a, b):
    """2h+1 over 2 is h for h >= 0 only, h over h is not 1 for 0."""
    assert polynomial.quotient(a, b).lone_atom is not None


def test_remainders_have_the_sign_of_the_divisor_or_of_the_dividend():
    remainder = polynomial.remainder
    assert remainder(of(-7), of(3)) == of(2)
    assert remainder(of(-7), of(3), truncated=True) == of(-1)
    assert remainder(of(7), of(-3)) == of(-2)
    assert remainder(of(7), of(-3), truncated=True) == of(1)
    assert remainder(K, of(1)) == remainder(4 * K + 2, of(-2)) == of(0)
    assert remainder(K, of(3)).nonnegative
    assert not remainder(K, of(-3)).nonnegative
    assert remainder(H, of(-3), truncated=True).nonnegative
    assert not remainder(K, of(3), truncated=True).nonnegative
    assert remainder(K, of(3)) != remainder(K, of(3), truncated=True)


def test_the_larger_of_two_is_taken_where_it_is_known():
    maximum, minimum = polynomial.maximum, polynomial.minimum
    assert maximum([of(3), of(5), of(4)]) == of(5)
    assert minimum([of(3), of(5), of(4)]) == of(3)
    assert maximum([K, K]) == minimum([K]) == K
    assert maximum([H, of(0)]) == H
    assert minimum([H, of(0), H + W]) == of(0)
    assert maximum([K, K + 1, K - 1]) == K + 1
    assert maximum([H, of(1)]).lone_atom is not None


def test_maxima_do_not_depend_on_the_order():
    assert polynomial.maximum([H, K, W]) == polynomial.maximum([W, H, K, W])
    assert polynomial.maximum([H, K]) != polynomial.minimum([H, K])
    assert polynomial.maximum([of(0), K]).nonnegative
    assert not polynomial.minimum([of(0), K]).nonnegative
    assert polynomial.minimum([H, W + 1]).nonnegative


def test_absolute_values():
    assert polynomial.absolute(H) == polynomial.absolute(-H) == H
    assert polynomial.absolute(of(-4)) == of(4)
    assert polynomial.absolute(H - 1).lone_atom is not None


def many(count: int, name: str = "m") -> Polynomial:
    return sum((Polynomial.atom((name, i), nonnegative=True) for i in range(count)), of(0))


def test_sums_of_too_many_terms_are_atoms_that_are_still_equal_to_themselves():
    full, more = many(MAX_TERMS), many(2, "n")
    assert len(full.terms) == MAX_TERMS
    assert (full + more).lone_atom is not None
    assert full + more == more + full
    assert (full + more).nonnegative
    assert full + more != full + more + 1
    assert (full + more - (more + full)).constant == 0


def test_products_of_too_many_terms_are_atoms():
    wide = many(MAX_TERMS) * many(MAX_TERMS, "n")
    assert wide.lone_atom is not None
    assert wide != many(MAX_TERMS) + many(MAX_TERMS, "n")
    assert many(MAX_TERMS) * many(MAX_TERMS) != many(MAX_TERMS)
    square = K
    for _ in range(200):
        square = square * square
    assert len(square.terms) == 1


def test_long_chains_are_compared_and_forgotten_without_recursion():
    def chain() -> Polynomial:
        result = H
        for i in range(30_000):
            result = polynomial.quotient(result + i, of(3))
        return result

    one, other = chain(), chain()
    assert one == other
    assert repr(one) == repr(other)
    before = len(polynomial._atoms)
    del one, other
    gc.collect()
    assert len(polynomial._atoms) < before - 29_000
