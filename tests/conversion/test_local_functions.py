"""Mode "function": the node stays, a local function says what it means; and the way back."""

from pathlib import Path

import consumers
import numpy as np
import onnx
import pytest
import structure
from adapter import convert as lowered
from adapter import plan
from building import OPENVINO, TF
from consumers import function_form
from onnx import helper
from parsing import image, model
from vocabulary import MARK

import onnx_spatial
from onnx_spatial import ConversionError

ONE = """g (float[2,4,4,3] x) => (float[8,2,2,3] y)
    <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
        [site] y = M.SpaceToBatchND(x, block, none)
    }"""

PAIR = """g (float[2,H,W,3] x) => (float[?,?,?,?] y)
    <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, int32[2,2] pads = {1, 1, 2, 0}> {
        a = M.SpaceToBatchND(x, block, none)
        [n2] y = M.SpaceToBatchND(a, block, pads)
    }"""


def calls(made: onnx.ModelProto) -> list[str]:
    return [f"{n.domain}:{n.op_type}" for n in made.graph.node]


def names(made: onnx.ModelProto) -> list[str]:
    return [f"{f.domain}:{f.name}" for f in made.functions]


def body(made: onnx.ModelProto, index: int = 0) -> list[str]:
    return [n.op_type for n in made.functions[index].node if n.op_type != "Constant"]


def marks(made: onnx.ModelProto) -> list[str]:
    return [p.value for f in made.functions for p in f.metadata_props if p.key == MARK]


# The form


def test_the_node_stays_byte_for_byte_and_what_was_touched_is_listed():
    made = model(ONE.replace("M.", ""))
    made.graph.node[0].doc_string = "atrous"
    made.graph.node[0].attribute.append(helper.make_attribute("Tidx", 3))
    touched = {name: found for name, found in plan(made, mode="function").touched.items() if found}
    assert touched == {
        "nodes_replaced": ["site"],
        "functions_added": ["onnx_spatial:SpaceToBatchND"],
        "opset_imports_added": ["onnx_spatial"],
    }
    made.graph.node[0].domain = "com.microsoft"
    made.opset_import.add(domain="com.microsoft", version=1)
    form = function_form(made)
    assert form.graph.node == made.graph.node
    assert form.graph.initializer == made.graph.initializer
    assert form.opset_import == made.opset_import


def test_an_optional_input_stays_missing():
    made = model("""g (float[2,4,4,3] x, int64[4] high) => (float[?,?,?,?] y)
        <int64[4] block = {1, 2, 2, 1}> {
            y = M.SpaceToBatch <pads_begin = [0, 2, 0, 0]> (x, block, , high) }""")
    form = function_form(made)
    assert list(form.graph.node[0].input) == ["x", "block", "", "high"]
    assert list(form.functions[0].input) == ["data", "block_shape", "pads_begin", "pads_end"]
    feeds = {"x": image(2, 4, 4, 3), "high": np.array([0, 0, 2, 0])}
    consumers.assert_agree(form, lowered(made), feeds)


# One function or several


def test_sites_share_a_body_that_reads_what_differs_and_nodes_of_one_name_are_told_apart():
    made = model(PAIR)
    for node in made.graph.node:
        node.name = "same"  # onnxruntime refuses two; lowering does away with both
    form = function_form(made)
    assert [n.name for n in form.graph.node] == ["same_1", "same"]
    assert names(form) == ["com.microsoft:SpaceToBatchND"]
    read = {name for n in form.functions[0].node for name in n.input}
    assert {"x", "paddings"} <= read and "block_shape" not in read  # which is the same in both
    consumers.assert_agree(form, lowered(made), {"x": image(2, 4, 8, 3)})
    made.graph.node[1].input[0] = "x"
    made.graph.node[1].input[2] = "none"
    form = function_form(made)  # of equal sites
    assert calls(form) == names(form) * 2 == ["com.microsoft:SpaceToBatchND"] * 2


