"""Transposes around a fused convolution cancel or become one, across elementwise operators."""

from __future__ import annotations

import numpy as np
import pytest
from chain_models import Net, weights
from onnx import helper
from structure import ops

import onnx_spatial

DOMAIN = "ai.onnx.converters.tensorflow"
BIAS = np.arange(4, dtype=np.float32)


def made(first: list[int], last: list[int], *, bias_shape: tuple[int, ...] | None = None):
    """Convert SpaceToBatch - Conv - BatchToSpace - Transpose - Add - Relu - Transpose."""
    net = Net()
    x = net("SpaceToBatchND", "x", [1, 2, 2], [[0, 0], [2, 2], [2, 2]], domain=DOMAIN)
    x = net("Conv", x, weights(4, 3, 3, 3))
    x = net("BatchToSpaceND", x, [1, 2, 2], [[0, 0]] * 3, domain=DOMAIN)
    x = net("Transpose", x, perm=first)
    if bias_shape is not None:
        x = net("Add", x, BIAS.reshape(bias_shape))
    x = net("Transpose", net("Relu", x), perm=last)
    model = net.model((2, 3, 8, 12), x)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    result = onnx_spatial.convert(model)
    assert result.verification
    return result.model


def test_a_pair_behind_the_convolution_cancels():
    assert ops(made([1, 0, 2, 3], [1, 0, 2, 3])) == ["Conv", "Relu"]


def test_the_constant_between_becomes_the_bias():
    model = made([1, 0, 2, 3], [1, 0, 2, 3], bias_shape=(4, 1, 1, 1))
    assert ops(model) == ["Conv", "Relu"]
    assert len(model.graph.node[0].input) == 3


@pytest.mark.parametrize("bias_shape", [None, (4, 1, 1, 1)])
def test_two_that_do_not_cancel_become_one(bias_shape):
    """[N, C, H, W] -> [C, N, H, W] -> [N, H, W, C]."""
    model = made([1, 0, 2, 3], [1, 2, 3, 0], bias_shape=bias_shape)
    assert ops(model) == ["Conv", "Relu", "Transpose"]
    assert list(model.graph.node[-1].attribute[0].ints) == [0, 2, 3, 1]


def test_one_that_others_read_stays():
    net = Net()
    x = net("SpaceToBatchND", "x", [1, 2, 2], [[0, 0], [2, 2], [2, 2]], domain=DOMAIN)
    x = net("Conv", x, weights(4, 3, 3, 3))
    x = net("BatchToSpaceND", x, [1, 2, 2], [[0, 0]] * 3, domain=DOMAIN)
    x = net("Transpose", x, perm=[1, 0, 2, 3])
    y = net("Transpose", net("Relu", x), perm=[1, 2, 3, 0])
    model = net.model((2, 3, 8, 12), net("Add", y, net("ReduceSum", x, keepdims=0)))
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    result = onnx_spatial.convert(model)
    assert result.verification
    assert ops(result.model).count("Transpose") == 2
