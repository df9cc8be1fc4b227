"""Edits are carried over into the message that was read; whatever the edit left alone stays."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import parser

from onnx_spatial.model import traversal
from onnx_spatial.model.graph import patch_proto, replace_nodes
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.graph.replace_nodes import Draft, GraphEdit

MODEL = """<ir_version: {ir}, opset_import: ["" : 17, "local" : 1]>
g (bool c, float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{
    [first] u = Relu(x)
    [choice] y = If (c) <
        then_branch = t () => (float[2] v) {{ [inner] v = Neg(u) }},
        else_branch = e () => (float[2] w2) {{ [call] w2 = local.F(u) }}>
}}
<domain: "local", opset_import: ["" : 17]>
F (x) => (y) {{ [body] y = Neg(x) }}
"""


def replace_negs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every Neg becomes 0 - x."""
    edited = ir.from_proto(model)
    changes = patch_proto.Patch(model, edited)
    names = Names(model)
    for graph in (edited.graph, *edited.functions.values()):
        for node in list(ir.traversal.RecursiveGraphIterator(graph)):
            if node.op_type == "Neg":
                zero = ir.Value(
                    type=ir.TensorType(ir.DataType.FLOAT),
                    shape=ir.Shape([]),
                    const_value=ir.tensor(0.0, ir.DataType.FLOAT),
                )
                new = ir.node("Sub", [zero, node.inputs[0]])
                held = graph is edited.graph  # functions have no initializers
                draft = Draft(node, [new], [(zero, "zero")], documented=new)
                draft.results = {node.outputs[0]: new.outputs[0]}
                replace_nodes.apply(GraphEdit([draft]), names, initializers=held)
    return changes.apply()


def test_nodes_are_replaced_in_place_in_every_graph():
    model = parser.parse_model(MODEL.format(ir=9))
    before = model.SerializeToString()
    result = replace_negs(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(result)
    then, other = (a.g for a in result.graph.node[1].attribute)
    assert [n.name for n in then.node] == ["inner/Sub"]
    assert [(n.op_type, list(n.input), list(n.output)) for n in then.node] == [
        ("Sub", ["inner/zero", "u"], ["v"])
    ]
    assert [t.name for t in then.initializer] == ["inner/zero"]
    assert other == model.graph.node[1].attribute[1].g
    body = result.functions[0].node
    assert [n.op_type for n in body] == ["Constant", "Sub"]
    assert list(body[1].input) == [body[0].output[0], "x"]
    assert list(body[1].output) == ["y"]
    assert {p.key: p.value for p in body[1].metadata_props} == {replace_nodes.ORIGIN: "Neg body"}
    assert result.graph.initializer == model.graph.initializer


def test_without_an_edit_nothing_changes():
    model = parser.parse_model(MODEL.format(ir=9))
    assert patch_proto.Patch(model, ir.from_proto(model)).apply() == model


def test_dead_domains_are_dropped_where_their_nodes_were_replaced():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["a" : 1, "" : 17, "b" : 1, "l" : 1]>
        g (float[2] x) => (float[2] y) { y = l.F(x) }
        <domain: "l", opset_import: ["" : 17, "a" : 1, "c" : 1]> F (x) => (y) { y = Neg(x) }""")
    replaced = [(traversal.Place(), "b"), (traversal.Place(), "l")]
    replaced.append((traversal.Place(("l", "F", "")), "a"))
    assert patch_proto.adjust_imports(model, replaced, 17) == ["a", "b"]
    assert [o.domain for o in model.opset_import] == ["", "l"]
    assert [o.domain for o in model.functions[0].opset_import] == ["", "c"]


def test_an_import_of_a_function_that_nobody_touched_stays():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["a" : 1, "" : 17, "l" : 1]>
        g (float[2] x) => (float[2] y) { y = l.F(x) }
        <domain: "l", opset_import: ["" : 17, "a" : 1]> F (x) => (y) { y = Neg(x) }""")
    assert patch_proto.adjust_imports(model, [(traversal.Place(), "a")], 17) == []
    assert [o.domain for o in model.opset_import] == ["a", "", "l"]
    assert [o.domain for o in model.functions[0].opset_import] == ["", "a"]


def test_the_default_domain_is_imported_where_it_is_needed_and_missing():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["l" : 1]>
        g (float[2] x) => (float[2] y) { y = Neg(x) }
        <domain: "l", opset_import: ["l" : 1]> F (x) => (y) { y = Neg(x) }
        <domain: "l", opset_import: ["l" : 1]> G (x) => (y) { y = l.F(x) }""")
    patch_proto.adjust_imports(model, [], 15)
    imports = [[(o.domain, o.version) for o in m.opset_import] for m in (model, *model.functions)]
    assert imports == [[("l", 1), ("", 15)], [("l", 1), ("", 15)], [("l", 1)]]
