"""A pool in blocks is a dilated pool, and a ConvTranspose with stride 1 a dilated one."""

from __future__ import annotations

import interpreter
import numpy as np
import onnx
import pytest
import running
import structure
from converting import convert, plan
from onnx import numpy_helper, parser

import onnx_spatial

TF = "ai.onnx.converters.tensorflow"
RNG = np.random.default_rng(4)
#: Paddings that make whole blocks, and crops that take them off again.
EVEN = {"pads": [[0, 0], [0, 0]], "crops": [[0, 0], [0, 0]]}
FILLED = {"pads": [[0, 1], [0, 0]], "crops": [[0, 1], [0, 0]]}
#: Zeros all around.
AROUND = {"pads": [[2, 2], [2, 2]], "crops": [[0, 0], [0, 0]]}


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
    assert {site.proven for site in result.verification.sites} == {"all sizes"}
    feeds = {"x": -np.abs(RNG.normal(size=shape)).astype(np.float32) - 1}
    wanted = interpreter.run(made, feeds)["y"]
    for level in running.LEVELS:
        (y,) = running.run_session(running.session(result.model, level), feeds)
        assert interpreter.difference(y, wanted) is None
    assert structure.ops(result.model) == ["Transpose", made.graph.node[2].op_type, "Transpose"]
    (node,) = [n for n in result.model.graph.node if n.name == "node"]
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def declined(made: onnx.ModelProto) -> str:
    return "; ".join(d for site in plan(made).sites for d in site.declined)


@pytest.mark.parametrize(
    ("op_type", "opset"), [("MaxPool", 13), ("AveragePool", 19), ("LpPool", 18)]
)
def test_a_pool_in_blocks_is_a_dilated_pool(op_type, opset):
    made = model(f"{op_type} <kernel_shape = [3, 2]> (t)", opset, **FILLED)
    found = fused(made, 2, 9, 6, 3)
    assert found["dilations"] == [2, 2]
    assert not any(found["pads"])


@pytest.mark.parametrize(
    ("sizes", "element_type", "slow"),
    [
        ("N,64,64,3", "float", True),
        ("N,16,16,3", "float", True),
        ("16,8,8,3", "float", True),
        ("N,64,64,32", "float", False),
        ("N,8,8,3", "float", False),
        ("N,H,W,3", "float", False),
        ("N,64,64,3", "uint8", False),
    ],
)
def test_a_slow_pool_stays_in_blocks(sizes, element_type, slow):
    made = model("MaxPool <kernel_shape = [3, 3]> (t)", **EVEN)
    text = onnx.printer.to_text(made).replace("float[N,H,W,3]", f"{element_type}[{sizes}]")
    made = parser.parse_model(text.replace("(float[?,?,?,?] y)", f"({element_type}[?,?,?,?] y)"))
    assert ("is slow for other channels than multiples of 16" in declined(made)) == slow
    assert ("dilated convolution" in {site.strategy for site in plan(made).sites}) == (not slow)


def test_before_an_operator_has_dilations_it_stays():
    made = model("LpPool <kernel_shape = [3, 2]> (t)", 17, **EVEN)
    assert "LpPool has no dilations before opset 18" in declined(made)
    one = "LpPool <kernel_shape = [1, 1]> (t)"  # which needs none
    assert structure.spatial(convert(model(one, 17, **EVEN))) == []


def test_before_an_average_has_dilations_it_is_a_depthwise_conv():
    made = model("AveragePool <kernel_shape = [3, 2]> (t)", 18, **FILLED)
    result = onnx_spatial.convert(made)
    assert result.verification
    assert {site.proven for site in result.verification.sites} == {"all sizes"}
    assert structure.ops(result.model) == ["Transpose", "Conv", "Transpose"]
    (node,) = [n for n in result.model.graph.node if n.name == "node"]
    known = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (known["group"], known["dilations"], known["strides"]) == (3, [2, 2], [1, 1])
    made.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "C"
    assert "AveragePool has no dilations before opset 19" in declined(made)


