"""Paths of data are found without types, and most graphs have none."""

from __future__ import annotations

import chain_models
from chain_models import Net

from onnx_spatial.chains.find_blocks import paths_of_blocks
from onnx_spatial.chains.paths import DataGraph


def _kinds(model):
    return [path.kinds for path in paths_of_blocks(DataGraph(model.graph))]


def test_a_path_ends_where_data_is_computed_with():
    first, second = _kinds(chain_models.six_dims())
    assert first == ["Pad", "Reshape", "Transpose", "Reshape", "Transpose"]
    assert second == ["Transpose", "Reshape", "Transpose", "Reshape"]


def test_several_nodes_that_change_elements_are_one_step():
    net = Net()
    inner = net("Transpose", "x", perm=[1, 0, 2])
    gate = net("Mul", inner, net("Sigmoid", inner))
    model = net.model((2, 8, 3), net("Transpose", gate, perm=[1, 0, 2]))
    (path,) = DataGraph(model.graph).paths(lambda step: True)
    kinds = [[node.op_type for node in step.nodes] for step in path.steps]
    assert kinds == [["Transpose"], ["Sigmoid", "Mul"], ["Transpose"]]


def test_what_is_computed_of_two_values_starts_a_path():
    net = Net()
    x = net("Add", net("Reshape", "x", [16, 3]), net("MatMul", "x", "x"))
    model = net.model((2, 8, 3), net("Reshape", x, [2, 8, 3]))
    (first, second) = DataGraph(model.graph).paths(lambda step: True)
    assert (first.values[0], second.values[0]) == ("x", x)


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
