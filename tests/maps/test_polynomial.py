"""Polynomials over numbers that only the run knows: equal, constant, never below zero."""

import gc

import pytest

from onnx_spatial.maps import polynomial
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.polynomial import MAX_TERMS, Polynomial, show

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


@pytest.mark.parametrize(
    ("expression", "constant"),
    [(of(5), 5), (of(0), 0), (H - H, 0), (H + 3 - H, 3), (0 * H, 0), (H, None), (H + 1, None)],
)
def test_a_constant_is_seen_where_nothing_else_is_left(expression, constant):
    assert expression.constant == constant


@pytest.mark.parametrize(
    ("nonnegative", "expressions"),
    [
        (True, [of(0), of(3), H, 2 * H + W * H + 1]),
        (False, [of(-1), K, H - 1, H - W, K * K, K * H]),
    ],
)
def test_what_is_provably_nonnegative(nonnegative, expressions):
    assert {expression.nonnegative for expression in expressions} == {nonnegative}


def many(count: int, name: str = "m") -> Polynomial:
    return sum((Polynomial.atom((name, i), nonnegative=True) for i in range(count)), of(0))


def test_sums_of_too_many_terms_are_atoms_that_are_still_equal_to_themselves():
    full, more = many(MAX_TERMS), many(2, "n")
    assert len(full.terms) == MAX_TERMS
    assert (full + more).lone_atom is not None
    assert full + more == more + full
    assert (full + more).nonnegative
    assert not (full + K).nonnegative
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
            result = polynomial.computed("Div", (result + i, of(3)))
        return result

    one, other = chain(), chain()
    assert one == other
    assert repr(one) == repr(other)
    before = len(polynomial._atoms)
    del one, other
    gc.collect()
    assert len(polynomial._atoms) < before - 29_000


def test_brackets_of_a_quotient_are_shown_where_they_are_needed() -> None:
    case = Case()
    h, w = case.symbol("h"), case.symbol("w")
    assert show(case.floor_div(h, Polynomial.of(2))) == "floor(h / 2)"
    assert show(case.floor_div(h + 1, w * 2)) == "floor((h + 1) / (2*w))"
