"""Carry out `fusion.layouts` next to operators that were fused with single neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.graph_editor import GraphEditor
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import Matcher
from onnx_spatial.fusion.dilated_conv import GraphView
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.symbolic.symbolic_values import SymbolicValues


def improve_layouts(
    proto: onnx.ModelProto,
    infos: Sequence[OperatorInfo],
    matcher: Matcher,
    names: Names,
    folder: Path | None,
    fused: Mapping[int, Sequence[ir.Node]],
    result: EditResult,
) -> None:
    """Remove changes of layout next to nodes in the place of operators, by `OperatorInfo.index`.

    `matcher` and `result` are edited, `proto` stays as it is.
    """
    if not fused:
        return
    scopes = constant_folding.scopes(analysis.inferred(proto, infos, folder))
    graphs = list(traversal.graphs(proto))
    places = {id(graph): place for place, graph in graphs}
    for (place, _), (scope, _) in zip(graphs, scopes, strict=True):
        here = {f.index: fused[f.index] for f in infos if f.place == place and f.index in fused}
        graph = next((node.graph for nodes in here.values() for node in nodes), None)
        if graph is None:
            continue
        initializers = proto.ir_version >= 4 and place.function is None
        editor = GraphEditor(matcher, names, places, initializers=initializers)
        editor.fused.update(node for nodes in here.values() for node in nodes)
        editor.improve_layouts(graph, GraphView(scope, SymbolicValues(scope), scope.opset))
        for index, nodes in here.items():
            count = sum(1 if node.graph is not None else editor.count(node) for node in nodes)
            result.site_at[index] = replace(result.site_at[index], nodes_after=count)
        editor.note(place, result)
