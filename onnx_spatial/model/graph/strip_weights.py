"""A model without its weights: small enough to hand to onnx's inliner and shape inference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.io import external_data

#: Tensors up to this many elements keep their values: shapes, pads, axes, block shapes.
SMALL = 4096


def skeleton(model: onnx.ModelProto, folder: Path | None = None) -> onnx.ModelProto:
    """A copy of `model` whose large tensors have a type and a shape but no values.

    Small tensors whose data lies in another file are read from `folder`, if it is given. Opset
    imports that nodes use but the model does not declare are added, because shape inference
    stops at the first one that is missing.
    """
    copy = onnx.ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    _copy_graph(model.graph, copy.graph, folder)
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
    """Callers may override what is an input too, but shape inference would believe the default."""
    inputs = {v.name for v in graph.input}
    fixed = [t for t in graph.initializer if t.name not in inputs]
    del graph.initializer[:]
    graph.initializer.extend(fixed)


def _copy_graph(graph: onnx.GraphProto, copy: onnx.GraphProto, folder: Path | None) -> None:
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
    for node in graph.node:
        _copy_node(node, copy.node.add(), folder)


def _copy_function(
    function: onnx.FunctionProto, copy: onnx.FunctionProto, folder: Path | None
) -> None:
    for field, value in function.ListFields():
        if field.name != "node":
            if hasattr(value, "extend"):
                getattr(copy, field.name).extend(value)
            else:
                setattr(copy, field.name, value)
    for node in function.node:
        _copy_node(node, copy.node.add(), folder)


def _copy_node(node: onnx.NodeProto, copy: onnx.NodeProto, folder: Path | None) -> None:
    copy.op_type, copy.domain, copy.name, copy.overload = (
        node.op_type,
        node.domain,
        node.name,
        node.overload,
    )
    copy.input.extend(node.input)
    copy.output.extend(node.output)
    for attribute in node.attribute:
        target = copy.attribute.add()
        if attribute.type == onnx.AttributeProto.GRAPH:
            target.name, target.type = attribute.name, attribute.type
            _copy_graph(attribute.g, target.g, folder)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            target.name, target.type = attribute.name, attribute.type
            for graph in attribute.graphs:
                _copy_graph(graph, target.graphs.add(), folder)
        elif attribute.type == onnx.AttributeProto.TENSOR and attribute.HasField("t"):
            target.name, target.type = attribute.name, attribute.type
            _copy_tensor(attribute.t, target.t, folder)
        else:
            target.CopyFrom(attribute)


def _copy_tensor(tensor: onnx.TensorProto, copy: onnx.TensorProto, folder: Path | None) -> None:
    elsewhere = tensor.data_location == onnx.TensorProto.EXTERNAL
    small = math.prod(tensor.dims) <= SMALL
    if small and not elsewhere:
        copy.CopyFrom(tensor)
        return
    copy.name, copy.data_type = tensor.name, tensor.data_type
    copy.dims.extend(tensor.dims)
    data = _external_bytes(tensor, folder) if small and folder is not None else None
    if data is not None:
        copy.raw_data = data
    elif small:
        copy.data_location = tensor.data_location


def _external_bytes(tensor: onnx.TensorProto, folder: Path) -> bytes | None:
    """The bytes of a small tensor; None where they cannot be read, which leaves it unknown."""
    try:
        return external_data.content(tensor, folder).tobytes()
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None
