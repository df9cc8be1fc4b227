"""What is wrong with a model that cannot be run, and what to do about it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import onnx_spatial

HEAD = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[1,4,6,3] x, int64[2] front, int64[4] shape) => (y, z)
    <int64[2] block = {2, 2}, int64[2,2] pads = {0, 0, 0, 0}, int64[2] back = {3, 3}> {
        [site] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
"""
RESHAPED = "[r] z = Reshape(y, shape) }"
PARTS = "whole = Concat<axis = 0>(front, back) [r] z = Reshape(y, whole) }"
TWICE = "[same] n = Neg(y) [same] z = Relu(n) }"


def model(body: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + body)


@pytest.mark.parametrize(("body", "name"), [(RESHAPED, "shape"), (PARTS, "front")])
def test_values_that_are_a_shape_are_asked_for_with_inputs(body, name):
    with pytest.raises(onnx_spatial.VerificationError) as refused:
        onnx_spatial.convert(model(body), verify=onnx_spatial.VerifyOptions(strict=True))
    assert f"no legal values were found for {name!r}, from which the model computes" in str(
        refused.value
    )
    assert str(refused.value).partition(" (and ")[0].endswith("; pass data with --inputs")
    assert "--shape" not in str(refused.value)


def test_with_them_it_is_verified():
    inputs = {"x": np.zeros((1, 4, 6, 3), np.float32), "front": np.array([2, 4])}
    inputs["shape"] = np.array([4, 2, 3, 3])
    assert onnx_spatial.convert(
        model(RESHAPED), verify=onnx_spatial.VerifyOptions(inputs=inputs)
    ).verification


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_two_nodes_of_one_name_are_said_to_be_that(mode):
    with pytest.raises(
        onnx_spatial.VerificationError, match="two nodes have the name 'same', which"
    ):
        onnx_spatial.convert(
            model(TWICE), mode=mode, verify=onnx_spatial.VerifyOptions(strict=True)
        )
