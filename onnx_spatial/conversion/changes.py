"""List what differs between a model and its converted form, by name.

A node is the same in both if its graph and its label are: its name, or <its output> without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import onnx

from onnx_spatial.conversion.report import OperatorReport
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.repeated_fields import remove_where
from onnx_spatial.model.graph.replace_nodes import ORIGIN
from onnx_spatial.model.traversal import Place

_Key = TypeVar("_Key")


class _Contents:
    """What a model holds, in the order of the file.

    Attributes:
        nodes: its nodes by graph and label.
        values: the names of the values that nodes compute.
        types: the declared types by graph and name; those of a graph inside a node with its outputs.
        initializers: graph and name of each initializer, sparse ones included.
        functions, domains: the local functions, and the domains that are imported.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes: dict[tuple[Place, str], onnx.NodeProto] = {}
        self.values: set[str] = set()
        self.types: dict[tuple[Place, str], onnx.TypeProto] = {}
        self.initializers: dict[tuple[Place, str], None] = {}
        for place, graph in traversal.graphs(model):
            for node in graph.node:
                self.nodes[place, traversal.label(node)] = node
                self.values.update(node.output)
            declared = [*graph.value_info]
            if isinstance(graph, onnx.GraphProto):
                declared += graph.output if place != Place() else ()
                sparse = (each.values for each in graph.sparse_initializer)
                names = (tensor.name for tensor in (*graph.initializer, *sparse))
                self.initializers.update(((place, name), None) for name in names)
            self.types.update(((place, info.name), info.type) for info in declared)
        self.functions = dict.fromkeys(f"{f.domain}:{f.name}" for f in model.functions)
        self.domains = dict.fromkeys(entry.domain for entry in model.opset_import)


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
    raised = original.ir_version != converted.ir_version
    versions = f"{original.ir_version} -> {converted.ir_version}"
    replaced = {
        label: None
        for operator in operators
        if operator.converted and operator.spatial
        for label in (operator.node, *operator.absorbed)
    }
    own = {place for place, _ in before.nodes}  # a function that is new is listed as a whole
    return {
        **({"ir_version": [versions]} if raised else {}),
        "nodes_replaced": list(replaced),
        "nodes_changed": [
            label
            for (place, label), node in after.nodes.items()
            if (place, label) in before.nodes
            and label not in replaced
            and not _is_same(before.nodes[place, label], node)
        ],
        "nodes_removed": [
            name for name in _names(_lacking(before.nodes, after.nodes)) if name not in replaced
        ],
        "nodes_added": _names(k for k in _lacking(after.nodes, before.nodes) if k[0] in own),
        "initializers_added": _names(_lacking(after.initializers, before.initializers)),
        "initializers_removed": _names(_lacking(before.initializers, after.initializers)),
        "value_info_changed": list(_changed_types(before, after)),
        "functions_added": list(_lacking(after.functions, before.functions)),
        "functions_removed": list(_lacking(before.functions, after.functions)),
        "opset_imports_added": list(_lacking(after.domains, before.domains)),
        "opset_imports_removed": list(_lacking(before.domains, after.domains)),
    }


def _lacking(mine: Mapping[_Key, object], others: Mapping[_Key, object]) -> Iterator[_Key]:
    """Yield what only the first model has."""
    return (key for key in mine if key not in others)


def _names(keys: Iterable[tuple[Place, str]]) -> list[str]:
    return [name for _, name in keys]


def _is_same(before: onnx.NodeProto, after: onnx.NodeProto) -> bool:
    """Tell whether a node is the same, but for the graphs inside it and where it says it comes from."""
    return before == after or _plain(before) == _plain(after)


def _plain(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    remove_where(copy.metadata_props, lambda entry: entry.key == ORIGIN)
    for attribute in copy.attribute:
        attribute.ClearField("g")
        attribute.ClearField("graphs")
    return copy


def _changed_types(before: _Contents, after: _Contents) -> Iterator[str]:
    """Yield the values of the original whose declared type is new, another, or gone."""
    for key, declared in before.types.items():
        if after.types.get(key) != declared:
            yield key[1]
    new = _names(_lacking(after.types, before.types))
    yield from (name for name in new if name in before.values)
