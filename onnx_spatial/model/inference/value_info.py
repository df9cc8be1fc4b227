"""Renew the declared types of values behind converted nodes.

Files with unknown operators declare nothing, or guesses, behind them; onnxruntime believes a wrong
static shape and folds it into constants. So what follows from a converted node is inferred anew,
and a declared dim that the inference does not find becomes unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.strip_weights import skeleton
from onnx_spatial.model.inference import shape_inference


def renew(
    model: onnx.ModelProto, known: dict[traversal.Place, dict[str, onnx.TypeProto]], names: set[str]
) -> list[str]:
    """Renew value_info in the main graph and its subgraphs, in place.

    Args:
        model: the converted model.
        known: types of the values that converted nodes gave, by the graph that holds them.
        names: values to speak of, namely those that the original had.

    Returns:
        Names whose declared type is new or changed.
    """
    starts = {n for place, types in known.items() if place.function is None for n in types}
    starts |= _calls(model, {place.function for place in known if place.function is not None})
    behind = shape_inference.downstream(model.graph, starts)
    symbols = shape_inference.symbols(model)
    copy = skeleton(model)
    doubtful = _forget(copy, behind, starts)
    for place, graph in traversal.graphs(copy):
        outputs = {v.name for v in graph.output} if isinstance(graph, onnx.GraphProto) else set()
        for name, known_type in known.get(place, {}).items():
            if place.function is None and name not in outputs and known_type.WhichOneof("value"):
                graph.value_info.add(name=name).type.CopyFrom(known_type)
    inferred = shape_inference.infer(copy, lambda number, types: None)
    changed: list[str] = []
    doubtful &= names
    for (place, graph), (_, result) in zip(
        traversal.graphs(model), traversal.graphs(inferred), strict=False
    ):
        if isinstance(graph, onnx.GraphProto) and isinstance(result, onnx.GraphProto):
            infos = (*result.value_info, *result.output)
            found = {v.name: _own_names(v.type, symbols) for v in infos if v.name in doubtful}
            for name, known_type in known.get(place, {}).items():
                # onnxruntime's Scan wants to see the rank of what its body returns.
                has_rank = known_type.tensor_type.HasField("shape")
                if has_rank and name in found and not found[name].tensor_type.HasField("shape"):
                    found[name].CopyFrom(known_type)
            changed += _declare(graph, found, doubtful)
            if graph is not model.graph:  # the main graph's outputs are the user's to declare
                changed += _correct_outputs(graph, found)
    return changed + _drop_in_functions(model, known)


def drop(model: onnx.ModelProto, names: Mapping[traversal.Place, Collection[str]]) -> list[str]:
    """Drop value_info, in place.

    Args:
        model: the converted model.
        names: values that are gone, by the graph that held them.

    Returns:
        Names whose value_info was dropped.
    """
    dropped = []
    for place, graph in traversal.graphs(model):
        for index in reversed(range(len(graph.value_info))):
            if graph.value_info[index].name in names.get(place, ()):
                dropped.append(graph.value_info[index].name)
                del graph.value_info[index]
    return dropped


def _calls(model: onnx.ModelProto, functions: set[tuple[str, str, str]]) -> set[str]:
    """Outputs of the nodes that call one of `functions`, or a function that does."""
    outputs: dict[tuple[str, str], list[str]] = {}
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for place, _, node in traversal.nodes(model):
        operator = (node.domain, node.op_type)
        outputs.setdefault(operator, []).extend(node.output)
        if place.function is not None:
            callers.setdefault(operator, set()).add(place.function[:2])
    callees = {(domain, name) for domain, name, _ in functions}
    waiting = list(callees)
    while waiting:
        new = callers.get(waiting.pop(), set()) - callees
        callees |= new
        waiting += new
    return {name for callee in callees for name in outputs.get(callee, ())} - {""}


def _forget(copy: onnx.ModelProto, behind: set[str], starts: set[str]) -> set[str]:
    """Take the declared shapes in `behind` out, but for what only their owners could know.

    Returns:
        Names of what was taken out.
    """
    local = {(f.domain, f.name) for f in copy.functions}
    opaque = {
        name
        for _, _, node in traversal.graph_nodes(traversal.Place(), copy.graph)
        if not op_traits.is_standard(node)
        and node.domain != "ai.onnx.ml"
        and (node.domain, node.op_type) not in local
        for name in node.output
    }
    doubtful = (behind - opaque) | starts
    for _, graph in traversal.graphs(copy):
        if isinstance(graph, onnx.GraphProto):
            kept = [v for v in graph.value_info if v.name not in doubtful]
            del graph.value_info[:]
            graph.value_info.extend(kept)
            for output in graph.output:
                if output.name in doubtful and output.type.HasField("tensor_type"):
                    output.type.tensor_type.ClearField("shape")
    return doubtful


def _drop_in_functions(
    model: onnx.ModelProto, known: dict[traversal.Place, dict[str, onnx.TypeProto]]
) -> list[str]:
    """Drop what functions (IR 10) declare behind converted nodes: it may differ from call to call."""
    dropped: list[str] = []
    for function in model.functions:
        identity = (function.domain, function.name, function.overload)
        starts = {n for place, types in known.items() if place.function == identity for n in types}
        behind = shape_inference.downstream(function, starts)
        for index in reversed(range(len(function.value_info))):
            if function.value_info[index].name in behind:
                dropped.append(function.value_info[index].name)
                del function.value_info[index]
    return dropped


def _own_names(found: onnx.TypeProto, symbols: set[str]) -> onnx.TypeProto:
    """Names of dims that the inference made up mean nothing to anybody else."""
    for dim in found.tensor_type.shape.dim:
        if dim.dim_param and dim.dim_param not in symbols:
            dim.ClearField("dim_param")
    return found


def _declare(
    graph: onnx.GraphProto, found: dict[str, onnx.TypeProto], doubtful: set[str]
) -> list[str]:
    """Bring value_info up to date; what is doubtful and was not found is dropped."""
    changed = []
    declared = {v.name for v in graph.value_info}
    fixed = {v.name for v in (*graph.output, *graph.input)}
    for index in reversed(range(len(graph.value_info))):
        info = graph.value_info[index]
        if info.name not in doubtful:
            continue
        new = found.get(info.name)
        if new is None or not new.tensor_type.elem_type:
            del graph.value_info[index]
            changed.append(info.name)
        elif _keeps_denotations(info.type, new) != info.type:
            info.type.CopyFrom(new)
            changed.append(info.name)
    for name, new in found.items():
        if name not in declared | fixed and new.tensor_type.HasField("shape"):
            graph.value_info.add(name=name).type.CopyFrom(new)
            changed.append(name)
    return changed


def _correct_outputs(graph: onnx.GraphProto, found: dict[str, onnx.TypeProto]) -> list[str]:
    """Shapes that a branch or body declares for its outputs are believed like any other."""
    changed = []
    for output in graph.output:
        new = found.get(output.name)
        if new is None or not output.type.HasField("tensor_type"):
            continue
        known = new if new.tensor_type.elem_type else None
        corrected = onnx.TypeProto()
        corrected.CopyFrom(output.type)
        corrected.tensor_type.ClearField("shape")
        if known is not None and known.tensor_type.HasField("shape"):
            corrected.tensor_type.shape.CopyFrom(known.tensor_type.shape)
        if output.type.tensor_type.HasField("shape") and corrected != output.type:
            output.type.CopyFrom(corrected)
            changed.append(output.name)
    return changed


def _keeps_denotations(old: onnx.TypeProto, new: onnx.TypeProto) -> onnx.TypeProto:
    """`new` with the denotations of `old`, where the rank is the same."""
    if old.HasField("denotation"):
        new.denotation = old.denotation
    before, after = old.tensor_type.shape.dim, new.tensor_type.shape.dim
    if len(before) == len(after):
        for was, now in zip(before, after, strict=True):
            if was.HasField("denotation"):
                now.denotation = was.denotation
    return new
