"""auto_pad SAME with dilations, which onnxruntime refuses to run, becomes explicit pads.

onnx's evaluator runs the original and says what is right.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import running
from adapter import convert, plan
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator

import onnx_spatial

HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>\n'


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(shape)
    if dtype is np.uint8:
        return rng.integers(0, 255, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def agree(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Convert a model, and compare it with the original in onnx's evaluator; return the result."""
    converted = convert(made)
    with pytest.raises(Exception, match="Dilation not supported for AutoPadType"):
        running.run(made, feeds[0])
    for each in feeds:
        (want,) = ReferenceEvaluator(made).run(None, each)
        for level in running.LEVELS:
            (got,) = running.run(converted, each, level)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    return converted


def conv(rank: int, declared: str, kernel: str, attributes: str) -> onnx.ModelProto:
    """One convolution of a given weight."""
    size = int(np.prod([int(n) for n in kernel.split(",")]))
    values = ", ".join(str(n % 7 - 3) for n in range(size))
    return model(f"""g (float[{declared}] x) => (float[{", ".join("ABCDE"[:rank])}] y)
        <float[{kernel}] w = {{{values}}}> {{ [site] y = Conv<{attributes}>(x, w) }}""")


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("kernel", "attributes", "sizes"),
    [
        ("4,2,2,3", "dilations = [3, 2], strides = [1, 1]", [(7, 9), (1, 2)]),
        ("4,2,3,2", "dilations = [2, 3], strides = [2, 1]", [(7, 9), (8, 5), (1, 2)]),
        ("4,2,4", "dilations = [2], strides = [2]", [(9,), (4,)]),
        ("4,2,4,3,2", "dilations = [2, 3, 2], strides = [2, 1, 3]", [(9, 6, 7), (4, 5, 8)]),
    ],
)
def test_kernels_dilations_and_strides(kernel, attributes, sizes, auto_pad, known):
    rank = kernel.count(",") + 1
    declared = [1, 2, *sizes[0]] if known else ["N", 2, *"HWD"[: rank - 2]]
    text = f'auto_pad = "{auto_pad}", {attributes}'
    made = conv(rank, ", ".join(map(str, declared)), kernel, text)
    feeds = [{"x": numbers(1, 2, *size)} for size in (sizes[:1] if known else sizes)]
    converted = agree(made, *feeds)
    is_computed = not known and "strides = [1, 1]" not in attributes
    assert ("Pad" in {n.op_type for n in converted.graph.node}) == is_computed


@pytest.mark.parametrize(
    ("result", "node", "shape"),
    [
        ("int32", "y = ConvInteger<ATTRIBUTES>(x, w, z)", "2, 2, 8, 7"),
        ("uint8", "y = QLinearConv<ATTRIBUTES>(x, s, z, w, s, o, s, z)", "N, 2, H, W"),
    ],
)
def test_quantised_data_is_padded_with_its_zero_point(result, node, shape):
    values = ", ".join(str(i % 11) for i in range(24))
    attributes = 'auto_pad = "SAME_LOWER", dilations = [2, 3], strides = [2, 2]'
    made = model(f"""g (uint8[{shape}] x) => ({result}[N2,2,P,Q] y)
        <float s = {{0.5}}, uint8 z = {{7}}, uint8 o = {{3}}, uint8[2,2,3,2] w = {{{values}}}>
        {{ {node.replace("ATTRIBUTES", attributes)} }}""")
    result = onnx_spatial.convert(made)
    assert result.verification.evidence == "proven"
    zeros = np.full((2, 2, 8, 7), 7, np.uint8)  # the zero point everywhere: so is what is padded
    (got,) = running.run(result.model, {"x": zeros})
    assert len(np.unique(got)) == 1


