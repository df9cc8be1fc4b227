"""Operators wherever they are: in subgraphs, functions, loops without turns, domains of the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import TF, model, space_to_batch, space_to_batch_lowered
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial
from onnx_spatial import OperatorError

PARAMETERS = """
    int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}, int64[8] p = {0, 1, 0, 0, 0, 2, 3, 0},
    int64[6] s = {-1, 4, 2, 3, 3, 3}, int64[4] m = {-1, 4, 3, 3}
"""
SITE = "[site] b = tf.SpaceToBatchND(t, block, pads)"
LOWERED = """
    padded = Pad(t, p)
    cells = Reshape(padded, s)
    moved = Transpose<perm = [2, 4, 0, 1, 3, 5]>(cells)
    b = Reshape(moved, m)
"""
WRONG = LOWERED.replace("2, 4, 0, 1", "4, 2, 0, 1")

IF = f"""
g (bool flag, float[N,5,6,3] x) => (float[A,B,C,D] y) <{PARAMETERS}>
{{
    t = Neg(x)
    y = If (flag) <
        then_branch = then () => (float[E,F,G,H] b) {{ SITE }},
        else_branch = els () => (float[I,J,K,L] c) {{ c = Identity(t) }}
    >
}}
"""

LOOP = f"""
g (float[N,5,6,3] x) => (float[A,B,C,D] last, float[E,F,G,H,I] all) <{PARAMETERS},
   int64 three = {{3}}, bool yes = {{1}}, float half = {{0.5}}>
{{
    last, all = Loop (three, yes, x) <
        body = turn (int64 i, bool go, float[J,K,L,M] t)
            => (bool go2, float[J,K,L,M] u, float[P,Q,R,S] b)
        {{
            SITE
            u = Mul(t, half)
            go2 = Identity(go)
        }}
    >
}}
"""

SCAN = f"""
g (float[3,N,5,6,3] x, float[N,5,6,3] start)
  => (float[A,B,C,D] last, float[E,F,G,H,I] all) <{PARAMETERS}>
{{
    last, all = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
        body = turn (float[J,K,L,M] sum, float[J,K,L,M] t)
            => (float[J,K,L,M] next, float[P,Q,R,S] b)
        {{
            SITE
            next = Add(sum, t)
        }}
    > (start, x)
}}
"""


@pytest.mark.parametrize("text", [IF, LOOP, SCAN])
def test_subgraphs(text: str) -> None:
    original = model(text.replace("SITE", SITE))
    result = verify(original, model(text.replace("SITE", LOWERED)))
    assert result, result.message
    # In the Loop nothing is known of the sizes: what was made for one size is only sampled there.
    assert result.evidence == ("sampled" if text is LOOP else "proven")
    (operator,) = result.operators
    assert operator.graph.startswith("main graph > ")
    assert all(o.equal_bits for o in result.outputs)
    wrong = verify(original, model(text.replace("SITE", WRONG)))
    assert wrong.status == "failed"
    assert any(o.passed is False for o in wrong.outputs)


def test_both_ways_of_an_if_are_taken() -> None:
    original = model(IF.replace("SITE", SITE))
    result = verify(original, model(IF.replace("SITE", LOWERED).replace("c = Identity", "c = Neg")))
    assert result.status == "failed"
    assert {o.run for o in result.outputs if o.passed is False} != set(range(len(result.runs)))


def test_a_branch_that_no_run_takes_counts() -> None:
    """Whatever the value that it gives is called."""
    never = IF.replace(f"<{PARAMETERS}>", f"<{PARAMETERS}, bool flag = {{0}}>")
    original = model(never.replace("SITE", SITE))
    assert verify(original, model(never.replace("SITE", LOWERED))).evidence == "proven"
    assert verify(original, model(never.replace("SITE", WRONG))).status == "failed"
    renamed = never.replace("SITE", WRONG.replace("b = ", "other = ")).replace("H] b)", "H] other)")
    result = verify(original, model(renamed))
    assert result.evidence != "proven"
    assert result.operators[0].unproven is not None  # it is not left as it is


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


@pytest.mark.parametrize("trips", [0, 2])
@pytest.mark.parametrize(
    ("declared", "image"),
    [
        (None, [2, 4, 4, 1]),
        (None, ["n", "h", "w", 1]),
        ([8, 2, 2, 1], [2, 4, 4, 1]),
        (["a", "b", "c", 1], ["n", "h", "w", 1]),
        (["a", "b", "c", "d"], [2, 4, 4, 1]),
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


@pytest.mark.parametrize("rows", [1, 3])
def test_a_scan_over_images(rows: int) -> None:
    made = model(f"""
        g (float[{rows},2,4,4,1] images) => (float[R,P,Q,S,T] y) <int32[2] block = {{2, 2}},
          int32[2,2] none = {{0, 0, 0, 0}}>
        {{ y = Scan <num_scan_inputs = 1, body = turn (float[2,4,4,1] x) => (float[A,B,C,D] s)
            {{ s = tf.SpaceToBatchND(x, block, none) }}> (images) }}
    """)
    assert onnx_spatial.convert(made).verification.evidence == "proven"


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


# Functions


FUNCTION = """
g (float[N,5,6,3] x) => (float[A,B,C,D] y, float[E,F,G,H] z)
  <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}, int32[2] small = {1, 2},
   int32[2,2] none = {0, 0, 0, 0}>
{
    y = loc.Blocks(x, block, pads)
    z = loc.Blocks(x, small, none)
}
<domain: "loc", opset_import: ["" : 17]>
Blocks (t, block, pads) => (b) { SITE }
"""
# Runtime parameters, lowered for two blocked axes of a rank-4 tensor.
DYNAMIC = """
    wide = Cast<to = 7>(pads)
    blocks = Cast<to = 7>(block)
    zero = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    two = Constant<value_ints = [2]>()
    three = Constant<value_ints = [3]>()
    four = Constant<value_ints = [4]>()
    lows = Slice(wide, zero, one, one)
    low = Reshape(lows, two)
    highs = Slice(wide, one, two, one)
    high = Reshape(highs, two)
    amounts = Concat<axis = 0>(zero, low, zero, zero, high, zero)
    padded = Pad(t, amounts)
    shape = Shape(padded)
    n = Slice(shape, zero, one)
    sizes = Slice(shape, one, three)
    c = Slice(shape, three, four)
    cells = Div(sizes, blocks)
    rows = Slice(cells, zero, one)
    columns = Slice(cells, one, two)
    across = Slice(blocks, zero, one)
    down = Slice(blocks, one, two)
    split = Concat<axis = 0>(n, rows, across, columns, down, c)
    apart = Reshape(padded, split)
    moved = Transpose<perm = [2, 4, 0, 1, 3, 5]>(apart)
    merged = Constant<value_ints = [-1]>()
    final = Concat<axis = 0>(merged, cells, c)
    b = Reshape(moved, final)
