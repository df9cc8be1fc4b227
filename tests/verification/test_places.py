"""Sites in subgraphs and functions, models that cannot be run as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import TF, model, space_to_batch, space_to_batch_lowered

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
    (site,) = result.operators
    # In the Loop nothing is known of the sizes: what was made for one size is compared there.
    assert site.how == (["end to end"] if text is LOOP else ["isolated", "end to end"])
    assert site.graph.startswith("main graph > ")
    assert all(o.equal_bits for o in result.outputs)
    wrong = verify(original, model(text.replace("SITE", WRONG)))
    assert wrong.status == "failed"
    assert wrong.first_difference is not None
    assert wrong.first_difference.graph == (None if text is LOOP else site.graph)
    assert any(o.passed is False for o in wrong.outputs)


def test_both_ways_of_an_if_are_taken() -> None:
    original = model(IF.replace("SITE", SITE))
    result = verify(original, model(IF.replace("SITE", LOWERED).replace("c = Identity", "c = Neg")))
    assert result.status == "failed"
    wrong = {o.run for o in result.outputs if o.passed is False}
    assert wrong and wrong != set(range(len(result.runs)))  # one way is right


def test_a_merged_site_that_never_runs_is_unverified() -> None:
    never = IF.replace("bool flag, ", "").replace(
        f"<{PARAMETERS}>", f"<{PARAMETERS}, bool flag = {{0}}>"
    )
    original = model(never.replace("SITE", SITE))
    renamed = never.replace("SITE", LOWERED.replace("b = ", "other = ")).replace(
        "G,H] b)", "G,H] other)"
    )
    result = verify(original, model(renamed))
    assert result.status == "unverified"
    assert "'site'" in result.message
    assert verify(original, model(never.replace("SITE", LOWERED)))


def test_infinite_loops_do_not_start() -> None:
    """A Loop without turns gives empty outputs of the declared rank."""
    none = LOOP.replace("three = {3}", "three = {0}")
    result = verify(model(none.replace("SITE", SITE)), model(none.replace("SITE", LOWERED)))
    # Of the dims behind the first, those that are inferred for the body are known.
    assert all(o.passed for o in result.outputs), result.message
    assert {o.shape[0] for o in result.outputs if o.name == "all"} == {0}


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


def test_function_called_twice() -> None:
    original = model(FUNCTION.replace("SITE", SITE))
    result = verify(original, model(FUNCTION.replace("SITE", DYNAMIC)))
    assert result, result.message
    (site,) = result.operators
    assert site.graph == "function loc:Blocks"
    assert site.how == ["isolated", "end to end"]
    assert len({c.shape for c in site.checks}) > 1
    swapped = DYNAMIC.replace("perm = [2, 4,", "perm = [4, 2,")
    wrong = verify(original, model(FUNCTION.replace("SITE", swapped)))
    assert wrong.status == "failed"
    assert "function loc:Blocks" in wrong.message


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


@pytest.mark.parametrize(
    ("text", "proven"),
    [(COMPUTED, "all sizes"), (PASSED_TO_SCAN, "sampled")],
    ids=["node", "scan"],
)
def test_nodes_that_are_right_for_the_computed_parameters_only(text: str, proven: str) -> None:
    symmetric = (
        "low_pads = Gather<axis = 1>(pads, begin) both = Concat<axis = 1>(low_pads, low_pads)"
        + DYNAMIC.replace("(pads)", "(both)")
    )
    original = model(text.replace("SITE", SITE))
    result = verify(original, model(text.replace("SITE", symmetric)))
    assert result, result.message
    assert result.operators[0].proven == proven
    swapped = symmetric.replace("perm = [2, 4,", "perm = [4, 2,")
    assert verify(original, model(text.replace("SITE", swapped))).status == "failed"


def test_a_model_that_defines_the_operator_itself_has_no_sites() -> None:
    """Converted to model-local functions: the operators are no longer ours to run."""
    text = """
        g (float[N,5,6,3] x) => (float[A,B,C,D] y)
          <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}>
        { y = tf.SpaceToBatchND(x, block, pads) }
    """
    header = f'<domain: "{TF}", opset_import: ["" : 17]> SpaceToBatchND (t, block, pads) => (b)'
    defined = model(f"{text} {header} {{ {DYNAMIC} }}")
    result = verify(model(text), defined)
    assert result, result.message
    assert result.operators[0].how == ["isolated", "in place", "end to end"]
    again = verify(defined, defined)
    assert again, again.message
    assert again.operators == []


FOREIGN = """
g (float[2,5,6,3] x) => (float[A,B,C,D] y) <PARAMETERS, float[2,5,6,3] t>
{
    t = loc.Mystery(x)
    SITE
    y = Relu(b)
}
""".replace("PARAMETERS", PARAMETERS)


def test_an_operator_of_somebody_else() -> None:
    original = model(FOREIGN.replace("SITE", SITE))
    result = verify(original, model(FOREIGN.replace("SITE", LOWERED)))
    assert result.status == "unverified"
    assert result.operators_only
    assert "no runtime here has the operators loc:Mystery (node '<t>')" in result.message
    assert result.operators[0].how == ["isolated"]
    wrong = verify(original, model(FOREIGN.replace("SITE", WRONG)))
    assert wrong.status == "failed"


def test_a_domain_of_the_users_own() -> None:
    text = f"""
        g (float[N,5,6,3] x) => (float[A,B,C,D] y) <{PARAMETERS}>
        {{ t = Identity(x)
          SITE
          y = Identity(b) }}
    """
    original = model(text.replace("SITE", SITE.replace("tf.", "mine.")))
    converted = model(text.replace("SITE", LOWERED))
    unknown = verify(original, converted)
    assert unknown.status == "unverified"
    assert "no runtime here has the operators mine:SpaceToBatchND" in unknown.message
    assert "--domain mine" in str(unknown.operators[0].reason)
    assert verify(original, converted, domains=["mine"])


def test_random_outputs_are_not_compared() -> None:
    text = """
        g (float[2,3] x) => (float[2,3] y, float[2,3] z)
        { r = RandomNormalLike(x)
          y = Add(x, r)
          z = Relu(x) }
    """
    result = verify(model(text), model(text))
    assert result.status == "unverified"
    assert "output 'y' differs from run to run" in result.message
    assert {o.name: o.passed for o in result.outputs} == {"y": None, "z": True}
    assert verify(model(text), model(text.replace("Relu", "Abs"))).status == "failed"


def test_an_operator_that_breaks_its_rules() -> None:
    broken = space_to_batch(shape="2,6,6,3")
    with pytest.raises(OperatorError, match=r"node 'site' \(main graph\): .* is not divisible"):
        verify(broken, space_to_batch_lowered(shape="2,6,6,3"))


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
    assert result.operators[0].how == ["end to end"]
    wrong = lowered.replace("b3 = Transpose<perm = [2, 4,", "b3 = Transpose<perm = [4, 2,")
    assert verify(original, model(wrong)).status == "failed"


def test_parts_without_a_kernel_run_in_the_reference_evaluator() -> None:
    """onnxruntime refuses auto_pad with dilations; the conversion may have repaired that."""
    text = """
        g (float[1,1,8,8] x) => (float[A,B,C,D] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = Conv<PADDING, dilations = [2, 2]>(x, w) }
    """
    original = model(text.replace("PADDING", 'auto_pad = "SAME_UPPER"'))
    result = verify(original, model(text.replace("PADDING", "pads = [2, 2, 2, 2]")))
    assert result, result.message
    same = verify(original, original)
    assert same.status == "unverified"
    assert "onnxruntime cannot run the rest of the model" in same.message


def test_external_data(tmp_path: Path) -> None:
    """Weights beside the files are found, also where the converted model is still in memory."""
    text = f"""
        g (float[2,5,6,3] x) => (float[A,B,C,D] y) <{PARAMETERS}>
        {{ t = Add(x, w)
          SITE
          y = Mul(b, b) }}
    """
    weights = np.random.default_rng(0).normal(size=(5, 6, 3)).astype(np.float32)
    paths = []
    for name, body in (("a.onnx", SITE), ("b.onnx", LOWERED)):
        saved = model(text.replace("SITE", body))
        saved.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
        options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 100}
        onnx.save(saved, tmp_path / name, **options)
        paths.append(tmp_path / name)
    assert verify(*paths)
    in_memory = onnx.load(paths[1], load_external_data=False)
    assert verify(paths[0], in_memory)
