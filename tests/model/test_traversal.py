"""Walking: one fixed order over graphs, subgraphs and functions, the same for messages and objects."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import parser

from onnx_spatial.model import traversal

NESTED = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
g (bool c, float[2] x) => (float[2] y) {
    [a] u = Relu(x)
    [choice] y = If (c) <
        then_branch = t () => (float[2] v) { [b] v = Neg(u) },
        else_branch = e () => (float[2] w) {
            [c] p = Abs(u)
            [inner] w = If (c) <
                then_branch = t () => (float[2] q) { [d] q = Neg(p) },
                else_branch = e () => (float[2] r) { [e] r = local.F(p) }>
        }>
}
<domain: "local", opset_import: ["" : 17]>
F (x) => (y) { [f] z = Relu(x) [g] y = Neg(z) }
"""


def test_messages_and_objects_are_walked_in_the_same_order():
    model = parser.parse_model(NESTED)
    messages = [node.name for _, _, node in traversal.nodes(model)]
    objects = [node.name for node in traversal.ir_nodes(ir.from_proto(model))]
    assert sorted(messages) == ["a", "b", "c", "choice", "d", "e", "f", "g", "inner"]
    assert messages == objects
    assert messages.index("choice") < messages.index("b") < messages.index("d")
    assert messages[-2:] == ["f", "g"]


def test_places_are_told_in_words():
    model = parser.parse_model(NESTED)
    places = {node.name: str(place) for place, _, node in traversal.nodes(model)}
    assert [str(place) for place, _ in traversal.graphs(model)] == list(
        dict.fromkeys(places.values())
    )
    assert places["a"] == "main graph"
    assert places["b"] == "main graph > If y.then_branch"
    assert places["d"] == "main graph > If y.else_branch > If w.then_branch"
    assert places["g"] == "function local:F"


def test_a_node_is_called_by_its_name_or_else_its_first_output():
    make = onnx.helper.make_node
    assert traversal.label(make("Relu", ["x"], ["y"], "n")) == "n"
    assert traversal.label(make("Relu", ["x"], ["y"])) == "<y>"
    assert traversal.label(make("Split", ["x"], ["", "z"])) == "<z>"
    assert traversal.label(make("Relu", ["x"], [])) == "<unnamed>"
    assert traversal.label(ir.from_proto(make("Relu", ["x"], ["y"]))) == "<y>"


def test_nodes_in_order_whatever_the_file_says():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y) {
            [last] y = If (c) <then_branch = t () => (v) {v = Neg(w)}, else_branch = e () => (w) {}>
            [third] w = Add(z, u)
            [first] u = Relu(x)
            [second] z = Neg(u) }""")
    assert [n.name for n in traversal.in_order(model.graph)] == ["first", "second", "third", "last"]


def test_no_node_is_lost_in_a_circle():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { [a] y = Add(x, w)  [b] w = Neg(y)  [c] u = Neg(x) }""")
    assert [n.name for n in traversal.in_order(model.graph)] == ["c", "a", "b"]
