"""Remove changes of layout (`fusion.push_layouts`): beside fused operators, or anywhere in a model.

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
from onnx_spatial.conversion.finish import finish
from onnx_spatial.conversion.graph_editor import ModelEditor
from onnx_spatial.lowering import MIN_OPSET
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

_CHANGES = frozenset({"Squeeze", "Transpose", "Unsqueeze"})


def improve_layouts(model: ModelEditor, fused: Mapping[int, Sequence[ir.Node]]) -> None:
    """Remove changes of layout next to nodes in the place of operators, by `OperatorInfo.index`."""
    if not fused:
        return
    for editor in model.editors():
        here = {i: nodes for i, nodes in fused.items() if model.place(nodes[0]) == editor.place}
        if not here:
            continue
        editor.fused.update(node for nodes in here.values() for node in nodes)
        editor.improve_layouts()
        editor.fold_biases()
        for index, nodes in here.items():
            count = sum(1 if n.graph is not None else len(editor.results(n)) for n in nodes)
            operators = model.result.operator_at
            operators[index] = replace(operators[index], nodes_after=count)
        editor.note_values()


def remove_layout_changes(
    proto: onnx.ModelProto, folder: Path | None = None
) -> onnx.ModelProto | None:
    """Remove changes of layout between convolutions and pools; `proto` stays as it is.

    Args:
        proto: the model.
        folder: where external data lies.

    Returns:
        The edited model; None if nothing changed.
    """
    todo = [_has_changes_near_windows(graph) for _, graph in traversal.graphs(proto)]
    if not any(todo):
        return None
    near = (i for i, (_, _, node) in enumerate(traversal.nodes(proto)) if _is_window(node))
    model = ModelEditor(proto, analysis.find(proto, (), folder), near=near)
    edited = False
    for editor, wanted in zip(model.editors(), todo, strict=True):
        if not wanted or editor.view.opset < MIN_OPSET:
            continue
        windows = (n for n in editor.message.node if _is_window(n))
        nodes = (model.matcher.node_of(editor.message, window) for window in windows)
        editor.fused.update(node for node in nodes if node is not None)
        if editor.improve_layouts():
            editor.fold_biases()
            editor.note_values()
            edited = True
    if not edited:
        return None
    result = model.finish()
    finish(result, proto, op_traits.opset_of(proto.opset_import) or 1)
    return result.model


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
