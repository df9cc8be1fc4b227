"""Whole outputs in double precision: who is nearer to the truth, and who is too far from it."""

from __future__ import annotations

import numpy as np
from adapter import verify
from hand_lowered import model

SUM = """
    g (float[N,64] x) => (float[N,3] y) <float[64,3] w = {WEIGHTS}> { BODY }
"""


def net(body: str, seed: int = 0) -> object:
    weights = np.random.default_rng(seed).uniform(-1, 1, 64 * 3)
    # One column of small numbers, which the largest value of the output hides.
    weights[2::3] *= 1e-4
    text = SUM.replace("WEIGHTS", ", ".join(f"{w:.6g}" for w in weights)).replace("BODY", body)
    return model(text)


PLAIN = "y = MatMul(x, w)"
OTHER_ORDER = """
    n = Constant<value_ints = [32, 32]>()
    a, b = Split<axis = 1>(x, n)
    c, d = Split<axis = 0>(w, n)
    e = MatMul(a, c)
    f = MatMul(b, d)
    y = Add(f, e)
"""


def test_another_order_is_right_and_has_figures() -> None:
    result = verify(net(PLAIN), net(OTHER_ORDER))
    assert result, result.message
    assert {o.reference for o in result.outputs if o.elements > 50} == {"original"}  # a large batch
    for output in (o for o in result.outputs if o.elements <= 50):
        assert output.reference == "float64"
        assert 0 <= output.max_ulps <= output.allowed_ulps
        assert 0 < output.own_relative_error < 1e-6


def test_a_small_column_is_judged_by_its_own_size() -> None:
    scale = "s = Constant<value_floats = [1.0, 1.0, 1.003]>()\n z = MatMul(x, w)\n y = Mul(z, s)"
    result = verify(net(PLAIN), net(scale))
    assert result.status == "failed"
    assert all(o.max_relative_error < o.tolerance for o in result.outputs)
    assert any("the error that rounding can make" in str(o.reason) for o in result.outputs)


def test_what_cancels_is_no_difference() -> None:
    """Both are wrong in the last digits of large numbers, of which little is left."""
    big = "k = Constant<value_float = 4096.0>()\n p = MatMul(x, w)\n"
    first = net(big + "q = Add(p, k)\n y = Sub(q, k)")
    second = net(big + "m = Neg(k)\n q = Sub(p, m)\n y = Add(q, m)")
    assert verify(first, second)
    # Nearer to the truth than the original is not wrong.
    result = verify(first, net(PLAIN))
    assert result, result.message
    assert any(
        "as far from the result in double precision" in str(o.reason) for o in result.outputs
    )
