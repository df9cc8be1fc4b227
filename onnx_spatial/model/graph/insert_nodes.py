"""Insert nodes in front of others in a ModelProto, for edits that keep every other field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from onnx_spatial.model import traversal
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.graph.replace_nodes import ORIGIN


@dataclass(frozen=True)
class Inserted:
    """Nodes as messages in order, and the initializers that they read."""

    nodes: Sequence[onnx.NodeProto]
    initializers: Sequence[onnx.TensorProto]


def serialize_nodes(
    node: onnx.NodeProto,
    nodes: Iterable[ir.Node],
    constants: Iterable[tuple[ir.Value, str]],
    names: Names,
    *,
    initializers: bool,
) -> Inserted:
    """Serialize nodes to insert in front of `node`, named after it.

    They are in topological order and in no graph. Each constant is a value and a hint for its name; it
    becomes a Constant node where `initializers` are not allowed.
    """
    base = node.name or next(filter(None, node.output), node.op_type)
    messages: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    for value, hint in constants:
        assert value.const_value is not None
        value.name = names.fresh(f"{base}/{hint}")
        tensor = ir.serde.serialize_tensor(value.const_value)
        if initializers:
            tensor.name = value.name
            tensors.append(tensor)
        else:
            messages.append(
                onnx.helper.make_node("Constant", [], [value.name], value.name, value=tensor)
            )
    for new in nodes:
        new.name = names.fresh(f"{base}/{new.op_type}")
        for value in new.outputs:
            value.name = names.fresh(f"{new.name}:0")
        messages.append(ir.serde.serialize_node(new))
    for message in messages:
        mark_new(message, node)
    return Inserted(messages, tensors)


def mark_new(message: onnx.NodeProto, node: onnx.NodeProto) -> None:
    """Note on a new node which node it replaces."""
    origin = f"{node.op_type} {node.name}".strip()
    for entry in message.metadata_props:
        if entry.key == ORIGIN:
            entry.value = origin
            return
    message.metadata_props.add(key=ORIGIN, value=origin)


def in_front(model: onnx.ModelProto, inserted: Mapping[int, Inserted]) -> None:
    """Insert nodes in front of others, given by their position in `traversal.nodes`, in place."""
    every = list(traversal.nodes(model))  # ids are unique as long as the nodes are held
    inserted_at = {id(every[index][2]): new for index, new in inserted.items()}
    # Inner graphs first: extending a list of nodes copies them.
    for _, graph in reversed(list(traversal.graphs(model))):
        here = [(node, inserted_at.get(id(node))) for node in graph.node]
        if not any(new is not None and new.nodes for _, new in here):
            continue
        nodes = [m for node, new in here for m in (*(new.nodes if new else ()), node)]
        tensors = [t for _, new in here if new is not None for t in new.initializers]
        del graph.node[:]
        graph.node.extend(nodes)
        if isinstance(graph, onnx.GraphProto):
            graph.initializer.extend(tensors)
