"""Operators wherever a legal model can hold them: graphs, subgraphs and functions, unusual ones too."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import reference
import running
import structure
from adapter import convert, plan, refusal, run
from definitions import space_to_batch
from onnx import TensorProto, helper
from parsing import image, model

import onnx_spatial

# The main graph


def test_an_operator_that_moves_nothing_keeps_its_output_name():
    made = model("""g (float[2,4,4,3] x) => (float[2,4,4,3] y, float[2,4,4,3] z)
        <int32[2] block = {1, 1}, int32[2,2] none = {0, 0, 0, 0}> {
            y = M.SpaceToBatchND(x, block, none)
            z = Relu(y)
        }""")
    converted = reference.assert_agree(made, {"x": image(2, 4, 4, 3)})
    assert structure.ops(converted) == ["Identity", "Relu"]


def test_new_nodes_are_named_after_the_old_one_and_say_where_they_come_from():
    made = model("""g (float[2,3,4,3] x) => (float[8,2,2,3] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {1, 0, 0, 0}> {
            [aspp] y = M.SpaceToBatchND(x, block, pads)
        }""")
    made.graph.node[0].doc_string = "atrous"
    made.graph.node[0].metadata_props.add(key="owner", value="me")
    converted = reference.assert_agree(made, {"x": image(2, 3, 4, 3)})
    assert all(n.name.startswith("aspp/") for n in converted.graph.node)
    origins = {p.value for n in converted.graph.node for p in n.metadata_props if p.key != "owner"}
    assert origins == {"SpaceToBatchND aspp"}
    last = converted.graph.node[-1]
    assert last.doc_string == "atrous"
    assert {p.key: p.value for p in last.metadata_props}["owner"] == "me"


def test_duplicate_node_names_stay_apart():
    made = model("""g (float[4,4,4,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
            [same] y = M.SpaceToBatchND(x, block, none)
            [same] z = M.BatchToSpaceND(x, block, none)
        }""")
    converted = reference.assert_agree(made, {"x": image(4, 4, 4, 3)})
    names = [n.name for n in converted.graph.node]
    values = [o for n in converted.graph.node for o in n.output]
    assert len(set(names)) == len(names) == 6
    assert len(set(values)) == len(values) == 6


def test_names_that_conversion_would_take_are_left_to_their_owners():
    made = model("""g (float[2,4,4,3] x, float[2] ext)
        => (float[8,2,2,3] y, float[2] other, float[2] more)
        <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, float[2] init = {1, 2}> {
            [site] y = M.SpaceToBatchND(x, block, none)
            mid = Add(ext, init)
            last = Add(mid, init)
            other = Identity(last)
            more = Identity(init)
        }""")
    renamed = {
        "ext": "site/Reshape:0",
        "init": "site/shape",
        "mid": "site/Transpose:0",
        "last": "site/shape_1",
    }
    for node in made.graph.node:
        for names in (node.input, node.output):
            names[:] = [renamed.get(n, n) for n in names]
    made.graph.input[1].name = renamed["ext"]
    next(t for t in made.graph.initializer if t.name == "init").name = renamed["init"]
    made.graph.node[1].name, made.graph.node[2].name = "site/Reshape", "site/Transpose"
    feeds = {"x": image(2, 4, 4, 3), "site/Reshape:0": np.float32([5, 6])}
    converted = reference.assert_agree(made, feeds)
    names = [n.name for n in converted.graph.node if n.name]
    assert len(set(names)) == len(names) == 5


# If


BRANCHES = """g (bool c, float[2,H,4,3] x, int32[2,2] pads) => (float[?,?,?,?] y)
    <int32[2] block = {2, 2}> {
        y = If (c) <
            then_branch = taken () => (float[?,?,?,?] t) {
                t = M.SpaceToBatchND(x, block, pads)
            },
            else_branch = other () => (float[?,?,?,?] e) <int32[2] wide = {4, 4}> {
                s = M.SpaceToBatchND(x, wide, pads)
                e = Relu(s)
            }>
    }"""


def test_constants_and_outputs_of_a_branch_stay_in_it():
    """The output of the first operator is the output of the subgraph; its name must stay."""
    converted = convert(model(BRANCHES))
    (node,) = converted.graph.node
    assert not converted.graph.initializer
    first, second = (a.g for a in node.attribute)
    names = [{t.name for t in graph.initializer} for graph in (first, second)]
    assert all(names) and not names[0] & names[1]
    assert [v.name for v in first.output] == ["t"] and "t" in first.node[-1].output


# Loop and Scan


def changing_loop() -> onnx.ModelProto:
    """The carried shape changes every time: that of the first iteration says nothing of the next."""
    return model("""g (float[1,16,1,2] x, int64 n) => (float[?,?,?,?] last)
        <bool go = {1}, int32[1] block = {2}, int32[1,2] none = {0, 0}> {
            last = Loop (n, go, x) <
                body = step (int64 i, bool c, float[?,?,?,?] s) => (bool c1, float[?,?,?,?] s1) {
                    c1 = Identity(c)
                    s1 = M.SpaceToBatchND(s, block, none)
                }>
        }""")


def test_a_loop_whose_carried_shape_changes_every_time():
    feeds = {"x": image(1, 16, 1, 2), "n": np.array(3)}
    reference.assert_agree(changing_loop(), feeds, full_check=False)


# Functions


def function(
    calls: str, body: str, head: str = 'opset_import: ["" : 17, "com.microsoft" : 1]'
) -> str:
    return calls + f'\n<domain: "local", {head}>\n' + body


S2B = "F (x, block, pads) => (y) { y = M.SpaceToBatchND(x, block, pads) }"


def two_types(other: str) -> onnx.ModelProto:
    return model(
        function(
            f"""g (float[2,4,4,1] a, {other}[2,4,4,1] b) => (float[?,?,?,?] y, {other}[?,?,?,?] z)
            <int32[2] block = {{2, 2}}, int32[2,2] pads = {{1, 1, 0, 0}}> {{
                y = local.F(a, block, pads)
                z = local.F(b, block, pads)
            }}""",
            S2B,
        )
    )


@pytest.mark.parametrize("other", ["double", "int64"])
def test_a_function_called_with_two_element_types(other):
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, other.upper()))
    reference.assert_agree(
        two_types(other), {"a": image(2, 4, 4, 1), "b": image(2, 4, 4, 1, dtype=dtype)}
    )


@pytest.mark.parametrize("other", ["int16", "string"])
def test_two_element_types_of_which_one_has_no_pad_kernel_are_refused(other):
    reason = refusal(two_types(other))
    assert "called with several element types" in reason


PATCHES = """F <k> (x) => (y) {
    y = M.ExtractImagePatches <ksizes: ints = @k, strides = [1, 1, 1, 1], rates = [1, 1, 1, 1],
        padding = "SAME"> (x)
}"""


def patches_called(second: str) -> onnx.ModelProto:
    calls = f"""g (float[2,4,4,1] a) => (float[?,?,?,?] y, float[?,?,?,?] z) {{
        y = local.F <k = [1, 2, 2, 1]> (a)
        z = local.F <k = {second}> (a)
    }}"""
    return model(function(calls, PATCHES))


def test_an_attribute_that_differs_between_calls_is_refused():
    assert refusal(patches_called("[1, 3, 3, 1]")) == (
        "attribute ksizes has no common value in the calls of the function that holds it; "
        "inline the function first (onnx.inliner.inline_local_functions)"
    )


def test_a_function_that_nothing_calls():
    """Neither its rank nor its element type is known."""
    calls = "g (float[2] a) => (float[2] y) { y = Neg(a) }"
    body = """F (x) => (y) {
        block = Constant <value_ints = [2, 2]> ()
        pads = Constant <value = int64[2,2] {1, 1, 0, 0}> ()
        y = M.SpaceToBatchND(x, block, pads)
    }"""
    made = model(function(calls, body))
    (site,) = plan(made).operators
    assert (site.action, site.input_shape, site.element_type) == ("lower", None, None)
    converted = reference.assert_agree(made, {"a": np.float32([1, 2])})
    added = model("g (float[2,4,4,1] a) => (float[?,?,?,?] y) { y = local.F(a) }")
    added.functions.extend(converted.functions)  # now somebody calls it
    a = image(2, 4, 4, 1)
    (y,) = running.run(added, {"a": a})
    assert running.same_bits(y, space_to_batch(a, (2, 2), [(1, 1), (0, 0)]))


def test_a_function_with_an_older_opset_gets_that_opset_s_nodes():
    calls = """g (float[2,4,4,2] a) => (float[?,?,?,?] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {1, 1, 0, 0}> {
            y = local.F(a, block, pads)
        }"""
    made = model(function(calls, S2B, 'opset_import: ["" : 9, "com.microsoft" : 1]'))
    converted = plan(made).model
    assert converted.functions[0].opset_import[0].version == 9
    assert "Pad" not in structure.ops(converted)  # by amounts that only the run knows: since 11
    a = image(2, 4, 4, 2)
    (y,) = running.run(converted, {"a": a})
    assert running.same_bits(y, space_to_batch(a, (2, 2), [(1, 1), (0, 0)]))
    made = model(function(calls, S2B, 'opset_import: ["" : 6, "com.microsoft" : 1]'))
    assert "opset is 6; lowering needs 7 or newer" in refusal(made)


def test_a_domain_that_functions_still_use_stays_imported():
    """Functions that stand in a converted domain are not dead imports."""
    made = model("""g (float[2,4,4,1] a) => (float[?,?,?,?] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {1, 1, 0, 0}> {
            u = M.Twice(a)
            y = M.SpaceToBatchND(u, block, pads)
        }
        <domain: "com.microsoft", opset_import: ["" : 17]>
        Twice (x) => (y) { y = Add(x, x) }""")
    converted = reference.assert_agree(made, {"a": image(2, 4, 4, 1)})
    assert "com.microsoft" in [o.domain for o in converted.opset_import]


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
    twice = onnx_spatial.convert(once.model, domains="mine", prefer="transpose")
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
