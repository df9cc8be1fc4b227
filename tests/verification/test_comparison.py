"""How two outputs are compared: every bit, within a tolerance, and models of another precision."""

import math
import re
import shlex
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from adapter import verify
from onnx import numpy_helper
from parsing import model

import onnx_spatial
from onnx_spatial import UsageError, Verification, VerifyOptions, analysis
from onnx_spatial.verification.evidence import OutputResult
from onnx_spatial.verification.options import Tolerance
from onnx_spatial.verification.values import (
    RTOL,
    Kind,
    Kinds,
    compare,
    describe_element,
    find_mismatch,
)

MOVED, SUMS = Kind(), Kind(rtol=1e-5)
LABELS = Kind(rtol=1e-5, steps=True)


def one(expected: Any, actual: Any, kind: Kind = MOVED, **tolerance: Any) -> OutputResult:
    """The only result of a comparison."""
    wanted = Tolerance(**tolerance) if tolerance else None
    (result,) = compare("y", 0, False, expected, actual, kind, wanted)
    return result


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


QUIET, OTHER_NAN = (np.array([b], np.uint32).view(np.float32) for b in (0x7FC00000, 0x7FC00001))
NAN, INF = np.nan, np.inf
HALF_ONE = np.array([1.001], np.float16)
LABEL = np.zeros(2000, np.int64)


def flipped(count: int) -> np.ndarray:
    return np.where(np.arange(2000) < count, 1, 0)


@pytest.mark.parametrize(
    ("expected", "actual", "kind", "reason"),
    [
        (QUIET, QUIET, MOVED, None),
        (QUIET, OTHER_NAN, MOVED, "1 of 1 elements differ, only in signs of zeros or bits of NaNs"),
        (floats(0.0), floats(-0.0), SUMS, None),
        (floats(0.0), floats(-0.0), MOVED, "1 of 1 elements differ, only in signs of zeros or"),
        (floats(1), floats(1 + 1e-7), MOVED, "1 of 1 elements differ, by at most 1.2e-07 of the"),
        (floats(1, 100, 0), floats(1, 100, 0.5), SUMS,
         "1 of 3 elements differ, by at most 0.005 of the largest value where 1e-05 is allowed"),
        # Integers behind reals are exact all the same, and NaN is not any number.
        (np.array([3]), np.array([4]), SUMS, "1 of 1 elements differ, by at most 0.33 of the larg"),
        (floats(NAN, 1), floats(1, 1), SUMS, "1 of 2 elements differ, some by NaN or infinity"),
        (floats(NAN, INF), floats(NAN, INF), SUMS, None),
        (np.array([2**60]), np.array([2**60 + 1]), MOVED,
         "1 of 1 elements differ, only in the last digits of large integers"),
        # Few elements may take another step.
        (LABEL, flipped(2), LABELS, None),
        (LABEL, flipped(3), LABELS, "3 of 2000 elements differ, by at most 1 where all values sho"),
        (np.zeros(3), floats(0, 0, 0), MOVED, "its type is float32, not float64"),
        (floats(1), floats(1, 2), MOVED, "its shape is [2], not [1]"),
        ([floats(1)], [], MOVED, "it has 0 tensors, not 1"),
        ({"a": 1.0}, {"a": 2.0}, MOVED, "the dicts differ"),
    ],
)  # fmt: skip
def test_what_each_kind_allows(expected: Any, actual: Any, kind: Kind, reason: str | None) -> None:
    result = one(expected, actual, kind)
    assert result.passed is (reason is None)
    assert reason is None or str(result.reason).startswith(reason), result.reason
    found = find_mismatch(expected, actual, kind)
    assert (found is None) == (reason is None)


