"""Changes of a model: what is right passes, what is wrong fails or is never called proven."""

from __future__ import annotations

import onnx
import pytest
from adapter import verify
from hand_lowered import space_to_batch, space_to_batch_lowered
from onnx import helper
from parsing import model

MOVED = """
    g (float[N,H,W,3] x) => (float[P,Q,R,S] y)
      <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}>
    { u = Tanh(x) y = tf.SpaceToBatchND(u, block, none) }
"""
MOVED_LOWERED = """
    g (float[N,H,W,3] x) => (float[P,Q,R,S] y)
      <int64[1] axis0 = {0}, int64[1] axis1 = {1}, int64[1] axis2 = {2}, int64[1] axis3 = {3},
       int64[1] two = {2}, int64[1] rest = {-1}, float one = {FACTOR}>
    {
        u = Tanh(x)
        sizes = Shape(WHOSE)
        n = Gather<axis = 0>(sizes, axis0) h = Gather<axis = 0>(sizes, axis1)
        w = Gather<axis = 0>(sizes, axis2) c = Gather<axis = 0>(sizes, axis3)
        rows = Div(h, two) columns = Div(w, two)
        split = Concat<axis = 0>(n, rows, two, columns, two, c)
        cells = Reshape(u, split)
        moved = Transpose<perm = [PERM]>(cells)
        merged = Concat<axis = 0>(rest, rows, columns, c)
        whole = Reshape(moved, merged)
        y = LAST
    }
"""


def lowered(
    whose: str = "x",
    perm: str = "2, 4, 0, 1, 3, 5",
    last: str = "Identity(whole)",
    factor: str = "1",
) -> onnx.ModelProto:
    pieces = {"WHOSE": whose, "PERM": perm, "LAST": last, "FACTOR": factor}
    text = MOVED_LOWERED
    for piece, meaning in pieces.items():
        text = text.replace(piece, meaning)
    return model(text)


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({}, "proven"),
        ({"whose": "u"}, "proven"),  # sizes of another value
        ({"perm": "4, 2, 0, 1, 3, 5"}, None),
        # Within the tolerance of sums, but these are moved.
        ({"whose": "u", "last": "Mul(whole, one)", "factor": "1.0000005"}, None),
        ({"whose": "u", "last": "Add(whole, one)", "factor": "1e-8"}, None),
        ({"whose": "u", "last": "Relu(whole)"}, None),
        ({"whose": "u", "last": "Clip(whole, one)", "factor": "-0.99"}, None),
        # It reads x, too: so the part begins further up, at a sum, and its last bits do not count.
        ({"last": "Add(whole, one)", "factor": "1e-8"}, "sampled"),
    ],
)
def test_moved_data_keeps_its_bits(change: dict[str, str], evidence: str | None) -> None:
    result = verify(model(MOVED), lowered(**change))
    assert (result.status == "passed", result.evidence) == (evidence is not None, evidence)
    if evidence is None:
        assert result.first_difference is not None
        assert result.first_difference.kind == "operator"


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


# Inputs, outputs and what is beside the nodes


def test_a_declaration_of_the_original_that_is_wrong_may_be_left_or_put_right() -> None:
    before = space_to_batch()
    before.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, [7, 7]))
    as_it_was = space_to_batch_lowered()
    as_it_was.graph.output[0].type.CopyFrom(before.graph.output[0].type)
    assert verify(before, as_it_was)
    assert verify(before, space_to_batch_lowered())


def declared(data: str) -> onnx.ModelProto:
    return model(f"g (float[{data}] x) => (float[N,C,H,W] y) {{ y = Tanh(x) }}")


@pytest.mark.parametrize("data", ["N,3,H,W", "B,3,rows,8", "N,C,H,8"])
def test_an_input_that_takes_more_data(data: str) -> None:
    assert verify(declared("N,3,H,8"), declared(data))


def test_lost_metadata_is_mentioned() -> None:
    before = space_to_batch()
    before.metadata_props.add(key="author", value="somebody")
    result = verify(before, space_to_batch_lowered())
    assert result.notes == ["metadata of the model is lost: 'author'"]


RANDOM = "g (float[N,4] x) => (float[N,4] y, float[N,4] z) { [dice] r = RandomUniformLike(x) BODY }"


def test_random_outputs_are_not_compared_and_named() -> None:
    text = RANDOM.replace("BODY", "y = Add(x, r) z = LAST")
    noisy = model(text.replace("LAST", "Neg(x)"))
    result = verify(noisy, noisy)
    assert result.evidence == "proven"
    (note,) = result.notes
    assert "output 'y'" in note and "RandomUniformLike node 'dice'" in note
    assert {o.name: o.passed for o in result.outputs} == {"y": None, "z": True}
    assert verify(noisy, model(text.replace("LAST", "Abs(x)"))).status == "failed"
    # Without anything that could be compared nothing is known of what is not proven.
    every = model(RANDOM.replace("BODY", "y = Add(x, r) z = Mul(x, r)"))
    other = model(RANDOM.replace("BODY", "y = Add(x, r) z = Sub(x, r)"))
    assert verify(every, other).status == "unverified"
    assert verify(every, every).message.endswith("no output was compared")
    head = "g (float[N,4] x) => (int64[2] y)"
    shapes = model(f"{head} {{ r = RandomUniformLike(x) a = Neg(x) y = Shape(a) }}")
    assert verify(shapes, shapes).notes == []
