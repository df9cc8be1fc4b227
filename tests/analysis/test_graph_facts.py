"""What is known of the values in a function is what all of its calls say."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser

from onnx_spatial.analysis import Analysis, GraphFacts
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference


def facts(graph: str, *functions: str, opset: int = 17) -> dict[str, GraphFacts]:
    """The facts of each graph of a model, by place; the functions have opset 17."""
    head = f'<ir_version: 10, opset_import: ["" : {opset}, "own" : 1]>'
    imports = '<domain: "own", opset_import: ["" : 17, "own" : 1]>'
    made = parser.parse_model("\n".join((head, graph, *(f"{imports} {f}" for f in functions))))
    before = made.SerializeToString(deterministic=True)
    found = Analysis(made, ()).facts
    assert made.SerializeToString(deterministic=True) == before
    return {str(p): f for (p, _), f in zip(traversal.graphs(made), found, strict=True)}


def dims(known: GraphFacts, name: str) -> tuple[int | str | None, ...] | None:
    return shape_inference.dims(known.scope.type(name))


ADD = "f (a, b) => (r) { s = Add(a, b) r = Neg(s) }"


def test_shapes_and_types_that_the_calls_share() -> None:
    known = facts(
        """g (float[2,3,N] x, float[2,4,M] z, float16[2,3,5] h, float[3,1] b, float[1,1] c,
              float16 e) => (y, u, v) {
            y = own.f(x, b)
            u = own.f(z, c)
            v = own.f(h, e)
        }""",
        ADD,
    )["function own:f"]
    assert dims(known, "a") == dims(known, "s") == dims(known, "r") == (2, None, None)
    assert dims(known, "b") is None  # of two axes, or none
    assert shape_inference.element_type(known.scope.type("s")) is None


def test_a_value_is_known_if_all_calls_give_it() -> None:
    graph = """g (float[2,3] x) => (y, u) <float[1] b = {2}, float[1] c = {2}, float[1] d = {OTHER}> {
        y = own.f(x, b)
        e = Identity(c)
        u = own.outer(x, e, d)
    }"""
    outer = "outer (a, b, c) => (r) { t = own.f(a, b) r = own.f(t, c) }"
    known = facts(graph.replace("OTHER", "2"), outer, ADD)["function own:f"]
    assert np.array_equal(known.given["b"], [2])
    assert np.array_equal(known.scope.value("b"), [2])
    known = facts(graph.replace("OTHER", "3"), outer, ADD)["function own:f"]
    assert not known.given
    assert known.scope.value("b") is None
    assert dims(known, "b") == (1,)


def test_an_input_that_one_call_leaves_out() -> None:
    clip = "f (a, least) => (r) { r = Clip(a, least) }"
    known = facts(
        """g (float[2,3] x) => (y, u) <float b = {0}> { y = own.f(x, b) u = own.f(x) }""", clip
    )["function own:f"]
    assert known.scope.type("least") is None
    assert known.scope.value("least") is None


def test_values_of_one_call_belong_together() -> None:
    """One call is in a branch, and one input is read in a branch: each node is found in its call."""
    known = facts(
        """g (float[N] x, float[M] z, bool on) => (y, u) <int64[1] two = {2}> {
            y = If(on) <
                then_branch = t () => (float[?] c) {
                    n = Shape(x) p = Add(n, two) c = own.f(x, on, p)
                },
                else_branch = e () => (float[?] d) { d = Identity(x) }>
            m = Shape(z)
            q = Add(m, two)
            u = own.f(z, on, q)
        }""",
        """f (a, on, p) => (r) {
            s = Neg(a)
            r = If(on) <
                then_branch = v () => (float[?] i) { i = Expand(s, p) },
                else_branch = w () => (float[?] j) { j = Abs(s) }>
        }""",
    )
    outer, inner = known["function own:f"], known["function own:f > If r.then_branch"]
    assert dims(outer, "a") == dims(inner, "a") == (None,)
    (rows,), (given,) = inner.sizes.dims("a") or (), inner.sizes.entries("p") or ()
    assert (given - rows).constant == 2


def test_nodes_that_the_inliner_rewrites_tell_nothing() -> None:
    """Softmax of opset 12 works on a matrix: the inliner flattens what it reads."""
    made = parser.parse_model("""<ir_version: 10, opset_import: ["" : 17, "own" : 1]>
        g (float[2,3,4] x) => (float[2,3,4] y) { y = own.f(x) }
        <domain: "own", opset_import: ["" : 12]>
        f (x) => (r) { a = Relu(x) b = Softmax(a) r = Neg(b) }""")
    _, known = Analysis(made, ()).facts
    assert dims(known, "a") is None


def test_constants_of_a_function_without_calls() -> None:
    known = facts(
        "g (float[2] x) => (y) { y = Neg(x) }",
        """f <n> (a) => (r) {
            i = Constant<value_ints = [1, 2]>()
            j = Constant<value_float = 1.0>()
            k = Constant<value_ints: ints = @n>()
            l = Constant<value = float16[3,1] {1, 2, 3}>()
            m = Constant<value_int = 4>()
            r = Max(a, i, j, k, l, m)
        }""",
    )["function own:f"]
    shapes = {name: dims(known, name) for name in "ijklm"}
    assert shapes == {"i": (2,), "j": (), "k": None, "l": (3, 1), "m": ()}
    types = {n: shape_inference.element_type(known.scope.type(n)) for n in "ijklm"}
    kinds = onnx.TensorProto
    assert types == {
        "i": kinds.INT64,
        "j": kinds.FLOAT,
        "k": None,
        "l": kinds.FLOAT16,
        "m": kinds.INT64,
    }
