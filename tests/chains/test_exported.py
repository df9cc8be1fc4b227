"""Exported chains of rank 5 and more: rank 4 is enough, and all elements stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import running

import onnx_spatial

MODELS = sorted((Path(__file__).parent / "exported").glob("*.onnx"))


def _runs(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    return running.run(model, {model.graph.input[0].name: x}, running.LEVELS[0])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_rank_4_is_enough(path):
    model = onnx.load(path)
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(dims, np.float32)
    result = onnx_spatial.optimize(model, max_rank=4, verify=False)
    limits = result.inspection.limits
    assert limits is not None
    assert limits.nodes == ()
    (expected,), (actual,) = _runs(model, x), _runs(result.model, x)
    assert actual.tobytes() == expected.tobytes()


def test_there_are_chains_of_higher_rank():
    ranks = []
    for path in MODELS:
        for node in onnx.load(path).graph.node:
            ranks += [len(a.ints) for a in node.attribute if a.name == "perm"]
    assert sum(rank > 4 for rank in ranks) >= 11
