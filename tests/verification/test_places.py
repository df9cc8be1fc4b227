"""Operators wherever they are: in subgraphs, functions, loops without turns, domains of the user.

Convolutions that onnxruntime refuses, with auto_pad SAME and dilations, are operators in this sense.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import verify
from building import TF
from onnx import TensorProto, helper, numpy_helper
from parsing import model
from verification.hand_lowered import space_to_batch, space_to_batch_lowered, with_wrong_transpose

import onnx_spatial
from onnx_spatial import OperatorError

PARAMETERS = "int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}"
SITE = "[site] b = tf.SpaceToBatchND(t, block, pads)"
IF = f"""g (bool flag, float[N,5,6,3] x) => (float[A,B,C,D] y) <{PARAMETERS}> {{
    t = Neg(x)
    y = If (flag) < then_branch = then () => (float[E,F,G,H] b) {{ {SITE} }},
                    else_branch = els () => (float[I,J,K,L] c) {{ c = Identity(t) }} > }}"""

PLACES = {
    "branch": IF,
    "branch that no run takes": IF.replace("3}>", "3}, bool flag = {0}>"),
    "loop": f"""g (float[N,5,6,3] x) => (float[A,B,C,D] last, float[E,F,G,H,I] all) <{PARAMETERS},
            int64 three = {{3}}, bool yes = {{1}}, float half = {{0.5}}> {{
        last, all = Loop (three, yes, x) <body = turn (int64 i, bool go, float[J,K,L,M] t)
            => (bool go2, float[J,K,L,M] u, float[P,Q,R,S] b)
            {{ {SITE} u = Mul(t, half) go2 = Identity(go) }}> }}""",
    "scan": f"""g (float[3,N,5,6,3] x, float[N,5,6,3] start)
            => (float[A,B,C,D] last, float[E,F,G,H,I] all) <{PARAMETERS}> {{
        last, all = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
            body = turn (float[J,K,L,M] sum, float[J,K,L,M] t)
                => (float[J,K,L,M] next, float[P,Q,R,S] b)
            {{ {SITE} next = Add(sum, t) }}> (start, x) }}""",
    "function": f"""g (float[N,5,6,3] x) => (float[A,B,C,D] y, float[E,F,G,H] z) <{PARAMETERS},
            int32[2] small = {{1, 2}}, int32[2,2] none = {{0, 0, 0, 0}}> {{
        y = loc.Blocks(x, block, pads) z = loc.Blocks(x, small, none) }}
        <domain: "loc", opset_import: ["" : 17]> Blocks (t, block, pads) => (b) {{ {SITE} }}""",
    "behind computed parameters": f"""g (float[N,6,6,3] t, int32[2,1] side) => (float[A,B,C,D] b)
        <int32[2] block = {{2, 2}}> {{ pads = Concat<axis = 1>(side, side) {SITE} }}""",
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_right_is_proven_and_what_is_wrong_is_found(place: str) -> None:
    original = model(PLACES[place])
    converted = onnx_spatial.convert(original, verify=False).model
    result = verify(original, converted)
    assert result.evidence == "proven", result.message
    (operator,) = result.operators
    assert (operator.node, operator.ran) == ("site", True)
    wrong = verify(original, with_wrong_transpose(converted))
    assert wrong.status == "failed"
    assert operator.graph in wrong.problems[0]


def test_both_ways_of_an_if_are_taken() -> None:
    changed = model(IF.replace("c = Identity", "c = Neg"))
    result = verify(model(IF), onnx_spatial.convert(changed, verify=False).model)
    assert result.status == "failed"
    assert {o.run for o in result.outputs if o.passed is False} != set(range(len(result.runs)))


def test_a_branch_that_no_run_takes_counts_whatever_its_value_is_called() -> None:
    never = PLACES["branch that no run takes"]
    renamed = model(never.replace("H] b)", "H] other)").replace("b = tf", "other = tf"))
    wrong = with_wrong_transpose(onnx_spatial.convert(renamed, verify=False).model)
    result = verify(model(never), wrong)
    assert result.status == "failed"
    assert "If node '<y>' (main graph)" in str(result.operators[0].reason)


# Convolutions that onnxruntime refuses

CONV = 'Conv<auto_pad = "SAME_UPPER", strides = [2, 3], dilations = [2, 3]>'
REFUSED = f"g (float[N,2,H,W] x) => (float[N,3,P,Q] y) <WEIGHT> {{ [conv] y = {CONV}(x, w) }}"
QUANTISED = """g (uint8[2,2,H,W] x) => (uint8[2,3,P,Q] y)
    <float s = {0.5}, uint8 z = {9}, float t = {4}, uint8 o = {100}, uint8[3,2,3,2] w = {VALUES}>
    { [conv] y = QLinearConv<auto_pad = "SAME_UPPER", dilations = [2, 3], strides = [2, 1]>
          (x, s, z, w, s, z, t, o) }"""


def refused(text: str) -> onnx.ModelProto:
    weight = ", ".join(f"{(7 * i) % 11 - 5}" for i in range(36))
    text = text.replace("WEIGHT", f"float[3,2,3,2] w = {{{weight}}}")
    return model(text.replace("VALUES", ", ".join(map(str, range(36)))))


def test_pads_of_refused_convolutions_are_proven_and_wrong_ones_found() -> None:
    made = refused(REFUSED)
    result = verify(made, onnx_spatial.convert(made, verify=False).model)
    assert result.evidence == "proven", result.message
    (operator,) = result.operators
    assert (operator.node, operator.op_type, operator.proven) == ("conv", "Conv", "all sizes")
    # The odd zero is on the wrong side.
    lower = refused(REFUSED.replace("SAME_UPPER", "SAME_LOWER"))
    assert verify(made, onnx_spatial.convert(lower, verify=False).model).status == "failed"


def test_what_nobody_put_right_is_not_run() -> None:
    result = verify(refused(REFUSED), refused(REFUSED))
    assert result.evidence == "proven"
    assert "both models have the same nodes; not run: onnxruntime cannot run" in result.message


def test_whole_numbers_are_padded_with_their_zero() -> None:
    made = refused(QUANTISED)
    converted = onnx_spatial.convert(made, verify=False).model
    assert verify(made, converted), verify(made, converted).message
    (pad,) = (n for n in converted.graph.node if n.op_type == "Pad")
    del pad.input[2]
    assert verify(made, converted).status == "failed"


# Loops and scans without turns


def blocks_in_a_loop(
    trips: int, declared: list[int | str] | None, image: list[int | str]
) -> onnx.ModelProto:
    """A Loop whose scan output is a SpaceToBatchND of an outer value."""
    text = f"""
        g (float{str(image).replace("'", "")} x) => (y) <int32[2] block = {{2, 2}},
          int32[2,2] none = {{0, 0, 0, 0}}, int64 trips = {{{trips}}}, bool go = {{1}}>
        {{ y = Loop (trips, go) < body = turn (int64 i, bool on) => (bool still, float[A,B,C,D] s)
            {{ s = tf.SpaceToBatchND(x, block, none) still = Identity(on) }} > }}
    """
    made = model(text)
    made.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    inner = made.graph.node[0].attribute[0].g.output[1]
    inner.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, declared))
    return made


@pytest.mark.parametrize(
    ("trips", "declared", "image"),
    [
        (2, None, ["n", "h", "w", 1]),
        (0, [8, 2, 2, 1], [2, 4, 4, 1]),
        (0, ["a", "b", "c", 1], ["n", "h", "w", 1]),
    ],
)
def test_scan_outputs_of_a_loop_without_turns(trips, declared, image) -> None:
    """They have the shape that is inferred for the body."""
    conversion = onnx_spatial.convert(blocks_in_a_loop(trips, declared, image))
    assert conversion.verification.status == "passed", conversion.verification.message


def test_a_wrong_shape_of_a_loop_without_turns_fails() -> None:
    original = blocks_in_a_loop(0, None, [2, 4, 4, 1])
    converted = onnx_spatial.convert(original, verify=False).model
    body = converted.graph.node[0].attribute[0].g
    for node in body.node:
        node.output[:] = ["inner" if name == "s" else name for name in node.output]
    body.node.append(helper.make_node("Unsqueeze", ["inner", "axis"], ["s"]))
    body.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "axis"))
    (declared,) = (value for value in body.output if value.name == "s")
    declared.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 8, 2, 2, 1]))
    assert verify(original, converted).status == "failed"


@pytest.mark.parametrize("batch", [0, 2])
def test_parameters_of_the_run_behind_a_constant_operator(batch: int) -> None:
    """Also where all data is empty."""
    made = model(f"""
        g (float[{batch},4,4,2] x, int32[2,2] pads) => (float[?,?,?,?] y)
        <int32[2] block = {{2, 2}}, int32[2,2] none = {{0, 0, 0, 0}}> {{
            a = tf.SpaceToBatchND(x, block, none)
            y = tf.SpaceToBatchND(a, block, pads)
        }}""")
    assert onnx_spatial.convert(made).verification.status == "passed"


# Domains, rules that are broken, external data


def test_a_model_that_defines_the_operator_itself_has_no_operators() -> None:
    text = f"g (float[N,5,6,3] t) => (float[A,B,C,D] b) <{PARAMETERS}> {{ {SITE} }}"
    function = f"""<domain: "{TF}", opset_import: ["" : 17]> SpaceToBatchND (t, block, pads) => (b) {{
        p = Constant<value_ints = [0, 1, 0, 0, 0, 2, 3, 0]>() padded = Pad(t, p)
        s = Constant<value_ints = [-1, 4, 2, 3, 3, 3]>() cells = Reshape(padded, s)
        moved = Transpose<perm = [2, 4, 0, 1, 3, 5]>(cells)
        m = Constant<value_ints = [-1, 4, 3, 3]>() b = Reshape(moved, m) }}"""
    defined = model(text + function)
    assert verify(model(text), defined).evidence == "proven"
    again = verify(defined, defined)
    assert (again.evidence, again.operators) == ("proven", [])
    assert verify(model(text), with_wrong_transpose(defined)).status == "failed"


def test_a_domain_of_the_users_own() -> None:
    original = space_to_batch()
    converted = space_to_batch_lowered()
    original.graph.node[0].domain = "mine"
    original.opset_import.append(helper.make_opsetid("mine", 1))
    unknown = verify(original, converted)
    assert unknown.status == "unverified"
    assert "mine:SpaceToBatchND" in unknown.message and "use --domain mine if" in unknown.message
    assert verify(original, converted, domains="mine").evidence == "proven"


def test_an_operator_that_breaks_its_rules() -> None:
    broken = space_to_batch(shape="2,6,6,3")
    with pytest.raises(OperatorError, match=r"node 'site' \(main graph\): .* is not divisible"):
        verify(broken, space_to_batch_lowered(shape="2,6,6,3"))


def test_external_data(tmp_path: Path) -> None:
    """Weights are found beside each file, also where the converted model is still in memory."""
    original = model(f"""g (float[2,5,6,3] x) => (float[A,B,C,D] y) <{PARAMETERS}>
        {{ t = Add(x, w) {SITE} y = Mul(b, b) }}""")
    weights = np.random.default_rng(0).normal(size=(5, 6, 3)).astype(np.float32)
    original.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    right = onnx_spatial.convert(original, verify=False).model
    wrong = onnx.ModelProto.FromString(right.SerializeToString())
    (stored,) = (t for t in wrong.graph.initializer if t.name == "w")
    stored.CopyFrom(numpy_helper.from_array(weights * np.float32(1.5), "w"))
    paths = {}
    for name, made in (("one", original), ("two", right), ("wrong", wrong)):
        paths[name] = tmp_path / name / "m.onnx"
        paths[name].parent.mkdir()
        options = {"save_as_external_data": True, "location": f"{name}.bin", "size_threshold": 100}
        onnx.save(made, paths[name], **options)
    result = verify(paths["one"], paths["two"])
    assert result.evidence == "proven" and "proven: 1 operator " in result.message, result.message
    result = verify(paths["one"], paths["wrong"])
    assert result.status == "failed" and "reads another constant" in result.message
    value = f"{weights.flat[0] * np.float32(1.5)!s} instead of {weights.flat[0]!s}"
    assert f"[0, 0, 0] is {value}" in result.message
    # In memory they still lie beside the original.
    (tmp_path / "two" / "two.bin").rename(tmp_path / "one" / "two.bin")
    loose = onnx.load(paths["two"], load_external_data=False)
    assert verify(paths["one"], loose).evidence == "proven"


def test_proofs_and_declarations_read_sizes_that_are_external_data(tmp_path: Path) -> None:
    nodes = f"t = Reshape(x, s) {SITE} u = Reshape(b, s) y = Add(u, u)"
    text = f"g (float[N,108] x) => (float[A,B,C,D] y) {{ {nodes} }}"
    made = model(text, s=[-1, 6, 6, 3], block=[2, 3], pads=[[0, 0], [0, 0]])
    declared = onnx_spatial.convert(made, verify=False).model.graph.value_info
    external = {"save_as_external_data": True, "location": "sizes.bin", "size_threshold": 0}
    onnx.save(made, tmp_path / "m.onnx", **external)
    result = onnx_spatial.convert(tmp_path / "m.onnx")
    assert [each.proven for each in result.operators] == ["all sizes"], result.verification.message
    assert result.model.graph.value_info == declared
