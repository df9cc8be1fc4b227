"""Renew the declared types of values behind converted nodes.

Files declare nothing or guesses behind operators that the exporter did not know, and onnxruntime
folds a wrong static shape into constants. So every type that depends on a converted node is inferred
anew, and a declared dim that inference does not find becomes unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from pathlib import Path

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.graph.remove_unused import remove_named
from onnx_spatial.model.graph.strip import strip_weights
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.traversal import Index, Place


def renew_value_info(
    model: Index,
    known: Mapping[Place, Mapping[str, onnx.TypeProto]],
    lost: Mapping[Place, Collection[str]],
    original: Index,
    folder: Path | None = None,
) -> None:
    """Renew value_info in the main graph and its subgraphs, in place.

    Args:
        model: the converted model; only declared types are changed in it.
        known: types of the outputs of converted nodes, by the graph that contains them.
        lost: values that are gone, by the graph that contained them.
        original: the model before; only its values are declared.
        folder: where external data lies, which may hold sizes.
    """
    for place, graph in model.graphs:
        remove_named(graph.value_info, lost.get(place, ()))
    starts = {n for place, types in known.items() if place.function is None for n in types}
    if edited := {place.function for place in known if place.function is not None}:
        starts |= _outputs_of_calls(model, edited)
    symbols = shape_inference.symbols(model)
    copy = strip_weights(model.model, folder)
    doubtful = _doubtful_values(model, starts)
    shape_inference.forget_shapes(copy, doubtful)
    for place, graph in traversal.graphs(copy):
        outputs = traversal.value_names(graph.output)
        for name, known_type in known.get(place, {}).items():
            if place.function is None and name not in outputs and known_type.WhichOneof("value"):
                graph.value_info.add(name=name).type.CopyFrom(known_type)
    inferred = shape_inference.infer(copy, lambda number, types: None)
    computed = (original.flow(graph).producers for _, graph in original.graphs)
    doubtful.intersection_update(set().union(*computed))
    for (place, graph), (_, result) in zip(model.graphs, traversal.graphs(inferred), strict=False):
        if isinstance(graph, onnx.GraphProto) and isinstance(result, onnx.GraphProto):
            infos = (*result.value_info, *result.output)
            updated = {v.name: v.type for v in infos if v.name in doubtful}
            for inferred_type in updated.values():
                _forget_names(inferred_type, symbols)
            for name, known_type in known.get(place, {}).items():
                # onnxruntime's Scan needs the ranks of its body's outputs.
                has_rank = known_type.tensor_type.HasField("shape")
                if has_rank and name in updated and not updated[name].tensor_type.HasField("shape"):
                    updated[name].CopyFrom(known_type)
            _declare_types(graph, updated, doubtful)
            if graph is not model.model.graph:  # the declared outputs of the main graph are kept
                _correct_outputs(graph, updated)
    _drop_in_functions(model.model, known)


def _outputs_of_calls(model: Index, functions: set[tuple[str, str, str]]) -> set[str]:
    """Return the outputs of the nodes that call one of `functions`, directly or not."""
    callees = {(domain, name) for domain, name, _ in functions}
    outputs, pending = set[str](), list(callees)
    while pending:
        for position in model.kinds.get(pending.pop(), ()):
            outputs.update(model.nodes[position].output)
            function = model.place(position).function
            caller = None if function is None else function[:2]
            if caller is not None and caller not in callees:
                callees.add(caller)
                pending.append(caller)
    return outputs - {""}


def _doubtful_values(model: Index, starts: set[str]) -> set[str]:
    """Return `starts` and the values behind, but for those of operators that onnx does not know."""
    behind = model.flow(model.model.graph).downstream(starts)
    return (behind - shape_inference.opaque_values(model)) | starts


def _drop_in_functions(
    model: onnx.ModelProto, known: Mapping[Place, Mapping[str, onnx.TypeProto]]
) -> None:
    """Drop value_info of functions (IR 10) behind converted nodes: it may differ between calls."""
    for function in model.functions:
        identity = (function.domain, function.name, function.overload)
        starts = {n for place, types in known.items() if place.function == identity for n in types}
        remove_named(function.value_info, traversal.Flow(function).downstream(starts))


def _forget_names(known: onnx.TypeProto, symbols: set[str]) -> None:
    """Remove names of dims that inference invented and negative dims, in place."""
    for dim in known.tensor_type.shape.dim:
        if (dim.dim_param and dim.dim_param not in symbols) or dim.dim_value < 0:
            dim.ClearField("value")


def _declare_types(
    graph: onnx.GraphProto, inferred: dict[str, onnx.TypeProto], doubtful: set[str]
) -> None:
    """Update value_info; drop doubtful entries that were not inferred."""
    declared = set(traversal.value_names(traversal.declared_values(graph)))
    for index in reversed(range(len(graph.value_info))):
        info = graph.value_info[index]
        if info.name not in doubtful:
            continue
        new = inferred.get(info.name)
        if new is None or not new.tensor_type.elem_type:
            del graph.value_info[index]
        elif _keep_denotations(info.type, new) != info.type:
            info.type.CopyFrom(new)
    for name, new in inferred.items():
        if name not in declared and new.tensor_type.HasField("shape"):
            graph.value_info.add(name=name, type=new)


def _correct_outputs(graph: onnx.GraphProto, inferred: dict[str, onnx.TypeProto]) -> None:
    """Correct the declared output shapes of a branch or body, which runtimes rely on, too."""
    for output in graph.output:
        new = inferred.get(output.name)
        if new is None or not output.type.tensor_type.HasField("shape"):
            continue
        corrected = deepcopy(output.type)
        corrected.tensor_type.ClearField("shape")
        if new.tensor_type.elem_type and new.tensor_type.HasField("shape"):
            corrected.tensor_type.shape.CopyFrom(new.tensor_type.shape)
        if corrected != output.type:
            output.type.CopyFrom(corrected)


def _keep_denotations(old: onnx.TypeProto, new: onnx.TypeProto) -> onnx.TypeProto:
    """Copy the denotations of `old` to `new` where the rank is the same; return `new`."""
    if old.HasField("denotation"):
        new.denotation = old.denotation
    old_dims, new_dims = old.tensor_type.shape.dim, new.tensor_type.shape.dim
    if len(old_dims) == len(new_dims):
        for old_dim, new_dim in zip(old_dims, new_dims, strict=True):
            if old_dim.HasField("denotation"):
                new_dim.denotation = old_dim.denotation
    return new
