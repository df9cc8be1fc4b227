"""Find the random operators that an output depends on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.runtime.scope import is_dense_constant

#: Nodes that a message names.
_MOST_NAMED = 3

_RANDOM = op_traits.having(Trait.RANDOM)


def sources(graph: onnx.GraphProto, output: str, feeds: Mapping[str, Any] | None = None) -> str:
    """Name the random operators that an output depends on, in words.

    An output behind a random operator with a seed is not compared, either: the numbers are the same in
    every new session, but another version of onnxruntime may draw others.
    """
    names = operators(graph, output, feeds)
    if not names:
        return "it depends on no random operator, so a kernel computes other results in each run"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def operators(
    graph: onnx.GraphProto, output: str, feeds: Mapping[str, Any] | None = None
) -> list[str]:
    """List the random operators that an output depends on, the nearest first.

    A Dropout is random in training mode only, which inputs (`feeds`) may switch off.
    """
    producers = {name: node for node in graph.node for name in node.output if name}
    off = {n for n, value in (feeds or {}).items() if value is not None and not np.any(value)}
    off |= {t.name for t in graph.initializer if _is_false(t)}
    off |= {n.output[0] for n in graph.node if is_dense_constant(n) and _is_false(n.attribute[0].t)}
    seen, todo = {output}, [output]
    names: list[str] = []
    while todo:
        node = producers.get(todo.pop())
        if node is None:
            continue
        names += (n for n in _random(node, off) if n not in names)
        new = traversal.needs(node) - seen
        seen |= new
        todo.extend(new)
    return names


def _is_false(tensor: onnx.TensorProto) -> bool:
    is_flag = tensor.data_type == onnx.TensorProto.BOOL and not tensor.external_data
    return is_flag and not constant_value(tensor, None).any()


def _random(node: onnx.NodeProto, off: Collection[str]) -> list[str]:
    names = []
    for each in (node, *traversal.inner_nodes(node)):
        standard = op_traits.is_standard(each)
        training = each.op_type == "Dropout" and len(each.input) > 2 and each.input[2] not in off
        if standard and (each.op_type in _RANDOM or (training and each.input[2])):
            seeded = " with a seed" if any(a.name == "seed" for a in each.attribute) else ""
            names.append(f"{each.op_type} node {traversal.label(each)!r}{seeded}")
    return names
