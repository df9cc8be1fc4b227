"""Right conversions pass, wrong ones fail and name what differs."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import (
    batch_to_space,
    batch_to_space_lowered,
    model,
    patches,
    patches_lowered,
    space_to_batch,
    space_to_batch_lowered,
)


@pytest.mark.parametrize(
    ("original", "converted"),
    [
        (space_to_batch(), space_to_batch_lowered()),
        (space_to_batch(shape="2,5,6,3"), space_to_batch_lowered(shape="2,5,6,3")),
        (batch_to_space(), batch_to_space_lowered()),
        (patches(), patches_lowered()),
    ],
)
def test_right(original: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    result = verify(original, converted)
    assert result, result.message
    assert result.status == "passed"
    assert result.first_difference is None
    (site,) = result.operators
    assert site.how == ["isolated", "in place", "end to end"]
    assert site.passed
    assert all(o.equal_bits and o.tolerance == 0 for o in result.outputs)
    assert {o.optimised for o in result.outputs} == {False, True}


WRONG = {
    "batch minor instead of major": (
        space_to_batch(),
        space_to_batch_lowered(perm="0, 2, 4, 1, 3, 5"),
    ),
    "block offsets swapped": (space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5")),
    "rows and offsets swapped": (
        space_to_batch(),
        space_to_batch_lowered(split="-1, 2, 4, 3, 3, 3", perm="1, 4, 0, 2, 3, 5"),
    ),
    "pad on the wrong side": (
        space_to_batch(),
        space_to_batch_lowered(pads="0, 2, 0, 0, 0, 1, 3, 0"),
    ),
    "pad on the wrong axis side": (
        space_to_batch(),
        space_to_batch_lowered(pads="0, 1, 3, 0, 0, 2, 0, 0"),
    ),
    "batch order of the inverse": (
        batch_to_space(),
        batch_to_space_lowered(split="-1, 2, 3, 4, 3, 3", perm="0, 3, 1, 4, 2, 5"),
    ),
    "crop dropped": (batch_to_space(), batch_to_space_lowered(starts="0, 0", ends="5, -3")),
    "crop on the wrong side": (
        batch_to_space(),
        batch_to_space_lowered(starts="2, 0", ends="-1, -3"),
    ),
    "crop off by one": (batch_to_space(), batch_to_space_lowered(ends="-1, -3")),
    "torch's channel order": (patches(), patches_lowered(perm="0, 1, 3, 5, 2, 4")),
    "kernel position transposed": (patches(), patches_lowered(perm="0, 1, 3, 4, 2, 5")),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_site(name: str) -> None:
    original, converted = WRONG[name]
    result = verify(original, converted)
    assert not result
    assert result.status == "failed"
    assert "'site' (main graph)" in result.message
    (site,) = result.operators
    assert site.passed is False
    assert {c.how for c in site.checks if not c.passed} == {"isolated", "in place"}
    found = result.first_difference
    assert found is not None
    assert (found.kind, found.name, found.graph) == ("operator", "site", "main graph")
    assert found.inputs["x"].size
    assert any(o.passed is False for o in result.outputs)


NET = """
g (float[2,5,6,3] x) => (float[A,B,C,D] y, float[E,F,G,H] z)
  <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}, int64[2] axes = {1, 2},
   int64[8] p = {0, 1, 0, 0, 0, 2, 3, 0}, int64[6] s = {2, 4, 2, 3, 3, 3},
   int64[4] m = {12, 4, 3, 3}, float[3] w = {0.5, -1.25, 2}>
{
    SITE
    scaled = Mul(blocks, w)
    y = Tanh(scaled)
    z = Relu(x)
}
"""
SITE = "[site] blocks = tf.SpaceToBatchND(x, block, pads)"
LOWERED = """
    padded = Pad(x, p)
    cells = Reshape(padded, s)
    moved = Transpose<perm = [2, 4, 0, 1, 3, 5]>(cells)
    blocks = Reshape(moved, m)
