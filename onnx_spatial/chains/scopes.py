"""List the graphs of a model with what is known of their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import GraphScope
from onnx_spatial.chains.weights import Weights
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference


def graph_scopes(
    proto: onnx.ModelProto, infos: Sequence[analysis.OperatorInfo], folder: Path | None
) -> list[GraphScope]:
    """Return what is known of the values of each graph, in the order of `traversal.graphs`.

    In the body of a local function holds what all calls agree on.

    Args:
        proto: the model; it is not changed.
        infos: its named spatial operators.
        folder: where external data lies.
    """
    names = shape_inference.symbols(proto)
    weights = Weights(proto, folder)
    facts = analysis.graph_facts(proto, infos, folder)
    return [
        GraphScope(place, known.scope, known.sizes, names, weights)
        for (place, _), known in zip(traversal.graphs(proto), facts, strict=True)
    ]
