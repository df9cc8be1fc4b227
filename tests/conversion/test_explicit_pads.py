"""Pads: auto_pad SAME with dilations becomes explicit, and no Pad is merged into a pool by onnxruntime.

onnx's evaluator runs the original and says what is right.
"""

import numpy as np
import onnx
import parsing
import pytest
import reference
import running
import structure
from adapter import convert, plan
from onnx import parser
from onnx.reference import ReferenceEvaluator

import onnx_spatial


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(shape)
    if dtype is np.uint8:
        return rng.integers(0, 255, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def assert_agree(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
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
    return parsing.model(f"""g (float[{declared}] x) => (float[{", ".join("ABCDE"[:rank])}] y)
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
    converted = assert_agree(made, *feeds)
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
    made = parsing.model(f"""g (uint8[{shape}] x) => ({result}[N2,2,P,Q] y)
        <float s = {{0.5}}, uint8 z = {{7}}, uint8 o = {{3}}, uint8[2,2,3,2] w = {{{values}}}>
        {{ {node.replace("ATTRIBUTES", attributes)} }}""")
    result = onnx_spatial.convert(made)
    assert result.verification.evidence == "proven"
    zeros = np.full((2, 2, 8, 7), 7, np.uint8)  # the zero point everywhere: so is what is padded
    (got,) = running.run(result.model, {"x": zeros})
    assert len(np.unique(got)) == 1


BRANCH = """g (float[1,1,H,W] x, bool b) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {1, 2, 3, 4}> {
    y = If (b) <
        then_branch = yes () => (float[1,1,A,B] t) {
            [inner] t = Conv<auto_pad = "SAME_UPPER", dilations = [3, 3], strides = [2, 2]>(x, w) },
        else_branch = no () => (float[1,1,A,B] e) { e = Relu(x) }> }"""
CALLED = """g (float[1,1,H,W] x, bool b) => (float[1,1,P,Q] y)
   <float[1,1,2,3] w = {1, 2, 3, 4, 5, 6}, float[1,1,3,3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
   { a = local.Block <rates = [2, 2]> (x, w)  y = local.Block <rates = [RATE, 2]> (a, OTHER) }
   <domain: "local", opset_import: ["" : 17]> Block <rates> (data, kernel) => (result) {
   [inner] c = Conv<auto_pad = "SAME_UPPER", dilations: ints = @rates, strides = [STRIDE, 1]>
        (data, kernel)  result = Relu(c) }"""


def called(rate: int = 2, other: str = "w", stride: int = 1) -> str:
    text = CALLED.replace("RATE", str(rate)).replace("OTHER", other)
    return text.replace("STRIDE", str(stride))


@pytest.mark.parametrize(
    ("text", "place", "is_static"),
    [
        (BRANCH, "main graph > If y.then_branch", False),
        (called(), "function local:Block", True),  # what the calls agree on is known
        (called(other="v"), "function local:Block", False),
        (called(stride=2), "function local:Block", False),
    ],
)
def test_in_a_branch_and_in_a_function(text, place, is_static):
    made = parsing.model(text)
    (site,) = plan(made).operators
    assert (site.node, site.graph) == ("inner", place)
    sizes = [(9, 8), (5, 6)]
    converted = assert_agree(made, *({"x": numbers(1, 1, *s), "b": np.array(True)} for s in sizes))
    assert ("Pad" not in structure.counts(converted)) == is_static
    (conv,) = (n for n in structure.nodes(converted) if n.op_type == "Conv")
    assert {a.name for a in conv.attribute} == {"pads", "dilations", "strides"}  # and no mark
    assert onnx_spatial.verify(made, converted)


def one(attributes: str) -> str:
    return f"""g (float[1,1,9,9] x) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {{1, 2, 3, 4}}>
        {{ y = Conv<{attributes}>(x, w) }}"""


SAME, COMPUTED = 'auto_pad = "SAME_UPPER", ', "dilations = [2, 2], strides = [2, 2]"


@pytest.mark.parametrize(
    ("text", "opset", "reason"),
    [
        (one('auto_pad = "SAME_UPPER"'), 17, None),
        (one(SAME + "dilations = [2, 2]").replace(" Conv<", " M.FusedConv<") + """
            <domain: "com.microsoft", opset_import: ["" : 17]> FusedConv <auto_pad, dilations> (x, w)
            => (y) { y = Conv(x, w) }""", 17, None),
        (one('auto_pad = "VALID", dilations = [2, 2]'), 17, None),
        (one('auto_pad = "NOTSET", dilations = [2, 2], pads = [1, 1, 1, 1]'), 17, None),
        (one(SAME + "dilations = [2, 2], pads = [0, 0, 0, 0]"), 17, "has both auto_pad and pads"),
        (one(SAME + "dilations = [2, 0]"), 17, "strides and dilations must be at least 1"),
        (one(SAME + "dilations = [9223372036854775807, 2], kernel_shape = [4, 2]"), 17,
         "overflow 64-bit integers"),
        (one(SAME + COMPUTED).replace("9,9", "H,W"), 9, "opset 11"),
        (called(rate=3), 17, "attribute dilations"),
    ],
)  # fmt: skip
def test_what_onnxruntime_runs_or_nothing_helps_is_left_with_the_reason(text, opset, reason):
    made = parsing.model(text, opset=opset)
    found = plan(made)
    assert found.model is None
    for site in found.operators:
        assert (site.action, site.lowering) == ("leave", None) and reason in site.reason
    assert len(found.operators) == (reason is not None)
    if "Block" in text:
        message = onnx_spatial.verify(made, made).message
        assert "not run: onnxruntime cannot run what is left" in message


def test_dims_that_only_inference_names_are_unknown_in_the_report():
    made = parsing.model(f"""g (float[1,1,H,W] x) => (float[1,1,P,Q] y)
        <float[1,1,2,2] w = {{1, 2, 3, 4}}> {{
            a = Conv(x, w) y = Conv<{SAME}dilations = [2, 2]>(a, w) }}""")
    (site,) = plan(made).operators
    assert site.input_shape == (1, 1, None, None)


@pytest.mark.parametrize(("opset", "kind"), [(7, "float16"), (18, "float")])
def test_opsets_and_half_precision(opset, kind):
    sizes = "H, W" if opset >= 11 else "7, 6"
    made = parsing.model(f"""g ({kind}[1,2,{sizes}] x, {kind}[3,2,2,3] w) => ({kind}[1,3,P,Q] y) {{
        y = Conv<auto_pad = "SAME_UPPER", dilations = [2, 3], strides = [2, 2]>(x, w) }}""",
        opset, running.ir_version_of(opset))  # fmt: skip
    dtype = np.float16 if kind == "float16" else np.float32
    feeds = {"x": numbers(1, 2, 7, 6).astype(dtype), "w": numbers(3, 2, 2, 3).astype(dtype)}
    (got,) = running.run(convert(made), feeds)
    (want,) = ReferenceEvaluator(made).run(None, feeds)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_everything_else_of_the_node_stays_in_every_mode(mode: str):
    made = parsing.model("""g (float[2,H,W,1] x) => (float[N,1,P,Q] y) <int32[2] block = {2, 2},
        int32[2,2] none = {0, 0, 0, 0}, float[1,1,2,2] w = {1, 2, 3, 4}, float[1] b = {9}> {
        a = M.SpaceToBatchND (x, block, none) t = Transpose <perm = [0, 3, 1, 2]> (a)
        [conv] y = Conv <auto_pad = "SAME_UPPER", dilations = [3, 2], strides = [2, 1], group = 1>
            (t, w, b) }""")
    node = made.graph.node[2]
    node.doc_string = "said of it"
    node.metadata_props.add(key="note", value="kept")
    node.metadata_props.add(key="onnx_spatial.origin", value="Conv of an earlier conversion")
    result = onnx_spatial.convert(made, mode=mode)
    assert result.verification
    site = result.operators[1]
    assert (site.op_type, site.action, site.lowering) == ("Conv", "lower", "explicit-pads")
    assert site.nodes_after > 1
    assert "conv" in result.touched["nodes_changed"]
    assert "conv/Pad" in result.touched["nodes_added"]
    (conv,) = (n for n in result.model.graph.node if n.op_type == "Conv")
    assert (conv.name, conv.doc_string) == ("conv", "said of it")
    assert [*conv.input[1:], *conv.output] == ["w", "b", "y"]
    noted = [(p.key, p.value) for p in conv.metadata_props]
    assert noted == [("note", "kept"), ("onnx_spatial.origin", "Conv conv")]
    stored = {t.name: t for t in result.model.graph.initializer}
    assert all(stored.get(t.name, t) == t for t in made.graph.initializer)


@pytest.mark.parametrize(
    "node", ["Conv<strides = [0, 0], {}>(x, w)", "ConvInteger<strides = [2, 2], {}>(x, x, w)"]
)
def test_damaged_nodes_do_no_harm(node: str):
    node = node.format('auto_pad = "SAME_LOWER", dilations = [2, 2]')
    made = parsing.model(f"g (float[1,1,3,3] x, float[3] w) => (float[P,Q] y) {{ y = {node} }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    assert onnx_spatial.verify(made, plan(made).model or made).status == "unverified"


# Pools behind

TF = "ai.onnx.converters.tensorflow"
NONE = "int64[2,2] none = {0, 0, 0, 0}"


def pooled(ops: str, opset: int = 17) -> onnx.ModelProto:
    """Nodes on x, whose paddings are 1 on each side."""
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "{TF}" : 1]>\n'
        "g (float[N,H,W,2] x) => (float[?,?,?,?] y)"
        f"<int64[2] one = {{1, 1}}, int64[2,2] pads = {{1, 1, 1, 1}}, {NONE},"
        f"int64[8] around = {{0, 1, 1, 0, 0, 1, 1, 0}}> {{ {ops} }}"
    )


IN_FUNCTION = """g (float[N,H,W,2] x) => (float[?,?,?,?] y)
    <int64[2] one = {1, 1}, int64[2,2] pads = {1, 1, 1, 1}>
    { y = local.pool <size = [2, 2]> (x, one, pads) }
    <domain: "local", opset_import: ["" : 17, "com.microsoft" : 1]> pool <size> (x, one, pads) => (y) {
        a = M.SpaceToBatchND(x, one, pads) b = Transpose <perm = [0, 3, 1, 2]> (a)
        y = MaxPool <kernel_shape: ints = @size> (b) }"""
MAXIMUM = "MaxPool <kernel_shape = [2, 2], pads = [0, 0, 0, 0]>"
TURN = "Transpose <perm = [0, 3, 1, 2]>"
AHEAD = f"a = {TF}.SpaceToBatchND(x, one, pads)"


def in_an_old_file() -> onnx.ModelProto:
    made = pooled(f"{AHEAD} b = {TURN}(a) y = {MAXIMUM}(b)", 11)
    made.ir_version = 3
    for t in made.graph.initializer:
        made.graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    return made


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (pooled(f"{AHEAD} b = {TURN}(a) y = {MAXIMUM}(b)"), {"fuse": False}),
        (pooled(f"{AHEAD} b = {TURN}(a) y = {MAXIMUM}(b)"), {"mode": "function"}),
        (
            pooled(f"{AHEAD} c = Cast<to = 1>(a) b = Cast<to = 1>(c) y = {MAXIMUM}(b)"),
            {"fuse": False},
        ),
        (parsing.model(IN_FUNCTION), {"fuse": False}),
        (in_an_old_file(), {"fuse": False}),
    ],
)
def test_a_pad_of_a_lowering_stays_apart(made, options):
    converted = convert(made, **options)
    onnx.checker.check_model(converted)
    held = converted.functions[0].node if made.functions else converted.graph.node
    assert [n.op_type for n in held if n.op_type != "Constant"][-2:] == ["Reshape", "MaxPool"]
    feeds = {"x": -np.ones((1, 3, 3, 2), np.float32)}
    (wanted,) = reference.run(made, feeds)
    for level in running.LEVELS:
        (y,) = running.run_session(running.session(converted, level), feeds)
        assert running.same_bits(y, wanted)


def test_a_pad_of_the_model_is_left_as_it_was():
    """What onnxruntime makes of it is not the conversion's to change."""
    made = pooled(f"p = Pad(x, around) b = {TURN}(p) z = {MAXIMUM}(b) {AHEAD} y = Neg(a)")
    assert "Reshape" not in structure.ops(convert(made, fuse=False))
