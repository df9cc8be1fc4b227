"""Edits: fresh names, imports, constants that only replaced nodes read, values in their old layout."""

from copy import deepcopy

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import onnx_spatial
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import imports, marks
from onnx_spatial.model.graph.new_nodes import Names
from onnx_spatial.model.graph.remove_unused import remove_unused_constants

MODEL = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
g (bool c, float[2] input) => (float[2] output) <float[2] init = {1, 2}, float[2] info> {
    [node] info = Relu(input)
    output = If (c) <
        then_branch = t () => (float[2] inner) { [deep] inner = Add(info, init) },
        else_branch = e () => (float[2] other) { other = local.F(info) }>
}
<domain: "local", opset_import: ["" : 17]>
F (argument) => (result) { [body] result = Relu(argument) }
"""


def test_taken_names_get_a_number_and_a_name_is_given_once():
    model = parser.parse_model(MODEL)
    sparse = model.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.float32([1]), "sparse"))
    names = Names(traversal.Index(model))
    taken = "input output init info node inner deep other argument result body c sparse".split()
    assert [names.fresh(name) for name in taken] == [f"{name}_1" for name in taken]
    assert [names.fresh("n") for _ in range(3)] == ["n", "n_1", "n_2"]


def test_dead_domains_are_dropped_where_their_nodes_were_replaced_and_nowhere_else():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["a" : 1, "" : 17, "b" : 1, "l" : 1]>
        g (float[2] x) => (float[2] y) { y = l.F(x) }
        <domain: "l", opset_import: ["" : 17, "a" : 1, "c" : 1]> F (x) => (y) { y = Neg(x) }""")
    assert imports.adjust_imports(model, [(traversal.Place(), "l")], 17) == []
    replaced = [(traversal.Place(), "b"), (traversal.Place(("l", "F", "")), "a")]
    assert imports.adjust_imports(model, replaced, 17) == ["a", "b"]
    assert [o.domain for o in model.opset_import] == ["", "l"]
    assert [o.domain for o in model.functions[0].opset_import] == ["", "c"]


def test_the_default_domain_is_imported_where_it_is_needed_and_missing():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["l" : 1]>
        g (float[2] x) => (float[2] y) { y = Neg(x) }
        <domain: "l", opset_import: ["l" : 1]> F (x) => (y) { y = Neg(x) }
        <domain: "l", opset_import: ["l" : 1]> G (x) => (y) { y = l.F(x) }""")
    imports.adjust_imports(model, [], 15)
    versions = [[(o.domain, o.version) for o in m.opset_import] for m in (model, *model.functions)]
    assert versions == [[("l", 1), ("", 15)], [("l", 1), ("", 15)], [("l", 1)]]


HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
BRANCH = "=> (float[2] t) { t = Add(x, c) }"


def note(model: onnx.ModelProto) -> None:
    annotation = model.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="c")


def give(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("c", 1, [1]))


@pytest.mark.parametrize(
    ("nodes", "gone", "change"),
    [
        ("[a] z = Add(x, c) [b] y = Neg(x)", "c", None),
        ("[a] z = Add(x, c) [b] y = Mul(x, c)", "", None),
        ("[k] k = Identity(c) [n] n = Concat <axis = 0> (k) [a] z = Add(x, n) [b] y = Neg(x)",
         "knc", None),
        ("[s] s = Shape(x) [a] z = Expand(c, s) [b] y = Neg(x)", "c", None),
        (f"[a] z = Add(x, c) [b] y = If (o) <then_branch = t () {BRANCH}, else_branch = e () {BRANCH}>",
         "", None),
        ("[a] z = Add(x, c) [b] y = Neg(x)", "", note),
        ("[a] z = Add(x, c) [b] y = Neg(x)", "", give),
    ],
)  # fmt: skip
def test_constants_go_that_only_the_replaced_node_read(nodes, gone, change):
    constants = "float[1] c = {2.0}, float[1] idle = {3.0}, bool o = {1}"
    original = parser.parse_model(
        f"{HEAD} g (float[2] x) => (float[2] y) <{constants}> {{ {nodes} }}"
    )
    if change:
        change(original)
    model = deepcopy(original)
    model.graph.node.remove(next(node for node in model.graph.node if node.name == "a"))
    names = [node.name for node in model.graph.node]
    remove_unused_constants(traversal.Index(original), traversal.Index(model))
    assert [node.name for node in model.graph.node] == [n for n in names if n not in gone]
    assert [t.name for t in model.graph.initializer if t.name not in gone][-2:] == ["idle", "o"]
    assert ("c" in [t.name for t in model.graph.initializer]) == ("c" not in gone)


def test_constants_of_a_branch_go_with_those_around_it_that_they_are_made_of():
    original = parser.parse_model(f"""{HEAD}
        g (float[2] x, bool o) => (float[2] y) <float[1] c = {{2}}> {{ y = If (o) <
            then_branch = t () => (float[2] t) {{ k = Neg(c) z = Add(x, k) t = Neg(x) }},
            else_branch = e () => (float[2] e) {{ e = Neg(x) }}> }}""")
    model = deepcopy(original)
    branch = next(a.g for a in model.graph.node[0].attribute if a.name == "then_branch")
    del branch.node[1]
    remove_unused_constants(traversal.Index(original), traversal.Index(model))
    assert [node.op_type for node in branch.node] == ["Neg"] and not model.graph.initializer


def test_conversion_removes_and_reports_them():
    text = """g (float[1,4,4,1] x) => (float[4,2,2,1] y) <int64[2] idle = {2, 2}> {
        k = Constant <value = int32[2] {2, 2}> ()
        block = Cast <to = 7> (k)
        pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
        y = com.microsoft.SpaceToBatchND(x, block, pads)
    }"""
    made = parser.parse_model(HEAD + text)
    sparse = made.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.float32([1]), "sparse"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([2])))
    result = onnx_spatial.convert(made)
    assert result.verification
    assert "idle" in {t.name for t in result.model.graph.initializer}
    assert [s.values.name for s in result.model.graph.sparse_initializer] == ["sparse"]
    assert result.touched["nodes_removed"] == ["<k>", "<block>", "<pads>"]
    assert result.touched["initializers_removed"] == []


def marked(mark: str) -> onnx.ModelProto:
    """A sum of rank 4, marked with what it was in another model."""
    made = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float[N,2,1,L] x) => (float[N,2,1,L] y) { s = Add(x, x) y = Relu(s) }"
    )
    made.graph.node[0].metadata_props.add(key=marks.LAYOUT, value=mark)
    return made


@pytest.mark.parametrize("mark", ["", "old", "old 0,0,1", "old 0,1,x", "old 0,3", "x 0,1,2,3"])
def test_damaged_marks_and_names_that_are_taken_are_ignored(mark: str) -> None:
    made = marked(mark)
    assert marks.with_original_values(made) == made