def test_pads_of_a_pool_grow_with_the_block():
    found = fused(
        model("MaxPool <kernel_shape = [3, 3], pads = [1, 0, 0, 1]> (t)", **EVEN), 1, 8, 8, 3
    )
    assert (found["dilations"], found["pads"]) == ([2, 2], [2, 0, 0, 2])
    same = 'MaxPool <kernel_shape = [3, 3], auto_pad = "SAME_UPPER"> (t)'
    found = fused(model(same, **EVEN), 1, 8, 8, 3)
    assert (found["pads"], found.get("auto_pad")) == ([2, 2, 2, 2], None)


def test_average_counts_the_zeros_of_space_to_batch():
    found = fused(model("AveragePool <kernel_shape = [3, 3]> (t)", **AROUND), 1, 8, 8, 3)
    assert (found["pads"], found["count_include_pad"]) == ([2, 2, 2, 2], 1)


def test_average_leaves_its_own_pads_out():
    made = model("AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (t)", **EVEN)
    found = fused(made, 1, 8, 8, 3)
    assert (found["pads"], found.get("count_include_pad", 0)) == ([2, 2, 2, 2], 0)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("MaxPool <kernel_shape = [2, 2], strides = [2, 1]> (t)", "stride 2 on a blocked axis"),
        (
            'MaxPool <kernel_shape = [2, 2], dilations = [2, 1], auto_pad = "SAME_LOWER"> (t)',
            "runtimes disagree on auto_pad",
        ),
    ],
)
def test_a_pool_that_no_dilated_pool_is_stays(node, reason):
    made = model(node, **AROUND)
    assert reason in declined(made)
    assert onnx_spatial.convert(made).verification


@pytest.mark.parametrize(
    "node",
    [
        "MaxPool <kernel_shape = [2, 2]> (t)",  # pads with minus infinity
        "AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (t)",  # leaves its pads out
        "AveragePool <kernel_shape = [2, 2]> (t)",  # takes no pads as large as its kernel
    ],
)
def test_zeros_that_a_pool_cannot_pad_with_stay_a_pad(node):
    made = model(node, **AROUND)
    assert apart(made, 1, 8, 8, 3) == ["Transpose", "Pad", "Reshape", made.graph.node[2].op_type]


def test_large_pads_of_a_maximum_are_minus_infinity():
    """onnxruntime refuses pads as large as the kernel."""
    made = model("MaxPool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (t)", **EVEN)
    result = onnx_spatial.convert(made)
    assert result.verification
    assert structure.ops(result.model) == ["Transpose", "Pad", "MaxPool", "Transpose"]


def test_places_of_maxima_stay():
    made = model("MaxPool <kernel_shape = [2, 2]> (t)", **EVEN)
    made.graph.node[2].output.append("places")
    made.graph.output.append(onnx.helper.make_tensor_value_info("places", 7, [None] * 4))
    assert "gives the places of its maxima" in declined(made)


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


def padded(op_type: str, kernel: int, number: float) -> onnx.ModelProto:
    """A Pad, and a pool in blocks."""
    made = model(f"{op_type} <kernel_shape = [{kernel}, {kernel}]> (t)", **EVEN)
    made.graph.node[0].input[0] = "padded"
    pad = onnx.helper.make_node("Pad", ["x", "around", "number"], ["padded"])
    made.graph.node.insert(0, pad)
    tables = {"around": np.array([0, 1, 1, 0, 0, 1, 1, 0]), "number": np.float32(number)}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.array(a), n) for n, a in tables.items()
    )
    return made


@pytest.mark.parametrize(
    ("op_type", "kernel", "ops"),
    [
        ("MaxPool", 1, ["MaxPool", "Transpose", "Pad"]),
        ("AveragePool", 1, ["AveragePool", "Transpose", "Pad"]),
        ("AveragePool", 2, ["AveragePool", "Transpose"]),
    ],
)
def test_a_pad_of_zeros_counts_as_paddings(op_type, kernel, ops):
    result = onnx_spatial.convert(padded(op_type, kernel, 0))
    assert [node.op_type for node in result.model.graph.node] == ["Transpose", *ops]
    assert result.verification


