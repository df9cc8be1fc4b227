"""--opset raises the opset: only the nodes that it changes are rewritten."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from adapter import run
from onnx import parser

import onnx_spatial
from onnx_spatial import ConversionError, UsageError
from onnx_spatial.conversion.raise_opset import raise_opset

TEXT = """<ir_version: 8, opset_import: ["" : OPSET, "com.microsoft" : 1]>
g (float[1,4,6,3] x) => (float[?,?,?,?,?] z) <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}> {
    [s2b] y = com.microsoft.SpaceToBatchND(x, block, none)
    [u] u = Unsqueeze <axes = [0]> (y)
    [p] p = Pad <pads = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]> (u)
    [r] r = Relu(p)
    [z] z = Softmax <axis = 4> (r)
}"""


def model(opset: int = 9) -> onnx.ModelProto:
    made = parser.parse_model(TEXT.replace("OPSET", str(opset)))
    for node in made.graph.node:
        node.doc_string = f"about {node.name}"
        node.metadata_props.add(key="of", value=node.name)
    return made


def opset_of(made: onnx.ModelProto) -> int:
    return next(o.version for o in made.opset_import if not o.domain)


def test_only_nodes_that_change_are_rewritten():
    before = model()
    raised = raise_opset(before, 18)
    assert opset_of(raised) == 18 and opset_of(before) == 9
    nodes = {node.name: node for node in raised.graph.node}
    for name in ("s2b", "r"):
        assert nodes[name] == next(n for n in before.graph.node if n.name == name)
    for name in ("u", "p"):
        assert not nodes[name].attribute and len(nodes[name].input) > 1
        assert nodes[name].doc_string == f"about {name}" and nodes[name].metadata_props
    assert raised.graph.initializer[:2] == before.graph.initializer[:2]


@pytest.mark.parametrize("opset", [9, 8])
def test_a_newer_opset_is_kept(opset):
    made = model()
    assert raise_opset(made, opset) is made


def test_the_result_is_verified_against_the_original():
    result = onnx_spatial.convert(model(), opset=18)
    assert result.verification and opset_of(result.model) == 18
    assert result.touched["opset"] == ["9 -> 18"]
    assert onnx_spatial.convert(model(), opset=7).touched.get("opset") is None


def test_an_opset_that_is_too_old_can_be_raised():
    text = TEXT.replace("OPSET", "6").split("[u]")[0].replace(" y =", " z =") + "}"
    made = parser.parse_model(text.replace("float[?,?,?,?,?]", "float[?,?,?,?]"))
    with pytest.raises(ConversionError, match="opset is 6"):
        onnx_spatial.convert(made)
    assert onnx_spatial.convert(made, opset=13).verification


def test_a_model_without_operators_is_raised_too(tmp_path, capsys):
    made = model()
    del made.graph.node[0]
    made.graph.node[0].input[0] = "x"
    path, out = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(made, path)
    assert run(["convert", str(path), "-o", str(out), "--opset", "13"]) == 0
    text = capsys.readouterr().out
    assert "no operator was converted" in text and "raised the opset: 9 -> 13" in text
    assert opset_of(onnx.load(out)) == 13
    assert run(["convert", str(path), "--check", "--opset", "9", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["changed"]


def test_subgraphs_are_patched_and_functions_refused():
    branch = "=> (float[1,4,6,3] t) { [inner] t = Neg(x) }"
    text = f"""<ir_version: 8, opset_import: ["" : 13]>
        g (bool c, float[1,4,6,3] x) => (float[1,4,6,3] y) {{
            y = If (c) <then_branch = g1 () {branch}, else_branch = g2 () {branch}> }}"""
    made = parser.parse_model(text)
    body = made.graph.node[0].attribute[0].g
    body.node[0].doc_string = "kept"
    raised = raise_opset(made, 17)
    assert raised.graph == made.graph and opset_of(raised) == 17
    function = '<domain: "f", opset_import: ["" : 13]> F (u) => (v) { v = Neg(u) }'
    with pytest.raises(ConversionError, match="local functions"):
        raise_opset(parser.parse_model(text + function), 17)


def test_an_opset_that_onnx_does_not_know_is_bad_usage():
    with pytest.raises(UsageError, match="opset must be from 1 to"):
        onnx_spatial.convert(model(), opset=999)


def test_operators_in_the_default_domain_are_left_alone():
    """The version converter has no schema for them, and SpaceToDepth has one input there."""
    for operator in ("SpaceToBatchND", "SpaceToDepth"):
        made = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 9]>
            g (float[1,4,4,2] x) => (float[?,?,?,?] z)
            <int32[2] b = {{2, 2}}, int32[2,2] p = {{0, 0, 0, 0}}> {{
                y = {operator}(x, b, p)
                z = Relu(y)
            }}""")
        result = onnx_spatial.convert(made, opset=18)
        assert result.verification and opset_of(result.model) == 18


def test_a_sparse_initializer_is_an_input_to_the_version_converter():
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 16]>
        g (float[1,4,4,2] x) => (float[?,?,?,?] z) {
            y = Add(x, s)
            z = Relu(y)
        }""")
    values = onnx.numpy_helper.from_array(np.array([3, 5], np.float32), "s")
    indices = onnx.numpy_helper.from_array(np.array([0, 1], np.int64))
    made.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [2]))
    result = onnx_spatial.convert(made, opset=18)
    assert opset_of(result.model) == 18
    assert result.model.graph.sparse_initializer == made.graph.sparse_initializer


def test_outputs_of_branches_may_have_no_shape():
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 12]>
        g (bool c, float[2,3] x) => (float z) {
            z = If (c) <
                then_branch = t () => (float u) { u = Neg (x) },
                else_branch = e () => (float v) { v = Abs (x) }>
        }""")
    for value in (made.graph.output[0], *(a.g.output[0] for a in made.graph.node[0].attribute)):
        value.type.tensor_type.ClearField("shape")
    assert opset_of(raise_opset(made, 17)) == 17
