"""Compare the weights of a product and its bias, added by the same node or by another."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hand_lowered import model

from onnx_spatial.verification.compare import weights

CONV = ("float[N,3,4,4] x", "float[N,2,A,B]")
DENSE = ("float[N,3] x", "float[N,2]")


def part(
    text: str, inputs: tuple[str, str], w: np.ndarray, b: np.ndarray
) -> weights.Weights | None:
    made = model(f"g ({inputs[0]}) => ({inputs[1]} y) {{ {text} }}")
    for name, array in (("w", w), ("b", b)):
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return weights.of(made, None)


@pytest.mark.parametrize(
    ("inputs", "shape", "apart", "bias", "fused", "transposed"),
    [
        (DENSE, (3, 2), "m = MatMul(x, w) y = Add(m, b)", (2,), "y = Gemm(x, w, b)", False),
        (DENSE, (3, 2), "m = MatMul(x, w) y = Add(b, m)", (1, 2), "y = Gemm<transB = 1>(x, w, b)", True),
        (CONV, (2, 3, 1, 1), "c = Conv(x, w) y = Add(c, b)", (1, 2, 1, 1), "y = Conv(x, w, b)", False),
    ],
)  # fmt: skip
def test_a_bias_that_was_fused(
    inputs: tuple[str, str],
    shape: tuple[int, ...],
    apart: str,
    bias: tuple[int, ...],
    fused: str,
    transposed: bool,
) -> None:
    w = np.arange(1, 7, dtype=np.float32).reshape(shape)
    b = np.array([0.5, 0.25], np.float32)
    other = w.copy()
    other.reshape(-1)[0] = 1e-6
    before = part(apart, inputs, w, b.reshape(bias))
    same, changed = (part(fused, inputs, v.T.copy() if transposed else v, b) for v in (w, other))
    assert before is not None
    assert same is not None
    assert changed is not None
    assert not before.differ(same)
    assert before.differ(changed)
    assert before.differ(part(fused, inputs, w.T.copy() if transposed else w, b + 1) or before)


@pytest.mark.parametrize(
    "text", ["y = Gemm<alpha = 2.0>(x, w, b)", "y = Gemm<beta = 2.0>(x, w, b)"]
)
def test_scales_make_up_for_other_weights(text: str) -> None:
    w, b = np.ones((3, 2), np.float32), np.ones(2, np.float32)
    before = part("m = MatMul(x, w) y = Add(m, b)", DENSE, w, b)
    after = part(text, DENSE, w / 2, b / 2)
    assert before is not None
    assert after is not None
    assert not before.differ(after)
