"""What is no operator of ours is compared by itself where it is not the original's."""

from __future__ import annotations

import onnx
import pytest
from hand_lowered import model

from onnx_spatial.verify import verify

#: A wrong weight of `small` changes y by less than its tolerance.
NET = """
    g (float[N,6] x) => (float[N,6] y)
      <float[6] large = {100, 200, 300, 400, 500, 600}, float[6] small = {SMALL}>
    { a = Mul(x, small) b = Tanh(a) c = Mul(x, large) y = Add(b, c) }
"""
RIGHT = "0.01, 0.02, 0.03, 0.04, 0.05, 0.06"


def net(small: str = RIGHT) -> onnx.ModelProto:
    return model(NET.replace("SMALL", small))


def test_a_weight_that_the_output_hides() -> None:
    result = verify(net(), net(RIGHT.replace("0.01", "0.0101")))
    assert result.status == "failed"
    difference = result.first_difference
    assert difference is not None
    assert (difference.kind, difference.name, difference.graph) == ("value", "a", "main graph")
    assert all(o.max_relative_error < o.tolerance for o in result.outputs)
    assert "changed" in str(result.advice)


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul(small, x) b = Tanh(a) c = Mul(x, large) y = Add(b, c)",
        "k = Identity(small) a = Mul(x, k) b = Tanh(a) c = Mul(large, x) y = Add(c, b)",
        "z = Constant<value_float = 0.0>() s = Sub(z, small) m = Mul(x, s) a = Neg(m)"
        " b = Tanh(a) c = Mul(x, large) y = Add(b, c)",
    ],
)
def test_the_same_written_otherwise_is_right(body: str) -> None:
    after = net()
    text = NET.replace("SMALL", RIGHT).split("{ a")[0] + "{ " + body + " }"
    result = verify(after, model(text))
    assert result, result.message
