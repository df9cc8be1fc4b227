"""Several nodes that stand for one: marked where they are written, merged where they are read.

    x -> [ A -> Reshape ] -> y      becomes      x -> A -> y

A node that was written with helpers around it carries the names of what the whole takes and gives,
so that whoever reads the model sees one node again. Nothing depends on that for correctness: where
the names are gone (after an inliner, say) the nodes are what they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import onnx
import onnx_ir as ir

from onnx_spatial.model import traversal
from onnx_spatial.model.graph.replace_nodes import ORIGIN

#: Metadata key on every node of a group: name of the value that the group gives.
RESULT = "onnx_spatial.result"
#: Metadata key on its main node: name of the value that the group takes as first input.
DATA = "onnx_spatial.data"


def mark(nodes: Iterable[ir.Node], main: ir.Node, data: str, result: str) -> None:
    """Note that `nodes` stand for the one node `main` with first input `data` and output `result`."""
    for node in nodes:
        node.metadata_props[RESULT] = result
    main.metadata_props[DATA] = data


def merge(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` with every group merged into its main node; `model` itself if it has none."""
    if not any(_property(node, DATA) for _, _, node in traversal.nodes(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _, graph in traversal.graphs(copy):
        _merge_graph(graph)
    return copy


def _property(node: onnx.NodeProto, key: str) -> str | None:
    return next((p.value for p in node.metadata_props if p.key == key), None)


def _merge_graph(graph: traversal.GraphLike) -> None:
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if result := _property(node, RESULT):
            groups.setdefault(result, []).append(node)
    dropped: set[int] = set()
    merged: dict[int, onnx.NodeProto] = {}
    for result, nodes in groups.items():
        main = [n for n in nodes if _property(n, DATA)]
        last = [n for n in nodes if result in n.output]
        if len(main) != 1 or len(last) != 1:
            continue
        kept = _ancestors(main[0].input[1:], nodes)
        dropped.update(id(n) for n in nodes if id(n) not in kept)
        merged[id(last[0])] = _one(main[0], result)
    if not merged:
        return
    before = _readers(graph.node)
    nodes = [merged.get(id(n), n) for n in graph.node if id(n) in merged or id(n) not in dropped]
    gone = before.keys() - _readers(nodes).keys()
    nodes = [n for n in nodes if not (_property(n, ORIGIN) and n.output and n.output[0] in gone)]
    copies = [_copied(n) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    if isinstance(graph, onnx.GraphProto):
        fixed = {v.name for v in (*graph.input, *graph.output)}
        for index in reversed(range(len(graph.initializer))):
            name = graph.initializer[index].name
            if name in gone and name not in fixed:
                del graph.initializer[index]


def _one(main: onnx.NodeProto, result: str) -> onnx.NodeProto:
    node = _copied(main)
    node.input[0] = _property(main, DATA) or node.input[0]
    node.output[0] = result
    for index in reversed(range(len(node.metadata_props))):
        if node.metadata_props[index].key in (DATA, RESULT):
            del node.metadata_props[index]
    return node


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _ancestors(names: Iterable[str], nodes: list[onnx.NodeProto]) -> set[int]:
    """Which of `nodes` lead to the values `names`."""
    producers = {name: node for node in nodes for name in node.output}
    found: set[int] = set()
    todo = list(names)
    while todo:
        node = producers.get(todo.pop())
        if node is not None and id(node) not in found:
            found.add(id(node))
            todo.extend(node.input)
    return found


def _readers(nodes: Iterable[onnx.NodeProto]) -> Counter[str]:
    """How often each value is read, in the graphs inside too."""
    counts: Counter[str] = Counter()
    for node in nodes:
        counts.update(node.input)
        for _, inner in traversal.subgraphs(node):
            counts.update(v.name for v in inner.output)
            for _, _, within in traversal.graph_nodes(traversal.Place(), inner):
                counts.update(within.input)
    return counts
