"""How two outputs are compared: what must be equal in every bit, and what may be apart by how much."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from parsing import model

from onnx_spatial import analysis
from onnx_spatial.verification.comparison import compare, describe_element, find_mismatch
from onnx_spatial.verification.evidence import OutputResult
from onnx_spatial.verification.kinds import RTOL, Kind, Kinds
from onnx_spatial.verification.options import Tolerance

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


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [
        (np.float16, 2e-3),
        (ml_dtypes.bfloat16, 2e-2),
    ],
)
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
