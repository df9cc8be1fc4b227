"""Tolerances that the caller sets, comparisons of outputs alone, and models of another precision."""

from __future__ import annotations

import math
import re
import shlex

import numpy as np
import onnx
import pytest
from adapter import verify
from onnx import numpy_helper
from parsing import model

import onnx_spatial
from onnx_spatial import UsageError, Verification, VerifyOptions

NET = """
    g (float[N,4,6,3] x) => (float[A,B,C,D] y, int64[E,F,G,H] n, float[A,B,C,D] m)
      <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}, float[3] w = {1, 2, 4}>
    {
        s = Mul(x, w)
        [site] y = tf.SpaceToBatchND(s, block, pads)
        [other] m = tf.SpaceToBatchND(x, block, pads)
        r = Round(y)
        n = Cast<to = 7>(r)
    }
"""


def converted(weight: float = 1.0) -> onnx.ModelProto:
    """The lowered net, with its first weight changed."""
    result = onnx_spatial.convert(model(NET), verify=False).model
    tensor = next(t for t in result.graph.initializer if t.name == "w")
    tensor.CopyFrom(numpy_helper.from_array(np.array([weight, 2, 4], np.float32), "w"))
    return result


@pytest.mark.parametrize(
    ("tolerance", "passed"),
    [
        ({}, False),
        ({"rtol": {"y": 1e-3}}, True),
        ({"rtol": {"": 1e-3, "y": 1e-6}}, False),
        ({"atol": 0.1}, True),
        ({"rtol": 0.0, "atol": {"y": 0.1}}, True),
    ],
)
def test_outputs_within_a_tolerance_pass(tolerance, passed):
    original = model(NET)
    result = verify(original, converted(1.0005), outputs_only=True, **tolerance)
    assert bool(result) is passed, result.message
    assert result.outputs_only and result.to_dict()["outputs_only"] is True
    assert any("no single operators" in note for note in result.notes)
    assert result.operators == [] and result.evidence == ("sampled" if passed else None)


def test_a_tolerance_for_outputs_is_none_for_what_is_proven():
    result = verify(model(NET), converted(1.0005), rtol=1e-3)
    assert (result.status, result.evidence) == ("passed", "sampled")
    assert all(output.passed for output in result.outputs)
    assert "reads another constant than the original" in result.unproven[0].reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rtol": {"y": -1e-3}}, "at least 0"),
        ({"atol": math.nan}, "at least 0"),
        ({"rtol": 1.0}, "below 1"),
        ({"atol": {"z": 0.1}}, "^atol: the model has no output 'z'"),
        ({"strict_proof": True, "outputs_only": True}, "cannot be combined"),
        ({"memory": 0}, "memory must be more than 0 bytes, not 0"),
    ],
)
def test_options_that_say_nothing_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        verify(model(NET), converted(), **arguments)
    with pytest.raises(UsageError, match=message):
        onnx_spatial.convert(model(NET), verify=VerifyOptions(**arguments))


# Models of another precision

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
def test_the_error_of_another_precision_comes_first_and_the_advice_accepts_it(text, change):
    result = verify(net(ORIGINAL), net(text))
    assert result.status == "failed"
    amount = r"failed: outputs are at most \d\.\de-0\d of the largest value apart: "
    assert re.match(amount + re.escape(change), result.message)
    assert all(problem.startswith("output 'y'") for problem in result.problems[1:])
    assert 2 <= len(result.problems) <= 3
    accepted = verify(net(ORIGINAL), net(text), **advised(result))
    assert accepted, accepted.message
    declared = [note for note in accepted.notes if "float16, not float; the tolerance" in note]
    assert len(declared) == (2 if text == HALF_IO else 0)


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
