"""List the graphs of a model with what is known of their values.

A local function has no types of its own. What all calls agree on holds in its body.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import onnx
from onnx import helper

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import GraphScope
from onnx_spatial.chains.weights import Weights
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import constant_folding, shape_inference

#: A graph, its values, and where it is.
ScopedGraph = tuple[traversal.Place, traversal.GraphLike, constant_folding.ConstantScope]


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
    _, scopes = analysis.inferred(proto, infos, folder)
    if any(place.function for place in functions):
        _add_function_types(
            proto.functions,
            [
                (place, graph, scope)
                for (place, graph), (scope, _) in zip(graphs, scopes, strict=True)
            ],
        )
    names = shape_inference.symbols(proto)
    weights = Weights(proto, folder)
    return [
        GraphScope(place, scope, names, weights)
        for (place, _), (scope, _) in zip(graphs, scopes, strict=True)
    ]


def _add_function_types(
    functions: Sequence[onnx.FunctionProto], graphs: Sequence[ScopedGraph]
) -> None:
    """Add the types of the values in functions to their scopes, in place.

    Args:
        functions: the local functions of a model.
        graphs: all graphs of the model, those in functions included.
    """
    bodies = {place.function: scope for place, _, scope in graphs if not place.steps}
    calls: dict[tuple[str, str], list[tuple[constant_folding.ConstantScope, onnx.NodeProto]]] = {}
    for _, graph, scope in graphs:
        for node in graph.node:
            calls.setdefault((node.domain, node.op_type), []).append((scope, node))
    # A function that calls another one has to be inferred before it.
    for _ in functions:
        changed = False
        for function in functions:
            scope = bodies[function.domain, function.name, function.overload]
            types = _types(function, calls.get((function.domain, function.name), ()), functions)
            changed |= any(scope.types.get(name) != each for name, each in types.items())
            scope.types.update(types)
        if not changed:
            return


def _types(
    function: onnx.FunctionProto,
    calls: Iterable[tuple[constant_folding.ConstantScope, onnx.NodeProto]],
    functions: Sequence[onnx.FunctionProto],
) -> dict[str, onnx.TypeProto]:
    """Return the types of the values in a function, as far as all calls agree on them."""
    calls = list(calls)
    inputs = []
    for position, name in enumerate(function.input):
        each = [
            scope.type(node.input[position]) if position < len(node.input) else None
            for scope, node in calls
        ]
        inputs.append(onnx.ValueInfoProto(name=name, type=_joined(each)))
    outputs = [onnx.ValueInfoProto(name=name) for name in function.output]
    graph = helper.make_graph(list(function.node), "body", inputs, outputs)
    model = helper.make_model(graph, opset_imports=list(function.opset_import))
    model.functions.extend(f for f in functions if f is not function)
    inferred = shape_inference.infer(model, lambda number, types: None).graph
    infos = (*inferred.input, *inferred.value_info, *inferred.output)
    return {info.name: info.type for info in infos if info.type.WhichOneof("value")}


def _joined(types: Sequence[onnx.TypeProto | None]) -> onnx.TypeProto | None:
    """Return the type on which all calls agree; None if one is unknown, or there is no call."""
    if len(types) == 1:
        return types[0]
    shapes = [shape_inference.dims(known) for known in types]
    elements = {shape_inference.element_type(known) for known in types}
    if (
        not types
        or None in elements
        or len(elements) > 1
        or len({len(s or ()) for s in shapes}) > 1
    ):
        return None
    dims = None
    if None not in shapes:
        each = zip(*(shape or () for shape in shapes), strict=True)
        dims = [row[0] if isinstance(row[0], int) and len(set(row)) == 1 else None for row in each]
    (element_type,) = elements
    return helper.make_tensor_type_proto(element_type or 0, dims)
