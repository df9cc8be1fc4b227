"""Converted models have hardly more nodes than the same nets written by hand with dilated operators."""

from __future__ import annotations

from pathlib import Path

import native
import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_spatial
from onnx_spatial.validation import data_sets

MODELS = Path(__file__).parents[2] / "models"
#: How many nodes more than by hand are admitted, and for some models why.
LIMIT = 3
MORE = {
    # The patches: of the tiles 3 nodes more than SpaceToDepth, 2 for the kernel of the strided Conv.
    "openvino_style": 6,
}
NAMES = pytest.mark.parametrize("name", native.NETS)


def exported(name: str) -> onnx.ModelProto:
    return onnx.load(MODELS / name / "model.onnx")


def count(model: onnx.ModelProto) -> int:
    """The nodes that run, without Constants."""
    return sum(node.op_type != "Constant" for node in model.graph.node)


@NAMES
def test_the_net_by_hand_gives_what_was_recorded(name):
    model = native.NETS[name](exported(name))
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    data = data_sets.read(MODELS / name / "test_data_set_0", model)
    outputs = session.run(list(data.outputs), dict(data.inputs))
    for output, recorded in zip(outputs, data.outputs.values(), strict=True):
        np.testing.assert_allclose(output, recorded, rtol=0, atol=1e-5)


@NAMES
def test_conversion_gives_hardly_more_nodes_than_the_net_by_hand(name):
    model = exported(name)
    by_hand = count(native.NETS[name](model))
    converted = count(onnx_spatial.convert(model, verify=False).model)
    assert by_hand <= converted <= by_hand + MORE.get(name, LIMIT)
