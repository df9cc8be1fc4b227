"""Sizes grow until something is left: nets that crop, and data beside which little things are fed."""

from __future__ import annotations

import onnx
import pytest
from adapter import verify
from hand_lowered import model

import onnx_spatial
from onnx_spatial import Verification

#: Between a space-to-batch and its opposite nothing is done; then so many are cut away at each end.
CROPPED = """
    g (float[N,L,2] x OTHER) => (float[A,B,C] y)
      <int32[1] block = {2}, int32[1,2] none = {0, 0}, int64[1] one = {1},
       int64[1] from = {3000}, int64[1] to = {-3000}, float[1,2,3] kernel = {1, 2, 3, -1, 0, 1}>
    {
        [s2b] a = tf.SpaceToBatchND(x, block, none)
        b = Neg(a)
        [b2s] c = tf.BatchToSpaceND(b, block, none)
        d = Slice(c, from, to, one)
        BEHIND
    }
"""
BEHIND = {
    "empty": "y = Relu(d)",
    "refused": "e = Transpose<perm = [0, 2, 1]>(d)\n y = Conv(e, kernel)",
}


def verified(original: onnx.ModelProto, lines: list[str] | None = None) -> Verification:
    converted = onnx_spatial.convert(original, verify=False).model
    progress = None if lines is None else lines.append
    result = verify(original, converted, progress=progress)
    assert result, result.message
    return result


@pytest.mark.usefixtures("nothing_is_proven")
@pytest.mark.parametrize("behind", BEHIND)
def test_lengths_grow_to_little_more_than_what_is_cropped(behind: str) -> None:
    lines: list[str] = []
    text = CROPPED.replace("OTHER", "").replace("BEHIND", BEHIND[behind])
    result = verified(model(text), lines)
    lengths = {run.shapes["x"][1] for run in result.runs}
    assert len(lengths) >= 2
    assert all(6000 < length < 6400 for length in lengths)
    assert len({run.shapes["x"][0] for run in result.runs}) >= 2
    assert result.forced == {}
    assert any("looking for legal input sizes, try 2: x 2x" in line for line in lines)


def test_outputs_that_are_always_empty_are_compared_as_they_are() -> None:
    text = CROPPED.replace("OTHER", "").replace("BEHIND", "y = Slice(d, from, one, one)")
    text = text.replace("int64[1] from = {3000}", "int64[1] from = {3}")
    result = verified(model(text.replace("int64[1] to = {-3000}", "int64[1] to = {-3}")))
    assert all(o.elements == 0 for o in result.outputs)


def test_data_grows_while_what_is_fed_beside_it_stays_small() -> None:
    text = CROPPED.replace("OTHER", ", float[1,K,2] z").replace(
        "BEHIND", "e = MatMul(z, z2)\n f = Add(d, e)\n y = Relu(f)"
    )
    text = text.replace("<int32[1] block", "<float[2,2] z2 = {1, 2, 3, 4}, int32[1] block")
    result = verified(model(text))
    assert all(run.shapes["x"][1] > 6000 for run in result.runs)


def test_a_search_that_ends_at_its_largest_size_says_so() -> None:
    text = CROPPED.replace("OTHER", "").replace("BEHIND", BEHIND["refused"])
    original = model(text.replace("{3000}", "{3000000}").replace("{-3000}", "{-3000000}"))
    result = verify(original, onnx_spatial.convert(original, verify=False).model)
    assert result.status == "unverified"
    assert "inputs of more than 1,048,576 elements were not tried" in result.message
    assert "--shape x=SIZE,SIZE,2, or pass data with --inputs" in result.message
