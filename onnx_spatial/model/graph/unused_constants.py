"""Remove initializers and constant nodes that nothing reads any more after an edit.

    before    block_shape -> [SpaceToBatchND] -> y      block_shape is an initializer
    after     [Conv] -> y                               block_shape goes

What the original did not read either stays as it was.
"""

from __future__ import annotations

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.repeated_fields import remove_named, remove_where


def remove_unused(
    original: onnx.ModelProto, edited: onnx.ModelProto
) -> dict[traversal.Place, set[str]]:
    """Remove the constants from `edited`, in place, that only `original` reads.

    Constants are initializers and the outputs of standard nodes that compute with constants only.
    Initializers stay that are inputs of their graph too, or that training or quantization annotations
    name.

    Returns:
        The names of the removed values, by graph.
    """
    before = {place: set(_reads(graph)) for place, graph in traversal.graphs(original)}
    constants: dict[traversal.Place, set[str]] = {}
    for place, graph in traversal.graphs(edited):
        outer = traversal.Place(place.function, place.steps[:-1])
        constants[place] = _constants(graph, constants.get(outer, set()))
    annotated = _annotated(edited)
    removed = {}
    # Inner graphs first: they read constants of outer ones.
    for place, graph in reversed(list(traversal.graphs(edited))):
        candidates = before.get(place, set()) & constants[place] - annotated
        if names := _remove(graph, candidates):
            removed[place] = names
    return removed


def _reads(graph: traversal.GraphLike) -> dict[str, int]:
    """Return the names that a graph reads, its outputs included, with the number of readers."""
    outputs = (
        graph.output if isinstance(graph, onnx.FunctionProto) else [o.name for o in graph.output]
    )
    counts = dict.fromkeys(outputs, 1)
    for node in graph.node:
        for name in traversal.needs(node):
            counts[name] = counts.get(name, 0) + 1
    return counts


def _constants(graph: traversal.GraphLike, outer: set[str]) -> set[str]:
    """Return the names of the constants that a graph sees; `outer` has those of the graph around it."""
    constants = set(outer)
    if isinstance(graph, onnx.GraphProto):
        constants.update(tensor.name for tensor in graph.initializer)
        constants.update(sparse.values.name for sparse in graph.sparse_initializer)
        constants.difference_update(value.name for value in graph.input)
    else:
        constants.difference_update(graph.input)
    for node in graph.node:
        change = constants.update if _is_constant(node, constants) else constants.difference_update
        change(name for name in node.output if name)
    return constants


def _is_constant(node: onnx.NodeProto, constants: set[str]) -> bool:
    return (
        op_traits.is_standard(node)
        and op_traits.Trait.RANDOM not in op_traits.of(node).traits
        and next(traversal.subgraphs(node), None) is None
        and constants.issuperset(filter(None, node.input))
    )


def _remove(graph: traversal.GraphLike, candidates: set[str]) -> set[str]:
    """Remove the candidates that nothing in the graph reads, and what only they read."""
    counts = _reads(graph)
    removed: set[str] = set()
    for node in reversed(graph.node):
        outputs = {name for name in node.output if name}
        if outputs & candidates and not any(counts.get(name) for name in outputs):
            removed |= outputs
            for name in traversal.needs(node):
                counts[name] -= 1
    remove_where(graph.node, lambda node: not removed.isdisjoint(node.output))
    if isinstance(graph, onnx.GraphProto):
        unread = {name for name in candidates if not counts.get(name)}
        removed.update(remove_named(graph.initializer, unread))
        sparse = remove_where(graph.sparse_initializer, lambda s: s.values.name in unread)
        removed.update(tensor.values.name for tensor in sparse)
    return removed


def _annotated(model: onnx.ModelProto) -> set[str]:
    """Return the names in quantization annotations, and in training information."""
    names: set[str] = set()
    for _, graph in traversal.graphs(model):
        for annotation in getattr(graph, "quantization_annotation", ()):
            names.add(annotation.tensor_name)
            names.update(entry.value for entry in annotation.quant_parameter_tensor_names)
    for training in model.training_info:
        for binding in (*training.initialization_binding, *training.update_binding):
            names.update((binding.key, binding.value))
        for graph in (training.initialization, training.algorithm):
            names.update(_reads(graph))
    return names
