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


def rearranged(factors: list[int], perm: list[int], shape: list[int], result: list[int]):
    """Reshape - Transpose - Reshape with a function of single elements on either side."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[{",".join(map(str, shape))}] x) => (float[{",".join(map(str, result))}] y)
    <int64[{len(factors)}] split = {{{",".join(map(str, factors))}}},
     int64[{len(result)}] join = {{{",".join(map(str, result))}}}> {{
        a = Relu(x)
        [split] b = Reshape(a, split)
        [turn] c = Transpose <perm = {perm}> (b)
        [join] d = Reshape(c, join)
        y = Neg(d)
    }}"""
    return parser.parse_model(text)


CHAINS = {
    "window partition": ([1, 4, 7, 4, 7, 8], [0, 1, 3, 2, 4, 5], [1, 28, 28, 8], [16, 7, 7, 8]),
    "pixel unshuffle": ([1, 4, 8, 2, 8, 2], [0, 1, 3, 5, 2, 4], [1, 4, 16, 16], [1, 16, 8, 8]),
    "unpatchify": ([1, 8, 8, 2, 2, 4], [0, 5, 1, 3, 2, 4], [1, 64, 16], [1, 4, 16, 16]),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("target", TARGETS)
def test_chains_come_within_the_limits(chain, target):
    model = rearranged(*CHAINS[chain])
    result = onnx_spatial.optimize(model, target=target)
    assert result.inspection.limits.nodes == ()
    assert result.verification is None or result.verification.status == "passed"
    types = {node.op_type for node in structure.nodes(result.model)}
    assert not types & (TARGETS[target].refused | TARGETS[target].avoided)
    assert result.changed or TARGETS[target].max_rank >= 6


def test_a_chain_whose_ends_exceed_the_limit_says_so():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,3,4,5,6] x) => (float[1,4,2,5,3,6] y) {
        [turn] y = Transpose <perm = [0, 3, 1, 4, 2, 5]> (x)
    }"""
    (turn,) = onnx_spatial.optimize(
        parser.parse_model(text), target="coreml"
    ).inspection.limits.nodes
    assert (turn.node, turn.rank, turn.limit) == ("turn", 6, 5)
    assert "has rank 6" in turn.kept


@pytest.mark.parametrize("target", ["coreml", "ncnn"])
def test_nodes_that_the_target_refuses_are_written_with_others(target):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,12] x) => (float[1,12,4,6] y) {
        a = Relu(x)
        [depth] b = SpaceToDepth <blocksize = 2> (a)
        y = Relu(b)
    }"""
    assert not onnx_spatial.optimize(parser.parse_model(text)).changed
    result = onnx_spatial.optimize(parser.parse_model(text), target=target)
    assert structure.counts(result.model)["SpaceToDepth"] == 0
    assert result.verification.status == "passed"
    assert result.inspection.limits.nodes == ()
