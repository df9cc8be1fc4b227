"""Operators wherever a model can hold them: graphs, subgraphs and functions, with names that clash."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import reference
import running
import structure
from adapter import convert, plan, refusal
from definitions import space_to_batch
from onnx import TensorProto, helper
from parsing import image, model

# The main graph


def test_an_operator_that_moves_nothing_keeps_its_output_name():
    made = model("""g (float[2,4,4,3] x) => (float[2,4,4,3] y, float[2,4,4,3] z)
        <int32[2] block = {1, 1}, int32[2,2] none = {0, 0, 0, 0}> {
            y = M.SpaceToBatchND(x, block, none)
            z = Relu(y)
        }""")
    converted = reference.agree(made, {"x": image(2, 4, 4, 3)})
    assert structure.ops(converted) == ["Identity", "Relu"]


def test_new_nodes_are_named_after_the_old_one_and_say_where_they_come_from():
    made = model("""g (float[2,3,4,3] x) => (float[8,2,2,3] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {1, 0, 0, 0}> {
            [aspp] y = M.SpaceToBatchND(x, block, pads)
        }""")
    made.graph.node[0].doc_string = "atrous"
    made.graph.node[0].metadata_props.add(key="owner", value="me")
    converted = reference.agree(made, {"x": image(2, 3, 4, 3)})
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
    converted = reference.agree(made, {"x": image(4, 4, 4, 3)})
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
    converted = reference.agree(made, feeds)
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


def test_a_loop_whose_carried_shape_changes_every_time():
    """The shape of the first iteration says nothing of the next."""
    made = model("""g (float[1,16,1,2] x, int64 n) => (float[?,?,?,?] last)
        <bool go = {1}, int32[1] block = {2}, int32[1,2] none = {0, 0}> {
            last = Loop (n, go, x) <
                body = step (int64 i, bool c, float[?,?,?,?] s) => (bool c1, float[?,?,?,?] s1) {
                    c1 = Identity(c)
                    s1 = M.SpaceToBatchND(s, block, none)
                }>
        }""")
    reference.agree(made, {"x": image(1, 16, 1, 2), "n": np.array(3)}, full_check=False)


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
    reference.agree(two_types(other), {"a": image(2, 4, 4, 1), "b": image(2, 4, 4, 1, dtype=dtype)})


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
    converted = reference.agree(made, {"a": np.float32([1, 2])})
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
    converted = reference.agree(made, {"a": image(2, 4, 4, 1)})
    assert "com.microsoft" in [o.domain for o in converted.opset_import]
