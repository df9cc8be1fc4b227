"""Carry out `fusion.layouts` next to operators that were fused with single neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx
import onnx_ir as ir

from onnx_spatial.analysis import GraphFacts, OperatorInfo
from onnx_spatial.conversion.graph_editor import GraphEditor
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import Matcher
from onnx_spatial.fusion.dilated_conv import GraphView
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.naming import Names


def improve_layouts(
    proto: onnx.ModelProto,
    infos: Sequence[OperatorInfo],
    matcher: Matcher,
    names: Names,
    facts: Callable[[], Iterable[GraphFacts]],
    fused: Mapping[int, Sequence[ir.Node]],
    result: EditResult,
) -> None:
    """Remove changes of layout next to nodes in the place of operators, by `OperatorInfo.index`.

    `matcher` and `result` are edited, `proto` stays as it is. `facts` gives what is known of each graph,
    in the order of `traversal.graphs`.
    """
    if not fused:
        return
    graphs = list(traversal.graphs(proto))
    places = {id(graph): place for place, graph in graphs}
    for (place, _), known in zip(graphs, facts(), strict=True):
        here = {f.index: fused[f.index] for f in infos if f.place == place and f.index in fused}
        graph = next((node.graph for nodes in here.values() for node in nodes), None)
        if graph is None:
            continue
        initializers = proto.ir_version >= 4 and place.function is None
        editor = GraphEditor(matcher, names, places, initializers=initializers)
        editor.fused.update(node for nodes in here.values() for node in nodes)
        view = GraphView(known.scope, known.sizes, known.scope.opset)
        editor.improve_layouts(graph, view)
        editor.fold_biases(graph, view)
        for index, nodes in here.items():
            count = sum(1 if node.graph is not None else editor.count(node) for node in nodes)
            result.operator_at[index] = replace(result.operator_at[index], nodes_after=count)
        editor.note(place, result)
