"""Everything that reads ONNX files accepts the function form and gives the bits of the lowered one."""

from __future__ import annotations

from pathlib import Path

import cases
import consumers
import numpy as np
import onnx
import pytest
import reference
import running
import structure
from adapter import convert, plan
from building import ELEMENT_TYPES, OPENVINO
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

import onnx_spatial

ROOT = Path(__file__).parents[2]
#: Nets of both converters, with blocks and with patches; tests/test_models.py has all.
ZOO = ("leftover", "openvino_style", "raft")

POSITIVE = [c for c in cases.load() if c.error is None and not c.is_complex]


# The models that converters wrote


@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_zoo(name):
    folder = ROOT / "models" / name
    result = onnx_spatial.convert(folder / "model.onnx", mode="function")
    assert result.verification
    assert all(site.action == "function" for site in result.operators)
    consumers.check(result.model)
    # Bit for bit the same, as long as no convolution is fused.
    lowered = onnx_spatial.convert(folder / "model.onnx", verify=False, fuse=False).model
    data = sorted((folder / "test_data_set_0").glob("input_*.pb"))
    tensors = [onnx.TensorProto.FromString(p.read_bytes()) for p in data]
    names = [v.name for v in lowered.graph.input]
    feeds = {n: onnx.numpy_helper.to_array(t) for n, t in zip(names, tensors, strict=True)}
    expected = running.run(lowered, feeds, running.LEVELS[0])
    for form in (result.model, consumers.inline(result.model)):
        outputs = running.run(form, feeds, running.LEVELS[0])
        assert all(map(running.same_bits, outputs, expected))


# The cases that the runtimes of the operators answered


#: Every third case in one form by default, all in both by the weekly run.
FORMS = [
    pytest.param(
        *(case, unknown),
        id=f"{'run-time' if unknown else 'static'}-{case.id}",
        marks=[] if number % 6 == 3 * unknown else pytest.mark.slow,
    )
    for number, case in enumerate(POSITIVE)
    for unknown in (False, True)
]


@pytest.mark.parametrize(("case", "unknown"), FORMS)
def test_cases(case, unknown):
    model = case.model(symbolic=unknown, run_time_parameters=unknown)
    feeds = case.feeds(run_time_parameters=unknown)
    made = consumers.function_form(model)
    consumers.agree(made, convert(model), feeds)
    (result,) = running.run(made, feeds)
    assert running.same_bits(result, case.expected)
    if not unknown and not case.quantised:
        # Without any declared shape behind the node, by nothing but the body of the function.
        del made.graph.value_info[:]
        made.graph.output[0].type.tensor_type.ClearField("shape")
        inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True)
        assert structure.dims(inferred, "y") == list(case.expected.shape)


# Element types


def two_operators(dtype: str, *, symbolic: bool, opset: int, ir_version: int) -> onnx.ModelProto:
    kind = TensorProto.DataType.Name(ELEMENT_TYPES[dtype]).lower()
    x, any_image = f"{kind}[{'N,A,B,C' if symbolic else '2,3,4,2'}] x", f"{kind}[?,?,?,?]"
    imports = f'"" : {opset}, "com.microsoft" : 1, "{OPENVINO}" : 1'
    return parser.parse_model(f"""<ir_version: {ir_version}, opset_import: [{imports}]>
        g ({x}) => ({any_image} y, {any_image} z)
        <int32[2] b = {{2, 1}}, int32[2,2] p = {{1, 0, 0, 1}}> {{
            [s2b] y = com.microsoft.SpaceToBatchND(x, b, p)
            [patches] z = {OPENVINO}.ExtractImagePatches<sizes = [2, 2], strides = [1, 2],
                rates = [1, 1], auto_pad = "same_upper">(x)
        }}""")


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_element_types(dtype):
    symbolic = len(dtype) % 2 == 0
    model = two_operators(dtype, symbolic=symbolic, opset=17, ir_version=8)
    values = np.arange(1, 49)
    if dtype == "string":
        x = np.array([f"t{v}" for v in values], object)
    else:
        x = values.astype(helper.tensor_dtype_to_np_dtype(ELEMENT_TYPES[dtype]))
    feeds = {"x": x.reshape(2, 3, 4, 2)}
    consumers.agree(consumers.function_form(model), convert(model), feeds)


@pytest.mark.parametrize("opset", [11, 12, 13, 18, running.newest_opset()])
def test_opsets(opset):
    ir_version = max(8, running.ir_version_of(opset))
    model = two_operators("float32", symbolic=True, opset=opset, ir_version=ir_version)
    feeds = {"x": np.arange(48, dtype=np.float32).reshape(2, 3, 4, 2)}
    assert len(ReferenceEvaluator(convert(model)).run(None, feeds)) == 2  # it can do this
    consumers.agree(consumers.function_form(model), convert(model), feeds)


