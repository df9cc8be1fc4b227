"""Build the onnx_ir model of an edited message, with the objects of the model that it came from.

A message holds no `meta`, no constants of node outputs and no lazy tensors, and a tensor in memory
would be a copy. So everything that the edit left unchanged is taken from the original objects: tensors
are shared, as `onnx_ir.Model.clone` shares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from onnx_spatial.errors import ModelFileError, innermost_message
from onnx_spatial.model import traversal
from onnx_spatial.model.traversal import IrGraph


def to_ir(
    edited: onnx.ModelProto,
    folder: Path | None,
    original: ir.Model | None = None,
    proto: onnx.ModelProto | None = None,
) -> ir.Model:
    """Return a new onnx_ir model that is equal to an edited message.

    Args:
        edited: the message.
        folder: folder of its external data.
        original: the model before the edit; it is not changed.
        proto: the message of `original`, with the same nodes and tensors; required with `original`.

    Raises:
        ModelFileError: onnx_ir cannot hold the model.
    """
    try:
        model = ir.from_proto(edited)
    except Exception as error:  # onnx_ir raises many types, of which only some are its own
        reason = innermost_message(error)
        raise ModelFileError(f"onnx_ir cannot hold the model: {reason}") from None
    if folder is not None:
        for body in (model.graph, *(function.graph for function in model.functions.values())):
            ir.external_data.set_base_dir(body, folder)
    if original is None:
        return model
    assert proto is not None
    _carry_meta(original, model)
    before = {
        place: (graph, message)
        for graph, (place, message) in zip(
            traversal.ir_graphs(original), traversal.graphs(proto), strict=True
        )
    }
    for graph, (place, message) in zip(
        traversal.ir_graphs(model), traversal.graphs(edited), strict=True
    ):
        if place in before:
            _carry_graph(graph, message, *before[place])
    return model


def _carry_graph(
    graph: IrGraph, message: traversal.GraphLike, before: IrGraph, proto: traversal.GraphLike
) -> None:
    """Take over from the graph `before` the edit, whose message is `proto`."""
    _carry_meta(before, graph)
    if not graph.opset_imports:  # messages of subgraphs have none
        graph.opset_imports.update(before.opset_imports)
    values = {value.name: value for value in _defined_values(before)}
    for value in _defined_values(graph):
        if value.name and value.name in values:
            _carry_value(value, values[value.name])
    if isinstance(message, onnx.GraphProto) and isinstance(proto, onnx.GraphProto):
        _carry_initializers(graph, message, before, proto)
    nodes = {tuple(old.output): (node, old) for node, old in zip(before, proto.node, strict=True)}
    for node, new in zip(graph, message.node, strict=True):
        old_node, old_message = nodes.get(tuple(new.output), (None, None))
        if old_node is not None and old_message is not None and _is_same(new, old_message):
            _carry_node(node, new, old_node, old_message)


def _is_same(new: onnx.NodeProto, old: onnx.NodeProto) -> bool:
    """Tell whether two nodes with equal outputs are one node, whose attributes may have changed."""
    named = (new.op_type, new.domain, new.overload, new.name)
    return named == (old.op_type, old.domain, old.overload, old.name) and new.input == old.input


def _defined_values(graph: IrGraph) -> Iterator[ir.Value]:
    """Yield the values that a graph defines."""
    yield from graph.inputs
    if isinstance(graph, ir.Graph):
        yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _carry_meta(before: Any, after: Any) -> None:
    for key, value in before.meta.items():
        after.meta[key] = value
        if not before.meta.is_valid(key):
            after.meta.invalidate(key)


def _carry_value(value: ir.Value, before: ir.Value) -> None:
    """Take over what the message of a value lacks; also its type, unless the edit changed it."""
    _carry_meta(before, value)
    if value.doc_string is None:
        value.doc_string = before.doc_string
    if before.type is None:  # then the message has no shape either
        if value.type is None and before.shape is not None:
            value.shape = before.shape.copy()
        return
    if ir.serde.serialize_value(value).type == ir.serde.serialize_value(before).type:
        value.type = before.type
        value.shape = None if before.shape is None else before.shape.copy()


def _carry_initializers(
    graph: IrGraph, message: onnx.GraphProto, before: IrGraph, proto: onnx.GraphProto
) -> None:
    tensors = {tensor.name: tensor for tensor in proto.initializer}
    assert isinstance(graph, ir.Graph) and isinstance(before, ir.Graph)
    for tensor in message.initializer:
        if tensors.get(tensor.name) == tensor:
            graph.initializers[tensor.name].const_value = before.initializers[
                tensor.name
            ].const_value


def _carry_node(node: ir.Node, new: onnx.NodeProto, before: ir.Node, old: onnx.NodeProto) -> None:
    """Take over what the message of a node lacks, and attributes that are equal in both messages."""
    _carry_meta(before, node)
    node.name, node.version = before.name, before.version
    for value, value_before in zip(node.outputs, before.outputs, strict=False):
        if value.const_value is None:
            value.const_value = value_before.const_value
    messages = {attribute.name: attribute for attribute in old.attribute}
    for attribute in new.attribute:
        is_graph = attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        if not is_graph and messages.get(attribute.name) == attribute:
            node.attributes[attribute.name] = before.attributes[attribute.name]
