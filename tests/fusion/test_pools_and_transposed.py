"""A pool in blocks stays one; a ConvTranspose with stride 1 in blocks is a dilated one."""

from __future__ import annotations

import interpreter
import numpy as np
import onnx
import pytest
import running
import structure
from adapter import plan
from onnx import numpy_helper, parser

import onnx_spatial

TF = "ai.onnx.converters.tensorflow"
RNG = np.random.default_rng(4)
#: Paddings that make whole blocks, and crops that take them off again.
EVEN = {"pads": [[0, 0], [0, 0]], "crops": [[0, 0], [0, 0]]}
FILLED = {"pads": [[0, 1], [0, 0]], "crops": [[0, 1], [0, 0]]}
#: Zeros all around.
AROUND = {"pads": [[2, 2], [2, 2]], "crops": [[0, 0], [0, 0]]}
POOLS = ("AveragePool", "LpPool", "MaxPool")


def model(node: str, opset: int = 22, **tables: object) -> onnx.ModelProto:
    """SpaceToBatch, a node in channels-first layout, BatchToSpace."""
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "{TF}" : 1]>\n'
        f"g (float[N,H,W,3] x) => (float[?,?,?,?] y) {{"
        f"s = {TF}.SpaceToBatchND(x, block, pads) t = Transpose <perm = [0, 3, 1, 2]> (s)"
        f"[node] c = {node}"
        f"b = Transpose <perm = [0, 2, 3, 1]> (c) y = {TF}.BatchToSpaceND(b, block, crops) }}"
    )
    kernel, bias = RNG.normal(size=(3, 2, 3, 2)), RNG.normal(size=2)
    arrays = {"w": kernel.astype(np.float32), "bias": bias.astype(np.float32)}
    arrays |= {n: np.array(t, np.int64) for n, t in {"block": [2, 2], **tables}.items()}
    read = {name for n in made.graph.node for name in n.input}
    tensors = [numpy_helper.from_array(a, n) for n, a in arrays.items() if n in read]
    made.graph.initializer.extend(tensors)
    return made


def fused(made: onnx.ModelProto, *shape: int) -> dict[str, object]:
    """The attributes of the node in the converted model, which is proven and gives what it should."""
    result = onnx_spatial.convert(made)
    assert result.verification
    assert {site.proven for site in result.verification.operators} == {"all sizes"}
    feeds = {"x": -np.abs(RNG.normal(size=shape)).astype(np.float32) - 1}
    wanted = interpreter.run(made, feeds)["y"]
    for level in running.LEVELS:
        (y,) = running.run_session(running.session(result.model, level), feeds)
        assert interpreter.difference(y, wanted) is None
    assert structure.ops(result.model) == ["Transpose", made.graph.node[2].op_type, "Transpose"]
    (node,) = [n for n in result.model.graph.node if n.name == "node"]
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def declined(made: onnx.ModelProto) -> str:
    return "; ".join(d for site in plan(made).operators for d in site.declined)


def check(made: onnx.ModelProto, *shape: int) -> list[str]:
    """The nodes of the converted model, which gives what Python operators give, also for NaN."""
    result = onnx_spatial.convert(made)
    assert result.verification
    original = onnx_spatial.InferenceSession(model=made, mode="custom-op")
    data = -np.abs(RNG.normal(size=shape)).astype(np.float32) - 1
    for x in (data, np.where(RNG.random(shape) < 0.05, np.float32(np.nan), data)):
        (wanted,) = original.run(None, {"x": x})
        for level in running.LEVELS:
            (y,) = running.run_session(running.session(result.model, level), {"x": x})
            np.testing.assert_array_equal(y, wanted)
    return structure.ops(result.model)


@pytest.mark.parametrize("optimized", [False, True], ids=["convert", "optimize"])
@pytest.mark.parametrize("tables", [EVEN, FILLED, AROUND], ids=["even", "filled", "around"])
@pytest.mark.parametrize("op_type", POOLS)
def test_a_pool_in_blocks_stays_in_blocks(op_type, tables, optimized):
    """A dilated MaxPool of onnxruntime loses NaN in other places, and finite values with them."""
    made = model(f"{op_type} <kernel_shape = [3, 2]> (t)", **tables)
    run = onnx_spatial.optimize if optimized else onnx_spatial.convert
    result = run(made)
    assert result.verification
    (pool,) = [n for n in result.model.graph.node if n.op_type == op_type]
    assert "dilations" not in {a.name for a in pool.attribute}


@pytest.mark.parametrize("tables", [EVEN, AROUND], ids=["even", "around"])
def test_a_maximum_in_blocks_keeps_nan_where_it_is(tables):
    check(model("MaxPool <kernel_shape = [3, 3]> (t)", **tables), 2, 8, 8, 3)


@pytest.mark.parametrize("op_type", POOLS)
def test_a_pool_that_stays_says_why(op_type):
    made = model(f"{op_type} <kernel_shape = [2, 2]> (t)", **EVEN)
    assert f"runtimes compute {op_type} with dilations otherwise" in declined(made)


@pytest.mark.parametrize(
    ("attributes", "tables", "pads"),
    [
        ("group = 1", FILLED, [0, 0, 0, 0]),
        ("pads = [1, 0, 0, 1]", EVEN, [2, 0, 0, 2]),
        ("dilations = [2, 1]", EVEN, [0, 0, 0, 0]),
        # tf.nn.atrous_conv2d_transpose, SAME
        ("group = 1", {"pads": [[0, 1], [0, 0]], "crops": [[2, 3], [1, 1]]}, [2, 1, 2, 1]),
    ],
)
def test_conv_transpose_in_blocks_is_dilated(attributes, tables, pads):
    made = model(f"ConvTranspose <{attributes}> (t, w, bias)", **tables)
    found = fused(made, 1, 8 if tables is EVEN else 9, 6, 3)
    assert found["pads"] == pads
    assert found["dilations"] == ([4, 2] if "dilations" in attributes else [2, 2])


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("strides = [2, 1]", "which spreads the input"),
        ("output_shape = [9, 9]", "output_shape or output_padding"),
        ("pads = [3, 0, 0, 0]", "pads larger than its kernel"),
    ],
)
def test_other_transposed_convolutions_stay(attributes, reason):
    assert reason in declined(model(f"ConvTranspose <{attributes}> (t, w)", **EVEN))


def test_a_pad_of_a_region_is_not_merged_into_a_pool_behind():
    made = model("Relu(t)", **AROUND)
    turned = onnx.helper.make_node("Transpose", ["y"], ["turned"], perm=[0, 3, 1, 2])
    pooled = onnx.helper.make_node(
        "MaxPool", ["turned"], ["pooled"], kernel_shape=[2, 2], pads=[0, 0, 0, 0]
    )
    made.graph.node.extend([turned, pooled])
    made.graph.output[0].name = "pooled"
    assert check(made, 1, 8, 8, 3)[-2:] == ["Reshape", "MaxPool"]
