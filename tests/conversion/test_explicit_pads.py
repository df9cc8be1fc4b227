"""auto_pad SAME with dilations, which onnxruntime refuses to run, becomes explicit pads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import running
from adapter import convert, plan
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import onnx_spatial
from onnx_spatial.model.inference import functions

HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>\n'


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def total_padding(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Zeros on both sides of an axis, as TensorFlow's documentation has it."""
    effective = (kernel - 1) * dilation + 1
    if size % stride == 0:
        return max(effective - stride, 0)
    return max(effective - size % stride, 0)


def convolve(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    *,
    lower: bool,
    group: int = 1,
) -> np.ndarray:
    """A SAME convolution, tap by tap, in float64."""
    sizes, kernel = x.shape[2:], w.shape[2:]
    windows = [-(-size // s) for size, s in zip(sizes, strides, strict=True)]
    totals = map(total_padding, sizes, kernel, strides, dilations)
    begins = [(t + 1) // 2 if lower else t // 2 for t in totals]
    y = np.zeros((x.shape[0], w.shape[0], *windows))
    each, out = x.shape[1] // group, w.shape[0] // group
    for tap in itertools.product(*map(range, kernel)):
        taken = x.astype(np.float64)
        for axis, at in enumerate(tap):
            reads = np.arange(windows[axis]) * strides[axis] + at * dilations[axis] - begins[axis]
            inside = (reads >= 0) & (reads < sizes[axis])
            taken = np.take(taken, np.where(inside, reads, 0), axis=2 + axis)
            shape = [1] * taken.ndim
            shape[2 + axis] = -1
            taken = taken * inside.reshape(shape)
        for g in range(group):
            weights = w[(slice(g * out, (g + 1) * out), slice(None), *tap)].astype(np.float64)
            part = taken[:, g * each : (g + 1) * each]
            y[:, g * out : (g + 1) * out] += np.einsum("nc...,oc->no...", part, weights)
    return y


def single(
    x: np.ndarray,
    w: np.ndarray,
    *,
    declared: Sequence[int | str | None] | None = None,
    opset: int = 17,
    op_type: str = "Conv",
    more: Sequence[np.ndarray] = (),
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one convolution called "site", of x and of w, which is stored."""
    stored = [w, *more]
    names = [f"w{i}" for i in range(len(stored))]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    shape = list(x.shape) if declared is None else declared
    node = helper.make_node(op_type, ["x", *names], ["y"], "site", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(a, n) for a, n in zip(stored, names, strict=True)],
    )
    version = running.ir_version_of(opset)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version
    )


def conv_of(made: onnx.ModelProto) -> dict[str, object]:
    """Attributes of the one Conv."""
    (node,) = (n for n in made.graph.node if "Conv" in n.op_type)
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def agree(
    made: onnx.ModelProto, converted: onnx.ModelProto, x: np.ndarray, want: np.ndarray
) -> None:
    """The converted model gives what is wanted; so does onnx's evaluator with the original."""
    for level in running.LEVELS:
        (got,) = running.run(converted, {"x": x}, level)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    (reference,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(reference, want, rtol=1e-4, atol=1e-4)


def refused_by_onnxruntime(made: onnx.ModelProto, x: np.ndarray) -> None:
    with pytest.raises(Exception, match="Dilation not supported for AutoPadType"):
        running.run(made, {"x": x})


PLANE = [(k, d, s) for k in (2, 3, 4, 5) for d in (2, 3) for s in (1, 2, 3)]


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
@pytest.mark.parametrize(("kernel", "dilation", "stride"), PLANE)
def test_every_kernel_dilation_and_stride(
    kernel: int, dilation: int, stride: int, lower: bool, known: bool
) -> None:
    w = numbers(4, 3, kernel, 2)
    auto_pad = "SAME_LOWER" if lower else "SAME_UPPER"
    strides, dilations = [stride, 1], [dilation, 3]
    declared = None if known else ["N", 3, "H", None]
    sizes = [(7, 9)] if known else [(7, 9), (8, 5), (1, 2), (13, 12)]
    made = single(
        numbers(2, 3, *sizes[0]),
        w,
        declared=declared,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
    )
    converted = convert(made)
    assert ("Pad" in {n.op_type for n in converted.graph.node}) == (not known and stride > 1)
    refused_by_onnxruntime(made, numbers(2, 3, *sizes[0]))
    for size in sizes:
        x = numbers(2, 3, *size)
        agree(made, converted, x, convolve(x, w, strides, dilations, lower=lower))


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [[1], [2], [1, 1, 1], [2, 1, 3]])
def test_sequences_and_volumes(strides: list[int], auto_pad: str, known: bool) -> None:
    axes = len(strides)
    w = numbers(4, 2, *(4, 3, 2)[:axes])
    dilations = [2, 3, 2][:axes]
    declared = None if known else [None] * (2 + axes)
    sizes = [(9, 6, 7)[:axes]] if known else [(9, 6, 7)[:axes], (4, 5, 8)[:axes]]
    made = single(
        numbers(2, 2, *sizes[0]),
        w,
        declared=declared,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
    )
    converted = convert(made)
    for size in sizes:
        x = numbers(2, 2, *size)
        want = convolve(x, w, strides, dilations, lower=auto_pad == "SAME_LOWER")
        agree(made, converted, x, want)


@pytest.mark.parametrize("group", [2, 4])
def test_groups(group: int) -> None:
    x, w = numbers(2, 4, 8, 9), numbers(4, 4 // group, 3, 4)
    made = single(x, w, auto_pad="SAME_LOWER", dilations=[2, 3], strides=[2, 1], group=group)
    want = convolve(x, w, [2, 1], [2, 3], lower=True, group=group)
    agree(made, convert(made), x, want)


def test_stride_1_is_static_whatever_the_sizes() -> None:
    made = model("""g (float[N,1,H,W] x) => (float[N,1,P,Q] y) <float[1,1,2,3] w = {1,2,3,4,5,6}>
        { [site] y = Conv<auto_pad = "SAME_LOWER", dilations = [3, 2]>(x, w) }""")
    converted = convert(made)
    assert [n.op_type for n in converted.graph.node] == ["Conv"]
    assert conv_of(converted) == {"pads": [2, 2, 1, 2], "dilations": [3, 2]}


def test_the_size_counts_where_it_is_known_behind_an_operator_of_ours() -> None:
    made = model("""g (float[2,8,8,1] x) => (float[8,1,2,2] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, float[1,1,2,2] w = {1, 2, 3, 4}> {
        a = com.microsoft.SpaceToBatchND (x, block, pads)
        b = Transpose <perm = [0, 3, 1, 2]> (a)
        y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2], strides = [2, 2]> (b, w) }""")
    found = plan(made)
    assert [s.op_type for s in found.operators] == ["SpaceToBatchND", "Conv"]
    assert found.operators[1].input_shape == (8, 1, 4, 4)
    assert conv_of(found.model)["pads"] == [0, 0, 1, 1]
    assert onnx_spatial.verify(made, found.model)


def test_a_kernel_that_is_not_known_is_measured_when_the_model_runs() -> None:
    made = model("""g (float[1,1,H,9] x, float[1,1,K,L] w) => (float[1,1,P,Q] y)
        { y = Conv<auto_pad = "SAME_UPPER", dilations = [2, 3]>(x, w) }""")
    converted = convert(made)
    for size, kernel in [((7, 9), (3, 2)), ((4, 9), (2, 5))]:
        x, w = numbers(1, 1, *size), numbers(1, 1, *kernel)
        (got,) = running.run(converted, {"x": x, "w": w})
        want = convolve(x, w, [1, 1], [2, 3], lower=False)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
def test_integer_data_is_padded_with_its_zero_point(known: bool) -> None:
    x = np.random.default_rng(0).integers(0, 255, (2, 3, 8, 7)).astype(np.uint8)
    w = np.random.default_rng(1).integers(0, 255, (4, 3, 3, 2)).astype(np.uint8)
    zero = np.array(7, np.uint8)
    made = single(
        x,
        w,
        declared=None if known else ["N", 3, "H", "W"],
        op_type="ConvInteger",
        more=[zero],
        auto_pad="SAME_UPPER",
        dilations=[2, 3],
        strides=[2, 3],
    )
    converted = convert(made)
    want = convolve(x.astype(np.int64) - 7, w, [2, 3], [2, 3], lower=False)
    (got,) = running.run(converted, {"x": x})
    assert got.tolist() == want.astype(np.int64).tolist()
    assert onnx_spatial.verify(made, converted)


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
def test_quantised_convolutions(known: bool) -> None:
    shape = "2,2,8,7" if known else "N,2,H,W"
    values = ", ".join(str(i % 11) for i in range(24))
    made = model(f"""g (uint8[{shape}] x) => (uint8[N2,2,P,Q] y)
        <float s = {{0.5}}, uint8 z = {{7}}, float t = {{2.0}}, uint8 o = {{3}},
         uint8[2,2,3,2] w = {{{values}}}>
        {{ y = QLinearConv<auto_pad = "SAME_LOWER", dilations = [2, 3], strides = [2, 2]>
               (x, s, z, w, s, o, t, z) }}""")
    converted = convert(made)
    x = np.random.default_rng(0).integers(0, 255, (2, 2, 8, 7)).astype(np.uint8)
    w = numpy_helper.to_array(made.graph.initializer[-1]).astype(np.float64) - 3
    sums = convolve(x.astype(np.float64) - 7, w, [2, 2], [2, 3], lower=True)
    want = np.clip(np.round(sums * 0.25 / 2.0) + 7, 0, 255)
    (got,) = running.run(converted, {"x": x})
    assert got.tolist() == want.astype(np.uint8).tolist()
    assert onnx_spatial.verify(made, converted)


@pytest.mark.parametrize("opset", [7, 11, 12, 13, 18])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_opsets_and_half_precision(opset: int, dtype: type) -> None:
    x, w = numbers(1, 2, 7, 6).astype(dtype), numbers(3, 2, 2, 3).astype(dtype)
    declared = [1, 2, "H", "W"] if opset >= 11 else None
    made = single(
        x,
        w,
        declared=declared,
        opset=opset,
        auto_pad="SAME_UPPER",
        dilations=[2, 3],
        strides=[2, 2],
    )
    (got,) = running.run(convert(made), {"x": x})
    want = convolve(x, w, [2, 2], [2, 3], lower=False)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


INNER = """g (bool b, float[1,1,H,W] x) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {1, 2, 3, 4}>
{ y = If (b) <
    then_branch = yes () => (float[1,1,A,B] t)
      { [inner] t = Conv<auto_pad = "SAME_UPPER", dilations = [3, 3]STRIDES>(x, w) },
    else_branch = no () => (float[1,1,A,B] e) { e = Relu(x) }
> }"""


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_in_a_branch(strides: tuple[int, int]) -> None:
    more = f", strides = {list(strides)}" if strides != (1, 1) else ""
    made = model(INNER.replace("STRIDES", more))
    (site,) = plan(made).operators
    assert (site.node, site.graph) == ("inner", "main graph > If y.then_branch")
    converted = convert(made)
    w = np.array([[[[1, 2], [3, 4]]]], np.float32)
    for size in [(6, 7), (5, 3)]:
        x = numbers(1, 1, *size)
        want = convolve(x, w, strides, (3, 3), lower=False)
        (got,) = running.run(converted, {"b": np.array(True), "x": x})
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        (got,) = running.run(converted, {"b": np.array(False), "x": x})
        np.testing.assert_array_equal(got, np.maximum(x, 0))
    if strides == (1, 1):  # both branches have one shape
        assert onnx_spatial.verify(made, converted)


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


def blocks(x: np.ndarray, kernels: Sequence[np.ndarray], stride: int, dilation: int) -> np.ndarray:
    for w in kernels:
        made = convolve(x, w, [stride] * 2, [dilation] * 2, lower=False)
        x = np.maximum(made, 0).astype(np.float32)
    return x


@pytest.mark.parametrize("other", ["w", "v"], ids=["one kernel", "two kernels"])
@pytest.mark.parametrize("stride", [1, 2])
def test_in_a_function(stride: int, other: str) -> None:
    attributes = f'auto_pad = "SAME_UPPER", dilations = [2, 2], strides = [{stride}, {stride}]'
    made = block(attributes, other=other)
    (site,) = plan(made).operators
    assert (site.node, site.graph) == ("body", "function local:Block")
    converted = convert(made)
    (function,) = converted.functions
    static = stride == 1 and other == "w"  # what the calls agree on is known
    kinds = {n.op_type for n in function.node}
    assert ("Pad" not in kinds) == static
    w = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 2, 3)
    v = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    for size in [(9, 8), (5, 6)]:
        x = numbers(1, 1, *size)
        (got,) = running.run(converted, {"x": x})
        want = blocks(x, [w, {"w": w, "v": v}[other]], stride, 2)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    assert onnx_spatial.verify(made, converted)


REFERENCES = 'auto_pad = "SAME_UPPER", dilations: ints = @rates'


def test_attributes_of_a_function_that_all_callers_agree_on() -> None:
    made = block(REFERENCES, "<rates = [2, 2]>", "<rates>")
    converted = convert(made)
    x = numbers(1, 1, 9, 8)
    w = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 2, 3)
    (got,) = running.run(converted, {"x": x})
    np.testing.assert_allclose(got, blocks(x, [w, w], 1, 2), rtol=1e-4, atol=1e-3)
    assert onnx_spatial.verify(made, converted)


def test_attributes_of_a_function_that_its_callers_do_not_agree_on_are_left() -> None:
    made = block(REFERENCES, "<rates = [2, 2]>", "<rates>")
    made.graph.node[1].attribute[0].ints[:] = [3, 3]
    found = plan(made)
    (site,) = found.operators
    assert (site.action, site.lowering) == ("leave", None)
    assert site.reason is not None and "attribute dilations" in site.reason
    assert found.model is None
    verification = onnx_spatial.verify(made, made)
    assert verification and "not run: onnxruntime cannot run what is left" in verification.message


def test_a_function_that_no_caller_makes_refused_is_no_site() -> None:
    assert plan(block(REFERENCES, "<rates = [1, 1]>", "<rates>")).operators == []


@pytest.mark.parametrize(
    "attributes",
    [
        'auto_pad = "SAME_UPPER"',
        'auto_pad = "SAME_UPPER", dilations = [1, 1]',
        'auto_pad = "VALID", dilations = [2, 2]',
        'auto_pad = "NOTSET", dilations = [2, 2], pads = [1, 1, 1, 1]',
        "dilations = [2, 2]",
    ],
)
def test_what_onnxruntime_runs_is_left_alone(attributes: str) -> None:
    made = model(f"""g (float[1,1,9,9] x) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {{1, 2, 3, 4}}>
        {{ y = Conv<{attributes}>(x, w) }}""")
    found = plan(made)
    assert found.operators == [] and found.model is None


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("dilations = [2, 2], pads = [0, 0, 0, 0]", "has both auto_pad and pads"),
        ("dilations = [2, 2], strides = [1]", "strides must have 2 entries"),
        ("dilations = [2, 0]", "strides and dilations must be at least 1"),
        ("dilations = [2, 2, 2]", "input 0 must have rank 5"),
        ("dilations = [9223372036854775807, 2], kernel_shape = [4, 2]", "overflow 64-bit integers"),
    ],
)
def test_what_contradicts_itself_is_left_with_the_reason(attributes: str, reason: str) -> None:
    made = model(f"""g (float[1,1,9,9] x) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {{1, 2, 3, 4}}>
        {{ y = Conv<auto_pad = "SAME_UPPER", {attributes}>(x, w) }}""")
    found = plan(made)
    (site,) = found.operators
    assert site.action == "leave" and site.reason is not None and reason in site.reason
    assert found.model is None


def test_a_pad_that_is_computed_needs_opset_11() -> None:
    made = single(
        numbers(1, 1, 8, 8),
        numbers(1, 1, 3, 3),
        declared=[1, 1, "H", "W"],
        opset=9,
        auto_pad="SAME_UPPER",
        dilations=[2, 2],
        strides=[2, 2],
    )
    (site,) = plan(made).operators
    assert site.action == "leave" and site.reason is not None and "opset 11" in site.reason


def test_everything_else_of_the_node_stays() -> None:
    made = model("""g (float[1,2,H,W] x) => (float[1,1,P,Q] y)
        <float[1,2,2,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[1] b = {9}> {
        [site] y = Conv<auto_pad = "SAME_UPPER", dilations = [2, 2], strides = [2, 2], group = 1>
            (x, w, b) }""")
    (node,) = made.graph.node
    node.doc_string = "said of it"
    node.metadata_props.add(key="note", value="kept")
    converted = convert(made)
    (conv,) = (n for n in converted.graph.node if n.op_type == "Conv")
    assert conv.name == "site" and conv.doc_string == "said of it"
    assert list(conv.input)[1:] == ["w", "b"] and list(conv.output) == ["y"]
    noted = {p.key: p.value for p in conv.metadata_props}
    assert noted == {"note": "kept", "onnx_spatial.origin": "Conv site"}
    assert all(p.value == "Conv site" for n in converted.graph.node for p in n.metadata_props[-1:])
    assert converted.graph.initializer[:2] == made.graph.initializer
    assert converted.opset_import == made.opset_import


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
@pytest.mark.parametrize("fuse", [True, False])
def test_in_every_mode(mode: str, fuse: bool) -> None:
    made = model("""g (float[2,H,W,1] x) => (float[N,1,P,Q] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, float[1,1,2,2] w = {1, 2, 3, 4}> {
        a = com.microsoft.SpaceToBatchND (x, block, pads)
        b = Transpose <perm = [0, 3, 1, 2]> (a)
        [conv] y = Conv <auto_pad = "SAME_UPPER", dilations = [3, 2], strides = [2, 1]> (b, w) }""")
    result = onnx_spatial.convert(made, mode=mode, fuse=fuse)
    assert result.verification
    actions = [(s.op_type, s.action, s.lowering) for s in result.operators]
    assert actions[1] == ("Conv", "lower", "explicit-pads")
    assert result.operators[1].nodes_after > 1
    assert "conv" in result.touched["nodes_changed"]
    assert "conv/Pad" in result.touched["nodes_added"]


def test_a_model_with_nothing_else_is_repaired_too() -> None:
    x, w = numbers(2, 1, 9, 8), numbers(1, 1, 2, 3)
    made = single(x, w, auto_pad="SAME_UPPER", dilations=[2, 2])
    before = made.SerializeToString(deterministic=True)
    result = onnx_spatial.convert(made)
    assert made.SerializeToString(deterministic=True) == before
    assert result.changed and result.verification.evidence == "proven"
    assert result.touched["nodes_changed"] == ["site"] and result.touched["nodes_added"] == []
    document = result.to_dict()["operators"][0]
    assert document["dialect"] == "onnx auto_pad" and document["lowering"] == "explicit-pads"
    want = convolve(x, w, [1, 1], [2, 2], lower=False)
    session = onnx_spatial.InferenceSession(made)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)
    again = onnx_spatial.convert(result.model)
    assert not again.changed and again.operators == []