def padded_planes(op_type: str, kernel: int) -> onnx.ModelProto:
    """A Pad of zeros in channels-first layout, and a pool in blocks."""
    made = padded(op_type, kernel, 0)
    first = onnx.helper.make_node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2])
    back = onnx.helper.make_node("Transpose", ["wide"], ["padded"], perm=[0, 2, 3, 1])
    pad, around = made.graph.node[0], made.graph.initializer[-2]
    pad.input[0], pad.output[0] = "first", "wide"
    around.CopyFrom(numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "around"))
    made.graph.node.insert(1, back)
    made.graph.node.insert(0, first)
    return made


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("kernel", [1, 2])
def test_a_pad_of_the_model_is_not_merged_into_a_fused_pool(op_type, kernel):
    made = padded_planes(op_type, kernel)
    assert apart(made, 1, 8, 8, 3) == ["Transpose", "Pad", "Reshape", op_type]


def test_a_pad_is_not_merged_across_a_cast():
    made = padded_planes("MaxPool", 2)
    at = next(i for i, node in enumerate(made.graph.node) if node.op_type == "MaxPool")
    pool = made.graph.node[at]
    before = onnx.helper.make_node("Cast", [pool.input[0]], ["small"], to=onnx.TensorProto.INT8)
    behind = onnx.helper.make_node("Cast", ["places"], [pool.output[0]], to=onnx.TensorProto.FLOAT)
    pool.input[0], pool.output[0] = "small", "places"
    made.graph.node.insert(at, before)
    made.graph.node.insert(at + 2, behind)
    assert apart(made, 1, 8, 8, 3) == ["Transpose", "Pad", "Cast", "Reshape", "MaxPool"]


def test_a_pad_of_a_region_is_not_merged_into_a_pool_behind():
    made = model("Relu(t)", **AROUND)
    turned = onnx.helper.make_node("Transpose", ["y"], ["turned"], perm=[0, 3, 1, 2])
    pooled = onnx.helper.make_node(
        "MaxPool", ["turned"], ["pooled"], kernel_shape=[2, 2], pads=[0, 0, 0, 0]
    )
    made.graph.node.extend([turned, pooled])
    made.graph.output[0].name = "pooled"
    assert apart(made, 1, 8, 8, 3)[-2:] == ["Reshape", "MaxPool"]


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_a_pad_of_a_region_is_not_merged_into_the_pool_of_another(op_type):
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 22, "{TF}" : 1]>\n'
        f"g (float[N,3,H,W] x) => (float[?,?,?,?] y) {{"
        f"a = {TF}.SpaceToBatchND(x, block, pads) b = Relu(a)"
        f"c = {TF}.BatchToSpaceND(b, block, none) d = {TF}.SpaceToBatchND(c, block, none)"
        f"e = {op_type} <kernel_shape = [2, 2]> (d) y = {TF}.BatchToSpaceND(e, block, none) }}"
    )
    tables = {"block": [1, 2, 2], "pads": [[0, 0], [2, 2], [2, 2]], "none": [[0, 0]] * 3}
    tensors = [numpy_helper.from_array(np.array(t, np.int64), n) for n, t in tables.items()]
    made.graph.initializer.extend(tensors)
    assert apart(made, 1, 3, 8, 8)[-2:] == ["Reshape", op_type]


def apart(made: onnx.ModelProto, *shape: int) -> list[str]:
    """The nodes up to the pool in the converted model, which gives what it should."""
    result = onnx_spatial.convert(made)
    assert result.verification
    feeds = {"x": -np.abs(RNG.normal(size=shape)).astype(np.float32) - 1}
    wanted = interpreter.run(made, feeds)[made.graph.output[0].name]
    for level in running.LEVELS:
        (y,) = running.run_session(running.session(result.model, level), feeds)
        assert interpreter.difference(y, wanted) is None
    ops = structure.ops(result.model)
    return ops[: ops.index(next(op for op in ops if op.endswith("Pool"))) + 1]
