"""The maximum or mean of each patch is one pool, wherever that is the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import structure
from adapter import convert, plan
from onnx import numpy_helper, parser

import onnx_spatial

WINDOW = "ksizes = [1, 3, 2, 1], strides = [1, 2, 1, 1]"


def model(
    reduce: str,
    target: list[int],
    axes: list[int],
    *,
    window: str = WINDOW,
    rates: str = "[1, 1, 1, 1]",
    padding: str = "VALID",
    given: str = "",
    opset: int = 19,
) -> onnx.ModelProto:
    given = given or f"{'uint8' if reduce.startswith('ReduceMax') else 'float'}[N, 9, 10, 3] x"
    known = f'{window}, rates = {rates}, padding = "{padding}"'
    element_type = given.split("[")[0]
    made = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
        f"g ({given}) => ({element_type} y) {{ p = com.microsoft.ExtractImagePatches <{known}> (x)"
        f" r = Reshape(p, target) [reduce] y = {reduce} (r, axes) }}"
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    for name, values in (("target", target), ("axes", axes)):
        made.graph.initializer.append(numpy_helper.from_array(np.array(values), name))
    return made


@pytest.mark.parametrize(
    ("reduce", "target", "axes", "ops"),
    [
        ("ReduceMax <keepdims = 0>", [0, 0, 0, 6, 3], [3], ["MaxPool", "Transpose"]),
        ("ReduceMax <keepdims = 0>", [-1, 4, 9, 3, 2, 3], [4, 3], ["MaxPool", "Transpose"]),
        ("ReduceMax", [0, 0, 0, -1, 3], [-2], ["MaxPool", "Transpose", "Unsqueeze"]),
        ("ReduceMean <keepdims = 0>", [0, 0, 0, 6, 3], [3], ["AveragePool", "Transpose"]),
    ],
)
def test_one_pool(reduce, target, axes, ops):
    made = model(reduce, target, axes, opset=18)
    result = onnx_spatial.convert(made)
    assert result.verification
    assert structure.ops(result.model) == ["Transpose", *ops]
    (site,) = result.inspection.sites
    assert site.strategy == "pool"
    assert [n.name for n in result.model.graph.node if "Pool" in n.op_type] == ["reduce"]


def test_a_mean_counts_the_zeros_of_the_padding():
    made = model(
        "ReduceMean <keepdims = 0>",
        [0, 0, 0, 6, 3],
        [3],
        window="ksizes = [1, 3, 2, 1], strides = [1, 1, 1, 1]",
        rates="[1, 2, 1, 1]",
        padding="SAME",
    )
    result = onnx_spatial.convert(made)
    assert result.verification
    (pool,) = [n for n in result.model.graph.node if n.op_type == "AveragePool"]
    known = {a.name: onnx.helper.get_attribute_value(a) for a in pool.attribute}
    assert (known["dilations"], known["pads"]) == ([2, 1], [2, 0, 2, 1])
    assert known["count_include_pad"] == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"padding": "SAME"}, "MaxPool pads with minus infinity"),
        ({"target": [0, 0, 0, 3, 6]}, "does not split the channels into places and channels"),
        ({"axes": [4]}, "does not reduce the places of the windows"),
        ({"given": "uint8[N, H, W, 3] x"}, "the sizes of the image are not known"),
        ({"given": "float[N, 9, 10, 3] x"}, "the same numbers, NaN too, only for int8, uint8"),
        ({"opset": 11}, "no integers before opset 12"),
        (
            {
                "reduce": "ReduceMean",
                "rates": "[1, 2, 1, 1]",
                "opset": 18,
                "target": [0, 0, 0, 6, 3],
            },
            "AveragePool has no dilations before opset 19",
        ),
    ],
)
def test_why_not(changes, reason):
    made = model(**{"reduce": "ReduceMax", "target": [0, 0, 0, 6, 3], "axes": [3], **changes})
    (site,) = plan(made).operators
    assert site.lowering != "pool"
    assert reason in "; ".join(site.declined)


def test_a_pool_behind_a_pad():
    """onnxruntime would merge the Pad into the pads, which are minus infinity."""
    made = model("ReduceMax <keepdims = 0>", [0, 0, 0, 6, 3], [3], given="uint8[N, 3, 7, 8] x")
    turn = onnx.helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 3, 1])
    pad = onnx.helper.make_node("Pad", ["turned", "around"], ["padded"])
    made.graph.node[0].input[0] = "padded"
    made.graph.node.insert(0, pad)
    made.graph.node.insert(0, turn)
    around = np.array([0, 1, 1, 0, 0, 1, 1, 0])
    made.graph.initializer.append(numpy_helper.from_array(around, "around"))
    ops = structure.ops(convert(made))
    assert ops[:3] == ["Pad", "Reshape", "MaxPool"]
