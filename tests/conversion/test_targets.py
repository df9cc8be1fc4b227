"""Fusion writes no pools with dilations for a target that does not run them."""

from __future__ import annotations

import pytest
import structure
from onnx import parser

import onnx_spatial
from onnx_spatial.model.targets import TARGETS

BETWEEN = """<ir_version: 8, opset_import: ["" : 19, "ai.onnx.converters.tensorflow" : 1]>
g (float[1,16,18,3] x) => (float[?,?,?,?] y)
<int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
    a = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, none)
    b = Transpose <perm = [0, 3, 1, 2]> (a)
    c = POOL <kernel_shape = [2, 2]> (b)
    d = Transpose <perm = [0, 2, 3, 1]> (c)
    y = ai.onnx.converters.tensorflow.BatchToSpaceND(d, block, none)
}"""
PATCHES = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (int8[1,16,18,3] x) => (int8[?,?,?,?] y) <int64[5] s = {1, 12, 14, 9, 3}> {
    a = ai.onnx.converters.tensorflow.ExtractImagePatches
        <ksizes = [1, 3, 3, 1], strides = [1, 1, 1, 1], rates = [1, 2, 2, 1], padding = "VALID"> (x)
    b = Reshape(a, s)
    y = ReduceMax <axes = [3], keepdims = 0> (b)
}"""


def converted(text: str, target: str | None):
    result = onnx_spatial.optimize(parser.parse_model(text), target=target)
    assert result.verification
    return result


@pytest.mark.parametrize("text", [BETWEEN.replace("POOL", "MaxPool"), PATCHES])
@pytest.mark.parametrize("target", [None, *TARGETS])
def test_max_pools(text, target):
    result = converted(text, target)
    pools = [n for n in structure.nodes(result.model) if n.op_type == "MaxPool"]
    dilated = [
        n for n in pools if any(a.name == "dilations" and max(a.ints) > 1 for a in n.attribute)
    ]
    runs = target is None or TARGETS[target].dilated_pools
    assert bool(dilated) == runs
    if not runs:
        (reason, *_) = result.inspection.sites[0].declined
        assert "no MaxPool with dilations" in reason
        assert result.inspection.limits.nodes == ()


def test_an_average_becomes_a_convolution():
    text = BETWEEN.replace("POOL", "AveragePool")
    assert structure.counts(converted(text, None).model)["AveragePool"] == 1
    made = structure.counts(converted(text, "coreml").model)
    assert (made["Conv"], made["AveragePool"]) == (1, 0)
