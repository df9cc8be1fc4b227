"""How two outputs are compared: what must be equal in every bit, and what may be apart by how much."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hand_lowered import model
from onnx import parser

from onnx_spatial import analysis
from onnx_spatial.model import traversal
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


# What is allowed


def test_moved_data_must_agree_in_every_bit() -> None:
    quiet, other = (
        np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001)
    )
    assert one(quiet, quiet).passed
    for a, b in ((quiet, other), (floats(0.0), floats(-0.0)), (floats(1), floats(1 + 1e-7))):
        assert one(a, b).passed is False
        assert one(a, b, SUMS).passed
    assert (
        one(quiet, other).reason == "1 of 1 elements differ, only in signs of zeros or bits of NaNs"
    )


def test_sums_may_be_apart_by_rtol_of_the_largest_value() -> None:
    expected = floats(1, 100, 0)
    assert one(expected, expected + np.float32(9e-4), SUMS).passed
    result = one(expected, floats(1, 100, 0.5), SUMS)
    assert result.passed is False
    assert (result.mismatches, result.tolerance) == (1, 1e-5)
    words = "1 of 3 elements differ, by at most 0.005 of the largest value where 1e-05 is allowed"
    assert result.reason == words
    # Integers behind reals are exact all the same, and NaN is not any number.
    assert one(np.array([3]), np.array([4]), SUMS).passed is False
    assert one(floats(np.nan, 1), floats(1, 1), SUMS).reason == (
        "1 of 2 elements differ, some by NaN or infinity"
    )
    assert one(floats(np.nan, np.inf), floats(np.nan, np.inf), SUMS).passed


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [
        (np.float64, 1e-11),
        (np.float16, 2e-3),
        (ml_dtypes.bfloat16, 2e-2),
        (ml_dtypes.float8_e5m2, 0.13),
    ],
)
def test_each_type_of_reals_has_its_rtol(dtype: type, rtol: float) -> None:
    array = np.array([1], dtype)
    assert one(array, array, Kind(rtol=1e-12)).tolerance == rtol
    # What was computed in a shorter type before is only as exact as that.
    assert one(array, array, Kind(rtol=0.5)).tolerance == 0.5
    assert one(array, array).tolerance == 0


def test_few_elements_may_take_another_step() -> None:
    labels = np.zeros(2000, np.int64)
    flipped = labels.copy()
    flipped[:2] = 1
    accepted = one(labels, flipped, LABELS)
    assert accepted.passed and "accepted" in str(accepted.reason) and accepted.mismatches == 2
    assert one(labels, flipped, SUMS).passed is False
    flipped[2] = 1
    assert one(labels, flipped, LABELS).passed is False


@pytest.mark.parametrize(
    ("expected", "actual", "reason"),
    [
        (np.zeros(3), floats(0, 0, 0), "its type is float32, not float64"),
        (floats(1), floats(1, 2), "its shape is [2], not [1]"),
        ([floats(1)], [], "it has 0 tensors, not 1"),
        (None, floats(1), "it is a ndarray, not a NoneType"),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), "1 of 2 elements differ"),
        (np.array([True]), np.array([False]), "1 of 1 elements differ"),
        ({"a": 1.0}, {"a": 2.0}, "the dicts differ"),
    ],
)
def test_other_values_say_what_they_are(expected: Any, actual: Any, reason: str) -> None:
    result = one(expected, actual)
    assert (result.passed, result.reason) == (False, reason)
    assert one(expected, expected).passed


def test_sequences_are_compared_tensor_by_tensor() -> None:
    results = compare("s", 1, True, [floats(1), [floats(2)]], [floats(1), [floats(3)]], MOVED)
    assert [(r.name, r.passed, r.run, r.optimised) for r in results] == [
        ("s[0]", True, 1, True),
        ("s[1][0]", False, 1, True),
    ]


def test_a_tolerance_of_the_caller_takes_the_place_of_the_rules() -> None:
    assert one(floats(1), floats(1.01), rtol=0.02).passed
    assert one(floats(1), floats(1.01), rtol=0.0, atol=0.02).passed
    assert one(floats(1), floats(1.01), SUMS, rtol=1e-3).passed is False
    # Reals may be of another type; without rtol that of the type counts.
    assert one(floats(1), np.array([1.001], np.float16), rtol=0.01).passed
    assert one(floats(1), floats(1 + 5e-6), atol=0.0).tolerance == 1e-5
    # Integers only by name.
    assert one(np.array([10]), np.array([11]), rtol=0.5).passed is False
    assert one(np.array([10]), np.array([11]), rtol=0.5, named=True).passed
    words = one(floats(1), floats(3), rtol=0.1, atol=0.25).reason
    assert (
        words
        == "1 of 1 elements differ, by at most 2 of the largest value (2) where 0.1 and 0.25 are allowed"
    )


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


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.complex64])
def test_errors_where_all_values_should_be_zero(dtype: type) -> None:
    result = one(np.array([0, 0, 0], dtype), np.array([0, 3, 0], dtype))
    assert result.error_decades == {"0": 2, "inf": 1}
    assert [each.index for each in result.worst_elements] == [(1,)]
    assert "by at most 3 where all values should be 0" in str(result.reason)


def test_large_integers_are_compared_by_their_bits() -> None:
    result = one(np.array([2**60]), np.array([2**60 + 1]))
    assert result.reason == "1 of 1 elements differ, only in the last digits of large integers"


# Parts


def test_the_first_element_that_differs_is_named() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    moved = x.transpose(1, 0, 2)
    wrong = moved.copy()
    wrong[[1, 2]] = wrong[[2, 1]]
    found = find_mismatch(moved, wrong, MOVED)
    assert found is not None
    assert found.element == (1, 0, 0)
    assert found.reason.startswith("16 of 24 elements differ, by at most ")
    assert describe_element(moved, wrong, found.element, {"x": x}) == (
        "is x[0, 2, 0] instead of x[0, 1, 0]"
    )
    assert (
        describe_element(moved, wrong + 0.5, (0, 0, 0), {"x": x}) == "is 0.5 instead of x[0, 0, 0]"
    )
    twice = {"x": x, "w": x}
    assert describe_element(moved, wrong, (1, 0, 0), twice) == "is 8.0 instead of 4.0"
    assert find_mismatch(moved, moved, MOVED) is None


def test_sums_of_parts_may_be_apart() -> None:
    expected = floats(1, 100, 0)
    assert find_mismatch(expected, expected * np.float32(1 + 1e-6), SUMS) is None
    found = find_mismatch([expected], [expected[:2]], SUMS)
    assert found is not None and (found.reason, found.element) == (
        "[0]: its shape is [2], not [3]",
        None,
    )


# Kinds


def kinds_of(body: str, inputs: str = "float[N,4] x", functions: str = "") -> dict[str, Kind]:
    text = f"g ({inputs}) => (float[A,B] y) <float[4,4] w = {{{','.join('1' * 16)}}}> {{ {body} }}"
    made = (
        model(text)
        if not functions
        else parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : 17, "f" : 1]> {text} {functions}'
        )
    )
    known = analysis.find(made)
    kinds = Kinds(made, known, known.facts)
    last = list(made.graph.node)
    assert kinds.of_part(traversal.Place(), last, "y") == kinds.of_values()["y"]
    return kinds.of_values()


HALF = RTOL[onnx.TensorProto.FLOAT16]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("t = Transpose(x) y = Identity(t)", MOVED),
        ("y = MatMul(x, w)", SUMS),
        # Sizes are whole numbers, whatever they are the sizes of.
        ("m = MatMul(x, w) s = Shape(m) d = Add(s, s) y = ConstantOfShape(d)", MOVED),
        ("c = Cast<to = 7>(x) a = Add(c, c) y = Cast<to = 1>(a)", MOVED),
        ("m = MatMul(x, w) y = ArgMax(m)", LABELS),
        ("y = ArgMax(x)", MOVED),
        ("m = MatMul(x, w) c = Cast<to = 10>(m) y = Cast<to = 1>(c)", Kind(HALF)),
        ("h = Cast<to = 10>(x) a = Add(h, h) y = Cast<to = 1>(a)", Kind(HALF)),
        ("m = MatMul(x, w) r = Floor(m) y = Add(r, x)", LABELS),
        ("r = RandomNormalLike(x) y = Identity(r)", Kind(random="RandomNormalLike node '<r>'")),
        ("r = Unknown(x) y = Identity(r)", SUMS),
    ],
)
def test_kinds_follow_from_the_nodes_before(body: str, kind: Kind) -> None:
    assert kinds_of(body)["y"] == kind


def test_a_spatial_operator_moves_data() -> None:
    site = "ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)".replace(
        "ai.onnx.converters.tensorflow", "tf"
    )
    constants = (
        "block = Constant<value = int64[1] {2}>() pads = Constant<value = int64[1,2] {0, 0}>()"
    )
    body = f"{constants} s = {site} y = Identity(s)"
    assert kinds_of(body)["y"] == MOVED
    assert (
        kinds_of(f"{constants} a = Mul(x, x) b = {site.replace('(x', '(a')} y = Identity(b)")["y"]
        == SUMS
    )


def test_kinds_follow_loops_and_functions() -> None:
    loop = """
        n = Constant<value = int64 {3}>() c = Constant<value = bool {1}>()
        y = Loop(n, c, x) <body = b (int64 i, bool go, float[N,4] v) => (bool stay, float[N,4] next)
          { stay = Identity(go) next = BODY }>
    """
    assert kinds_of(loop.replace("BODY", "Relu(v)"))["y"].rtol == 1e-5
    assert kinds_of(loop.replace("BODY", "Identity(v)"))["y"] == MOVED
    function = '<domain: "f", opset_import: ["" : 17]> move (a) => (b) { b = BODY }'
    for body, kind in (("Transpose(a)", MOVED), ("Sin(a)", SUMS)):
        found = kinds_of("m = f.move(x) y = f.move(m)", functions=function.replace("BODY", body))
        assert found["y"] == kind


def test_dropout_is_random_in_training_mode_only() -> None:
    body = "r = Constant<value = float {0.5}>() t = Constant<value = bool {MODE}>() y = Dropout(x, r, t)"
    assert kinds_of(body.replace("MODE", "1"))["y"].random
    assert not kinds_of(body.replace("MODE", "0"))["y"].random
    assert kinds_of(
        "r = Constant<value = float {0.5}>() y = Dropout(x, r, t)", "float[N,4] x, bool t"
    )["y"].random


def test_the_node_that_draws_is_named() -> None:
    made = model(
        """g (float[N,4] x) => (float[N,4] y, float[N,4] z)
        { [dice] r = RandomUniformLike(x) a = Add(x, r) y = Neg(a) z = Neg(x) }"""
    )
    kinds = Kinds(made, [], analysis.Analysis(made, []).facts)
    dice = "RandomUniformLike node 'dice'"
    drawn = {name: kind.random for name, kind in kinds.of_values().items()}
    assert drawn == {"r": dice, "a": dice, "y": dice, "z": ""}
