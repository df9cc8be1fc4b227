"""Nodes are put in front of others without any other change to the messages."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from onnx_spatial.lowering import Emitter
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import insert_nodes
from onnx_spatial.model.graph.naming import Names

TEXT = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
g (bool b, float[2] x) => (float[2] y) <float[2] k = {1, 2}> {
    [choice] y = If (b) < then_branch = yes () => (float[2] t) { [inner] t = Add (x, k) },
                          else_branch = no () => (float[2] e) { [call] e = local.F (x) } > }
<domain: "local", opset_import: ["" : 17]> F (a) => (c) { [body] c = Neg (a) }"""


def doubled(model: onnx.ModelProto, *, initializers: bool) -> onnx.ModelProto:
    """The model with what Add and Neg read multiplied by 2."""
    names = Names(model)
    inserted = {}
    for index, (_, _, node) in enumerate(traversal.nodes(model)):
        if node.op_type in ("Add", "Neg"):
            emit = Emitter(17)
            emit.op(
                "Mul", ir.Value(name=node.input[0]), emit.constant(np.array(2, np.float32), "two")
            )
            new = insert_nodes.written(
                node, emit.nodes, emit.constants, names, initializers=initializers
            )
            node.input[0] = new.nodes[-1].output[0]
            inserted[index] = new
    insert_nodes.in_front(model, inserted)
    return model


@pytest.mark.parametrize("initializers", [True, False])
def test_in_every_kind_of_graph(initializers: bool) -> None:
    made = doubled(parser.parse_model(TEXT), initializers=initializers)
    found = {str(place): [n.op_type for n in graph.node] for place, graph in traversal.graphs(made)}
    constant = [] if initializers else ["Constant"]
    assert found["main graph > If y.then_branch"] == [*constant, "Mul", "Add"]
    assert found["function local:F"] == [*constant, "Mul", "Neg"]
    named = {n.name: n for _, _, n in traversal.nodes(made)}
    assert {"inner/Mul", "body/Mul"} <= named.keys()
    assert [(p.key, p.value) for p in named["inner/Mul"].metadata_props] == [
        ("onnx_spatial.origin", "Add inner")
    ]
    assert found["main graph"] == ["If"] and found["main graph > If y.else_branch"] == ["F"]
    if not initializers:
        onnx.checker.check_model(made)
        x = np.array([1, 2], np.float32)
        run = onnx.reference.ReferenceEvaluator(made).run
        assert run(None, {"b": np.array(True), "x": x})[0].tolist() == [3, 6]
        assert run(None, {"b": np.array(False), "x": x})[0].tolist() == [-2, -4]


def test_a_mark_is_renewed_and_not_repeated() -> None:
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], "first")
    insert_nodes.mark(node, node)
    node.name = "second"
    insert_nodes.mark(node, node)
    assert [p.value for p in node.metadata_props] == ["Conv second"]
