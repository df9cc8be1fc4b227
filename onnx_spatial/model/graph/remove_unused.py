"""Remove from a message what nothing reads any more after an edit, in any graph of a model.

    before    block_shape -> [SpaceToBatch] -> y      block_shape is an initializer
    after     [Conv] -> y                             block_shape goes

What the original did not read either stays as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.traversal import Place


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


def remove_unused_constants(
    original: onnx.ModelProto, edited: onnx.ModelProto
) -> dict[Place, set[str]]:
    """Remove the constants from `edited`, in place, that nothing reads, but those of `original`.

    Constants are initializers and the outputs of standard nodes that compute with constants only.

    Returns:
        The names of the removed values, by graph.
    """
    before = _unread_constants(original)
    names = _unread_constants(edited).items()
    return remove_unused(edited, {place: n - before.get(place, set()) for place, n in names})


def _unread_constants(model: onnx.ModelProto) -> dict[Place, set[str]]:
    """Return the names of the constants that a graph sees and does not read."""
    constants: dict[Place, set[str]] = {}
    unread: dict[Place, set[str]] = {}
    for place, graph in traversal.graphs(model):
        constants[place] = constants_of(graph, constants.get(place.outer, set()))
        unread[place] = constants[place].difference(_names_read(graph))
    return unread


def remove_unused(
    model: onnx.ModelProto, names: Mapping[Place, Collection[str]]
) -> dict[Place, set[str]]:
    """Remove the values among `names` that nothing reads, in place, with what only they are made of.

    Initializers stay that are inputs of their graph too, or that training or quantization annotations
    name.

    Args:
        model: the model.
        names: values that removed nodes read, by the graph that held the nodes. Names that a graph
            captures are sought in the graphs around it.

    Returns:
        The names of the removed values, by graph.
    """
    graphs = list(traversal.graphs(model))
    annotated = _annotated_names(model, (graph for _, graph in graphs))
    todo = {place: set(each) for place, each in names.items()}
    gone: dict[Place, set[str]] = {}
    for place, graph in reversed(graphs):
        if todo.get(place):
            names_gone, captured = _remove_from_graph(graph, todo.pop(place), annotated)
            if names_gone:
                gone[place] = names_gone
            if place.steps:
                todo.setdefault(place.outer, set()).update(captured)
    return gone


def _remove_from_graph(
    graph: traversal.GraphLike, names: set[str], annotated: Collection[str]
) -> tuple[set[str], set[str]]:
    """Remove unused values from one graph; return their names, and unread names of outer graphs."""
    uses = Counter((*_names_read(graph), *annotated))
    inputs = {v if isinstance(v, str) else v.name for v in graph.input}
    stored: set[str] = set()
    if isinstance(graph, onnx.GraphProto):
        stored.update(tensor.name for tensor in graph.initializer)
        stored.update(sparse.values.name for sparse in graph.sparse_initializer)
    producers: dict[str, onnx.NodeProto] = {}
    if not names <= stored:
        producers = {name: node for node in graph.node for name in node.output}
    gone, captured = set[str](), set[str]()
    pending = sorted(names)
    while pending:
        name = pending.pop()
        node = producers.get(name)
        if uses[name] or name in inputs or name in gone:
            continue
        if node is None:
            (gone if name in stored else captured).add(name)
        elif not any(uses[output] for output in node.output if output):
            gone.update(filter(None, node.output))
            needs = sorted(traversal.needs(node))
            uses.subtract(needs)
            pending += needs
    if not gone <= stored:
        remove_where(graph.node, lambda node: not gone.isdisjoint(node.output))
    if isinstance(graph, onnx.GraphProto):
        remove_named(graph.initializer, gone)
        remove_where(graph.sparse_initializer, lambda sparse: sparse.values.name in gone)
    remove_named(graph.value_info, gone)
    return gone, captured


def _names_read(graph: traversal.GraphLike) -> Iterator[str]:
    """Yield the names that the nodes of a graph read, and its outputs, once for each reader."""
    for node in graph.node:
        yield from traversal.needs(node) if node.attribute else node.input
    for output in graph.output:
        yield output if isinstance(output, str) else output.name


def constants_of(graph: traversal.GraphLike, outer: set[str]) -> set[str]:
    """Return the names of the constants that a graph sees; `outer` has those of the graph around it."""
    constants = set(outer)
    if isinstance(graph, onnx.GraphProto):
        constants.update(tensor.name for tensor in graph.initializer)
        constants.update(sparse.values.name for sparse in graph.sparse_initializer)
        constants.difference_update(value.name for value in graph.input)
    else:
        constants.difference_update(graph.input)
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


def _annotated_names(model: onnx.ModelProto, graphs: Iterable[traversal.GraphLike]) -> set[str]:
    """Return the names in quantization annotations, and in training information."""
    names: set[str] = set()
    for graph in graphs:
        for annotation in getattr(graph, "quantization_annotation", ()):
            names.add(annotation.tensor_name)
            names.update(entry.value for entry in annotation.quant_parameter_tensor_names)
    for training in model.training_info:
        for binding in (*training.initialization_binding, *training.update_binding):
            names.update((binding.key, binding.value))
        for graph in (training.initialization, training.algorithm):
            names.update(_names_read(graph))
    return names
