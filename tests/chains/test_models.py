"""Small nets as exporters write them: all atrous layers become dilated convolutions."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import structure
from adapter import plan

MODELS = Path(__file__).parents[2] / "models" / "chains"

#: For each model the number of nodes after `optimize`, and of dilated convolutions.
EXPECTED = {
    "conv1d": (6, 1),
    "gated_static": (9, 2),
    "conv2d": (8, 2),
    "in_loop": (9, 1),
    "causal_static": (11, 2),
}


def _is_dilated(node: onnx.NodeProto) -> bool:
    rates = [a.ints for a in node.attribute if a.name == "dilations"]
    return node.op_type == "Conv" and bool(rates) and max(rates[0]) > 1


@pytest.mark.parametrize("name", EXPECTED)
def test_atrous_layers(name):
    result = plan(onnx.load(MODELS / name / "model.onnx"), chains=True)
    assert result.model is not None
    nodes = list(structure.nodes(result.model))
    assert (len(nodes), sum(map(_is_dilated, nodes))) == EXPECTED[name]
    assert all(chain.lowering for chain in result.chains)