# Places

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>\n'
FUNCTION = '\n<domain: "local", opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>\n'
BLOCK = "<int32[2] block = {2, 2}, int32[2,2] pads = {1, 1, 0, 0}>"
S2B = "F (x, block, pads) => (y) { y = com.microsoft.SpaceToBatchND(x, block, pads) }"

PLACES = {
    "an If in a Loop": (
        """g (float[2,3,4,2] x, int64 n) => (float[?,?,?,?] last)
            <bool go = {1}, int64 one = {1}, int32[2] block = {2, 2}, int32[2,2] pads = {1, 0, 0, 0},
             int32[2,2] crops = {1, 0, 0, 0}> {
            last = Loop (n, go, x) <
                body = step (int64 i, bool c, float[2,3,4,2] s) => (bool c1, float[2,3,4,2] r) {
                    c1 = Identity(c)
                    first = Less(i, one)
                    r = If (first) <
                        then_branch = a () => (float[2,3,4,2] t) {
                            u = M.SpaceToBatchND(s, block, pads)
                            t = M.BatchToSpaceND(u, block, crops)
                        },
                        else_branch = b () => (float[2,3,4,2] e) {
                            v = M.SpaceToBatchND(s, block, pads)
                            w = M.BatchToSpaceND(v, block, crops)
                            e = Neg(w)
                        }>
                }>
        }""",
        {"x": (2, 3, 4, 2), "n": np.array(2)},
    ),
    "functions in functions": (
        """g (float[2,8,N,1] a) => (float[?,?,?,?] y) BLOCK { y = local.G(a, block, pads) }"""
        + FUNCTION
        + S2B
        + FUNCTION
        + """G (x, b, p) => (y) {
            u = local.F(x, b, p)
            v = Concat <axis = 1> (u, u, u, u)
            y = M.SpaceToBatchND(v, b, p)
        }""",
        {"a": (2, 8, 4, 1)},
    ),
    "a branch in a function": (
        """g (bool c, float[2,4,4,1] a) => (float[?,?,?,?] y) BLOCK { y = local.F(c, a, block, pads) }"""
        + FUNCTION
        + """F (c, x, block, pads) => (y) {
            y = If (c) <
                then_branch = a () => (float[?,?,?,?] t) { t = M.SpaceToBatchND(x, block, pads) },
                else_branch = b () => (float[?,?,?,?] e) { e = Neg(x) }>
        }""",
        {"c": np.array(True), "a": (2, 4, 4, 1)},
    ),
    "attributes of the caller": (
        """g (float[2,4,4,1] a) => (float[?,?,?,?] y, float[?,?,?,?] z) {
            y = local.F <b = [2, 2]> (a)
            z = local.F <b = [4, 1]> (a)
        }"""
        + FUNCTION
        + """F <b> (x) => (y) {
            block = Constant <value_ints: ints = @b> ()
            pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
            y = M.SpaceToBatchND(x, block, pads)
        }""",
        {"a": (2, 4, 4, 1)},
    ),
    "an attribute handed on by a function": (
        """g (float[2,4,4,1] a) => (float[?,?,?,?] y, float[?,?,?,?] z) {
            y = local.F <k = [1, 2, 2, 1]> (a)
            z = local.F <k = [1, 2, 2, 1]> (y)
        }"""
        + FUNCTION
        + """F <k> (x) => (y) {
            y = M.ExtractImagePatches <ksizes: ints = @k, strides = [1, 1, 1, 1],
                rates = [1, 1, 1, 1], padding = "SAME"> (x)
        }""",
        {"a": (2, 4, 4, 1)},
    ),
}


def placed(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    text, given = PLACES[name]
    model = parser.parse_model(HEAD + text.replace("M.", "com.microsoft.").replace("BLOCK", BLOCK))
    feeds = {
        key: value
        if isinstance(value, np.ndarray)
        else np.arange(1, np.prod(value) + 1, dtype=np.float32).reshape(value)
        for key, value in given.items()
    }
    return model, feeds


@pytest.mark.parametrize("name", PLACES)
def test_places(name):
    """Lowered and as functions, wherever an operator stands."""
    model, feeds = placed(name)
    branches = [True, False] if "c" in feeds else [True]
    for taken in branches:
        data = feeds | ({"c": np.array(taken)} if "c" in feeds else {})
        lowered = reference.agree(model, data, full_check=False)
        form = consumers.function_form(model)
        consumers.agree(form, lowered, data)
    assert onnx_spatial.verify(model, form)
    assert list(dict.fromkeys(s.graph for s in plan(model).operators)) == GRAPHS[name]


#: The graphs that hold the operators of each place.
GRAPHS = {
    "an If in a Loop": [
        "main graph > Loop last.body > If r.then_branch",
        "main graph > Loop last.body > If r.else_branch",
    ],
    "functions in functions": ["function local:F", "function local:G"],
    "a branch in a function": ["function local:F > If y.then_branch"],
    "attributes of the caller": ["function local:F"],
    "an attribute handed on by a function": ["function local:F"],
}
