"""Nodes that only move an operator's data keep its bits, whatever else they read."""

from __future__ import annotations

import onnx
import pytest
from adapter import verify
from hand_lowered import model

ORIGINAL = """
    g (float[N,H,W,3] x) => (float[P,Q,R,S] y)
      <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}>
    { u = Tanh(x) y = tf.SpaceToBatchND(u, block, none) }
"""
LOWERED = """
    g (float[N,H,W,3] x) => (float[P,Q,R,S] y)
      <int64[1] axis0 = {0}, int64[1] axis1 = {1}, int64[1] axis2 = {2}, int64[1] axis3 = {3},
       int64[1] two = {2}, int64[1] rest = {-1}, float one = {FACTOR}>
    {
        u = Tanh(x)
        sizes = Shape(WHOSE)
        n = Gather<axis = 0>(sizes, axis0) h = Gather<axis = 0>(sizes, axis1)
        w = Gather<axis = 0>(sizes, axis2) c = Gather<axis = 0>(sizes, axis3)
        rows = Div(h, two) columns = Div(w, two)
        split = Concat<axis = 0>(n, rows, two, columns, two, c)
        cells = Reshape(u, split)
        moved = Transpose<perm = [PERM]>(cells)
        merged = Concat<axis = 0>(rest, rows, columns, c)
        whole = Reshape(moved, merged)
        y = LAST
    }
"""


def lowered(
    whose: str = "x",
    perm: str = "2, 4, 0, 1, 3, 5",
    last: str = "Identity(whole)",
    factor: str = "1",
) -> onnx.ModelProto:
    pieces = {"WHOSE": whose, "PERM": perm, "LAST": last, "FACTOR": factor}
    text = LOWERED
    for piece, meaning in pieces.items():
        text = text.replace(piece, meaning)
    return model(text)


@pytest.mark.parametrize("whose", ["x", "u"])
def test_sizes_of_another_value_are_right(whose: str) -> None:
    result = verify(model(ORIGINAL), lowered(whose))
    assert result
    (site,) = result.operators
    assert site.exact
    assert "1 of 1 operator bit for bit" in result.message


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize(
    ("last", "factor"),
    [
        ("Mul(whole, one)", "1.0000005"),
        ("Add(whole, one)", "1e-8"),
        ("Relu(whole)", "1"),
        ("Clip(whole, one)", "-0.99"),
    ],
)
def test_an_error_within_the_tolerance_of_regions(
    last: str, factor: str, proven: bool, request: pytest.FixtureRequest
) -> None:
    if not proven:
        request.getfixturevalue("nothing_is_proven")
    result = verify(model(ORIGINAL), lowered(last=last, factor=factor))
    assert result.status == "failed"
    difference = result.first_difference
    assert difference is not None
    assert difference.kind == "operator"


def test_the_order_of_elements() -> None:
    assert verify(model(ORIGINAL), lowered(perm="4, 2, 0, 1, 3, 5")).status == "failed"


def test_a_convolution_is_still_compared_within_a_tolerance() -> None:
    """The source of BatchToSpace stays for another reader, and its sink is computed from other data."""
    text = """
        g (float[N,4,6,3] x) => (float[P,Q,R,S] y, float[A,B,C,D] z)
          <int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}, float[3,3] w = {W}>
        { s = tf.SpaceToBatchND(x, block, none) c = MatMul(s, w) z = Neg(c) Y }
    """.replace("W", "0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9", 1)
    before = model(text.replace("Y }", "y = tf.BatchToSpaceND(c, block, none) }"))
    after = model(
        text.replace("Y }", "y = MatMul(x, w) }")
        .replace("int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}",
                 "int64[6] split = {-1, 2, 2, 3, 2, 3}, int64[4] merged = {-1, 2, 3, 3}")
        .replace("s = tf.SpaceToBatchND(x, block, none)",
                 "k = Reshape(x, split) m = Transpose<perm = [2, 4, 0, 1, 3, 5]>(k) "
                 "s = Reshape(m, merged)")
    )  # fmt: skip
    result = verify(before, after)
    assert result, result.message
    assert not result.operators[1].exact