@pytest.mark.parametrize(
    ("expected", "actual", "tolerance", "passed"),
    [
        (floats(1), floats(1.01), {"rtol": 0.02}, True),
        (floats(1), floats(1.01), {"rtol": 0.0, "atol": 0.02}, True),
        (floats(1), floats(1.01), {"rtol": 1e-3}, False),
        (floats(1), floats(1 + 5e-6), {"atol": 0.0}, True),  # rtol is that of the type then
        (floats(1), HALF_ONE, {"rtol": 0.01}, True),  # reals may be of another type
        (np.array([10]), np.array([11]), {"rtol": 0.5}, False),  # integers only by name
        (np.array([10]), np.array([11]), {"rtol": 0.5, "named": True}, True),
    ],
)
def test_a_tolerance_of_the_caller_takes_the_place_of_the_rules(
    expected: np.ndarray, actual: np.ndarray, tolerance: dict[str, Any], passed: bool
) -> None:
    assert one(expected, actual, **tolerance).passed is passed
    assert str(one(floats(1), floats(3), rtol=0.1, atol=0.25).reason).endswith(
        "by at most 2 of the largest value (2) where 0.1 and 0.25 are allowed"
    )


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_each_type_of_reals_has_its_rtol(dtype: type, rtol: float) -> None:
    array = np.array([1], dtype)
    assert one(array, array, Kind(rtol=1e-12)).tolerance == rtol
    # What was computed in a shorter type before is only as exact as that.
    assert one(array, array, Kind(rtol=0.5)).tolerance == 0.5
    assert one(array, array).tolerance == 0


def test_sequences_are_compared_tensor_by_tensor() -> None:
    results = compare("s", 1, True, [floats(1), [floats(2)]], [floats(1), [floats(3)]], MOVED)
    assert [(r.name, r.passed, r.run, r.optimised) for r in results] == [
        ("s[0]", True, 1, True),
        ("s[1][0]", False, 1, True),
    ]


# Figures


def test_figures_by_hand() -> None:
    result = one(floats(1, 2, 3, 4), floats(1, 2, 3.5, 2), SUMS)
    assert (result.max_abs_error, result.max_relative_error) == (2, 0.5)
    assert result.mean_relative_error == pytest.approx(2.5 / 4 / 4)
    # By rank: the upper of the middle two.
    assert result.p50_relative_error == pytest.approx(0.5 / 4)
    assert result.p99_relative_error == 0.5


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_steps_count_numbers_of_the_type(dtype: type) -> None:
    def steps(a: np.ndarray, b: np.ndarray) -> float | None:
        return one(a, b, SUMS).max_steps

    number = np.array([1], dtype)
    bits = number.view(f"u{number.itemsize}")
    assert steps(number, (bits + bits.dtype.type(3)).view(dtype)) == 3
    assert steps(np.array([0.0], dtype), np.array([-0.0], dtype)) == 0
    tiny = np.array([1], bits.dtype).view(dtype)
    assert steps(tiny, -tiny) == 2
    largest = np.array([np.inf], dtype)
    assert steps(largest, -largest) == pytest.approx(2 * float(largest.view(bits.dtype)[0]))
    assert steps(np.array([np.nan], dtype), number) == np.inf


def test_errors_are_counted_by_decade_and_the_worst_are_named() -> None:
    expected = np.array([[1, 2, 4], [4, np.nan, 0]], np.float32)
    actual = np.array([[1, 2.2, 4], [4.00002, 1, 0]], np.float32)
    result = one(expected, actual, SUMS)
    # 0.2 and 0.00002 of 4, the largest value.
    assert result.error_decades == {"0": 3, "1e-06": 1, "1e-02": 1, "inf": 1}
    assert [each.index for each in result.worst_elements] == [(1, 1), (0, 1), (1, 0)]
    assert (result.worst_elements[1].original, result.worst_elements[1].converted) == ("2.0", "2.2")
    equal = one(expected, expected)
    assert (equal.error_decades, equal.worst_elements, equal.max_steps) == ({}, (), 0)
    zeros = one(np.zeros(3, np.complex64), np.array([0, 3, 0], np.complex64))
    assert zeros.error_decades == {"0": 2, "inf": 1}


def test_the_first_element_that_differs_is_named() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    moved = x.transpose(1, 0, 2)
    wrong = moved.copy()
    wrong[[1, 2]] = wrong[[2, 1]]
    found = find_mismatch(moved, wrong, MOVED)
    assert found is not None
    assert found.element == (1, 0, 0)
    assert describe_element(moved, wrong, found.element, {"x": x}) == (
        "is x[0, 2, 0] instead of x[0, 1, 0]"
    )
    assert (
        describe_element(moved, wrong + 0.5, (0, 0, 0), {"x": x}) == "is 0.5 instead of x[0, 0, 0]"
    )
    twice = {"x": x, "w": x}
    assert describe_element(moved, wrong, (1, 0, 0), twice) == "is 8.0 instead of 4.0"