@pytest.mark.parametrize(("opset", "kind"), [(7, "float16"), (18, "float")])
def test_opsets_and_half_precision(opset, kind):
    sizes = "H, W" if opset >= 11 else "7, 6"
    text = f"""<ir_version: {running.ir_version_of(opset)}, opset_import: ["" : {opset}]>
        g ({kind}[1,2,{sizes}] x, {kind}[3,2,2,3] w) => ({kind}[1,3,P,Q] y) {{
            y = Conv<auto_pad = "SAME_UPPER", dilations = [2, 3], strides = [2, 2]>(x, w) }}"""
    made = parser.parse_model(text)
    dtype = np.float16 if kind == "float16" else np.float32
    feeds = {"x": numbers(1, 2, 7, 6).astype(dtype), "w": numbers(3, 2, 2, 3).astype(dtype)}
    (got,) = running.run(convert(made), feeds)
    (want,) = ReferenceEvaluator(made).run(None, feeds)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


def test_in_a_branch():
    made = model("""g (bool b, float[1,1,H,W] x) => (float[1,1,P,Q] y)
        <float[1,1,2,2] w = {1, 2, 3, 4}> {
            y = If (b) <
                then_branch = yes () => (float[1,1,A,B] t) {
                    [inner] t = Conv<auto_pad = "SAME_UPPER", dilations = [3, 3],
                                     strides = [2, 2]>(x, w)
                },
                else_branch = no () => (float[1,1,A,B] e) { e = Relu(x) }>
        }""")
    (site,) = plan(made).operators
    assert (site.node, site.graph) == ("inner", "main graph > If y.then_branch")
    agree(made, *({"b": np.array(b), "x": numbers(1, 1, 5, 3)} for b in (True, False)))


FUNCTION = """g (float[1,1,H,W] x) => (float[1,1,P,Q] y)
   <float[1,1,2,3] w = {1, 2, 3, 4, 5, 6}, float[1,1,3,3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
{ a = local.Block CALL (x, w)   y = local.Block CALL (a, OTHER) }
<domain: "local", opset_import: ["" : 17]> Block PARAMETERS (data, kernel) => (result)
{ [body] c = Conv<ATTRIBUTES>(data, kernel)  result = Relu(c) }"""


def block(
    attributes: str, call: str = "", parameters: str = "", other: str = "w"
) -> onnx.ModelProto:
    text = FUNCTION.replace("CALL", call).replace("PARAMETERS", parameters)
    return model(text.replace("ATTRIBUTES", attributes).replace("OTHER", other))


@pytest.mark.parametrize(("stride", "other"), [(1, "w"), (1, "v"), (2, "w")])
def test_in_a_function(stride, other):
    attributes = f'auto_pad = "SAME_UPPER", dilations = [2, 2], strides = [{stride}, {stride}]'
    made = block(attributes, other=other)
    (site,) = plan(made).operators
    assert (site.node, site.graph) == ("body", "function local:Block")
    converted = agree(made, *({"x": numbers(1, 1, *size)} for size in [(9, 8), (5, 6)]))
    (function,) = converted.functions
    static = stride == 1 and other == "w"  # what the calls agree on is known
    assert ("Pad" not in {n.op_type for n in function.node}) == static
    names = {a.name for n in function.node if n.op_type == "Conv" for a in n.attribute}
    assert names == {"pads", "dilations", "strides"}  # and no mark of the look at the function
    assert onnx_spatial.verify(made, converted)


REFERENCES = 'auto_pad = "SAME_UPPER", dilations: ints = @rates'


def test_attributes_of_a_function_that_its_callers_do_not_agree_on_are_left():
    made = block(REFERENCES, "<rates = [2, 2]>", "<rates>")
    made.graph.node[1].attribute[0].ints[:] = [3, 3]
    found = plan(made)
    (site,) = found.operators
    assert (site.action, site.lowering) == ("leave", None)
    assert site.reason is not None and "attribute dilations" in site.reason
    assert found.model is None
    verification = onnx_spatial.verify(made, made)
    assert verification and "not run: onnxruntime cannot run what is left" in verification.message


