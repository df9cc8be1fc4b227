"""Edits are carried over into the message that was read; whatever the edit left alone stays."""

from __future__ import annotations

from onnx import parser

from onnx_spatial.model import traversal
from onnx_spatial.model.graph import patch_proto


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
