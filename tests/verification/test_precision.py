"""A version of a model in another precision is told by the error of its outputs."""

from __future__ import annotations

import re
import shlex

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model
from onnx import numpy_helper

from onnx_spatial import Verification

WEIGHTS = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float32)
ORIGINAL = "g (float[N,5] x) => (float[N,4] y) { a = MatMul(x, w) y = Abs(a) }"
HALF = """g (float[N,5] x) => (float[N,4] y) {
    h = Cast<to = 10>(x) a = MatMul(h, w) t = Abs(a) y = Cast<to = 1>(t) }"""
HALF_IO = "g (float16[N,5] x) => (float16[N,4] y) { a = MatMul(x, w) y = Abs(a) }"
QUANTISED = """g (float[N,5] x) => (float[N,4] y) <float scale = {0.02}> {
    d = DequantizeLinear(w, scale) a = MatMul(x, d) y = Abs(a) }"""


def net(text: str, weights: np.ndarray = WEIGHTS) -> onnx.ModelProto:
    """A net with weights in the type that its text needs."""
    made = model(text)
    if "float16" in text or "to = 10" in text:
        weights = weights.astype(np.float16)
    elif text == QUANTISED:
        weights = np.clip(np.round(weights / 0.02), -128, 127).astype(np.int8)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return made


def advised(result: Verification) -> dict[str, object]:
    """The arguments that the advice names."""
    words = shlex.split(str(result.advice).partition("outputs alone: ")[2])
    rtol = float(words[words.index("--rtol") + 1]) if "--rtol" in words else None
    return {"rtol": rtol, "outputs_only": "--outputs-only" in words}


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (HALF, "the second model computes in float16, the first in float32"),
        (HALF_IO, "the second model computes in float16, the first in float32"),
        (QUANTISED, "the second model is quantised (DequantizeLinear)"),
    ],
)
def test_the_error_of_the_outputs_comes_first_and_the_advice_accepts_it(text, change):
    result = verify(net(ORIGINAL), net(text))
    assert result.status == "failed"
    amount = r"failed: outputs are at most \d\.\de-0\d of the largest value apart: "
    assert re.fullmatch(amount + re.escape(change), result.message)
    assert result.problems[0] == result.message.removeprefix("failed: ")
    assert result.problems[1].startswith("output 'y'")
    assert len(result.problems) <= 3
    accepted = verify(net(ORIGINAL), net(text), **advised(result))
    assert accepted and "equivalent within" in accepted.message, accepted.message


def test_within_the_tolerance_only_nodes_differ():
    result = verify(net(ORIGINAL), net(HALF), rtol=1e-2)
    assert result.status == "failed"
    assert "apart, within the tolerance: the second model computes in float16" in result.message
    assert advised(result) == {"rtol": None, "outputs_only": True}


@pytest.mark.parametrize("text", [HALF, QUANTISED])
def test_errors_that_no_precision_explains(text):
    result = verify(net(ORIGINAL), net(text, WEIGHTS[::-1].copy()))
    assert result.message.startswith("failed: outputs differ by up to ")
    assert "this is more than another precision explains" in str(result.advice)


def test_overflow_is_said():
    large = WEIGHTS * np.float32(20)
    original, half = (net(text.replace("Abs", "Exp"), large) for text in (ORIGINAL, HALF_IO))
    result = verify(original, half)
    assert result.message.startswith("failed: outputs differ by up to NaN or infinity: ")
    assert "overflow" in str(result.advice)


def test_a_model_that_only_moves_its_input():
    """Bit patterns, most of which no float16 holds, do not hide the error of numbers."""
    text = "g (float[N,5] x) => (float[A,B] y) { y = Transpose(x) }"
    moved = "{ h = Cast<to = 10>(x) t = Transpose(h) y = Cast<to = 1>(t) }"
    half = text.partition("{")[0] + moved
    result = verify(model(text), model(half))
    assert result.message.startswith("failed: outputs are at most ")
    assert verify(model(text), model(half), **advised(result))


@pytest.mark.parametrize(
    "text",
    [
        ORIGINAL.replace("Abs", "Neg"),
        "g (float[N,5] x) => (double[N,4] y) { a = MatMul(x, w) t = Abs(a) y = Cast<to = 11>(t) }",
    ],
)
def test_a_wrong_model_of_the_same_precision_is_wrong(text):
    result = verify(net(ORIGINAL), net(text))
    assert result.status == "failed"
    assert "precision" not in result.message and "outputs are at most" not in result.message
    assert "--outputs-only" not in str(result.advice)