@pytest.mark.parametrize(
    "attributes",
    [
        'auto_pad = "SAME_UPPER"',
        'auto_pad = "VALID", dilations = [2, 2]',
        'auto_pad = "NOTSET", dilations = [2, 2], pads = [1, 1, 1, 1]',
    ],
)
def test_what_onnxruntime_runs_is_left_alone(attributes: str):
    made = model(f"""g (float[1,1,9,9] x) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {{1, 2, 3, 4}}>
        {{ y = Conv<{attributes}>(x, w) }}""")
    found = plan(made)
    assert found.operators == [] and found.model is None


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("dilations = [2, 2], pads = [0, 0, 0, 0]", "has both auto_pad and pads"),
        ("dilations = [2, 0]", "strides and dilations must be at least 1"),
        ("dilations = [9223372036854775807, 2], kernel_shape = [4, 2]", "overflow 64-bit integers"),
    ],
)
def test_what_contradicts_itself_is_left_with_the_reason(attributes: str, reason: str):
    made = model(f"""g (float[1,1,9,9] x) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {{1, 2, 3, 4}}>
        {{ y = Conv<auto_pad = "SAME_UPPER", {attributes}>(x, w) }}""")
    found = plan(made)
    (site,) = found.operators
    assert site.action == "leave" and site.reason is not None and reason in site.reason
    assert found.model is None


def test_a_pad_that_is_computed_needs_opset_11():
    attributes = 'auto_pad = "SAME_UPPER", dilations = [2, 2], strides = [2, 2]'
    made = conv(4, "1, 1, H, W", "1,1,3,3", attributes)
    made.opset_import[0].version = 9
    (site,) = plan(made).operators
    assert site.action == "leave" and site.reason is not None and "opset 11" in site.reason


def test_everything_else_of_the_node_stays():
    made = model("""g (float[1,2,H,W] x) => (float[1,1,P,Q] y)
        <float[1,2,2,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[1] b = {9}> {
        [site] y = Conv<auto_pad = "SAME_UPPER", dilations = [2, 2], strides = [2, 2], group = 1>
            (x, w, b) }""")
    (node,) = made.graph.node
    node.doc_string = "said of it"
    node.metadata_props.add(key="note", value="kept")
    node.metadata_props.add(key="onnx_spatial.origin", value="Conv of an earlier conversion")
    converted = convert(made)
    (conv,) = (n for n in converted.graph.node if n.op_type == "Conv")
    assert conv.name == "site" and conv.doc_string == "said of it"
    assert list(conv.input)[1:] == ["w", "b"] and list(conv.output) == ["y"]
    noted = [(p.key, p.value) for p in conv.metadata_props]
    assert noted == [("note", "kept"), ("onnx_spatial.origin", "Conv site")]
    assert all(p.value == "Conv site" for n in converted.graph.node for p in n.metadata_props[-1:])
    assert converted.graph.initializer[:2] == made.graph.initializer
    assert converted.opset_import == made.opset_import


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_in_every_mode(mode: str):
    made = model("""g (float[2,H,W,1] x) => (float[N,1,P,Q] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, float[1,1,2,2] w = {1, 2, 3, 4}> {
        a = com.microsoft.SpaceToBatchND (x, block, pads)
        b = Transpose <perm = [0, 3, 1, 2]> (a)
        [conv] y = Conv <auto_pad = "SAME_UPPER", dilations = [3, 2], strides = [2, 1]> (b, w) }""")
    result = onnx_spatial.convert(made, mode=mode)
    assert result.verification
    actions = [(s.op_type, s.action, s.lowering) for s in result.operators]
    assert actions[1] == ("Conv", "lower", "explicit-pads")
    assert result.operators[1].nodes_after > 1
    assert "conv" in result.touched["nodes_changed"]
    assert "conv/Pad" in result.touched["nodes_added"]


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Conv", ["x", "flat"], ["y"]),
        helper.make_node("Conv", ["x", "flat"], ["y"], strides=[0, 0]),
        helper.make_node("ConvInteger", ["x", "x", "flat"], ["y"], strides=[2, 2]),
    ],
    ids=lambda node: " ".join([node.op_type, *node.input, *(a.name for a in node.attribute)]),
)
def test_damaged_nodes_do_no_harm(node: onnx.NodeProto):
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.attribute.append(helper.make_attribute("auto_pad", "SAME_LOWER"))
    copy.attribute.append(helper.make_attribute("dilations", [2, 2]))
    value = helper.make_tensor_value_info
    inputs = [value("x", 1, [1, 1, 3, 3]), value("flat", 1, [3])]
    outputs = [value("y", 1, None)] if list(copy.output) else []
    graph = helper.make_graph([copy], "g", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = plan(made)
    onnx_spatial.verify(made, found.model or made)
