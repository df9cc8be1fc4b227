"""Values that are known before a model runs, and those that must not be taken for known."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from onnx_spatial.model.graph.strip import MAX_KEPT_ELEMENTS
from onnx_spatial.model.inference import constant_folding


def scopes(text: str, ir: int = 9, opset: int = 17) -> list[constant_folding.ConstantScope]:
    head = f'<ir_version: {ir}, opset_import: ["" : {opset}, "local" : 1]>\n'
    return [scope for scope, _ in constant_folding.scopes(parser.parse_model(head + text))]


def value(nodes: str, *, given: str = "float[2,3] x", ir: int = 9, opset: int = 17) -> object:
    """What is known of `v`, as lists; initializers a = [2, 3], b = [4, 5] and one = [1]."""
    held = "int64[2] a = {2, 3}, int64[2] b = {4, 5}, int64[1] one = {1}, float[2] f = {1.5, -2.5}"
    scope, *_ = scopes(f"g ({given}) => (int64[N] v) <{held}> {{ {nodes} }}", ir, opset)
    known = scope.value("v")
    return None if known is None else known.tolist()


@pytest.mark.parametrize(
    ("nodes", "known"),
    [
        ("v = Add(a, b)", [6, 8]),
        ("v = Concat <axis = 0> (a, one, b)", [2, 3, 1, 4, 5]),
        ("e = Constant <value_ints = [-1, 1]> () v = Reshape(a, e)", [[2], [3]]),
        ("e = Constant <value_ints = [2]> () v = Slice(b, one, e)", [5]),
        ("v = Cast <to = 7> (f)", [1, -2]),
        ("v = Constant <value_int = 7> ()", 7),
        ("v = Constant <value_float = 1.5> ()", 1.5),
        ("v = ConstantOfShape(a)", [[0.0] * 3] * 2),
        ("v = Shape(x)", [2, 3]),
        ("v = Shape <start = 1> (x)", [3]),
        ("v = Shape <end = 1> (x)", [2]),
        ("w, v = Split <axis = 0> (a)", [3]),
    ],
)
def test_small_operators_on_constants_are_known(nodes, known):
    assert value(nodes) == known


@pytest.mark.parametrize(
    "nodes",
    [
        "v = Identity(x)",
        "v = NonZero(a)",
        "u = Cast <to = 7> (x) v = Add(u, a)",
        "three = Constant <value_ints = [1, 2, 3]> () v = Add(a, three)",
    ],
)
def test_everything_else_is_not(nodes):
    assert value(nodes) is None


@pytest.mark.parametrize("declared", ["float[N,3] x", "float[?,3] x"])
def test_the_shape_of_unknown_dims_is_not_known(declared):
    assert value("v = Shape(x)", given=declared) is None
    assert value("v = Shape <start = 1> (x)", given=declared) == [3]


def test_a_cycle_is_not_known_and_does_not_hang():
    assert value("u = Add(v, a) v = Add(u, a)") is None


def test_an_initializer_that_callers_may_override_is_not_known_from_ir_4_on():
    text = "g (float[2] x, int64[2] a = {2, 3}) => (int64[2] v) { v = Identity(a) }"
    (scope,) = scopes(text, ir=4)
    assert (scope.value("a"), scope.value("v")) == (None, None)
    assert scope.type("a").tensor_type.shape.dim[0].dim_value == 2
    (before,) = scopes(text, ir=3, opset=8)
    assert before.value("v").tolist() == [2, 3]


def test_the_version_of_the_opset_decides_what_an_operator_means():
    """Before 13 Unsqueeze and Squeeze take their axes as an attribute."""
    assert value("v = Unsqueeze <axes = [0]> (a)", opset=12) == [[2, 3]]
    assert value("v = Unsqueeze(a, one)", opset=13) == [[2], [3]]


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


def test_deep_chains_do_not_overflow_the_stack():
    nodes = "v0 = Identity(a) " + " ".join(f"v{i} = Add(v{i - 1}, one)" for i in range(1, 3000))
    assert value(f"{nodes} v = Identity(v2999)") == [3001, 3002]
