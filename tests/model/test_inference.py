"""Values and sizes that are known before a model runs, and those that must not be taken for known."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import onnx_spatial
from onnx_spatial.model.graph.strip import MAX_KEPT_ELEMENTS
from onnx_spatial.model.inference import constant_folding, functions, shape_inference


def scopes(text: str, ir: int = 9, opset: int = 17) -> list[constant_folding.ConstantScope]:
    head = f'<ir_version: {ir}, opset_import: ["" : {opset}, "local" : 1]>\n'
    return [scope for scope, _ in constant_folding.scopes(parser.parse_model(head + text))]


DEEP = " ".join(f"v{i} = Add(v{i - 1}, one)" for i in range(1, 3000))


@pytest.mark.parametrize(
    ("nodes", "known", "opset"),
    [
        ("v = Add(a, b)", [6, 8], 17),
        ("v = Concat <axis = 0> (a, one, b)", [2, 3, 1, 4, 5], 17),
        ("e = Constant <value_ints = [-1, 1]> () v = Reshape(a, e)", [[2], [3]], 17),
        ("e = Constant <value_ints = [2]> () v = Slice(b, one, e)", [5], 17),
        ("v = Cast <to = 7> (f)", [1, -2], 17),
        ("v = Constant <value_int = 7> ()", 7, 17),
        ("v = Constant <value_float = 1.5> ()", 1.5, 17),
        ("v = ConstantOfShape(a)", [[0.0] * 3] * 2, 17),
        ("v = Shape(x)", [2, 3], 17),
        ("v = Shape <start = 1> (u)", [3], 17),
        ("v = Shape <end = 1> (x)", [2], 17),
        ("w, v = Split <axis = 0> (a)", [3], 17),
        (f"v0 = Identity(a) {DEEP} v = Identity(v2999)", [3001, 3002], 17),  # within the stack
        ("v = Unsqueeze <axes = [0]> (a)", [[2, 3]], 12),  # an attribute then
        ("v = Unsqueeze(a, one)", [[2], [3]], 13),
        ("v = Identity(x)", None, 17),
        ("v = NonZero(a)", None, 17),
        ("u = Cast <to = 7> (x) v = Add(u, a)", None, 17),
        ("three = Constant <value_ints = [1, 2, 3]> () v = Add(a, three)", None, 17),
        ("v = Shape(u)", None, 17),
        ("w = Add(v, a) v = Add(w, a)", None, 17),  # a cycle
    ],
    ids=lambda value: str(value)[:40],
)
def test_small_operators_on_constants_are_known_and_everything_else_is_not(nodes, known, opset):
    held = "int64[2] a = {2, 3}, int64[2] b = {4, 5}, int64[1] one = {1}, float[2] f = {1.5, -2.5}"
    text = f"g (float[2,3] x, float[N,3] u) => (int64[N] v) <{held}> {{ {nodes} }}"
    found = scopes(text, opset=opset)[0].value("v")
    assert (None if found is None else found.tolist()) == known


def test_an_initializer_that_callers_may_override_is_not_known_from_ir_4_on():
    text = "g (float[2] x, int64[2] a = {2, 3}) => (int64[2] v) { v = Identity(a) }"
    (scope,) = scopes(text, ir=4)
    assert (scope.value("a"), scope.value("v")) == (None, None)
    assert scope.type("a").tensor_type.shape.dim[0].dim_value == 2
    (before,) = scopes(text, ir=3, opset=8)
    assert before.value("v").tolist() == [2, 3]


def test_subgraphs_see_outer_values_and_their_own():
    outer, then, other, body = (
        scopes("""g (bool c, float[2,3] x, int64 n) => (int64[2] y, int64[2] l)
        <int64[2] a = {2, 3}> {
            b = Add(a, a)
            y = If (c) <
                then_branch = t () => (int64[2] v) <int64[2] d = {1, 1}> { v = Add(b, d) },
                else_branch = e () => (int64[2] w) { w = Shape(x) }>
            l = Loop (n, c, a) <
                body = step (int64 i, bool go, int64[2] s) => (bool go1, int64[2] s1) {
                    go1 = Identity(go)
                    s1 = Add(s, a)
                }>
        }""")
    )
    known = {name: then.value(name).tolist() for name in "vb"}
    assert known == {"v": [5, 7], "b": [4, 6]} and other.value("w").tolist() == [2, 3]
    unknown = [(outer, "v"), (outer, "y"), (other, "d"), (body, "s"), (body, "s1")]
    assert [scope.value(name) for scope, name in unknown] == [None] * 5
    fed = {name: other.is_fed(name) for name in "xcabwv"}
    assert [name for name in fed if fed[name]] == ["x", "c"]


def test_functions_stand_alone():
    _, body = scopes("""g (int64[2] x) => (int64[2] y) <int64[2] a = {2, 3}> { y = local.F(a) }
        <domain: "local", opset_import: ["" : 17]>
        F (p) => (v) { a = Constant <value_ints = [7, 7]> () b = Add(p, a) v = Identity(a) }""")
    assert body.value("v").tolist() == [7, 7]
    assert body.value("p") is None
    assert body.value("b") is None


def test_large_tensors_are_never_computed():
    shape = helper.make_tensor("s", TensorProto.INT64, [1], [MAX_KEPT_ELEMENTS + 1])
    big = onnx.numpy_helper.from_array(np.zeros(MAX_KEPT_ELEMENTS + 1, np.int64), "big")
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["filled"]),
        helper.make_node("Identity", ["big"], ["copy"]),
        helper.make_node("Concat", ["half", "half"], ["joined"], axis=0),
    ]
    half = onnx.numpy_helper.from_array(np.zeros(MAX_KEPT_ELEMENTS // 2 + 1, np.int64), "half")
    graph = helper.make_graph(nodes, "g", [], [], [shape, big, half])
    ((scope, _),) = constant_folding.scopes(helper.make_model(graph))
    assert [scope.value(n) for n in ("filled", "big", "copy", "joined")] == [None] * 4
    assert scope.value("half").size == MAX_KEPT_ELEMENTS // 2 + 1


def test_tensors_that_lie_in_another_file_or_are_broken_are_not_known():
    external = TensorProto(name="e", data_type=TensorProto.INT64, dims=[2])
    external.data_location = TensorProto.EXTERNAL
    broken = TensorProto(name="b", data_type=TensorProto.INT64, dims=[2], raw_data=b"123")
    strange = TensorProto(name="s", data_type=999, dims=[1], raw_data=b"1")
    graph = helper.make_graph([], "g", [], [], [external, broken, strange])
    ((scope, _),) = constant_folding.scopes(helper.make_model(graph))
    assert [scope.value(n) for n in "ebs"] == [None] * 3


# Shape inference

LONGEST = MAX_KEPT_ELEMENTS


def parsed(text: str) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 17, "onnx_spatial.probe" : 1]>'
    return parser.parse_model(head + text.replace("P ", "onnx_spatial.probe.Probe "))


def test_what_was_put_in_to_bound_propagation_is_taken_out():
    text = """g (int64[5000] x) => (int64[m] z) <int64[1] one = {1}, int64[1] two = {2}> {
        [first] y = Slice(x, one, two) [second] w = Slice(x, one, two) z = Add(y, w) }"""
    model = shape_inference.infer(parsed(text), lambda number, types: None)
    assert list(model.graph.node) == list(parsed(text).graph.node)
    assert [v.name for v in model.graph.value_info] == ["y", "w"]


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ([LONGEST], (LONGEST,)),
        ([LONGEST + 1], (None,)),
        ([10**9, 10**9], (10**9, 10**9)),
        ([2, -1, 3], (2, None, 3)),
        ([2, -(2**62), 2**62], (2, None, None)),
    ],
)
def test_a_bound_hides_long_vectors_negative_sizes_and_what_could_overflow(declared, shown):
    known = onnx.helper.make_tensor_type_proto(7, declared)
    assert shape_inference.dims(shape_inference.output_type(known, LONGEST)) == shown


def test_an_interrupt_in_a_rule_goes_through():
    """Python calls onnx, which calls Python: Ctrl-C must not end as a shape that is not known."""
    text = """g (bool c, float[3] x) => (float[?] y) { y = If (c) <
        then_branch = t () => (float[?] u) { u = P <onnx_spatial_probe = 0> (x) },
        else_branch = e () => (float[3] v) { v = Neg (x) }> }"""

    def rule(number: int, types: object) -> onnx.TypeProto | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shape_inference.infer(parsed(text), rule)


# Sizes that no runtime runs: one line instead of the end of the process in onnx's own inference

NODES = (
    "[s2b] s = ai.onnx.converters.tensorflow.SpaceToBatchND(x, b, p)",
    "t = Transpose<perm = [0, 3, 1, 2]>(s)",
    "[conv] u = Conv<dilations = [RATE, RATE]>(t, w)",
    "v = Transpose<perm = [0, 2, 3, 1]>(u)",
    "[b2s] y = ai.onnx.converters.tensorflow.BatchToSpaceND(v, b, c)",
)


def blocked_conv(
    size: int, kernel: int, *, crop: int = 1, dilation: int = 1, nodes: str = " ".join(NODES)
) -> onnx.ModelProto:
    """SpaceToBatchND -> Conv -> BatchToSpaceND on an image of static size, with blocks of 2x2."""
    ones = ", ".join("1" * kernel**2)
    output = "out" if "out =" in nodes else "y"
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
        g (float[2,{size},{size},1] x, bool cond) => ({output})
        <int32[2] b = {{2, 2}}, int32[2,2] p = {{0, 0, 0, 0}},
         int32[2,2] c = {{{crop}, {crop}, {crop}, {crop}}}, float[1,1,{kernel},{kernel}] w = {{{ones}}}>
        {{ {nodes.replace("RATE", str(dilation))} }}""")


