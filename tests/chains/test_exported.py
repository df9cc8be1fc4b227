"""Exported chains keep all elements; those of rank 5 and more fit rank 4.

Each stands between two functions of single elements. torch 2.13 wrote them with TorchScript's exporter
("-script") and with the newer one ("-dynamo"), tf2onnx 1.17 the others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import running

import onnx_spatial

MODELS = sorted((Path(__file__).parent / "exported").glob("*.onnx"))


def _data(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input
    }
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def _runs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return running.run(model, feeds, running.LEVELS[0])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_rank_4_is_enough(path):
    model = onnx.load(path)
    feeds = _data(model)
    result = onnx_spatial.optimize(model, max_rank=4, verify=False)
    limits = result.inspection.limits
    assert limits is not None
    assert limits.nodes == ()
    (expected,), (actual,) = _runs(model, feeds), _runs(result.model, feeds)
    assert actual.tobytes() == expected.tobytes()


def test_patches_beside_a_chain_that_only_moves_data():
    """Contextual attention (tf2onnx 1.17, default options): both kinds of chains are rewritten."""
    model = onnx.load(Path(__file__).parent / "exported" / "contextual_attention.onnx")
    result = onnx_spatial.optimize(model)
    assert result.verification.status == "passed"
    kinds = [(site.op_type, site.action) for site in result.inspection.chains]
    assert kinds.count(("ExtractImagePatches", "lower")) == 2
    assert ("Rearrange", "lower") in kinds
    feeds = _data(model)
    (expected,), (actual,) = _runs(model, feeds), _runs(result.model, feeds)
    assert actual.tobytes() == expected.tobytes()