def test_static_sites_of_different_shapes_have_small_bodies_of_their_own():
    made = function_form(model(PAIR.replace("H,W", "4,4")))
    assert names(made) == ["com.microsoft:SpaceToBatchND", "com.microsoft:SpaceToBatchND_2"]
    assert calls(made) == names(made)
    assert body(made, 0) == ["Reshape", "Transpose", "Reshape"]
    assert body(made, 1) == ["Pad", "Reshape", "Transpose", "Reshape"]
    assert marks(made) == ["com.microsoft:SpaceToBatchND"] * 2


ATTRIBUTES = {
    "block_shape": ("SpaceToBatchND <block_shape = {}> (x, none)", "[2, 3]", "[3, 1]"),
    "crops": ("BatchToSpaceND <crops = {}> (x, block)", "[1, 1, 0, 2]", "[0, 0, 2, 0]"),
    "block_shape crops_begin crops_end": (
        "BatchToSpace <block_shape = {}> (x)",
        "[1, 2, 3, 1], crops_begin = [0, 1, 2, 0], crops_end = [0, 0, 1, 0]",
        "[1, 3, 2, 1], crops_begin = [0, 0, 2, 0], crops_end = [0, 1, 1, 0]",
    ),
}


@pytest.mark.parametrize("differing", ATTRIBUTES)
def test_attributes_that_differ_are_read_by_reference(differing):
    node, *values = ATTRIBUTES[differing]
    first, second = map(node.format, values)
    made = model(f"""g (float[N,H,W,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int32[2] block = {{2, 3}}, int32[2,2] none = {{0, 0, 0, 0}}>
        {{ y = M.{first} z = M.{second} }}""")
    form = function_form(made, prefer="transpose")  # one body has fewer nodes than two then
    (function,) = form.functions
    references = {a.ref_attr_name for n in function.node for a in n.attribute if a.ref_attr_name}
    assert references == {*differing.split()} <= set(function.attribute)
    consumers.assert_agree(form, lowered(made), {"x": image(12, 6, 12, 3)})
    assert plan(form).model == plan(made).model


# Names and domains


@pytest.mark.parametrize(
    ("domain", "home"),
    [
        *((domain, "onnx_spatial") for domain in ("", "ai.onnx", "ai.onnx.ml")),
        *((each, each) for each in (TF, "com.microsoft", "ai.onnx.contrib", OPENVINO, "my.own")),
    ],
)
def test_nodes_of_onnxs_own_domains_move_to_ours_and_others_stay(domain, home):
    made = model(ONE.replace("M.", "" if domain != home else f"{domain}."))
    made.graph.node[0].domain = domain
    domains = [domain] if domain in ("ai.onnx.ml", "my.own") else []
    form = function_form(made, domains=domains)
    assert calls(form) == names(form) == [f"{home}:SpaceToBatchND"]
    assert marks(form) == [f"{domain}:SpaceToBatchND"]
    assert home in [o.domain for o in form.opset_import]  # although the file forgot it
    consumers.assert_agree(form, lowered(made, domains=domains), {"x": image(2, 4, 4, 3)})
    back = plan(form).model  # no need to say again that the domain holds our operators
    assert structure.ops(back) == ["Reshape", "Transpose", "Reshape"]


def test_leftovers_get_the_name_that_they_had_before():
    """The reference evaluator takes a SpaceToDepth for the standard one, whatever its domain."""
    made = model("""g (float[N,H,W,2] x, int32[2] block, int32[2,2] pads) => (float[?,?,?,?] y) {
            a = SpaceToDepth(x, block, pads)
            b = Relu(a)
            y = DepthToSpace(b, block, pads)
        }""")
    form = function_form(made)
    assert names(form) == ["onnx_spatial:SpaceToBatchND", "onnx_spatial:BatchToSpaceND"]
    assert marks(form) == [":SpaceToDepth", ":DepthToSpace"]
    block, pads = np.array([2, 3], np.int32), np.array([[1, 0], [0, 2]], np.int32)
    feeds = {"x": image(2, 5, 4, 2), "block": block, "pads": pads}
    consumers.assert_agree(form, lowered(made), feeds)
    assert plan(form).model == plan(made).model


