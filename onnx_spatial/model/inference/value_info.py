"""Renew the declared types of values behind converted nodes.

Files declare nothing or guesses behind operators that the exporter did not know, and onnxruntime
folds a wrong static shape into constants. So every type that depends on a converted node is inferred
anew, and a declared dim that inference does not find becomes unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.remove_unused import remove_named
from onnx_spatial.model.graph.strip import strip_weights
from onnx_spatial.model.inference import shape_inference


def renew_value_info(
    model: onnx.ModelProto,
    known: Mapping[traversal.Place, Mapping[str, onnx.TypeProto]],
    lost: Mapping[traversal.Place, Collection[str]],
    original: onnx.ModelProto,
) -> None:
    """Renew value_info in the main graph and its subgraphs, in place.

    Args:
        model: the converted model.
        known: types of the outputs of converted nodes, by the graph that contains them.
        lost: values that are gone, by the graph that contained them.
        original: the model before; only its values are declared.
    """
    graphs = list(traversal.graphs(model))
    for place, graph in graphs:
        remove_named(graph.value_info, lost.get(place, ()))
    starts = {n for place, types in known.items() if place.function is None for n in types}
    if edited := {place.function for place in known if place.function is not None}:
        starts |= _outputs_of_calls(model, edited)
    behind = shape_inference.downstream(model.graph, starts)
    symbols = shape_inference.symbols(model)
    copy = strip_weights(model)
    doubtful = _forget_shapes(copy, behind, starts)
    for place, graph in traversal.graphs(copy):
        outputs = {v.name for v in graph.output} if isinstance(graph, onnx.GraphProto) else set()
        for name, known_type in known.get(place, {}).items():
            if place.function is None and name not in outputs and known_type.WhichOneof("value"):
                graph.value_info.add(name=name).type.CopyFrom(known_type)
    inferred = shape_inference.infer(copy, lambda number, types: None)
    doubtful &= {name for _, _, node in traversal.nodes(original) for name in node.output}
    for (place, graph), (_, result) in zip(graphs, traversal.graphs(inferred), strict=False):
        if isinstance(graph, onnx.GraphProto) and isinstance(result, onnx.GraphProto):
            infos = (*result.value_info, *result.output)
            updated = {v.name: v.type for v in infos if v.name in doubtful}
            for each in updated.values():
                _forget_names(each, symbols)
            for name, known_type in known.get(place, {}).items():
                # onnxruntime's Scan needs the ranks of its body's outputs.
                has_rank = known_type.tensor_type.HasField("shape")
                if has_rank and name in updated and not updated[name].tensor_type.HasField("shape"):
                    updated[name].CopyFrom(known_type)
            _declare_types(graph, updated, doubtful)
            if graph is not model.graph:  # the declared outputs of the main graph are kept
                _correct_outputs(graph, updated)
    _drop_in_functions(model, known)


def _outputs_of_calls(model: onnx.ModelProto, functions: set[tuple[str, str, str]]) -> set[str]:
    """Return the outputs of the nodes that call one of `functions`, directly or not."""
    outputs: dict[tuple[str, str], list[str]] = {}
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for place, _, node in traversal.nodes(model):
        operator = (node.domain, node.op_type)
        outputs.setdefault(operator, []).extend(node.output)
        if place.function is not None:
            callers.setdefault(operator, set()).add(place.function[:2])
    callees = {(domain, name) for domain, name, _ in functions}
    pending = list(callees)
    while pending:
        new = callers.get(pending.pop(), set()) - callees
        callees |= new
        pending += new
    return {name for callee in callees for name in outputs.get(callee, ())} - {""}


def _forget_shapes(copy: onnx.ModelProto, behind: set[str], starts: set[str]) -> set[str]:
    """Remove the declared shapes in `behind`, but not those of operators that onnx does not know.

    Returns:
        The values whose shapes were removed.
    """
    local = {(f.domain, f.name) for f in copy.functions}
    opaque = {
        name
        for _, _, node in traversal.graph_nodes(traversal.Place(), copy.graph)
        if node.domain
        and not op_traits.is_standard(node)
        and node.domain != "ai.onnx.ml"
        and (node.domain, node.op_type) not in local
        for name in node.output
    }
    doubtful = (behind - opaque) | starts
    shape_inference.forget_shapes(copy, doubtful)
    return doubtful


def _drop_in_functions(
    model: onnx.ModelProto, known: Mapping[traversal.Place, Mapping[str, onnx.TypeProto]]
) -> None:
    """Drop value_info of functions (IR 10) behind converted nodes: it may differ between calls."""
    for function in model.functions:
        identity = (function.domain, function.name, function.overload)
        starts = {n for place, types in known.items() if place.function == identity for n in types}
        remove_named(function.value_info, shape_inference.downstream(function, starts))


def _forget_names(known: onnx.TypeProto, symbols: set[str]) -> None:
    """Remove names of dims that inference invented and negative dims, in place."""
    for dim in known.tensor_type.shape.dim:
        if (dim.dim_param and dim.dim_param not in symbols) or dim.dim_value < 0:
            dim.ClearField("value")


def _declare_types(
    graph: onnx.GraphProto, inferred: dict[str, onnx.TypeProto], doubtful: set[str]
) -> None:
    """Update value_info; drop doubtful entries that were not inferred."""
    declared = {v.name for v in (*graph.value_info, *graph.output, *graph.input)}
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
    before, after = old.tensor_type.shape.dim, new.tensor_type.shape.dim
    if len(before) == len(after):
        for was, now in zip(before, after, strict=True):
            if was.HasField("denotation"):
                now.denotation = was.denotation
    return new
