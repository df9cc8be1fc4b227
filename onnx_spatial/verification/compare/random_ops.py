"""Which nodes make a model give something else in every run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.runtime.scope import is_dense_constant

#: How many nodes are named.
_MOST_NAMED = 3

_RANDOM = op_traits.having(Trait.RANDOM)


def sources(graph: onnx.GraphProto, output: str, feeds: Mapping[str, Any] | None = None) -> str:
    """The random operators that lead to an output, in words; that there are none, where so.

    A seed makes a random operator give the same numbers in every new session, but which these are is
    onnxruntime's business: an output behind one is not compared either way.
    """
    found = operators(graph, output, feeds)
    if not found:
        return "no random operator leads to it, a kernel gives other results in every run"
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more


def operators(
    graph: onnx.GraphProto, output: str, feeds: Mapping[str, Any] | None = None
) -> list[str]:
    """The same as a list, the nearest first; with what is fed, a Dropout may be none."""
    producers = {name: node for node in graph.node for name in node.output if name}
    off = {n for n, value in (feeds or {}).items() if value is not None and not np.any(value)}
    off |= {t.name for t in graph.initializer if _is_false(t)}
    off |= {n.output[0] for n in graph.node if is_dense_constant(n) and _is_false(n.attribute[0].t)}
    seen, todo = {output}, [output]
    found: list[str] = []
    while todo:
        node = producers.get(todo.pop())
        if node is None:
            continue
        found += (n for n in _random(node, off) if n not in found)
        new = traversal.needs(node) - seen
        seen |= new
        todo.extend(new)
    return found


def _is_false(tensor: onnx.TensorProto) -> bool:
    is_flag = tensor.data_type == onnx.TensorProto.BOOL and not tensor.external_data
    return is_flag and not constant_value(tensor, None).any()


def _random(node: onnx.NodeProto, off: Collection[str]) -> list[str]:
    inner = [
        n
        for _, g in traversal.subgraphs(node)
        for _, _, n in traversal.graph_nodes(traversal.Place(), g)
    ]
    found = []
    for each in (node, *inner):
        standard = op_traits.is_standard(each)
        training = each.op_type == "Dropout" and len(each.input) > 2 and each.input[2] not in off
        if standard and (each.op_type in _RANDOM or (training and each.input[2])):
            seeded = " with a seed" if any(a.name == "seed" for a in each.attribute) else ""
            found.append(f"{each.op_type} node {traversal.label(each)!r}{seeded}")
    return found