THEIRS = """
    <domain: "DOMAIN", opset_import: ["" : 17]>
    SpaceToBatchND (x, block, none) => (y) { y = Neg(x) }"""


def test_a_function_of_the_users_own_wins_and_its_name_is_not_taken():
    made = model(ONE + THEIRS.replace("DOMAIN", "com.microsoft"))
    assert plan(made, mode="function").operators == []
    made = model(ONE.replace("M.", "") + THEIRS.replace("DOMAIN", "onnx_spatial"))
    form = function_form(made)
    assert calls(form) == ["onnx_spatial:SpaceToBatchND_2"]
    assert names(form) == ["onnx_spatial:SpaceToBatchND_2", "onnx_spatial:SpaceToBatchND"]
    assert form.functions[1] == made.functions[0]


PATCHES = """g (float[2,4,6,3] x) => (float[?,?,?,?] y) { y = local.F(x) }
    <domain: "local", opset_import: ["" : 8]> F (x) => (y) {
        y = ExtractImagePatches <ksizes = [1, 2, 2, 1], strides = [1, 2, 2, 1],
                                 rates = [1, 1, 1, 1], padding = "VALID"> (x) }"""


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (ONE, "function", "opset is 8; a function .* needs 9"),
        (PATCHES, "lower", "opset of its function is 8; .* need 9"),
        (PATCHES, "custom-op", "opset of its function is 8; .* need 9"),
    ],
)
def test_a_function_of_an_opset_without_integer_constants_is_refused(text, mode, message):
    with pytest.raises(ConversionError, match=message) as error:
        onnx_spatial.convert(model(text, ir=8, opset=8), mode=mode, verify=False)
    assert error.value.code == "opset-too-old"


# IR versions


@pytest.mark.parametrize("ir_version", [3, 9])
def test_an_old_ir_version_is_raised_and_said(ir_version):
    made = model(ONE, ir=ir_version, opset=11)
    if ir_version < 4:  # where every initializer is an input
        for tensor in made.graph.initializer:
            made.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    done = onnx_spatial.convert(made, mode="function")
    assert done.verification
    assert done.model.ir_version == max(ir_version, 8)
    assert [v.name for v in done.model.graph.input] == ["x"]
    raised = [f"{ir_version} -> 8"] if ir_version < 8 else None
    assert done.to_dict()["touched"].get("ir_version") == raised
    lower = onnx_spatial.convert(made)  # which needs no other
    assert lower.model.ir_version == ir_version
    session = onnx_spatial.InferenceSession(made, mode="function")
    (y,) = session.run(None, {"x": image(2, 4, 4, 3)})
    assert y.shape == (8, 2, 2, 3)


# There and back


def test_the_form_is_lowered_as_the_original_is_and_made_anew_only_for_other_options(
    tmp_path: Path,
):
    made, path, target = model(PAIR), tmp_path / "form.onnx", tmp_path / "again.onnx"
    form = function_form(made)
    back = plan(form)
    assert back.model == plan(made).model
    assert back.touched["functions_removed"] == ["com.microsoft:SpaceToBatchND"]
    assert back.touched["opset_imports_removed"] == ["com.microsoft"]
    path.write_bytes(form.SerializeToString())
    result = onnx_spatial.convert(path, target, mode="function")
    assert not result.changed and target.read_bytes() == path.read_bytes()
    assert [s.action for s in result.operators] == ["function", "function"]
    again = plan(form, mode="function", prefer="row-gather")
    assert names(again.model) == names(form) and body(again.model) != body(form)
    assert plan(again.model, mode="function", prefer="row-gather").model is None


def test_a_function_with_our_mark_that_is_not_of_our_form_is_its_authors():
    form = function_form(model(ONE))
    for value in ("", "nonsense", "com.microsoft:Relu", "SpaceToBatchND"):
        changed = onnx.ModelProto.FromString(form.SerializeToString())
        changed.functions[0].metadata_props[0].value = value
        assert plan(changed).operators == [] and plan(changed).model is None
