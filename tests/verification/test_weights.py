"""Weights are compared by their bytes, wherever nothing could make up for others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model
from onnx import numpy_helper

import onnx_spatial
from onnx_spatial.verification.compare import weights

PART = """
    g (float[N,4] x) => (float[N,4] y)
      <float[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
       float[4,4] t = {1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 4, 8, 12, 16},
       float[4,4] u = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16.000002},
       float[4] b = {1, 2, 3, 4}, float[4] c = {1, 2, 3, 4.0000005}, float[4] d = {0, 2, 3, 4}>
    { BODY }
"""
BOTH = "a = MatMul(x, {}) r = Sigmoid(a) y = MatMul(r, {})"
LAYOUT = "k = Transpose({}) y = MatMul(x, k)"
SUM = "a = MatMul(x, w) y = Add(a, {})"
SCALED = "a = MatMul(x, {}) m = Mul(a, {}) y = Add(m, {})"


def of(body: str) -> weights.Weights | None:
    return weights.of(model(PART.replace("BODY", body)), None)


@pytest.mark.parametrize(
    ("before", "wrong", "right"),
    [
        ("y = MatMul(x, w)", "y = MatMul(x, u)", "y = Gemm(x, w)"),
        ("y = MatMul(x, w)", "y = Gemm(x, u)", "y = Gemm<transB = 1>(x, t)"),
        (LAYOUT.format("w"), LAYOUT.format("u"), "y = MatMul(x, t)"),
        (BOTH.format("w", "w"), BOTH.format("w", "u"), BOTH.format("t", "w")),
        ("y = Gemm(x, w, b)", "y = Gemm(x, w, c)", "a = MatMul(x, w) y = Add(a, b)"),
        (SUM.format("b"), SUM.format("c"), "y = Gemm(x, w, d)"),
        (SCALED.format("w", "b", "b"), SCALED.format("w", "c", "b"), SCALED.format("w", "b", "d")),
        (SCALED.format("w", "b", "b"), SCALED.format("u", "b", "b"), "y = Gemm(x, u, c)"),
    ],
)
def test_other_numbers_in_the_same_operators(before: str, wrong: str, right: str) -> None:
    """The last ones may have been scaled, or folded."""
    original, other, same = of(before), of(wrong), of(right)
    assert original is not None and other is not None and same is not None
    assert original.differ(other)
    assert not original.differ(same)


@pytest.mark.parametrize("body", ["y = Mul(x, b)", "y = Gemm<alpha = 2.0>(x, w)", "y = Neg(x)"])
def test_a_part_without_weights_of_its_own(body: str) -> None:
    assert of(body) is None


def net() -> onnx.ModelProto:
    made = model("""
        g (float[N,T,2] x) => (float[A,B,C] y)
          <int32[1] block = {2}, int32[1,2] pads = {2, 2}, int32[1,2] crops = {0, 0}>
        {
            s = tf.SpaceToBatchND(x, block, pads)
            t = Transpose<perm = [0, 2, 1]>(s)
            f = Conv(t, w0) g1 = Sigmoid(f) g2 = Conv(t, w1) g3 = Tanh(g2) m = Mul(g1, g3)
            r = Transpose<perm = [0, 2, 1]>(m)
            y = tf.BatchToSpaceND(r, block, crops)
        }
    """)
    rng = np.random.default_rng(0)
    for name in ("w0", "w1"):
        values = rng.normal(size=(2, 2, 3)).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(values, name))
    return made


def test_one_bit_in_a_fused_region_of_two_convolutions() -> None:
    result = onnx_spatial.convert(net())
    assert result.verification.status == "passed", result.verification.message
    after = result.model
    assert [n.op_type for n in after.graph.node].count("Conv") == 2
    (tensor,) = (t for t in after.graph.initializer if t.name == "w1")
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1).view(np.uint32)[3] ^= 1
    tensor.CopyFrom(numpy_helper.from_array(values, "w1"))
    found = verify(net(), after)
    assert found.status == "failed" and "'w1'" in found.message
