"""Models that are legal but unusual, and models that are wrong in unusual ways."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import running
import structure
from adapter import run
from definitions import space_to_batch
from onnx import TensorProto, helper
from parsing import model

import onnx_spatial

PARAMETERS = "int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}"


def test_a_shape_that_callers_may_override_is_not_baked_in():
    made = model(f"""g (float[n] x, int64[4] shape) => (float[a,b,c,d] z)
        <int64[4] shape = {{1, 4, 4, 1}}, {PARAMETERS}> {{
            y = Reshape(x, shape)
            z = tf.SpaceToBatchND(y, block, none)
        }}""")
    converted = onnx_spatial.convert(made).model
    x = np.arange(64, dtype=np.float32)
    (z,) = running.run(converted, {"x": x, "shape": np.array([1, 8, 8, 1])})
    assert running.same_bits(z, space_to_batch(x.reshape(1, 8, 8, 1), (2, 2), [(0, 0), (0, 0)]))


def test_parameters_may_be_default_attributes_of_the_function():
    made = model("""g (float[4,8,6,2] x) => (float[?,?,?,?] z) { z = loc.blocks(x) }
        <opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1], domain: "loc">
        blocks <size: ints = [2, 2]> (a) => (b) {
            b = tf.SpaceToBatchND <block_shape: ints = @size, paddings = [0, 0, 0, 0]> (a)
        }
    """)
    assert onnx_spatial.convert(made).operators[0].output_shape == (16, 4, 3, 2)


@pytest.mark.parametrize("read", [lambda made: made, ir.from_proto], ids=["message", "onnx_ir"])
def test_a_function_may_take_its_branches_as_attributes(read):
    choice = helper.make_node("If", ["c"], ["o"])
    branches = {}
    for name in ("then_branch", "else_branch"):
        choice.attribute.add(name=name, type=onnx.AttributeProto.GRAPH, ref_attr_name=name)
        body = helper.make_node("Mul", ["x", "x"] if name < "f" else ["x", "two"], [name])
        output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([body], name, [], [output])
    made = site("y = loc.choose(c, x) z = tf.SpaceToBatchND(y, block, none)")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    for name, graph in branches.items():
        made.graph.node[0].attribute.append(helper.make_attribute(name, graph))
    nodes = [choice, helper.make_node("Add", ["o", "x"], ["y"])]
    imports = [helper.make_opsetid("", 17)]
    made.functions.append(
        helper.make_function("loc", "choose", ["c", "x"], ["y"], nodes, imports, [*branches])
    )
    result = onnx_spatial.convert(read(made), verify=False)  # onnxruntime 1.23 does not load it
    assert result.operators[0].input_shape == (1, 4, 4, 1)
    assert structure.spatial(result.model) == []
    assert result.model.functions == made.functions


@pytest.fixture
def external(tmp_path):
    """A folder with a model whose weights lie in a file of their own."""
    weight = np.full((1, 4, 4, 64), 2, np.float32)
    made = site("w = Mul(x, two) y = tf.SpaceToBatchND(w, block, none) z = Neg(y)", two=weight)
    path = tmp_path / "in" / "m.onnx"
    path.parent.mkdir()
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=1024)
    return path


def test_small_parameters_may_lie_in_external_data(external):
    made = onnx.load(external, load_external_data=False)
    block = next(t for t in made.graph.initializer if t.name == "block")
    (external.parent / "p.bin").write_bytes(b"\0" * 16 + np.array([2, 2], np.int32).tobytes())
    block.ClearField("int32_data")
    block.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "p.bin"), ("offset", "16"), ("length", "8")):
        block.external_data.add(key=key, value=value)
    onnx.save(made, external)
    (site,) = onnx_spatial.inspect(external).operators
    assert site.output_shape == (4, 2, 2, 64)


def test_an_onnx_ir_model_knows_where_its_weights_are(external):
    assert onnx_spatial.convert(ir.load(external)).verification


def test_the_first_example_of_the_readme_is_what_is_printed(tmp_path, capsys):
    root = Path(__file__).parents[1]
    zoo = root / "models" / "wavenet" / "model.onnx"
    assert run(["convert", str(zoo), "-o", str(tmp_path / "o.onnx")]) == 0
    shown = capsys.readouterr().out.replace(str(root) + os.sep, "").splitlines()
    readme = " ".join((root / "README.md").read_text().split())
    assert shown[0] in readme
    rows = [" ".join(line.split()) for line in shown if line.startswith("conv1d_")]
    assert len(rows) == 3 and all(row in readme for row in rows)
    # The error depends on the machine's vector units, the rest does not.
    (passed,) = [line for line in shown if line.startswith("PASSED")]
    assert passed.rsplit(",", 1)[0].replace("PASSED  ", "PASSED ") in readme


#: What SpaceToBatch and BatchToSpace without padding are lowered to.
REARRANGED = ("Reshape", "Transpose", "Reshape_1")


def test_a_second_conversion_lists_only_what_it_added_itself():
    text = f"""g (float[1,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{
        [first] y = tf.SpaceToBatchND(x, block, none)
        [second] z = mine.BatchToSpaceND(y, block, none)
    }}"""
    once = onnx_spatial.convert(model(text), verify=False, prefer="transpose")
    twice = onnx_spatial.convert(once.model, domains=["mine"], prefer="transpose")
    assert once.touched["nodes_added"] == [f"first/{n}" for n in REARRANGED]
    assert twice.touched["nodes_added"] == [f"second/{n}" for n in REARRANGED]


def test_nodes_that_stand_in_any_order_are_verified_all_the_same():
    """Arithmetic in front of an operator is told from movement however the file lists them."""
    model = onnx.load(Path(__file__).parents[1] / "models" / "openvino_style" / "model.onnx")
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert onnx_spatial.convert(model).verification


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
def test_domain_ai_onnx_leaves_known_sizes_known(imported):
    """Both spellings of ONNX's own domain give the same nodes; onnxruntime has two in main graphs."""
    made = model(f"""g (float[2,8,8,3] x) => (float[?,?,?,?] y) <{PARAMETERS}> {{
            r = Relu(x)
            s = tf.SpaceToBatchND(r, block, none)
            t = Transpose <perm = [0, 2, 1, 3]> (s)
            m = ReduceMax <keepdims = 1> (t)
            u = Add(t, m)
            y = tf.BatchToSpaceND(u, block, none)
        }}""")
    known = onnx_spatial.convert(made)
    for each in (*made.graph.node, *made.opset_import):
        spelling = imported if isinstance(each, onnx.OperatorSetIdProto) else "ai.onnx"
        each.domain = each.domain or spelling
    spelled = onnx_spatial.convert(made)
    assert spelled.verification.status == "passed"
    assert [n.op_type for n in spelled.model.graph.node] == [
        n.op_type for n in known.model.graph.node
    ]
    assert [s.input_shape for s in spelled.operators] == [(2, 8, 8, 3), (8, 4, 4, 3)]


# What stands beside our operators


def site(nodes: str, **arrays: object) -> onnx.ModelProto:
    text = f"g (float[1,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{ {nodes} }}"
    return model(text, **arrays)


@pytest.mark.parametrize("domain", ["", "loc"])
def test_a_domain_that_is_not_imported_leaves_known_sizes_known(domain):
    made = site("y = Neg(x) z = tf.SpaceToBatchND(y, block, none) o = loc.Strange(x)")
    (forgotten,) = (each for each in made.opset_import if each.domain == domain)
    made.opset_import.remove(forgotten)
    (operator,) = onnx_spatial.inspect(made).operators
    assert operator.input_shape == (1, 4, 4, 1)


def test_a_weight_that_cannot_be_read_is_left_to_the_verification():
    made = site("y = tf.SpaceToBatchND(x, block, none) z = Mul(y, w)", w=np.float32([2]))
    made.graph.initializer[-1].ClearField("raw_data")
    result = onnx_spatial.convert(made)
    assert result.changed and result.verification.status == "unverified"


def test_a_body_of_scan_keeps_the_rank_of_what_it_returns():
    """onnxruntime wants to see it, and inference does not find it before opset 14."""
    text = """g (float[3,N,H,W,C] x, int32[2] block, int32[2,2] pads) => (float[a,b,c,d,e] z) {
        z = Scan <num_scan_inputs = 1, body = body (float[N,H,W,C] v) => (float[?,?,?,?] w) {
            w = tf.SpaceToBatchND(v, block, pads)
        }> (x) }"""
    made = model(text, opset=13, ir=7)
    converted = onnx_spatial.convert(made, verify=False).model
    x = np.arange(3 * 16, dtype=np.float32).reshape(3, 1, 4, 4, 1)
    parameters = {"block": np.int32([2, 2]), "pads": np.zeros((2, 2), np.int32)}
    (z,) = running.run(converted, {"x": x, **parameters})
    none = [(0, 0), (0, 0)]
    assert running.same_bits(z, np.stack([space_to_batch(part, (2, 2), none) for part in x]))
