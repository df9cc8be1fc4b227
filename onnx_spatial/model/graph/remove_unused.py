"""Remove from a message what nothing reads any more after an edit, in any graph of a model.

    before    block_shape -> [SpaceToBatch] -> y      block_shape is an initializer
    after     [Conv] -> y                             block_shape goes

What the original did not read either stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.traversal import Index, Place


def remove_where(field: Any, condition: Callable[[Any], bool]) -> list[Any]:
    """Remove the messages that fulfil a condition from a repeated field; return them in order."""
    positions = [index for index, message in enumerate(field) if condition(message)]
    removed = [field[index] for index in positions]
    for index in reversed(positions):
        del field[index]
    return removed


def remove_named(field: Any, names: Collection[str]) -> list[str]:
    """Remove the messages with these names from a repeated field; return their names in order."""
    return [message.name for message in remove_where(field, lambda m: m.name in names)]


def remove_unused_constants(original: Index, edited: Index) -> None:
    """Remove the constants from a model, in place, that nothing reads, but those of `original`.

    Constants are initializers and the outputs of standard nodes that compute with constants only.
    """
    unread_before = {place: _unread_names(original, graph) for place, graph in original.graphs}
    unread: dict[Place, set[str]] = {}
    for place, graph in edited.graphs:
        unread[place] = _unread_names(edited, graph) - unread_before.get(place, set())
        if not unread[place] <= traversal.stored_names(graph):
            unread[place] &= _constants_at(dict(edited.graphs), place)
    remove_unused(edited, unread)


def _unread_names(index: Index, graph: traversal.GraphLike) -> set[str]:
    """Return the names of the values of a graph, but for its inputs, that nothing reads."""
    flow = index.flow(graph)
    interface = traversal.value_names((*graph.input, *graph.output))
    defined = flow.producers.keys() | traversal.stored_names(graph)
    return defined.difference(flow.readers, interface)


def _constants_at(graphs: Mapping[Place, traversal.GraphLike], place: Place) -> set[str]:
    """Return the names of the constants that the graph at `place` sees."""
    return constants_of(graphs[place], _constants_at(graphs, place.outer) if place.steps else set())


def remove_unused(index: Index, names: Mapping[Place, Collection[str]]) -> None:
    """Remove the values among `names` that nothing reads, in place, with what only they are made of.

    Initializers stay that are inputs of their graph too, or that training or quantization annotations
    name.

    Args:
        index: the model, which is changed: the index is of no use afterwards.
        names: values that removed nodes read, by the graph that held the nodes. Names that a graph
            captures are sought in the graphs around it.
    """
    annotated = _annotated_names(index)
    candidates = {place: set(names_there) for place, names_there in names.items()}
    edited: set[Place] = set()  # graphs whose nodes capture fewer names now
    for place, graph in reversed(index.graphs):
        if candidates.get(place):
            flow = traversal.Flow(graph) if place in edited else index.flow(graph)
            captured = _remove_from_graph(flow, candidates.pop(place), annotated)
            if captured and place.steps:
                candidates.setdefault(place.outer, set()).update(captured)
                edited.add(place.outer)


def _remove_from_graph(
    flow: traversal.Flow, names: set[str], annotated: Collection[str]
) -> set[str]:
    """Remove unused values from one graph; return unread names of outer graphs."""
    graph = flow.graph
    stored = traversal.stored_names(graph)
    kept = {*traversal.value_names((*graph.input, *graph.output)), *annotated}
    gone: set[str] = set()
    captured: set[str] = set()
    removed: set[int] = set()  # positions of nodes
    pending = sorted(names)

    def is_read(name: str) -> bool:
        return name in kept or not removed.issuperset(flow.readers.get(name, ()))

    while pending:
        name = pending.pop()
        position = flow.producers.get(name)
        if is_read(name) or name in gone:
            continue
        if position is None:
            (gone if name in stored else captured).add(name)
        elif not any(map(is_read, flow.computes[position])):
            gone.update(filter(None, flow.computes[position]))
            removed.add(position)
            pending += sorted(filter(None, flow.reads[position]))
    for position in sorted(removed, reverse=True):
        del graph.node[position]
    if isinstance(graph, onnx.GraphProto):
        remove_named(graph.initializer, gone)
        remove_where(graph.sparse_initializer, lambda sparse: sparse.values.name in gone)
    remove_named(graph.value_info, gone)
    return captured


def constants_of(graph: traversal.GraphLike, outer: set[str]) -> set[str]:
    """Return the names of the constants that a graph sees; `outer` has those of the graph around it."""
    constants = outer | traversal.stored_names(graph)
    constants.difference_update(traversal.value_names(graph.input))
    constants.add("")  # an input that is left out
    for node in graph.node:
        change = constants.update if _is_constant(node, constants) else constants.difference_update
        change(filter(None, node.output))
    return constants - {""}


def _is_constant(node: onnx.NodeProto, constants: set[str]) -> bool:
    return (
        constants.issuperset(node.input)
        and op_traits.is_standard(node)
        and op_traits.Trait.RANDOM not in op_traits.of(node).traits
        and next(traversal.subgraphs(node), None) is None
    )


def _annotated_names(index: Index) -> set[str]:
    """Return the names in quantization annotations, and in training information."""
    names: set[str] = set()
    for _, graph in index.graphs:
        for annotation in getattr(graph, "quantization_annotation", ()):
            names.add(annotation.tensor_name)
            names.update(entry.value for entry in annotation.quant_parameter_tensor_names)
    for training in index.model.training_info:
        for binding in (*training.initialization_binding, *training.update_binding):
            names.update((binding.key, binding.value))
        for graph in (training.initialization, training.algorithm):
            names.update(*map(traversal.needs, graph.node), traversal.value_names(graph.output))
    return names
