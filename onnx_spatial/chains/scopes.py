"""List the graphs of a model with what is known of their values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import GraphScope
from onnx_spatial.chains.function_types import add_function_types
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import constant_folding, shape_inference


def graph_scopes(
    proto: onnx.ModelProto,
    infos: Sequence[analysis.OperatorInfo],
    folder: Path | None,
    functions: Collection[traversal.Place] = (),
) -> list[GraphScope]:
    """Return what is known of the values of each graph, in the order of `traversal.graphs`.

    Args:
        proto: the model; it is not changed.
        infos: its named spatial operators.
        folder: where external data lies.
        functions: graphs of interest; types in functions are inferred only if one is inside.
    """
    graphs = list(traversal.graphs(proto))
    scopes = list(constant_folding.scopes(analysis.inferred(proto, infos, folder)))
    if any(place.function for place in functions):
        add_function_types(
            proto.functions,
            [
                (place, graph, scope)
                for (place, graph), (scope, _) in zip(graphs, scopes, strict=True)
            ],
        )
    names = shape_inference.symbols(proto)
    return [GraphScope(scope, names) for scope, _ in scopes]
