"""What is known before a model runs: parameters and shapes, and what the calls of a function say."""

import json
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert, run
from onnx import TensorProto, parser
from parsing import model
from vocabulary import SpaceToBatch

from onnx_spatial import analysis
from onnx_spatial.analysis import Analysis, GraphFacts
from onnx_spatial.analysis.unknown_operators import unknown_operators
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference

WANTED = SpaceToBatch((2, 3), ((1, 1), (0, 2)))
#: The tables that a file holds, the nodes that give an operator its parameters, and the inputs.
SOURCES = {
    "initializers": ("int32[2] block = {2, 3}, int64[2,2] pads = {1, 1, 0, 2}", ""),
    "Constant value_ints": (
        "int64[2] square = {2, 2}",
        """block = Constant <value_ints = [2, 3]> () flat = Constant <value_ints = [1, 1, 0, 2]> ()
            pads = Reshape(flat, square)""",
    ),
    "Identity and Cast": (
        "int64[2] given = {2, 3}, float[2,2] amounts = {1, 1, 0, 2}",
        """b = Identity(given) c = Identity(b)
            block = Cast <to = 6> (c) pads = Cast <to = 7> (amounts)""",
    ),
    "Concat": (
        "int32[1] two = {2}, int32[1] three = {3}, int32[1,2] low = {1, 1}, int32[1,2] high = {0, 2}",
        "block = Concat <axis = 0> (two, three) pads = Concat <axis = 0> (low, high)",
    ),
    "arithmetic": (
        "int64[2,2] columns = {1, 0, 1, 2}, int64[2] odd = {5, 7}, int64[1] two = {2}",
        """block = Div(odd, two) rows = Transpose <perm = [1, 0]> (columns) more = Add(rows, two)
            pads = Sub(more, two)""",
    ),
    "Shape of a static shape": (
        """int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
        int64[2] square = {2, 2}, int64[1] zero = {0}, int64[2] block = {2, 3}""",
        """shape = Shape(x) h = Gather <axis = 0> (shape, one) spare = Sub(h, three)
            w = Shape <start = 2, end = 3> (x) odd = Mod(w, three) two_more = Add(odd, one)
            flat = Concat <axis = 0> (spare, one, zero, two_more) pads = Reshape(flat, square)""",
    ),
}
PADS = "int64[2,2] pads = {1, 1, 0, 2}"
UNKNOWN = {
    "a graph input": (PADS, "", "float[2,4,4,1] x, int32[2] block"),
    "an initializer that callers may override": (
        PADS, "", "float[2,4,4,1] x, int32[2] block = {2, 3}",
    ),
    "the Shape of unknown dims": (
        f"int64[1] three = {{3}}, {PADS}",
        """half = Shape <start = 1, end = 2> (x) two = Div(half, half)
            block = Concat <axis = 0> (two, three)""",
        "float[2,H,4,1] x",
    ),
    "an operator that draws": (
        PADS,
        """drawn = RandomUniform <shape = [2], low = 2.0, high = 3.0> ()
            block = Cast <to = 7> (drawn)""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES | UNKNOWN)
def test_parameters_are_found_through_nodes_and_what_a_run_decides_is_left_to_it(source):
    tables, nodes, *inputs = (SOURCES | UNKNOWN)[source]
    made = model(f"""g ({(inputs or ["float[2,4,4,1] x"])[0]}) => (float[?,?,?,?] y) <{tables}> {{
        {nodes} y = M.SpaceToBatchND(x, block, pads) }}""")
    (info,) = analysis.find(made)
    assert info.error is None
    if source in UNKNOWN:
        assert (info.call.operator, info.call.block.values, info.call.block.length) == (
            None,
            None,
            2,
        )
        assert info.call.begins.values == (1, 0)
        return
    assert info.call.operator == WANTED
    converted = convert(made, prefer="transpose")
    assert structure.written(converted) == ["Pad", "Reshape", "Transpose", "Reshape"]


# Shapes

TABLES = "<int64[2] two = {2, 2}, int64[2,2] none = {0, 0, 0, 0}, int64[1] one = {1}"


def test_parameters_computed_from_the_shape_behind_another_operator():
    """Each pass of folding and inference gets one operator further."""
    found = analysis.find(
        model(f"""g (float[2,4,8,1] x) => (float[?,?,?,?] y) {TABLES}> {{
        a = M.SpaceToBatchND(x, two, none) h = Shape <start = 1, end = 2> (a)
        b1 = Concat <axis = 0> (one, h) b = M.SpaceToBatchND(a, b1, none)
        w = Shape <start = 2, end = 3> (b) b2 = Concat <axis = 0> (w, one)
        y = M.SpaceToBatchND(b, b2, none) }}""")
    )
    assert [f.call.operator.block_shape for f in found] == [(2, 2), (1, 2), (2, 1)]
    assert [f.output_shape for f in found] == [(8, 2, 4, 1), (16, 2, 2, 1), (32, 1, 2, 1)]


@pytest.mark.parametrize(
    "nodes",
    [
        "y = M.SpaceToBatchND(x, two, none) r = Relu(y)",
        """r = If (c) < then_branch = t () => (float[?,?,?,?] t) { t = M.SpaceToBatchND(x, two, none) },
            else_branch = e () => (float[?,?,?,?] e) { e = M.SpaceToBatchND(x, two, none) }>""",
    ],
)
def test_what_a_file_declares_behind_our_operators_is_not_believed(nodes):
    """Exporters that do not know the operators guess that the shape stays."""
    made = model(f"""g (float[2,4,6,1] x, bool c) => (float[?,?,?,?] z)
        {TABLES}, float[2,4,6,1] y, float[2,4,6,1] r>
        {{ {nodes} z = M.BatchToSpaceND(r, two, none) }}""")
    assert {v.name for v in made.graph.value_info} == {"y", "r"}
    info = analysis.find(made)[-1]
    assert (info.facts.inputs[0].shape, info.output_shape) == ((8, 2, 3, 1), (2, 4, 6, 1))
    assert info.error is None


def test_where_the_inference_gives_up_declared_types_still_count(monkeypatch):
    """Less is known then, but never something wrong."""
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", Mock(side_effect=RuntimeError))
    made = model("""g (int16[2,3,4,1] x) => (int16[?,?,?,?] y)
        <int64[2] two = {2, 2}, int64[2,2] pads = {1, 0, 0, 0}>
        { y = M.SpaceToBatchND(x, two, pads) }""")
    (info,) = analysis.find(made)
    assert info.facts.inputs[0].shape == (2, 3, 4, 1)
    assert info.element_types == {TensorProto.INT16}
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4, 1)
    (y,) = running.run(convert(made), {"x": x})
    assert running.same_bits(y, info.call.operator(x))


# Functions


def facts(graph: str, *functions: str) -> dict[str, GraphFacts]:
    """The facts of each graph of a model, by place."""
    head = '<ir_version: 10, opset_import: ["" : 17, "own" : 1]>'
    imports = '<domain: "own", opset_import: ["" : 17, "own" : 1]>'
    made = parser.parse_model("\n".join((head, graph, *(f"{imports} {f}" for f in functions))))
    before = made.SerializeToString(deterministic=True)
    found = Analysis(made, ()).facts
    assert made.SerializeToString(deterministic=True) == before
    return {str(p): f for (p, _), f in zip(traversal.graphs(made), found, strict=True)}


def dims(known: GraphFacts, name: str) -> tuple[int | str | None, ...] | None:
    return shape_inference.dims(known.scope.type(name))


ADD = "f (a, b) => (r) { s = Add(a, b) r = Neg(s) }"


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


def test_what_a_call_leaves_out_or_the_inliner_rewrites_tells_nothing() -> None:
    clip = "f (a, least) => (r) { r = Clip(a, least) }"
    calls = "g (float[2,3] x) => (y, u) <float b = {0}> { y = own.f(x, b) u = own.f(x) }"
    known = facts(calls, clip)["function own:f"]
    assert known.scope.type("least") is None and known.scope.value("least") is None
    # Softmax of opset 12 works on a matrix: the inliner flattens what it reads.
    made = parser.parse_model("""<ir_version: 10, opset_import: ["" : 17, "own" : 1]>
        g (float[2,3,4] x) => (float[2,3,4] y) { y = own.f(x) }
        <domain: "own", opset_import: ["" : 12]>
        f (x) => (r) { a = Relu(x) b = Softmax(a) r = Neg(b) }""")
    _, known = Analysis(made, ()).facts
    assert dims(known, "a") is None


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
    types = [shape_inference.element_type(known.scope.type(n)) for n in "ijklm"]
    one, half = TensorProto.INT64, TensorProto.FLOAT16
    assert types == [one, TensorProto.FLOAT, None, half, one]


# Operators that onnxruntime lacks are named, with what helps


TEXT = """<ir_version: 8, opset_import: ["" : 17, "my" : 1, "com.microsoft" : 1, "f" : 1,
    "ai.onnx.converters.tensorflow" : 1]>
g (float[1,4,6,3] x) => (float[?,?,?,?] y) <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}> {
    [s2b] a = my.SpaceToBatchND(x, block, none)
    [crop] b = ai.onnx.converters.tensorflow.CropAndResize(a)
    [one] c = my.Own(b)
    [two] d = my.Own(c)
    e = com.microsoft.Gelu(d)
    i = f.Twice(e)
    y = Neg(i)
}
<domain: "f", opset_import: ["" : 17]> Twice (u) => (v) { v = Add(u, u) }
"""


def test_unknown_operators_are_listed_once():
    model = parser.parse_model(TEXT)
    found = unknown_operators(model, {("my", "SpaceToBatchND")})
    assert [(o.domain, o.op_type, o.node, o.nodes) for o in found] == [
        ("my", "SpaceToBatchND", "s2b", 1),
        ("ai.onnx.converters.tensorflow", "CropAndResize", "crop", 1),
        ("my", "Own", "one", 2),
    ]
    assert found[0].advice.startswith("--domain my converts it")
    assert "tf2onnx" in found[1].advice
    assert found[2].message.startswith("onnxruntime has no operator my:Own (2 nodes): register")
    model.graph.node[-1].op_type = "Negg"
    words = "onnxruntime has no operator ai.onnx:Negg (node '<y>'): correct its name"
    for model.graph.node[-1].domain in ("", "ai.onnx"):
        assert unknown_operators(model)[-1].message.startswith(words)


def test_nothing_to_do_says_what_remains_and_what_helps(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    assert run(["convert", str(path), "-o", str(tmp_path / "o.onnx")]) == 0
    text = capsys.readouterr().out
    assert "nothing to do" in text and "--domain my" in text
    assert "onnxruntime has no operator my:Own (2 nodes)" in text
    assert run(["inspect", str(path), "--json"]) == 0
    remaining = json.loads(capsys.readouterr().out)["remaining"]
    assert [each["op_type"] for each in remaining] == ["SpaceToBatchND", "CropAndResize", "Own"]
