"""Which nodes make a model give something else in every run."""

from __future__ import annotations

import onnx

from onnx_spatial.graph import walk
from onnx_spatial.verify import cut
from onnx_spatial.verify.exactness import RANDOM

#: How many nodes are named.
_MOST_NAMED = 3


def sources(graph: onnx.GraphProto, output: str) -> str:
    """The random operators that lead to an output, in words; that there are none, where so.

    A seed makes a random operator give the same numbers in every new session, but which these are is
    onnxruntime's business: an output behind one is not compared either way.
    """
    producers = {name: node for node in graph.node for name in node.output if name}
    seen, todo = {output}, [output]
    found: list[str] = []
    while todo:
        node = producers.get(todo.pop())
        if node is None:
            continue
        found += (n for n in _random(node) if n not in found)
        new = cut.needs(node) - seen
        seen |= new
        todo.extend(new)
    if not found:
        return "no random operator leads to it, a kernel gives other results in every run"
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more


def _random(node: onnx.NodeProto) -> list[str]:
    inner = [n for _, g in walk.subgraphs(node) for _, _, n in walk.graph_nodes(walk.Place(), g)]
    found = []
    for each in (node, *inner):
        standard = each.domain in ("", "ai.onnx")
        training = each.op_type == "Dropout" and len(each.input) > 2
        if standard and (each.op_type in RANDOM or training):
            seeded = " with a seed" if any(a.name == "seed" for a in each.attribute) else ""
            found.append(f"{each.op_type} node {walk.label(each)!r}{seeded}")
    return found
