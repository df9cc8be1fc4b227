"""List what differs between a model and its converted form, by name."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from onnx_spatial.conversion.report import EditResult
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import replace_nodes
from onnx_spatial.model.inference import value_info

#: The kinds of difference that are listed.
KINDS = (
    "nodes_replaced",
    "nodes_changed",
    "nodes_removed",
    "nodes_added",
    "initializers_added",
    "initializers_removed",
    "value_info_changed",
    "functions_added",
    "functions_removed",
    "opset_imports_added",
    "opset_imports_removed",
)


def diff_models(original: onnx.ModelProto, result: EditResult) -> dict[str, list[str]]:
    """List what differs between a model and `result.model`, and renew its declared types, in place.

    The lists are `KINDS`, of which nodes_changed keep their names, and ir_version ("7 -> 8") if that was
    raised.
    """
    converted = result.model
    assert converted is not None
    values = {name for _, _, node in traversal.nodes(original) for name in node.output}
    before = {t.name for _, g in traversal.graphs(original) for t in getattr(g, "initializer", ())}
    named = {node.name for _, _, node in traversal.nodes(original)}
    functions = [{f"{f.domain}:{f.name}": None for f in m.functions} for m in (original, converted)]
    imports = [{o.domain: None for o in m.opset_import} for m in (original, converted)]
    new = [
        n
        for _, _, n in traversal.nodes(converted)
        if any(p.key == replace_nodes.ORIGIN for p in n.metadata_props)
    ]
    replaced = [n for s in result.operators if s.converted for n in (s.node, *s.absorbed)]
    raised = original.ir_version != converted.ir_version
    return {
        **({"ir_version": [f"{original.ir_version} -> {converted.ir_version}"]} if raised else {}),
        "nodes_replaced": replaced,
        "nodes_changed": [n.name for n in new if n.name in named],
        "nodes_removed": _removed(original, converted, {*replaced}),
        "nodes_added": [n.name for n in new if n.name not in named],
        "initializers_added": [
            t.name
            for _, g in traversal.graphs(converted)
            for t in getattr(g, "initializer", ())
            if t.name not in before
        ],
        "initializers_removed": _removed_initializers(original, converted),
        "value_info_changed": [
            *value_info.drop(converted, result.lost),
            *value_info.renew(converted, result.types, values),
        ],
        "functions_added": [n for n in functions[1] if n not in functions[0]],
        "functions_removed": [n for n in functions[0] if n not in functions[1]],
        "opset_imports_added": [d for d in imports[1] if d not in imports[0]],
        "opset_imports_removed": [d for d in imports[0] if d not in imports[1]],
    }


def _removed_initializers(original: onnx.ModelProto, converted: onnx.ModelProto) -> list[str]:
    """List the initializers that the converted model lacks, sparse ones included."""
    left = {place: set(_initializers(graph)) for place, graph in traversal.graphs(converted)}
    return [
        name
        for place, graph in traversal.graphs(original)
        for name in _initializers(graph)
        if name not in left.get(place, ())
    ]


def _initializers(graph: traversal.GraphLike) -> list[str]:
    if isinstance(graph, onnx.FunctionProto):
        return []
    return [t.name for t in (*graph.initializer, *(s.values for s in graph.sparse_initializer))]


def _removed(
    original: onnx.ModelProto, converted: onnx.ModelProto, replaced: Collection[str]
) -> list[str]:
    """List the labels of the removed nodes, without the replaced ones."""
    left = {(place, traversal.label(node)) for place, _, node in traversal.nodes(converted)}
    labels = [(place, traversal.label(node)) for place, _, node in traversal.nodes(original)]
    return [
        label for place, label in labels if (place, label) not in left and label not in replaced
    ]