def test_a_window_larger_than_its_blocked_input_is_one_line_and_dilations_count():
    words = (
        "Conv 'conv' in main graph cannot run: its window of 5x5 is larger than its input of 3x3; "
        "export the model for larger inputs"
    )
    for call in (onnx_spatial.inspect, onnx_spatial.convert, onnx_spatial.optimize):
        with pytest.raises(onnx_spatial.SpatialError, match=words) as error:
            call(blocked_conv(6, 5))
        assert error.value.code == "invalid-graph"
    with pytest.raises(onnx_spatial.SpatialError, match=r"window of 9x9 .* input of 4x4;"):
        onnx_spatial.convert(blocked_conv(8, 5, dilation=2))


def test_what_leaves_nothing_and_what_only_a_wrong_declaration_forbids_is_legal():
    empty, model = blocked_conv(6, 4, crop=0), blocked_conv(6, 3, crop=0)
    model.graph.node[2].input[0] = "other"
    model.graph.node.insert(2, helper.make_node("Twice", ["t"], ["other"], domain="users.own"))
    model.opset_import.append(helper.make_opsetid("users.own", 1))
    wrong = helper.make_tensor_value_info("other", TensorProto.FLOAT, [8, 1, 1, 1])
    model.graph.value_info.append(wrong)
    for legal in (empty, model):  # TensorFlow gives an empty tensor
        onnx_spatial.convert(legal, verify=False)


