"""Convolutions that onnxruntime refuses to run are verified too: a wrong pad is found wherever it is."""

from __future__ import annotations

import onnx
import pytest
from adapter import convert, verify
from onnx import parser

from onnx_spatial.model import traversal

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


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_right_is_proven_and_what_is_wrong_is_found(
    place: str, strides: tuple[int, int]
) -> None:
    if place == "loop":
        strides = (1, 1)  # its sizes stay as they are
    made = model(place, strides=strides)
    right = convert(made)
    result = verify(made, right)
    assert result.evidence == "proven", result.message
    (operator,) = result.operators
    assert (operator.node, operator.op_type) == ("conv", "Conv")
    assert operator.proven == ("these sizes" if place == "static" else "all sizes")
    # The odd zero is on the wrong side.
    assert verify(made, convert(model(place, "SAME_LOWER", strides))).status == "failed"


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
    assert result.first_difference is not None and "'conv'" in result.first_difference.name


def test_what_nobody_put_right_is_not_run() -> None:
    result = verify(model("main"), model("main"))
    assert result.evidence == "proven"
    assert "both models have the same nodes; not run: onnxruntime cannot run" in result.message


QUANTISED = """g (uint8[2,2,H,W] x) => (uint8[2,3,P,Q] y)
    <float s = {0.5}, uint8 z = {9}, float t = {4}, uint8 o = {100}, uint8[3,2,3,2] w = {VALUES}>
    { [conv] y = QLinearConv<auto_pad = "SAME_UPPER", dilations = [2, 3], strides = [2, 1]>
          (x, s, z, w, s, z, t, o) }"""


def test_whole_numbers_are_padded_with_their_zero() -> None:
    made = parser.parse_model(HEAD + QUANTISED.replace("VALUES", ", ".join(map(str, range(36)))))
    right = convert(made)
    assert verify(made, right), verify(made, right).message
    wrong = onnx.ModelProto()
    wrong.CopyFrom(right)
    (pad,) = (n for n in wrong.graph.node if n.op_type == "Pad")
    del pad.input[2]
    assert verify(made, wrong).status == "failed"
