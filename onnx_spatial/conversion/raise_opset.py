"""Raise the opset of a model: onnx's version converter rewrites the nodes that the newer opset changes.

Only these nodes, the constants that they read and the opset import differ from the original: the version
converter itself would lose metadata, doc strings and more.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import version_converter

from onnx_spatial.errors import Code, ConversionError, UsageError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.strip_weights import strip_weights
from onnx_spatial.model.inference import shape_inference

#: Domain of nodes that the version converter is to leave alone.
_FOREIGN = "onnx_spatial.foreign"


def raise_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a copy with at least this version of the default domain; `model` itself if it has it.

    Raises:
        UsageError: onnx does not know the version.
        ConversionError: the version converter cannot convert the model, or it has local functions.
    """
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opset <= newest:
        raise UsageError(
            f"opset must be from 1 to {newest}, the newest that onnx knows, not {opset}"
        )
    current = op_traits.opset_of(model.opset_import)
    if current is None or current >= opset:
        return model
    what = f"the opset cannot be raised from {current} to {opset}"
    if model.functions:
        raise ConversionError(f"{what}: the model has local functions", code=Code.OPSET_NOT_RAISED)
    light = strip_weights(model)
    _hide(light)
    try:
        shape_inference.check_negative_dims(light)
        raised = version_converter.convert_version(light, opset)
        if any(place.steps for place, _ in traversal.graphs(model)):
            _check_nodes(raised)  # the converter leaves some subgraphs as they are
    except Exception as error:  # of many types
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConversionError(
            f"{what}: onnx's version converter: {reason}", code=Code.OPSET_NOT_RAISED
        ) from None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _patch(copy.graph, light.graph, raised.graph)
    for entry in copy.opset_import:
        if op_traits.is_standard_domain(entry.domain):
            entry.version = opset
    return copy


def _hide(light: onnx.ModelProto) -> None:
    """Hide from the version converter what it does not read, in place.

    Spatial operators in the default domain have no schema there; the converter neither knows sparse
    initializers nor that a dim of -1 is an unknown one.
    """
    shape_inference.forget_negative_dims(light)
    for _, graph in traversal.graphs(light):
        for node in graph.node:
            if op_traits.is_standard(node) and _is_foreign(node):
                node.domain = _FOREIGN
        if isinstance(graph, onnx.GraphProto):
            for sparse in graph.sparse_initializer:
                dims, name = list(sparse.dims), sparse.values.name
                if all(value.name != name for value in graph.input):
                    known = onnx.helper.make_tensor_value_info(name, sparse.values.data_type, dims)
                    graph.input.append(known)
            del graph.sparse_initializer[:]
    light.opset_import.append(onnx.helper.make_opsetid(_FOREIGN, 1))


def _check_nodes(raised: onnx.ModelProto) -> None:
    """Check the nodes of a model with onnx.checker, which else requires the shape of every output."""
    checked = onnx.ModelProto()
    checked.CopyFrom(raised)
    for _, graph in traversal.graphs(checked):
        for value in (*graph.input, *graph.output) if isinstance(graph, onnx.GraphProto) else ():
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(checked)


def _is_foreign(node: onnx.NodeProto) -> bool:
    """Tell whether a node of the default domain has no schema, or is one that tf2onnx renamed."""
    renamed = node.op_type in ("SpaceToDepth", "DepthToSpace") and len(node.input) > 1
    return renamed or not onnx.defs.has(node.op_type)


def _patch(graph: onnx.GraphProto, light: onnx.GraphProto, raised: onnx.GraphProto) -> None:
    """Carry the nodes that differ between `light` and `raised` over to `graph`."""
    before = {tuple(node.output): index for index, node in enumerate(light.node)}
    nodes = []
    for node in raised.node:
        index = before.get(tuple(node.output))
        if index is None or not _same(light.node[index], node):
            if index is not None:
                node.doc_string = graph.node[index].doc_string
                node.metadata_props.extend(graph.node[index].metadata_props)
            nodes.append(node)
            continue
        kept = graph.node[index]
        for inner in zip(_bodies(kept), _bodies(light.node[index]), _bodies(node), strict=True):
            _patch(*inner)
        nodes.append(kept)
    new = onnx.GraphProto(node=nodes)
    graph.ClearField("node")
    graph.node.extend(new.node)
    known = {tensor.name for tensor in graph.initializer}
    graph.initializer.extend(t for t in raised.initializer if t.name not in known)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for _, body in traversal.subgraphs(node):
        yield body


def _same(before: onnx.NodeProto, after: onnx.NodeProto) -> bool:
    """Tell whether two nodes are equal but for their names and the graphs inside them."""

    def described(node: onnx.NodeProto) -> tuple[object, ...]:
        plain = {a.name: a.SerializeToString() for a in node.attribute if not a.HasField("g")}
        return node.op_type, node.domain, list(node.input), plain

    return described(before) == described(after)