"""
NET_ORIGINAL, NET_LOWERED = NET.replace("SITE", SITE), NET.replace("SITE", LOWERED)


def test_net_within_tolerance() -> None:
    result = verify(model(NET_ORIGINAL), model(NET_LOWERED))
    assert result, result.message
    assert {o.name: o.tolerance for o in result.outputs} == {"y": 1e-5, "z": 1e-5}


def test_weight_changed() -> None:
    changed = NET_LOWERED.replace("-1.25", "-1.2501")
    result = verify(model(NET_ORIGINAL), model(changed))
    assert result.status == "failed"
    assert result.operators[0].passed
    found = result.first_difference
    assert found is not None
    assert (found.kind, found.name) == ("value", "scaled")
    assert "reads another constant" in result.problems[0]
    assert "output 'y'" in result.problems[1]
    by_name = {(o.name, o.optimised): o for o in result.outputs}
    assert by_name["y", False].passed is False
    assert by_name["y", False].mismatches > 0
    assert by_name["z", False].passed


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("float[E,F,G,H] z)", "float[E,F,G,H] other)", "output 'z' is missing"),
        (", float[E,F,G,H] z)", ")", "output 'z' is missing"),
        ("float[E,F,G,H] z)", "float[E,F,G,H] z, float[I,J,K,L] scaled)", "'scaled' of the conv"),
        ("(float[2,5,6,3] x)", "(float[2,5,6,3] image)", "input 'x' is missing"),
        ("(float[A,B,C,D] y, float[E,F,G,H] z)", "(float[E,F,G,H] z, float[A,B,C,D] y)", "order"),
        ("float[E,F,G,H] z)", "double[E,F,G,H] z)", "declared as double, not float"),
    ],
)
def test_interface_changed(old: str, new: str, message: str) -> None:
    text = NET_LOWERED.replace(old, new).replace(
        "z = Relu", "other = Relu" if "other" in new else "z = Relu"
    )
    if "image" in new:
        text = text.replace("(x", "(image")
    result = verify(model(NET_ORIGINAL), model(text))
    assert result.status == "failed"
    assert message in result.message
    assert result.operators[0].passed is not False or "image" in new


def test_output_type_changed() -> None:
    text = NET_LOWERED.replace("z = Relu(x)", "a = Relu(x)\n z = Cast<to = 11>(a)")
    result = verify(model(NET_ORIGINAL), _without_types(model(text)))
    assert result.status == "failed"
    assert "type is float64, not float32" in result.message


def test_output_shape_changed() -> None:
    text = NET_LOWERED.replace("z = Relu(x)", "a = Relu(x)\n z = Transpose(a)")
    result = verify(model(NET_ORIGINAL), _without_types(model(text)))
    assert result.status == "failed"
    assert "shape is [3, 6, 5, 2], not [2, 5, 6, 3]" in result.message


def _without_types(model: onnx.ModelProto) -> onnx.ModelProto:
    for output in model.graph.output:
        output.ClearField("type")
    return model


def test_converted_does_not_load() -> None:
    result = verify(model(NET_ORIGINAL), model(NET_ORIGINAL))
    assert result.status == "failed"
    assert "is not converted" in result.message
    assert result.operators[0].passed is False


def test_converted_does_not_run_at_another_size() -> None:
    fixed = space_to_batch_lowered(split="2, 4, 2, 3, 3, 3")
    result = verify(space_to_batch(), fixed)
    assert result.status == "failed"
    assert "does not run: running Reshape node" in result.message


def test_fused_sites() -> None:
    """SpaceToBatch -> Conv -> BatchToSpace became one dilated Conv."""
    original = model("""
        g (float[N,1,8,8] x) => (float[A,B,C,D] y)
          <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, float[1,1,1,1] w = {0.75}>
        {
            t = Transpose<perm = [0, 2, 3, 1]>(x)
            [to_batch] a = tf.SpaceToBatchND(t, block, none)
            b = Transpose<perm = [0, 3, 1, 2]>(a)
            c = Conv(b, w)
            d = Transpose<perm = [0, 2, 3, 1]>(c)
            [to_space] e = tf.BatchToSpaceND(d, block, none)
            y = Transpose<perm = [0, 3, 1, 2]>(e)
        }
    """)
    fused = (
        "g (float[N,1,8,8] x) => (float[A,B,C,D] y) <float[1,1,1,1] w = {0.75}> { y = Conv(x, w) }"
    )
    result = verify(original, model(fused))
    assert result, result.message
    assert [s.how for s in result.operators] == [["isolated", "end to end"]] * 2
    assert [s.passed for s in result.operators] == [True, True]
    wrong = verify(original, model(fused.replace("0.75", "0.7501")))
    assert [s.passed for s in wrong.operators] == [False, False]


def test_nothing_to_convert() -> None:
    text = "g (float[N,3] x) => (float[N,3] y) { y = Exp(x) }"
    assert verify(model(text), model(text))
    assert not verify(model(text), model(text.replace("Exp", "Tanh")))


def test_nan_must_stay_nan() -> None:
    text = "g (float[N,3] x) => (float[N,3] y) { y = Log(x) }"
    data = {"x": np.array([[-1.0, 0.0, 2.0]], np.float32)}
    assert verify(model(text), model(text), inputs=data)
    other = text.replace("y = Log(x)", "a = Abs(x)\n y = Log(a)")
    result = verify(model(text), model(other), inputs=data)
    assert result.status == "failed"
    assert result.outputs[0].mismatches == 1


MERGED = """
g (float[N,1,8,8] x) => (float[A,B,C,D] y, float[E,F,G,H] c)
  <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, float[1,1,1,1] w = {0.75},
   float v = {0.75}, int64[6] s = {-1, 2, 2, 2, 2, 1}>
{
    t = Transpose<perm = [0, 2, 3, 1]>(x)
    [to_batch] a = tf.SpaceToBatchND(t, block, none)
    b = Transpose<perm = [0, 3, 1, 2]>(a)
    c = Conv(b, w)
    d = Transpose<perm = [0, 2, 3, 1]>(c)
    [to_space] e = tf.BatchToSpaceND(d, block, none)
    y = Tanh(e)
}
"""


@pytest.mark.parametrize(("factor", "passes"), [("0.75000006", True), ("0.7501", False)])
def test_a_merged_site_in_place(factor: str, passes: bool) -> None:
    """Its inputs are still there for others, its output comes from a convolution that took it in."""
    before = MERGED.replace("tf.SpaceToBatchND(t, block, none)", "Identity(t)").replace(
        "tf.BatchToSpaceND(d, block, none)", "Identity(d)"
    )
    site = "tf.SpaceToBatchND(d, block, none)"
    original = MERGED.replace("tf.SpaceToBatchND(t, block, none)", "Identity(t)").replace(
        "tf.BatchToSpaceND(d, block, none)", site
    )
    # What tanh sees is space-to-batch of the input times a factor, not of the convolution.
    merged = before.replace(
        "e = Identity(d)",
        """k = Constant<value_ints = [-1, 4, 2, 4, 2, 1]>()
        m = Constant<value_ints = [-1, 4, 4, 1]>()
        f = Constant<value_float = FACTOR>()
        g = Mul(t, f)
        h = Reshape(g, k)
        i = Transpose<perm = [2, 4, 0, 1, 3, 5]>(h)
        e = Reshape(i, m)""".replace("FACTOR", factor),
    )
    result = verify(model(original), model(merged))
    assert bool(result) is passes, result.message
    (site,) = result.operators
    assert site.how == ["isolated", "in place", *(["end to end"] if passes else [])]
    assert {c.passed for c in site.checks if c.how == "in place"} == {passes}
    assert site.passed is passes


@pytest.mark.parametrize("dims", [[7, 7], ["P", "Q", "R", 99]])
def test_output_declared_with_a_shape_that_it_does_not_have(dims: list[int | str]) -> None:
    after = space_to_batch_lowered()
    after.graph.output[0].type.CopyFrom(onnx.helper.make_tensor_type_proto(1, dims))
    result = verify(space_to_batch(), after)
    assert result.status == "failed"
    assert re.search(r"output 'y' is declared as \[.*\], but has shape \[\d+, ", result.message)


def test_a_declaration_of_the_original_that_is_wrong_may_be_left_or_put_right() -> None:
    before = space_to_batch()
    before.graph.output[0].type.CopyFrom(onnx.helper.make_tensor_type_proto(1, [7, 7]))
    as_it_was = space_to_batch_lowered()
    as_it_was.graph.output[0].type.CopyFrom(before.graph.output[0].type)
    assert verify(before, as_it_was)
    assert verify(before, space_to_batch_lowered())


def declared(data: str) -> onnx.ModelProto:
    return model(f"g (float[{data}] x) => (float[N,C,H,W] y) {{ y = Tanh(x) }}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("N,3,H,9", "input 'x' is declared as [N, 3, H, 9], not [N, 3, H, 8]"),
        ("N,3,H", "input 'x' is declared as [N, 3, H], not [N, 3, H, 8]"),
        ("N,3,16,8", "does not run"),
        ("1,3,H,8", "does not run"),
    ],
)
def test_an_input_that_no_longer_takes_all_data(data: str, message: str) -> None:
    result = verify(declared("N,3,H,8"), declared(data))
    assert result.status == "failed"
    assert message in result.message


@pytest.mark.parametrize("data", ["N,3,H,W", "B,3,rows,8", "N,C,H,8"])
def test_an_input_that_takes_more_data(data: str) -> None:
    assert verify(declared("N,3,H,8"), declared(data))


def test_an_open_size_that_is_fixed_beside_a_proven_operator() -> None:
    """One run, which is enough for what is proven, would be at the fixed size."""
    right, fixed = space_to_batch_lowered(), space_to_batch_lowered(shape="2,5,6,3")
    one_run = verify(space_to_batch(), right)
    assert {run.shapes["x"] for run in one_run.runs} == {(2, 5, 6, 3)}
    assert verify(space_to_batch(), fixed).status == "failed"


def test_lost_metadata_is_mentioned() -> None:
    before = space_to_batch()
    before.metadata_props.add(key="author", value="somebody")
    result = verify(before, space_to_batch_lowered())
    assert result
    assert result.message.endswith("metadata of the model is lost: 'author'")


def test_a_batch_of_zero_that_a_reshape_cannot_hold() -> None:
    """Beside sizes of which the product is zero, -1 could be any number: onnxruntime refuses."""
    before = model("""
        g (float[N,8,6,3] x) => (float[A,B,C,D] y)
          <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}>
        { y = tf.SpaceToBatchND(x, block, pads) }
    """)
    text = """
        g (float[N,8,6,3] x) => (float[A,B,C,D] y)
          <int64[6] split = {0, -1, 2, 3, 2, 3}, int64[4] shape = {-1, 4, 3, 3}>
        { a = Reshape(x, split) b = Transpose<perm = [PERM]>(a) y = Reshape(b, shape) }
    """
    result = verify(before, model(text.replace("PERM", "2, 4, 0, 1, 3, 5")))
    assert result.status == "passed", result.message
    assert verify(before, model(text.replace("PERM", "4, 2, 0, 1, 3, 5"))).status == "failed"
