"""Memory that a run would take is estimated before it is taken."""

from __future__ import annotations

import numpy as np
from adapter import verify
from hand_lowered import model

from onnx_spatial.verification.runtime import value_sizes

ORIGINAL = """
    g (float[N,4,6,3] x) => (float[P,Q,R,S] y) <int64[2] block = {2, 2}, int64[2,2] pads = {0, 0, 0, 0}>
    { y = tf.SpaceToBatchND(x, block, pads) }
"""
#: Multiplies every element with every other one.
OUTER = """
    g (float[N,4,6,3] x) => (float[P,Q,R,S] y)
      <int64[1] all = {-1}, int64[2] column = {-1, 1}, int64[4] sizes = {-1, 2, 2, 3}>
    {
        row = Reshape(x, all)
        rows = Reshape(x, column)
        products = Mul(row, rows)
        most = ReduceMax<axes = [0], keepdims = 0>(products)
        y = Reshape(most, sizes)
    }
"""


def test_the_largest_value_of_a_run() -> None:
    feeds = {"x": np.zeros((2, 4, 6, 3), np.float32)}
    size, name = value_sizes.largest(model(OUTER).SerializeToString(), feeds)
    assert (size, name) == (4 * 144**2, "products")


def test_a_value_of_unknown_size_is_left_to_the_run() -> None:
    where = model("g (float[N] x) => (int64[r,k] y) { y = NonZero(x) }")
    assert value_sizes.largest(where.SerializeToString(), {"x": np.zeros(9, np.float32)})[0] == 0


def test_no_run_takes_more_than_allowed() -> None:
    result = verify(model(ORIGINAL), model(OUTER), shapes={"x": (2, 4, 6, 3)}, memory=2**16)
    assert not result
    assert any("more than 0.0625 MiB of memory (--memory)" in each for each in result.problems)
