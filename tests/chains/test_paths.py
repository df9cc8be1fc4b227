"""Paths of data are found without types, and most graphs have none."""

from __future__ import annotations

import chain_models
from chain_models import Net

from onnx_spatial.chains.paths import paths


def _kinds(model):
    return [[[n.op_type for n in step] for step in path.nodes] for path in paths(model.graph)]


def test_a_path_ends_where_data_is_computed_with():
    first, second = _kinds(chain_models.six_dims())
    assert [step[0] for step in first] == ["Pad", "Reshape", "Transpose", "Reshape", "Transpose"]
    assert [step[0] for step in second] == ["Transpose", "Reshape", "Transpose", "Reshape"]


def test_parts_that_are_joined_again_are_one_step():
    net = Net()
    parts = [net("Slice", "x", [i], [2**31 - 1], [1], [2]) for i in (0, 1)]
    (path,) = paths(net.model((2, 8, 3), net("Concat", *parts, axis=0)).graph)
    assert path.values[0] == "x"
    assert sorted(n.op_type for step in path.nodes for n in step) == ["Concat", "Slice", "Slice"]


def test_what_is_joined_of_two_values_starts_a_path():
    net = Net()
    x = net("Concat", net("Relu", "x"), net("Exp", "x"), axis=0)
    assert _kinds(net.model((2, 8, 3), x)) == []


def test_attention_has_no_path():
    net = Net()
    x = net("Transpose", net("Reshape", "x", [0, -1, 4, 16]), perm=[0, 2, 1, 3])
    x = net("Softmax", x)
    x = net("Reshape", net("Transpose", x, perm=[0, 2, 1, 3]), [0, -1, 64])
    assert _kinds(net.model(("n", "s", 64), x)) == []


def test_sizes_are_no_data():
    """Shape arithmetic moves numbers, too."""
    net = Net()
    shape = net("Reshape", net("Concat", net("Shape", "x"), [1], axis=0), [-1])
    assert _kinds(net.model((2, 8), net("Reshape", "x", shape))) == []