def test_beside_an_operator_that_nothing_can_run() -> None:
    made = model("""g (float[1,1,9,W] x) => (float[a,b,c,d] y) <float[1,1,2,2] w = {1, 2, 3, 4}> {
        [conv] c = Conv <auto_pad = "SAME_UPPER", dilations = [3, 2]> (x, w)
        y = local.Nobody (c) }""")
    result = onnx_spatial.convert(made)
    assert result.verification.evidence == "proven" and "not run: " in result.verification.message
    wrong = onnx.ModelProto()
    wrong.CopyFrom(result.model)
    next(a for a in wrong.graph.node[0].attribute if a.name == "pads").ints[:] = [2, 1, 1, 1]
    assert onnx_spatial.verify(made, wrong).status == "failed"


def test_functions_are_inlined_to_see_what_is_known() -> None:
    """The mark that the look at a function leaves on its nodes is in no result."""
    made = block('auto_pad = "SAME_UPPER", dilations = [2, 2]')
    converted = convert(made)
    names = {a.name for f in converted.functions for n in f.node for a in n.attribute}
    assert names == {"pads", "dilations"}
    assert functions.inline(converted)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Conv", ["x", "flat"], ["y"]),
        helper.make_node("Conv", ["x", "flat"], ["y"], kernel_shape=[0, 3]),
        helper.make_node("Conv", ["x", "flat"], ["y"], strides=[0, 0]),
        helper.make_node("Conv", ["x", "x"], ["y"], strides=[2, 2, 2]),
        helper.make_node("ConvInteger", ["x", "x", "flat"], ["y"], strides=[2, 2]),
    ],
    ids=lambda node: " ".join([node.op_type, *node.input, *(a.name for a in node.attribute)]),
)
def test_damaged_nodes_do_no_harm(node: onnx.NodeProto) -> None:
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