# Kinds


def kinds_of(body: str, inputs: str = "float[N,4] x", functions: str = "") -> dict[str, Kind]:
    text = f"g ({inputs}) => (float[A,B] y) <float[4,4] w = {{{','.join('1' * 16)}}}> {{ {body} }}"
    made = model(f"{text} {functions}")
    known = analysis.find(made)
    return Kinds(made, known, known.facts).of_values()


HALF = RTOL[onnx.TensorProto.FLOAT16]
BLOCKS = """block = Constant<value = int64[1] {2}>() pads = Constant<value = int64[1,2] {0, 0}>()
    y = tf.SpaceToBatchND(a, block, pads)"""
DROPOUT = (
    "r = Constant<value = float {0.5}>() t = Constant<value = bool {MODE}>() y = Dropout(x, r, t)"
)
LOOP = """n = Constant<value = int64 {3}>() c = Constant<value = bool {1}>()
    y = Loop(n, c, x) <body = b (int64 i, bool go, float[N,4] v) => (bool stay, float[N,4] next)
      { stay = Identity(go) next = BODY }>"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("t = Transpose(x) y = Identity(t)", MOVED),
        # Sizes are whole numbers, whatever they are the sizes of.
        ("m = MatMul(x, w) s = Shape(m) d = Add(s, s) y = ConstantOfShape(d)", MOVED),
        ("c = Cast<to = 7>(x) a = Add(c, c) y = Cast<to = 1>(a)", MOVED),
        ("m = MatMul(x, w) y = ArgMax(m)", LABELS),
        ("y = ArgMax(x)", MOVED),
        ("h = Cast<to = 10>(x) a = Add(h, h) y = Cast<to = 1>(a)", Kind(HALF)),
        ("r = RandomNormalLike(x) y = Identity(r)", Kind(random="RandomNormalLike node '<r>'")),
        (f"a = Identity(x) {BLOCKS}", MOVED),
        (LOOP.replace("BODY", "Relu(v)"), SUMS),
        (LOOP.replace("BODY", "Identity(v)"), MOVED),
        (DROPOUT.replace("MODE", "0"), SUMS),
    ],
)
def test_kinds_follow_from_the_nodes_before(body: str, kind: Kind) -> None:
    assert kinds_of(body)["y"] == kind


def test_kinds_follow_functions() -> None:
    function = '<domain: "f", opset_import: ["" : 17]> move (a) => (b) { b = BODY }'
    for body, kind in (("Transpose(a)", MOVED), ("Sin(a)", SUMS)):
        found = kinds_of("m = f.move(x) y = f.move(m)", functions=function.replace("BODY", body))
        assert found["y"] == kind


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
    assert "reads another constant 'w'" in result.unproven[0].reason


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
HALF_INSIDE = """g (float[N,5] x) => (float[N,4] y) {
    h = Cast<to = 10>(x) a = MatMul(h, w) t = Abs(a) y = Cast<to = 1>(t) }"""
HALF_IO = "g (float16[N,5] x) => (float16[N,4] y) { a = MatMul(x, w) y = Abs(a) }"
QUANTISED_NET = """g (float[N,5] x) => (float[N,4] y) <float scale = {0.02}> {
    d = DequantizeLinear(w, scale) a = MatMul(x, d) y = Abs(a) }"""


def net(text: str, weights: np.ndarray = WEIGHTS) -> onnx.ModelProto:
    """A net with weights in the type that its text needs."""
    made = model(text)
    if "float16" in text or "to = 10" in text:
        weights = weights.astype(np.float16)
    elif text == QUANTISED_NET:
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
        (HALF_INSIDE, "the second model computes in float16, the first in float32"),
        (HALF_IO, "the second model computes in float16, the first in float32"),
        (QUANTISED_NET, "the second model is quantised (DequantizeLinear)"),
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


@pytest.mark.parametrize("text", [HALF_INSIDE, QUANTISED_NET])
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
