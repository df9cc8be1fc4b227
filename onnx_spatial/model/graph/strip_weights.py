"""Strip large tensors from a model, for onnx's inliner and shape inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.io import external_data

#: Tensors up to this many elements keep their values: shapes, pads, axes, block shapes.
SMALL = 4096


def strip_weights(model: onnx.ModelProto, folder: Path | None = None) -> onnx.ModelProto:
    """Copy a model without the values of its large tensors, which keep type and shape.

    Small external tensors are read from `folder`, if it is given. Opset imports that nodes use but
    the model does not declare are added, because shape inference stops at the first missing one.
    """
    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    _copy_graph(folder, model.graph, copy.graph)
    if model.ir_version >= 4:  # before, initializers were inputs too and could not be overridden
        _drop_defaults(copy.graph)
    for function in model.functions:
        _copy_function(function, copy.functions.add(), folder)
    opset = op_traits.assumed_opset(model.ir_version)
    used = (n.domain for _, _, n in traversal.graph_nodes(traversal.Place(), copy.graph))
    _declare(copy.opset_import, used, opset)
    for function in copy.functions:
        used = (n.domain for _, _, n in traversal.graph_nodes(traversal.Place(), function))
        _declare(function.opset_import, used, opset)
        _declare(copy.opset_import, (o.domain for o in function.opset_import), opset)
    return copy


def _declare(imports: object, domains: Iterable[str], opset: int) -> None:
    declared = {op_traits.canonical_domain(o.domain) for o in imports}  # type: ignore[attr-defined]
    for domain in dict.fromkeys(map(op_traits.canonical_domain, domains)):
        if domain not in declared:
            version = opset if not domain else 1
            imports.append(onnx.helper.make_opsetid(domain, version))  # type: ignore[attr-defined]
            declared.add(domain)


def _drop_defaults(graph: onnx.GraphProto) -> None:
    """Remove the defaults of inputs: callers may override them, but shape inference uses them."""
    inputs = {v.name for v in graph.input}
    fixed = [t for t in graph.initializer if t.name not in inputs]
    del graph.initializer[:]
    graph.initializer.extend(fixed)


def _copy_graph(folder: Path | None, graph: onnx.GraphProto, copy: onnx.GraphProto) -> None:
    copy.name = graph.name
    copy.input.extend(graph.input)
    copy.output.extend(graph.output)
    copy.value_info.extend(graph.value_info)
    for tensor in graph.initializer:
        _copy_tensor(tensor, copy.initializer.add(), folder)
    for sparse in graph.sparse_initializer:
        target = copy.sparse_initializer.add(dims=sparse.dims)
        _copy_tensor(sparse.values, target.values, folder)
        _copy_tensor(sparse.indices, target.indices, folder)
    _copy_nodes(graph, copy, folder)


def _copy_function(
    function: onnx.FunctionProto, copy: onnx.FunctionProto, folder: Path | None
) -> None:
    for field, value in function.ListFields():
        if field.name != "node":
            if hasattr(value, "extend"):
                getattr(copy, field.name).extend(value)
            else:
                setattr(copy, field.name, value)
    _copy_nodes(function, copy, folder)


def _copy_nodes(graph: traversal.GraphLike, copy: traversal.GraphLike, folder: Path | None) -> None:
    copy_graph, copy_attribute = partial(_copy_graph, folder), partial(_copy_attribute, folder)
    for node in graph.node:
        copy_node(node, copy, copy_graph, copy_attribute)


def copy_node(
    node: onnx.NodeProto,
    graph: traversal.GraphLike,
    copy_graph: Callable[[onnx.GraphProto, onnx.GraphProto], None],
    copy_attribute: Callable[[onnx.AttributeProto, onnx.NodeProto], None],
) -> onnx.NodeProto:
    """Append a copy of a node to `graph`: operator, name, inputs, outputs and attributes.

    `copy_graph(inner, empty)` copies the graphs in attributes, `copy_attribute(attribute, copy)` adds
    other attributes to the copy.
    """
    copy: onnx.NodeProto = graph.node.add(
        op_type=node.op_type, domain=node.domain, name=node.name, overload=node.overload
    )
    copy.input.extend(node.input)
    copy.output.extend(node.output)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            copy_graph(attribute.g, copy.attribute.add(name=attribute.name, type=attribute.type).g)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            target = copy.attribute.add(name=attribute.name, type=attribute.type)
            for inner in attribute.graphs:
                copy_graph(inner, target.graphs.add())
        else:
            copy_attribute(attribute, copy)
    return copy


def _copy_attribute(
    folder: Path | None, attribute: onnx.AttributeProto, node: onnx.NodeProto
) -> None:
    if attribute.type == onnx.AttributeProto.TENSOR and attribute.HasField("t"):
        target = node.attribute.add(name=attribute.name, type=attribute.type)
        _copy_tensor(attribute.t, target.t, folder)
    else:
        node.attribute.append(attribute)


def _copy_tensor(tensor: onnx.TensorProto, copy: onnx.TensorProto, folder: Path | None) -> None:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    small = math.prod(tensor.dims) <= SMALL
    if small and not external:
        copy.CopyFrom(tensor)
        return
    copy.name, copy.data_type = tensor.name, tensor.data_type
    copy.dims.extend(tensor.dims)
    if not small:
        return
    try:
        copy.raw_data = external_data.content(tensor, folder).tobytes()
    except (OSError, ValueError, TypeError, KeyError, OverflowError):  # the values stay unknown
        copy.data_location = tensor.data_location
