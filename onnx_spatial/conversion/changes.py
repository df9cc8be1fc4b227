"""What differs between a model and what was made of it, by name."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.fusion import Rewritten
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import replace_nodes
from onnx_spatial.model.inference import value_info

#: What is listed.
KINDS = (
    "nodes_replaced",
    "nodes_changed",
    "nodes_removed",
    "nodes_added",
    "initializers_added",
    "value_info_changed",
    "functions_added",
    "functions_removed",
    "opset_imports_added",
    "opset_imports_removed",
)


def diff_models(
    given: onnx.ModelProto,
    converted: onnx.ModelProto,
    infos: Sequence[OperatorInfo],
    rewritten: Sequence[Rewritten] = (),
) -> dict[str, list[str]]:
    """Renew the declared types behind converted operators, in place, and say what is touched.

    Args:
        given: the model as it was.
        converted: what was made of it, finished but for its value_info.
        infos: the operators that were converted.
        rewritten: what stands for them now; those that none speaks of give what they gave.

    Returns:
        nodes_replaced, nodes_changed (they keep their names), nodes_removed, nodes_added,
        initializers_added, value_info_changed, functions_added, functions_removed,
        opset_imports_added, opset_imports_removed; and ir_version ("7 -> 8") if that was raised.
    """
    values = {name for _, _, node in traversal.nodes(given) for name in node.output}
    before = {t.name for _, g in traversal.graphs(given) for t in getattr(g, "initializer", ())}
    named = {node.name for _, _, node in traversal.nodes(given)}
    functions = [{f"{f.domain}:{f.name}": None for f in m.functions} for m in (given, converted)]
    imports = [{o.domain: None for o in m.opset_import} for m in (given, converted)]
    absorbed = {r.infos[0].index: r.absorbed for r in rewritten}
    lost: dict[traversal.Place, set[str]] = {}
    for done in rewritten:
        lost.setdefault(done.infos[0].place, set()).update(done.lost)
    ours = [
        n
        for _, _, n in traversal.nodes(converted)
        if any(p.key == replace_nodes.ORIGIN for p in n.metadata_props)
    ]
    replaced = [
        label for f in infos for label in (traversal.label(f.node), *absorbed.get(f.index, ()))
    ]
    raised = given.ir_version != converted.ir_version
    return {
        **({"ir_version": [f"{given.ir_version} -> {converted.ir_version}"]} if raised else {}),
        "nodes_replaced": replaced,
        "nodes_changed": [n.name for n in ours if n.name in named],
        "nodes_removed": _gone(given, converted, replaced),
        "nodes_added": [n.name for n in ours if n.name not in named],
        "initializers_added": [
            t.name
            for _, g in traversal.graphs(converted)
            for t in getattr(g, "initializer", ())
            if t.name not in before
        ],
        "value_info_changed": [
            *value_info.drop(converted, lost),
            *value_info.renew(converted, _known(infos, rewritten), values),
        ],
        "functions_added": [n for n in functions[1] if n not in functions[0]],
        "functions_removed": [n for n in functions[0] if n not in functions[1]],
        "opset_imports_added": [d for d in imports[1] if d not in imports[0]],
        "opset_imports_removed": [d for d in imports[0] if d not in imports[1]],
    }


def _gone(given: onnx.ModelProto, converted: onnx.ModelProto, replaced: Sequence[str]) -> list[str]:
    """Labels of nodes that are there no more, without those that something else stands for."""
    left = {traversal.label(node) for _, _, node in traversal.nodes(converted)}.union(replaced)
    labels = [traversal.label(node) for _, _, node in traversal.nodes(given)]
    return [label for label in labels if label not in left]


def _known(
    infos: Sequence[OperatorInfo], rewritten: Sequence[Rewritten]
) -> dict[traversal.Place, dict[str, onnx.TypeProto]]:
    """Types of the values that stand where operators were, by the graph that holds them."""
    known: dict[traversal.Place, dict[str, onnx.TypeProto]] = {}
    covered = {info.index for done in rewritten for info in done.infos}
    given = [(done.infos[0], done.gives, done.shape) for done in rewritten]
    given += [(f, (f.node.output[0],), f.output_shape) for f in infos if f.index not in covered]
    for info, names, shape in given:
        declared = onnx.TypeProto()
        if len(info.element_types) == 1:
            (element_type,) = info.element_types
            declared = onnx.helper.make_tensor_type_proto(element_type, shape)
        known.setdefault(info.place, {}).update(dict.fromkeys(names, declared))
    for done in rewritten:
        place = done.infos[0].place
        known.setdefault(place, {}).update((name, onnx.TypeProto()) for name in done.moved)
    return known
