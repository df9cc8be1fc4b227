"""Remove changes of layout (`fusion.layouts`): beside fused operators, or anywhere in a model.

    Conv -> Squeeze -> Transpose -> Add -> Transpose -> Unsqueeze -> Conv
    Conv -> Add -> Conv

Converters write these around every convolution of signals. A graph is edited only if fewer changes of
layout are left, or smaller ones; then constants that are added to convolutions become their biases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.analysis import Analysis, OperatorInfo
from onnx_spatial.conversion.graph_editor import GraphEditor
from onnx_spatial.conversion.pad_barriers import insert_barriers
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import Matcher
from onnx_spatial.fusion.dilated_conv import GraphView
from onnx_spatial.lowering import MIN_OPSET
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import patch_proto
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.graph.remove_unused import remove_unused_constants
from onnx_spatial.model.graph.strip import strip_types
from onnx_spatial.model.inference import value_info
from onnx_spatial.model.op_traits import Trait

_CHANGES = frozenset({"Squeeze", "Transpose", "Unsqueeze"})


def improve_layouts(
    proto: onnx.ModelProto,
    known: Analysis,
    infos: Sequence[OperatorInfo],
    matcher: Matcher,
    names: Names,
    fused: Mapping[int, Sequence[ir.Node]],
    result: EditResult,
) -> None:
    """Remove changes of layout next to nodes in the place of operators, by `OperatorInfo.index`.

    `matcher` and `result` are edited, `proto` stays as it is.
    """
    if not fused:
        return
    graphs = list(traversal.graphs(proto))
    places = {id(graph): place for place, graph in graphs}
    for (place, _), facts in zip(graphs, known.facts, strict=True):
        here = {f.index: fused[f.index] for f in infos if f.place == place and f.index in fused}
        graph = next((node.graph for nodes in here.values() for node in nodes), None)
        if graph is None:
            continue
        initializers = proto.ir_version >= 4 and place.function is None
        editor = GraphEditor(matcher, names, places, initializers=initializers)
        editor.fused.update(node for nodes in here.values() for node in nodes)
        view = GraphView(facts.scope, facts.sizes, facts.scope.opset)
        editor.improve_layouts(graph, view)
        editor.fold_biases(graph, view)
        for index, nodes in here.items():
            count = sum(1 if node.graph is not None else editor.count(node) for node in nodes)
            result.operator_at[index] = replace(result.operator_at[index], nodes_after=count)
        editor.note(place, result)


def remove_layout_changes(proto: onnx.ModelProto, folder: Path | None = None) -> EditResult:
    """Remove changes of layout between convolutions and pools; `proto` stays as it is.

    Args:
        proto: the model.
        folder: where external data lies.
    """
    result = EditResult()
    graphs = list(traversal.graphs(proto))
    todo = [_has_changes_near_windows(graph) for _, graph in graphs]
    if not any(todo):
        return result
    model = ir.from_proto(strip_types(proto))
    nodes = list(traversal.ir_nodes(model))
    patch = patch_proto.Patch(proto, model)
    facts = analysis.find(proto, (), folder).facts
    matcher = Matcher(proto, nodes, (), lambda: [each.sizes for each in facts])
    names, places = Names(proto), {id(graph): place for place, graph in graphs}
    edited = False
    for (place, graph), known, wanted in zip(graphs, facts, todo, strict=True):
        windows = [n for m in graph.node if _is_window(m) and (n := matcher.node(graph, m))]
        if not wanted or known.scope.opset < MIN_OPSET or not windows:
            continue
        initializers = proto.ir_version >= 4 and place.function is None
        editor = GraphEditor(matcher, names, places, initializers=initializers)
        editor.fused.update(windows)
        holder = windows[0].graph
        assert holder is not None
        view = GraphView(known.scope, known.sizes, known.scope.opset)
        if editor.improve_layouts(holder, view):
            editor.fold_biases(holder, view)
            editor.note(place, result)
            edited = True
    if edited:
        result.model = patch.apply()
        for place, unread in remove_unused_constants(proto, result.model).items():
            result.lost.setdefault(place, set()).update(unread)
        insert_barriers(result.model, proto, op_traits.opset_of(proto.opset_import) or 1)
        value_info.renew(result.model, result.types, result.lost, proto)
    return result


def number_of_changes(model: onnx.ModelProto) -> int:
    """Count the nodes that only change the layout of a value."""
    kinds = (n.op_type for _, _, n in traversal.nodes(model) if op_traits.is_standard(n))
    return sum(kind in _CHANGES for kind in kinds)


def _is_window(message: onnx.NodeProto) -> bool:
    return op_traits.is_standard(message) and Trait.WINDOWS in op_traits.of(message).traits


def _has_changes_near_windows(graph: traversal.GraphLike) -> bool:
    """Return whether a graph has windows and at least two changes of layout."""
    kinds = [node.op_type for node in graph.node]
    changes = sum(kind in _CHANGES for kind in kinds)
    return changes > 1 and any(map(_is_window, graph.node))
