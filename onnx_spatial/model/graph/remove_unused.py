"""Remove the nodes and initializers that only removed nodes read, in any graph of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.graph.repeated_fields import remove_named, remove_where
from onnx_spatial.model.traversal import Place


def remove_unused(
    model: onnx.ModelProto, names: Mapping[Place, Collection[str]]
) -> dict[Place, set[str]]:
    """Remove what nobody reads any more, in place.

    Args:
        model: the model.
        names: values that removed nodes read, by the graph that held the nodes. What only these values
            are computed from goes with them, also in the graphs around.

    Returns:
        The names of the values that are gone, by graph.
    """
    trained = _read_in_training(model)
    todo = {place: set(each) for place, each in names.items()}
    gone: dict[Place, set[str]] = {}
    for place, graph in reversed(list(traversal.graphs(model))):
        if place in todo:
            gone[place], captured = _remove(graph, todo.pop(place), trained)
            if place.steps:
                outer = Place(place.function, place.steps[:-1])
                todo.setdefault(outer, set()).update(captured)
    return gone


def _remove(
    graph: traversal.GraphLike, names: set[str], kept: Collection[str]
) -> tuple[set[str], set[str]]:
    """Remove unused values from one graph; return their names, and unread names of outer graphs."""
    uses = Counter(name for node in graph.node for name in traversal.needs(node))
    uses.update(v if isinstance(v, str) else v.name for v in graph.output)
    uses.update(kept)
    fixed = {v if isinstance(v, str) else v.name for v in graph.input}
    stored: set[str] = set()
    if isinstance(graph, onnx.GraphProto):
        uses.update(a.tensor_name for a in graph.quantization_annotation)
        stored = {t.name for t in graph.initializer}
        fixed |= {t.values.name for t in graph.sparse_initializer}
    producers = {name: node for node in graph.node for name in node.output if name}
    gone, captured, dead = set[str](), set[str](), set[int]()
    pending = sorted(names)
    while pending:
        name = pending.pop()
        node = producers.get(name)
        if uses[name] or name in fixed or name in gone:
            continue
        if node is None:
            (gone if name in stored else captured).add(name)
        elif not any(uses[output] for output in node.output if output):
            dead.add(id(node))
            gone.update(filter(None, node.output))
            needs = sorted(traversal.needs(node))
            uses.subtract(needs)
            pending += needs
    kept_nodes = [node for node in graph.node if id(node) not in dead]
    if dead:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept_nodes]
        del graph.node[:]
        graph.node.extend(copies)
    if isinstance(graph, onnx.GraphProto):
        remove_where(graph.initializer, lambda tensor: tensor.name in gone)
    remove_named(graph.value_info, gone)
    return gone, captured


def _read_in_training(model: onnx.ModelProto) -> set[str]:
    graphs = (g for t in model.training_info for g in (t.initialization, t.algorithm))
    return {
        name
        for graph in graphs
        for _, _, node in traversal.graph_nodes(Place(), graph)
        for name in traversal.needs(node)
    }
