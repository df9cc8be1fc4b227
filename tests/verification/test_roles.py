"""Models that are given in the wrong place are told from conversions that went wrong."""

from __future__ import annotations

import onnx
import pytest
from onnx import numpy_helper, parser
from validating import PLAIN, S2B, SCALED

import onnx_spatial


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def converted(text: str, mode: str = "lower") -> onnx.ModelProto:
    return onnx_spatial.convert(model(text), mode=mode, verify=False).model


def test_a_model_that_is_compared_with_itself_is_said_to_be_the_same():
    found = onnx_spatial.verify(model(S2B), model(S2B))
    assert found.status == "failed"
    assert found.problems[0] == (
        "both are the same model, which is not converted: it still holds 1 spatial operator"
    )
    assert "as the second model" in str(found.advice) and "--no-fuse" not in str(found.advice)


def test_one_weight_more_or_less_is_not_the_same():
    other = model(SCALED)
    third = next(t for t in other.graph.initializer if t.name == "third")
    third.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(third) * 2, "third"))
    found = onnx_spatial.verify(model(SCALED), other)
    assert found.status == "failed"
    assert "the second model is not converted: it still holds 1 spatial operator" in found.message


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_what_can_be_run_is_run_against_itself(mode):
    found = onnx_spatial.verify(converted(S2B, mode), converted(S2B, mode))
    assert found.status == "passed" and found.runs and found.advice is None


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_two_that_are_swapped_are_said_to_be(mode):
    found = onnx_spatial.verify(converted(S2B, mode), model(S2B))
    assert found.status == "failed"
    assert found.problems == [
        "the second model still holds 1 spatial operator, the first none: are the arguments swapped?"
    ]
    assert "swap the arguments" in str(found.advice) and "--no-fuse" not in str(found.advice)


def test_models_with_other_inputs_are_not_said_to_be_swapped():
    found = onnx_spatial.verify(model(PLAIN.replace("x", "q")), model(S2B))
    assert found.status == "failed"
    assert "swapped" not in str(found.advice) and "--no-fuse" not in str(found.advice)


def test_a_model_that_was_made_of_another_one_is_said_to_be():
    found = onnx_spatial.verify(model(S2B), converted(SCALED))
    assert found.status == "failed"
    assert "only the second has Mul node" in str(found.advice)


def test_shapes_that_onnxruntime_does_not_read_are_no_matter_of_sizes(tmp_path):
    text = S2B.replace("(float[M,2,2,3] y)", "(y)").replace("[s2b] y", "[s2b] z")
    text = text.replace("int32[2] block", "int64[2] shape = {-1, 12}, int32[2] block")
    original = model(text.replace("pads)\n", "pads)\n y = Reshape(z, shape)\n"))
    for tensor in original.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    path = tmp_path / "m.onnx"
    onnx.save(original, path, save_as_external_data=True, location="m.data", size_threshold=0)
    conversion = onnx_spatial.convert(path, verify=False)
    onnx.save(conversion.model, tmp_path / "out.onnx")
    found = onnx_spatial.verify(path, tmp_path / "out.onnx")
    assert found.status == "unverified"
    assert "--shape" not in found.message
    onnx.save(onnx.load(path), tmp_path / "mended.onnx", save_as_external_data=True)  # as it says
    assert "save_as_external_data=True" in found.message
    mended = tmp_path / "mended.onnx"
    assert onnx_spatial.verify(mended, onnx_spatial.convert(mended, verify=False).model)
