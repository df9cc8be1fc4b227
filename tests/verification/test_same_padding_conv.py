"""Convolutions that onnxruntime refuses to run are verified too: a wrong pad is found wherever it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import convert, verify
from onnx import parser
from onnx.reference import ReferenceEvaluator

from onnx_spatial.model import traversal
from onnx_spatial.verification.runtime.program import Program

HEAD = '<ir_version: 9, opset_import: ["" : 17, "local" : 1]>\n'

MAIN = """g (float[N,2,H,W] x) => (float[N,3,P,Q] y) <WEIGHT>
    { [conv] c = Conv<SAME>(x, w)  y = Relu(c) }"""
STATIC = MAIN.replace("[N,2,H,W]", "[2,2,10,8]")
BRANCH = """g (bool b, float[N,2,H,W] x) => (float[N,K,P,Q] y) <WEIGHT>
    { y = If (b) < then_branch = yes () => (float[A,B,C,D] t) { [conv] t = Conv<SAME>(x, w) },
                   else_branch = no () => (float[A,B,C,D] e) { e = Neg(x) } > }"""
LOOP = """g (float[1,3,H,W] x) => (float[1,3,P,Q] y) <WEIGHT, int64 turns = {3}, bool go = {1}>
    { y = Loop (turns, go, x) < body = turn (int64 i, bool more, float[1,3,A,B] a)
        => (bool on, float[1,3,C,D] c)
        { on = Identity (more)  [conv] b = Conv<SAME>(a, w)  c = Tanh (b) } > }"""
FUNCTION = """g (float[N,2,H,W] x) => (float[N,3,P,Q] y) <WEIGHT> { y = local.Block (x, w) }
    <domain: "local", opset_import: ["" : 17]> Block (data, kernel) => (result)
    { [conv] c = Conv<SAME>(data, kernel)  result = Relu (c) }"""

PLACES = {"main": MAIN, "static": STATIC, "branch": BRANCH, "loop": LOOP, "function": FUNCTION}


def weight(place: str) -> str:
    channels = 3 if place == "loop" else 2
    values = ", ".join(f"{(7 * i) % 11 - 5}" for i in range(3 * channels * 6))
    return f"float[3,{channels},3,2] w = {{{values}}}"


def model(
    place: str,
    auto_pad: str = "SAME_UPPER",
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (2, 3),
) -> onnx.ModelProto:
    same = f'auto_pad = "{auto_pad}", strides = {list(strides)}, dilations = {list(dilations)}'
    return parser.parse_model(
        HEAD + PLACES[place].replace("WEIGHT", weight(place)).replace("SAME", same)
    )


def strided(place: str) -> tuple[int, int]:
    """In a loop the sizes stay as they are."""
    return (1, 1) if place == "loop" else (2, 3)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_right_is_verified(place: str, strides: tuple[int, int]) -> None:
    strides = (1, 1) if strides == (1, 1) else strided(place)
    made = model(place, strides=strides)
    result = verify(made, convert(made))
    assert result, result.message
    (site,) = result.operators
    assert site.refused and site.end_to_end
    alone = place != "function"  # whose weight is an input
    assert ("isolated" in site.how) == alone
    assert not site.exact and not any(check.exact for check in site.checks)
    assert site.passed is (True if alone else None)
    assert site.reason is None if alone else "not compared on its own" in (site.reason or "")


@pytest.mark.parametrize("strided_too", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_an_odd_zero_on_the_wrong_side_is_found(place: str, strided_too: bool) -> None:
    strides = strided(place) if strided_too else (1, 1)
    wrong = convert(model(place, "SAME_LOWER", strides))
    result = verify(model(place, "SAME_UPPER", strides), wrong)
    assert result.status == "failed", result.message


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dilations", [(3, 3), (2, 2), (4, 3)])
def test_another_dilation_is_found(place: str, dilations: tuple[int, int]) -> None:
    result = verify(model(place), convert(model(place, dilations=dilations)))
    assert result.status == "failed", result.message


@pytest.mark.parametrize("place", PLACES)
def test_a_pad_more_on_one_side_and_less_on_the_other_is_found(place: str) -> None:
    made = model(place)
    wrong = convert(made)
    for _, _, node in traversal.nodes(wrong):
        for attribute in node.attribute:
            if attribute.name == "pads":
                assert list(attribute.ints) == [2, 1, 2, 2]
                attribute.ints[:] = [1, 1, 3, 2]
    assert verify(made, wrong).status == "failed"


def test_a_weight_that_was_touched_is_found() -> None:
    made = model("main")
    wrong = convert(made)
    wrong.graph.initializer[0].float_data[5] += 1
    result = verify(made, wrong)
    assert result.status == "failed"
    assert result.first_difference is not None and result.first_difference.name == "conv"


def test_the_first_difference_is_the_convolution_with_its_data() -> None:
    result = verify(model("main"), convert(model("main", "SAME_LOWER")))
    difference = result.first_difference
    assert difference is not None
    assert (difference.kind, difference.name, difference.graph) == (
        "operator",
        "conv",
        "main graph",
    )
    assert list(difference.inputs) == ["x"]
    assert "1e-05 is allowed" in difference.message


def test_what_nobody_put_right_is_unverified() -> None:
    made = model("main")
    result = verify(made, made)
    assert result.status == "unverified"
    assert "onnxruntime cannot run the rest of the model" in result.message
    (site,) = result.operators
    assert site.reason is not None and "refuses" in site.reason


QUANTISED = """g (uint8[2,2,H,W] x) => (uint8[2,3,P,Q] y)
    <float s = {0.5}, uint8 z = {9}, float t = {4}, uint8 o = {100}, uint8[3,2,3,2] w = {VALUES}>
    { [conv] y = QLinearConv<auto_pad = "SAME_UPPER", dilations = [2, 3], strides = [2, 1]>
          (x, s, z, w, s, z, t, o) }"""


def test_whole_numbers_are_padded_with_their_zero() -> None:
    made = parser.parse_model(HEAD + QUANTISED.replace("VALUES", ", ".join(map(str, range(36)))))
    right = convert(made)
    assert verify(made, right)
    wrong = onnx.ModelProto()
    wrong.CopyFrom(right)
    (pad,) = (n for n in wrong.graph.node if n.op_type == "Pad")
    del pad.input[2]
    assert verify(made, wrong).status == "failed"


@pytest.mark.parametrize("place", ["main", "static", "function"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_the_original_runs_by_onnxruntime_with_data_that_numpy_padded(
    place: str, auto_pad: str
) -> None:
    made = model(place, auto_pad, strided(place))
    program = Program(made, ())
    x = np.random.default_rng(0).standard_normal((2, 2, 10, 8)).astype(np.float32)
    got = program.run({"x": x})["y"]
    assert program.substitutes == [] and program.pads
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_which_branch_ran_is_known() -> None:
    program = Program(model("branch"), ())
    x = np.ones((1, 2, 6, 7), np.float32)
    program.run({"b": np.array(False), "x": x})
    assert program.executed == set()
    program.run({"b": np.array(True), "x": x})
    assert program.executed == {1}