"""


def test_a_function_that_is_called_twice() -> None:
    original = model(FUNCTION.replace("SITE", SITE))
    result = verify(original, model(FUNCTION.replace("SITE", DYNAMIC)))
    assert result, result.message
    (operator,) = result.operators
    assert operator.graph == "function loc:Blocks"
    swapped = DYNAMIC.replace("perm = [2, 4,", "perm = [4, 2,")
    wrong = verify(original, model(FUNCTION.replace("SITE", swapped)))
    assert wrong.status == "failed"
    assert "function loc:Blocks" in "".join(wrong.problems)


# The model computes pads that are equal on both sides of each axis.
COMPUTED = """
g (float[N,6,6,3] t, int32[2,1] side) => (float[A,B,C,D] b)
  <int32[2] block = {2, 2}, int64[1] begin = {0}>
{ pads = Concat<axis = 1>(side, side) SITE }
"""
PASSED_TO_SCAN = """
g (float[N,6,6,3] x, int32[3,2,1] sides) => (float[A,B,C,D,E] all)
  <int32[2] block = {2, 2}, int64[1] begin = {0}>
{
    each = Concat<axis = 2>(sides, sides)
    all = Scan <num_scan_inputs = 1,
        body = turn (int32[2,2] pads) => (float[P,Q,R,S] b) { t = Neg(x) SITE }
    > (each)
}
"""


@pytest.mark.parametrize("text", [COMPUTED, PASSED_TO_SCAN], ids=["node", "scan"])
def test_nodes_that_are_right_for_the_computed_parameters_only(text: str) -> None:
    symmetric = (
        "low_pads = Gather<axis = 1>(pads, begin) both = Concat<axis = 1>(low_pads, low_pads)"
        + DYNAMIC.replace("(pads)", "(both)")
    )
    original = model(text.replace("SITE", SITE))
    result = verify(original, model(text.replace("SITE", symmetric)))
    assert result, result.message
    assert result.operators[0].proven == ("all sizes" if text is COMPUTED else None)
    swapped = symmetric.replace("perm = [2, 4,", "perm = [4, 2,")
    assert verify(original, model(text.replace("SITE", swapped))).status == "failed"


def test_a_model_that_defines_the_operator_itself_has_no_operators() -> None:
    """Converted to model-local functions: the operators are no longer ours to run."""
    text = """
        g (float[N,5,6,3] x) => (float[A,B,C,D] y)
          <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}>
        { y = tf.SpaceToBatchND(x, block, pads) }
    """
    header = f'<domain: "{TF}", opset_import: ["" : 17]> SpaceToBatchND (t, block, pads) => (b)'
    defined = model(f"{text} {header} {{ {DYNAMIC} }}")
    assert verify(model(text), defined).evidence == "proven"
    again = verify(defined, defined)
    assert (again.evidence, again.operators) == ("proven", [])
    swapped = model(f"{text} {header} {{ {DYNAMIC.replace('[2, 4,', '[4, 2,')} }}")
    assert verify(model(text), swapped).status == "failed"


def test_attributes_that_differ_between_calls() -> None:
    """The node in the function has no meaning of its own; inlined it has, and can be compared."""
    original = model("""
        g (float[N,6,6,1] x) => (float[A,B,C,D] y, float[E,F,G,H] z) <int32[2,2] none = {0, 0, 0, 0}>
        { y = loc.Blocks<size = 2>(x, none)
          z = loc.Blocks<size = 3>(x, none) }
        <domain: "loc", opset_import: ["" : 17]>
        Blocks<size>(t, pads) => (b) { b = tf.SpaceToBatch<block_size: int = @size>(t, pads) }
    """)
    lowered = """
        g (float[N,6,6,1] x) => (float[A,B,C,D] y, float[E,F,G,H] z)
          <int64[5] s2 = {-1, 3, 2, 3, 2}, int64[5] s3 = {-1, 2, 3, 2, 3},
           int64[4] m2 = {-1, 3, 3, 1}, int64[4] m3 = {-1, 2, 2, 1}>
        {
            a2 = Reshape(x, s2)
            b2 = Transpose<perm = [2, 4, 0, 1, 3]>(a2)
            y = Reshape(b2, m2)
            a3 = Reshape(x, s3)
            b3 = Transpose<perm = [2, 4, 0, 1, 3]>(a3)
            z = Reshape(b3, m3)
        }
    """
    result = verify(original, model(lowered))
    assert result, result.message
    wrong = lowered.replace("b3 = Transpose<perm = [2, 4,", "b3 = Transpose<perm = [4, 2,")
    assert verify(original, model(wrong)).status == "failed"


# Domains of the user, rules that are broken, external data


def test_a_domain_of_the_users_own() -> None:
    text = f"""
        g (float[N,5,6,3] x) => (float[A,B,C,D] y) <{PARAMETERS}>
        {{ t = Identity(x)
          SITE
          y = Identity(b) }}
    """
    original = model(text.replace("SITE", SITE.replace("tf.", "mine.")))
    original.opset_import.append(helper.make_opsetid("mine", 1))
    converted = model(text.replace("SITE", LOWERED))
    unknown = verify(original, converted)
    assert unknown.status == "unverified"
    assert "mine:SpaceToBatchND" in unknown.message and "use --domain mine if" in unknown.message
    assert verify(original, converted, domains=["mine"]).evidence == "proven"


def test_an_operator_that_breaks_its_rules() -> None:
    broken = space_to_batch(shape="2,6,6,3")
    with pytest.raises(OperatorError, match=r"node 'site' \(main graph\): .* is not divisible"):
        verify(broken, space_to_batch_lowered(shape="2,6,6,3"))


def test_external_data(tmp_path: Path) -> None:
    """Weights are found beside each file, also where the converted model is still in memory."""
    text = f"""
        g (float[2,5,6,3] x) => (float[A,B,C,D] y) <{PARAMETERS}>
        {{ t = Add(x, w) SITE y = Mul(b, b) }}
    """
    weights = np.random.default_rng(0).normal(size=(5, 6, 3)).astype(np.float32)
    paths = []
    for name, body, factor in (("one", SITE, 1), ("two", LOWERED, 1), ("wrong", LOWERED, 1.5)):
        saved = model(text.replace("SITE", body))
        saved.graph.initializer.append(numpy_helper.from_array(weights * np.float32(factor), "w"))
        paths.append(tmp_path / name / "m.onnx")
        paths[-1].parent.mkdir()
        options = {"save_as_external_data": True, "location": f"{name}.bin", "size_threshold": 100}
        onnx.save(saved, paths[-1], **options)
    original, right, wrong = paths
    result = verify(original, right)
    assert result.evidence == "proven" and "proven: 1 operator " in result.message, result.message
    result = verify(original, wrong)
    assert result.status == "failed" and "reads another constant 'w'" in result.message
    value = f"{weights.flat[0] * np.float32(1.5)!s} instead of {weights.flat[0]!s}"
    assert f"[0, 0, 0] is {value}" in result.message
    # In memory they still lie beside the original.
    (right.parent / "two.bin").rename(original.parent / "two.bin")
    assert verify(original, onnx.load(right, load_external_data=False)).evidence == "proven"
