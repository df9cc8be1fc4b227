"""Everything that reads ONNX files accepts the function form and gives the bits of the lowered one."""

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
from onnx import TensorProto, helper
from parsing import image, model

import onnx_spatial

POSITIVE = [c for c in cases.load() if c.error is None and not c.is_complex]


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
    consumers.assert_agree(made, convert(model), feeds)
    (result,) = running.run(made, feeds)
    assert running.same_bits(result, case.expected)
    if not unknown and not case.quantised:
        # Without any declared shape behind the node, by nothing but the body of the function.
        del made.graph.value_info[:]
        made.graph.output[0].type.tensor_type.ClearField("shape")
        inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True)
        assert structure.dims(inferred, "y") == list(case.expected.shape)


OPSETS = (11, 12, 13, 17, 18, running.newest_opset())


@pytest.mark.parametrize("number", range(len(ELEMENT_TYPES)), ids=list(ELEMENT_TYPES))
def test_element_types_and_opsets(number):
    dtype, code = list(ELEMENT_TYPES.items())[number]
    opset = 17 if dtype != "float32" and number % 2 else OPSETS[number % 6]
    opset = max(opset, 13) if dtype == "bfloat16" else opset
    kind = TensorProto.DataType.Name(code).lower()
    dims, any_image = ("N,A,B,C", "2,3,4,2")[number % 2], f"{kind}[?,?,?,?]"
    ir = max(8, running.ir_version_of(opset))
    imports = f'"" : {opset}, "com.microsoft" : 1, "{OPENVINO}" : 1'
    made = onnx.parser.parse_model(f"""<ir_version: {ir}, opset_import: [{imports}]>
        g ({kind}[{dims}] x) => ({any_image} y, {any_image} z)
        <int32[2] b = {{2, 1}}, int32[2,2] p = {{1, 0, 0, 1}}> {{
            [s2b] y = com.microsoft.SpaceToBatchND(x, b, p)
            [patches] z = {OPENVINO}.ExtractImagePatches<sizes = [2, 2], strides = [1, 2],
                rates = [1, 1], auto_pad = "same_upper">(x)
        }}""")
    x = np.array([f"t{v}" for v in range(48)], object)
    x = x if dtype == "string" else np.arange(1, 49).astype(helper.tensor_dtype_to_np_dtype(code))
    consumers.assert_agree(
        consumers.function_form(made), convert(made), {"x": x.reshape(2, 3, 4, 2)}
    )


# Places

FUNCTION = '\n<domain: "local", opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>\n'
BLOCK = "<int32[2] block = {2, 2}, int32[2,2] pads = {1, 1, 0, 0}, int32[2,2] crops = {1, 1, 0, 0}>"
#: What a model holds, where its operators are, and what it is fed: sizes, or a value.
PLACES = {
    "an If in a Loop": (
        f"""g (float[2,2,4,2] x, int64 n, bool c) => (float[?,?,?,?] last) {BLOCK} {{
            last = Loop (n, c, x) <
                body = step (int64 i, bool c0, float[2,2,4,2] s) => (bool c1, float[2,2,4,2] r) {{
                    c1 = Identity(c0) odd = Cast <to = 9> (i) r = If (odd) <
                        then_branch = a () => (float[2,2,4,2] t) {{
                            u = M.SpaceToBatchND(s, block, pads)
                            t = M.BatchToSpaceND(u, block, crops) }},
                        else_branch = b () => (float[2,2,4,2] e) {{
                            v = M.SpaceToBatchND(s, block, pads) w = M.BatchToSpaceND(v, block, crops)
                            e = Neg(w) }}> }}> }}""",
        "main graph > Loop last.body > If r.then_branch, main graph > Loop last.body > If r.else_branch",
        {"x": (2, 2, 4, 2), "n": np.array(2)},
    ),
    "functions in functions": (
        f"""g (float[2,8,N,1] x) => (float[?,?,?,?] y) {BLOCK} {{ y = local.G(x, block, pads) }}
        {FUNCTION} F (x, block, pads) => (y) {{ y = M.SpaceToBatchND(x, block, pads) }}
        {FUNCTION} G (x, b, p) => (y) {{
            u = local.F(x, b, p) v = Concat <axis = 1> (u, u, u, u) y = M.SpaceToBatchND(v, b, p) }}""",
        "function local:F, function local:G", {"x": (2, 8, 4, 1)},
    ),
    "a branch in a function": (
        f"""g (bool c, float[2,4,4,1] x) => (float[?,?,?,?] y) {BLOCK} {{
            y = local.F(c, x, block, pads) }}
        {FUNCTION} F (c, x, block, pads) => (y) {{ y = If (c) <
            then_branch = a () => (float[?,?,?,?] t) {{ t = M.SpaceToBatchND(x, block, pads) }},
            else_branch = b () => (float[?,?,?,?] e) {{ e = Neg(x) }}> }}""",
        "function local:F > If y.then_branch", {"x": (2, 4, 4, 1)},
    ),
    "attributes of the caller": (
        f"""g (float[2,4,4,1] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {{
            y = local.F <b = [2, 2]> (x) z = local.F <b = [4, 1]> (x) }}
        {FUNCTION} F <b> (x) => (y) {{ block = Constant <value_ints: ints = @b> ()
            pads = Constant <value = int64[2,2] {{0, 0, 0, 0}}> ()
            y = M.SpaceToBatchND(x, block, pads) }}""",
        "function local:F", {"x": (2, 4, 4, 1)},
    ),
    "an attribute handed on by a function": (
        f"""g (float[2,4,4,1] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {{
            y = local.F <k = [1, 2, 2, 1]> (x) z = local.F <k = [1, 2, 2, 1]> (y) }}
        {FUNCTION} F <k> (x) => (y) {{ y = M.ExtractImagePatches <ksizes: ints = @k,
            strides = [1, 1, 1, 1], rates = [1, 1, 1, 1], padding = "SAME"> (x) }}""",
        "function local:F", {"x": (2, 4, 4, 1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_places(name):
    """Lowered and as functions, wherever an operator stands."""
    text, places, given = PLACES[name]
    made = model(text)
    feeds = {k: image(*v) if isinstance(v, tuple) else v for k, v in given.items()}
    form = consumers.function_form(made)
    for taken in [True, False][: 1 + ("bool c," in text)]:
        data = feeds | ({"c": np.array(taken)} if "bool c" in text else {})
        consumers.assert_agree(form, reference.assert_agree(made, data, full_check=False), data)
    assert onnx_spatial.verify(made, form)
    assert ", ".join(dict.fromkeys(s.graph for s in plan(made).operators)) == places
