"""List what differs between a model and its converted form, by name.

A node is the same in both if its graph and its label are: its name, or <its output> without one.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_spatial.conversion.report import OperatorReport
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.new_nodes import ORIGIN
from onnx_spatial.model.graph.remove_unused import remove_where
from onnx_spatial.model.traversal import Place


class _Contents:
    """What a model holds, in the order of the file.

    Attributes:
        nodes, types, initializers: nodes, declared types and initializers by graph and name; types of a
            graph inside a node with its outputs, sparse initializers included.
        functions, domains: the local functions, and the domains that are imported.
        values: the names of the values that nodes compute.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes: dict[tuple[Place, str], onnx.NodeProto] = {}
        self.types: dict[tuple[Place, str], object] = {}
        self.initializers: dict[tuple[Place, str], object] = {}
        for place, graph in traversal.graphs(model):
            self.nodes |= {(place, traversal.label(node)): node for node in graph.node}
            declared = [*graph.value_info]
            if isinstance(graph, onnx.GraphProto):
                declared += graph.output if place != Place() else ()
                tensors = (*graph.initializer, *(each.values for each in graph.sparse_initializer))
                self.initializers |= {(place, tensor.name): None for tensor in tensors}
            self.types |= {(place, info.name): info.type for info in declared}
        self.functions = {(Place(), f"{f.domain}:{f.name}"): None for f in model.functions}
        self.domains = {(Place(), entry.domain): None for entry in model.opset_import}
        self.values = {name for _, _, node in traversal.nodes(model) for name in node.output}


def list_changes(
    original: onnx.ModelProto, converted: onnx.ModelProto, operators: Sequence[OperatorReport]
) -> dict[str, list[str]]:
    """List what differs between a model and its converted form, in the order of the files.

    Args:
        original: the model.
        converted: its converted form.
        operators: what was done with each operator.

    Returns:
        Names by kind, and ir_version ("7 -> 8") if that was raised; see `Conversion.touched`.
    """
    before, after = _Contents(original), _Contents(converted)
    replaced = dict.fromkeys(
        label
        for operator in operators
        if operator.converted and operator.spatial
        for label in (operator.node, *operator.absorbed)
    )

    def added(
        kind: str, new: _Contents = after, old: _Contents = before
    ) -> list[tuple[Place, str]]:
        return [key for key in vars(new)[kind] if key not in vars(old)[kind]]

    def removed(kind: str) -> list[str]:
        return [name for _, name in added(kind, before, after)]

    changed = [
        name
        for (place, name), node in after.nodes.items()
        if name not in replaced and not _is_same(before.nodes.get((place, name), node), node)
    ]
    retyped = [key[1] for key, kind in before.types.items() if after.types.get(key) != kind]
    retyped += [name for _, name in added("types") if name in before.values]
    # The nodes of a new function are not listed: it is listed as a whole.
    places_before = {place for place, _ in before.nodes}
    versions = [f"{original.ir_version} -> {converted.ir_version}"]
    return {
        **({"ir_version": versions} if original.ir_version != converted.ir_version else {}),
        "nodes_replaced": [*replaced],
        "nodes_changed": changed,
        "nodes_removed": [name for name in removed("nodes") if name not in replaced],
        "nodes_added": [name for place, name in added("nodes") if place in places_before],
        "initializers_added": [name for _, name in added("initializers")],
        "initializers_removed": removed("initializers"),
        "value_info_changed": retyped,
        "functions_added": [name for _, name in added("functions")],
        "functions_removed": removed("functions"),
        "opset_imports_added": [name for _, name in added("domains")],
        "opset_imports_removed": removed("domains"),
    }


def _is_same(before: onnx.NodeProto, after: onnx.NodeProto) -> bool:
    """Tell whether a node is the same, but for the graphs inside it and where it says it comes from."""
    return before == after or _without_graphs(before) == _without_graphs(after)


def _without_graphs(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    remove_where(copy.metadata_props, lambda entry: entry.key == ORIGIN)
    for attribute in copy.attribute:
        attribute.ClearField("g")
        attribute.ClearField("graphs")
    return copy