@pytest.mark.parametrize("slices", [False, True])
def test_in_a_branch_only_what_would_end_the_process_is_refused(slices):
    """A branch may never run, but onnxruntime infers the shapes of both when it loads the model."""
    first, last = (1, 5) if slices else (2, 3)
    inside, (outer, inner) = " ".join(NODES[first:last]), ("sy" if slices else "tu")
    model = blocked_conv(
        6,
        5,
        crop=int(slices),
        nodes=f"""{" ".join(NODES[:first])}
        out = If (cond) <then_branch = a () => ({inner}) {{ {inside} }},
                         else_branch = e () => (z) {{ z = Identity({outer}) }}>""",
    )
    if not slices:
        onnx_spatial.convert(model, verify=False)
        return
    with pytest.raises(onnx_spatial.SpatialError, match=r"If out.then_branch cannot run: its win"):
        onnx_spatial.convert(model, verify=False)


def test_the_inliner_does_not_end_the_process():
    """It converts functions to the opset of the model."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[1,1,3] x, float[1,1,5] w) => (float[a,b,c] y) { y = local.F(x, w) }
        <domain: "local", opset_import: ["" : 16]> F (x, w) => (y) {
            one = Constant<value_ints = [1]>() most = Constant<value_ints = [-1]>()
            two = Constant<value_ints = [2]>() a = Conv(x, w) y = Slice(a, one, most, two) }""")
    with pytest.raises(ValueError, match="value 'a' would have a negative size"):
        functions.inline(model)
