"""Tolerances that the caller sets for outputs, and comparisons of outputs alone."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model
from onnx import numpy_helper

import onnx_spatial
from onnx_spatial import UsageError
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.compare.tolerance import Tolerance, Tolerances, tolerance_words

NET = """
    g (float[N,4,6,3] x) => (float[A,B,C,D] y, int64[E,F,G,H] n, float[A,B,C,D] m)
      <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}, float[3] w = {1, 2, 4}>
    {
        s = Mul(x, w)
        [site] y = ai.onnx.converters.tensorflow.SpaceToBatchND(s, block, pads)
        [other] m = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
        r = Round(y)
        n = Cast<to = 7>(r)
    }
"""
NET = NET.replace("ai.onnx.converters.tensorflow", "tf")


def converted(weight: float = 1.0) -> onnx.ModelProto:
    """The lowered net, with its first weight changed."""
    result = onnx_spatial.convert(model(NET), verify=False).model
    tensor = next(t for t in result.graph.initializer if t.name == "w")
    tensor.CopyFrom(numpy_helper.from_array(np.array([weight, 2, 4], np.float32), "w"))
    return result


def in_float16(io: bool) -> onnx.ModelProto:
    """A net in float16; `io` tells whether its inputs and outputs are as well."""
    kind = "float16" if io else "float"
    cast = "a = Identity(x)" if io else "a = Cast<to = 10>(x)"
    back = "y = Identity(b)" if io else "y = Cast<to = 1>(b)"
    return model(
        f"g ({kind}[N,5] x) => ({kind}[N,5] y) <float16 w = {{15667}}> {{ {cast} b = Mul(a, w) {back} }}"
    )


IN_FLOAT32 = "g (float[N,5] x) => (float[N,5] y) <float w = {1.3}> { y = Mul(x, w) }"


@pytest.mark.parametrize(
    ("tolerance", "passed"),
    [
        ({}, False),
        ({"rtol": 1e-3}, True),
        ({"rtol": 1e-5}, False),
        ({"rtol": {"y": 1e-3}}, True),
        ({"rtol": {"": 1e-6, "y": 1e-3}}, True),
        ({"rtol": {"": 1e-3, "y": 1e-6}}, False),
        ({"rtol": {"m": 1e-3}}, False),
        ({"atol": 0.1}, True),
        ({"atol": 1e-7}, False),
        ({"rtol": 0.0, "atol": {"y": 0.1}}, True),
    ],
)
def test_outputs_within_a_tolerance_pass(tolerance, passed):
    original = model(NET)
    result = verify(original, converted(1.0005), outputs_only=True, **tolerance)
    assert bool(result) is passed, result.message
    assert result.outputs_only and result.to_dict()["outputs_only"] is True
    assert any("no single operators" in note for note in result.notes)
    assert not any(site.checks for site in result.operators)
    if passed:
        assert "equivalent within" in result.message


def test_a_tolerance_for_outputs_is_none_for_nodes():
    result = verify(model(NET), converted(1.0005), rtol=1e-3)
    assert result.status == "failed"
    assert all(output.passed for output in result.outputs)
    assert "reads another constant 'w'" in result.message


def test_without_options_nothing_changes():
    result = verify(model(NET), converted())
    assert result and not result.outputs_only and result.notes == []
    assert {o.atol for o in result.outputs} == {0.0}


def test_outputs_alone_are_compared_by_the_usual_rules():
    assert verify(model(NET), converted(), outputs_only=True)
    assert verify(model(NET), converted(1.0005), outputs_only=True).status == "failed"


def test_names_are_compared_all_the_same():
    other = converted()
    other.graph.output[0].name = "z"
    other.graph.node.append(onnx.helper.make_node("Identity", ["y"], ["z"]))
    result = verify(model(NET), other, rtol=0.5, outputs_only=True)
    assert result.status == "failed" and "output 'y' is missing" in result.message


@pytest.mark.parametrize("io", [False, True])
def test_a_float16_version_is_equivalent_within_its_tolerance(io):
    found = verify(model(IN_FLOAT32), in_float16(io), rtol=1e-2, outputs_only=True)
    assert found, found.message
    assert [n for n in found.notes if "float16, not float" in n] == (
        [
            "input 'x' is declared as float16, not float; the tolerance allows it",
            "output 'y' is declared as float16, not float; the tolerance allows it",
        ]
        if io
        else []
    )
    assert not verify(model(IN_FLOAT32), in_float16(io), rtol=1e-6, outputs_only=True)
    wrong = onnx.ModelProto.FromString(in_float16(io).SerializeToString())
    wrong.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float16(1.6), "w"))
    assert verify(model(IN_FLOAT32), wrong, rtol=1e-2, outputs_only=True).status == "failed"


@pytest.mark.parametrize(
    ("number", "message"),
    [(-1e-3, "at least 0"), (math.nan, "at least 0"), (math.inf, "not inf"), (1.0, "below 1")],
)
def test_numbers_out_of_range(number, message):
    with pytest.raises(UsageError, match=message):
        verify(model(NET), converted(), rtol={"y": number})
    with pytest.raises(UsageError, match=message):
        onnx_spatial.convert(model(NET), verify=onnx_spatial.VerifyOptions(rtol=number))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rtol": {"z": 0.1}}, "no output 'z'; its outputs are 'y', 'n', 'm'"),
        ({"atol": {"z": 0.1}}, "^atol: the model has no output 'z'"),
    ],
)
def test_arguments_that_fit_nothing(arguments, message):
    with pytest.raises(UsageError, match=message):
        verify(model(NET), converted(), **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"strict_proof": True, "outputs_only": True},
        {"rtol": -1.0},
        {"atol": {"z": 1.0}},
    ],
)
def test_convert_refuses_what_says_nothing(arguments):
    with pytest.raises(UsageError):
        onnx_spatial.convert(model(NET), verify=onnx_spatial.VerifyOptions(**arguments))


def test_convert_compares_outputs_only():
    result = onnx_spatial.convert(
        model(NET), verify=onnx_spatial.VerifyOptions(rtol=1e-3, outputs_only=True)
    ).verification
    assert result and result.outputs_only and not any(site.checks for site in result.operators)


class TestElements:
    def compared(self, expected, actual, tolerance, **marks):
        (result,) = compare(
            "y", 0, False, expected, actual, Exactness(**marks), tolerance=tolerance
        )
        return result

    def test_the_bound_is_atol_and_rtol_of_the_largest_value(self):
        expected = np.array([0.0, 100.0], np.float32)
        actual = np.array([1.5, 100.0], np.float32)
        assert self.compared(expected, actual, Tolerance(0.01, 0.5)).passed
        wrong = self.compared(expected, actual, Tolerance(0.01, 0.4))
        assert not wrong.passed and wrong.mismatches == 1 and wrong.atol == 0.4
        assert "by at most 0.015 of the largest value (1.5)" in wrong.reason

    def test_moved_values_too(self):
        """A float16 version rounds what the original only moves."""
        x = np.array([1.0, 2.0], np.float32)
        assert self.compared(x, x * np.float32(1.001), Tolerance(0.01)).passed
        assert not self.compared(x, x * np.float32(1.001), None).passed

    def test_nan_and_infinity_are_within_no_tolerance(self):
        x = np.array([1.0, np.nan, np.inf], np.float32)
        assert self.compared(x, x, Tolerance(0.0)).passed
        for wrong in ([np.nan, np.nan, np.inf], [1.0, 0.0, np.inf], [1.0, np.nan, -np.inf]):
            y = np.array(wrong, np.float32)
            assert self.compared(x, y, Tolerance(0.9, 1e30)).passed is False

    def test_integers_only_by_name(self):
        x, y = np.array([3, 200], np.uint8), np.array([4, 200], np.uint8)
        assert self.compared(x, y, Tolerance(0.1, 1.0)).passed is False
        assert self.compared(x, y, Tolerance(0.0, 1.0, named=True)).passed
        assert self.compared(x, y + 1, Tolerance(0.0, 1.0, named=True)).passed is False

    def test_large_integers_are_compared_by_their_bits(self):
        x = np.array([2**62], np.int64)
        assert self.compared(x, x + 1, Tolerance(0.0, named=True)).passed is False

    def test_reals_of_another_type(self):
        x = np.array([1.0, 0.1], np.float32)
        result = self.compared(x, x.astype(np.float16), Tolerance(1e-3))
        assert result.passed and not result.equal_bits and result.max_steps is None
        wrong = self.compared(x, x.astype(np.float16), None)
        assert wrong.passed is False and wrong.reason == "its type is float16, not float32"
        assert 0 < wrong.max_relative_error < 1e-3

    def test_another_shape_or_kind(self):
        x = np.array([1.0, 0.1], np.float32)
        assert "its shape is [1, 2], not [2]" in self.compared(x, x[None], Tolerance(0.5)).reason
        assert "int64" in self.compared(x, x.astype(np.int64), Tolerance(0.5)).reason


def test_names_that_one_model_of_many_lacks_are_left_out():
    tolerances = Tolerances.of({"": 0.1, "y": 0.2, "z": 0.3}, 1e-6)
    assert tolerances.of_model(["y"]) == Tolerances({"": 0.1, "y": 0.2}, {"": 1e-6})
    assert tolerances.of_output("y") == Tolerance(0.2, 1e-6, named=True)
    assert tolerances.of_output("q") == Tolerance(0.1, 1e-6)
    assert Tolerances.of({"z": 0.1}).of_model(["y"]).of_output("y") is None


def test_the_words_of_a_command_line():
    words = tolerance_words({"": 0.1, "a=b": 0.2}, 1.0, outputs_only=True)
    assert words == ["--rtol", "0.1", "--rtol", "a=b=0.2", "--atol", "1.0", "--outputs-only"]
