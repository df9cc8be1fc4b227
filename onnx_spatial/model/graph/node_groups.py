"""Mark nodes that are written for one operator as a group, and merge such a group into one node.

    x -> [ A -> Reshape ] -> y      becomes      x -> A -> y

Metadata of the group names its input and output values. Correctness does not depend on it: without
the metadata (an inliner may drop it) the nodes are not merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

import onnx
import onnx_ir as ir

from onnx_spatial.model import traversal
from onnx_spatial.model.graph.repeated_fields import remove_where
from onnx_spatial.model.graph.replace_nodes import ORIGIN

#: Metadata key on every node of a group: name of the group's output.
RESULT = "onnx_spatial.result"
#: Metadata key on its main node: name of the group's first input.
DATA = "onnx_spatial.data"


def mark_group(nodes: Iterable[ir.Node], main: ir.Node, data: str, result: str) -> None:
    """Mark `nodes` as a group that merges into `main`, with first input `data` and output `result`."""
    for node in nodes:
        node.metadata_props[RESULT] = result
    main.metadata_props[DATA] = data


def merge_groups(model: onnx.ModelProto) -> onnx.ModelProto:
    """Merge every group into its main node, in a copy; return `model` itself if it has no groups."""
    if not any(p.key == DATA for _, _, n in traversal.nodes(model) for p in n.metadata_props):
        return model
    copy = deepcopy(model)
    for _, graph in traversal.graphs(copy):
        _merge_graph(graph)
    return copy


def _metadata_of(node: onnx.NodeProto, key: str) -> str | None:
    return next((p.value for p in node.metadata_props if p.key == key), None)


def _merge_graph(graph: traversal.GraphLike) -> None:
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if result := _metadata_of(node, RESULT):
            groups.setdefault(result, []).append(node)
    dropped: set[int] = set()
    merged: dict[int, onnx.NodeProto] = {}
    for result, nodes in groups.items():
        main = [n for n in nodes if _metadata_of(n, DATA)]
        last = [n for n in nodes if result in n.output]
        if len(main) != 1 or len(last) != 1:
            continue
        kept = _ids_of_ancestors(main[0].input[1:], nodes)
        dropped.update(id(n) for n in nodes if id(n) not in kept)
        merged[id(last[0])] = _merged_node(main[0], result)
    if not merged:
        return
    before = _read_names(graph.node)
    nodes = [merged.get(id(n), n) for n in graph.node if id(n) in merged or id(n) not in dropped]
    unread = before - _read_names(nodes)
    nodes = [
        n for n in nodes if not (_metadata_of(n, ORIGIN) and n.output and n.output[0] in unread)
    ]
    copies = [deepcopy(n) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    if isinstance(graph, onnx.GraphProto):
        unused = unread - {v.name for v in (*graph.input, *graph.output)}
        remove_where(graph.initializer, lambda tensor: tensor.name in unused)


def _merged_node(main: onnx.NodeProto, result: str) -> onnx.NodeProto:
    node = deepcopy(main)
    node.input[0] = _metadata_of(main, DATA) or node.input[0]
    node.output[0] = result
    remove_where(node.metadata_props, lambda entry: entry.key in (DATA, RESULT))
    return node


def _ids_of_ancestors(names: Iterable[str], nodes: list[onnx.NodeProto]) -> set[int]:
    """Return the ids of the nodes on which the values `names` depend."""
    producers = {name: node for node in nodes for name in node.output}
    ancestors: set[int] = set()
    pending = list(names)
    while pending:
        node = producers.get(pending.pop())
        if node is not None and id(node) not in ancestors:
            ancestors.add(id(node))
            pending.extend(node.input)
    return ancestors


def _read_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return the names that nodes read, with the graphs inside them."""
    return set().union(*map(traversal.needs, nodes))
