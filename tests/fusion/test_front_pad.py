"""A SpaceToBatch takes in the Pad of zeros in front of it, if nothing else needs the Pad."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import structure
from onnx import helper, numpy_helper, parser

import onnx_spatial

TF = "ai.onnx.converters.tensorflow"
#: The remainder of the size behind the Pad, as paddings and crops.
COMPUTED = """
    shape = Shape(p) size = Slice(shape, one, two) extra = Mod(size, three) back = Neg(extra)
    fill = Mod(back, three) both = Concat <axis = 0> (none, fill) pads = Unsqueeze(both, none)
"""
CONV = "f = Transpose <perm = [0, 2, 1]> (s) v = Conv(f, w) c = Transpose <perm = [0, 2, 1]> (v)"
ARRAYS = {
    "past": np.array([0, 4, 0, 0, 1, 0]),
    "short": np.array([4, 1]),
    "along": np.array([-2]),
    "channels": np.array([0, 4, 0, 0, 1, 1]),
    "less": np.array([0, 4, 0, 0, -1, 0]),
    "number": np.array(2, np.float32),
    "minus": np.array(-0.0, np.float32),
    "block": np.array([3]),
    "none": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "zeros": np.array([[0, 0]]),
    "w": np.random.default_rng(1).normal(size=(2, 2, 2)).astype(np.float32),
    "of_three": np.ones((2, 3, 2), np.float32),
}


def model(
    pad: str = "p = Pad(x, past)",
    body: str = CONV,
    *,
    given: str = "",
    behind: str = "",
    outputs: str = "float[N, M, 2] y",
    opset: int = 18,
) -> onnx.ModelProto:
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "{TF}" : 1]>\n'
        f"g (float[N, L, 2] x{given}) => ({outputs}) {{ {pad} {COMPUTED}"
        f" s = {TF}.SpaceToBatchND(p, block, pads) {body}"
        f" y = {TF}.BatchToSpaceND(c, block, pads) {behind} }}"
    )
    read = {name for node in made.graph.node for name in node.input}
    tensors = [numpy_helper.from_array(a, n) for n, a in ARRAYS.items() if n in read]
    made.graph.initializer.extend(tensors)
    return made


def readers_of_x(model: onnx.ModelProto) -> list[str]:
    return [node.output[0] for node in model.graph.node if "x" in node.input]


@pytest.mark.parametrize(
    "pad",
    ["p = Pad(x, past)", "p = Pad(x, short, , along)"],
    ids=["all axes", "some axes"],
)
def test_a_pad_becomes_pads_of_the_convolution(pad):
    result = onnx_spatial.convert(model(pad))
    assert structure.ops(result.model) == ["Transpose", "Conv", "Transpose"]
    assert result.verification
    (conv,) = (node for node in result.model.graph.node if node.op_type == "Conv")
    known = {a.name: helper.get_attribute_value(a) for a in conv.attribute}
    assert (known["dilations"], known["pads"]) == ([3], [4, 1])


def test_an_old_pad_has_its_amounts_in_an_attribute():
    made = model("p = Pad <pads = [0, 4, 0, 0, 1, 0]> (x)", opset=10)
    for node in [n for n in made.graph.node if n.op_type == "Unsqueeze"]:
        del node.input[1:]
        node.attribute.append(helper.make_attribute("axes", [0]))
    result = onnx_spatial.convert(made)
    assert structure.ops(result.model) == ["Transpose", "Conv", "Transpose"]
    assert result.verification


def test_two_regions_share_a_pad():
    again = f"""
        u = {TF}.SpaceToBatchND(p, block, pads) g = Transpose <perm = [0, 2, 1]> (u)
        e = Conv(g, w) d = Transpose <perm = [0, 2, 1]> (e) z = {TF}.BatchToSpaceND(d, block, pads)
    """
    result = onnx_spatial.convert(model(behind=again, outputs="float[N, M, 2] y, float[N, O, 2] z"))
    assert result.verification
    assert "Pad" not in structure.ops(result.model)


def test_a_pad_moves_behind_what_keeps_zeros():
    """There is no convolution to take it, and still only one Pad."""
    result = onnx_spatial.convert(model(body="r = Relu(s) c = Abs(r)"))
    assert result.verification
    assert sorted(structure.ops(result.model)) == ["Abs", "Pad", "Relu"]


@pytest.mark.parametrize(
    "changes",
    [
        {"pad": "p = Pad(x, past, number)"},
        {"pad": "p = Pad(x, past, minus)"},
        {"pad": 'p = Pad <mode = "edge"> (x, past)'},
        {"pad": "p = Pad(x, channels)", "body": CONV.replace("w)", "of_three)")},
        {"pad": "p = Pad(x, less)"},
        {"given": ", int64[6] past"},
        {"behind": "z = Neg(p)", "outputs": "float[N, M, 2] y, float[N, O, 2] z"},
        {
            "behind": f"q = Neg(p) u = {TF}.SpaceToBatchND(q, block, pads) a = Abs(u) "
            f"z = {TF}.BatchToSpaceND(a, block, pads)",
            "outputs": "float[N, M, 2] y, float[N, O, 2] z",
        },
        {"outputs": "float[N, M, 2] y, float[N, O, 2] p"},
    ],
    ids=str,
)
def test_a_pad_stays(changes):
    made = model(**changes)
    overridable = [value.name for value in made.graph.input if value.name == "past"]
    result = onnx_spatial.convert(made, verify=not overridable)
    assert readers_of_x(result.model) == ["p"]
    assert "dilated convolution" in {site.lowering for site in result.operators}


def test_a_pad_whose_size_is_read_stays_for_that():
    """The crop is computed from the size behind the Pad, and does not cancel."""
    made = model()
    (leave,) = (node for node in made.graph.node if node.op_type == "BatchToSpaceND")
    leave.input[2] = "crops"
    made.graph.node.remove(leave)
    made.graph.node.extend(
        [
            helper.make_node("Concat", ["extra", "fill"], ["ends"], axis=0),
            helper.make_node("Unsqueeze", ["ends", "none"], ["crops"]),
            leave,
        ]
    )
    result = onnx_spatial.convert(made)
    assert result.verification
    assert "dilated convolution" in {site.lowering for site in result.operators}
    assert "p" in readers_of_x(result.model)
