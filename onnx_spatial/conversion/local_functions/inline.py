"""Return the body of a local function as nodes that replace one of its calls.

`onnx.inliner`, which `model.graph.functions` uses, inlines a model as a whole, as protobuf bytes: no
tensor above 2 GiB, and a body that cannot be inlined makes the whole model invalid or raises. Here a
call becomes what lowering would write: its constants are initializers, its nodes are named after it and
carry its origin, and each call may be refused with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering import Emitter, Lowered

#: Reported in the place of a strategy.
STRATEGY = "function body"


def inlined(
    function: onnx.FunctionProto,
    node: onnx.NodeProto,
    inputs: Sequence[ir.Value | None],
    opset: int,
) -> Lowered:
    """Copy the nodes of a function for one of its calls.

    Args:
        function: a function of this package; its nodes hold no graphs.
        node: the call.
        inputs: the inputs of the call.
        opset: version of the default domain at the call.

    Raises:
        ConversionError: the body is of another opset, or no valid graph.
    """
    where = f"function {function.domain}:{function.name}"
    versions = {o.domain: o.version for o in function.opset_import}
    if versions.get("", opset) != opset:
        raise ConversionError(
            f"{where} is of opset {versions['']} and its call of {opset}; use mode 'lower'"
        )
    values: dict[str, ir.Value | None] = dict.fromkeys(function.input)
    values.update(zip(function.input, inputs, strict=False))
    call_attributes = {a.name: a for a in node.attribute}
    emit = Emitter(opset)
    for message in function.node:
        if any(name and name not in values for name in message.input):
            raise ConversionError(f"{where} reads a value that nothing in it computes")
        copy = onnx.NodeProto()
        copy.CopyFrom(message)
        _resolve(copy, call_attributes)
        try:
            _add(copy, emit, values)
        except Exception as error:  # onnx_ir raises many types for messages that make no sense
            raise ConversionError(f"{where} cannot be read: {error}") from None
    output = values.get(function.output[0])
    if output is None or all(output not in n.outputs for n in emit.nodes):
        raise ConversionError(f"{where} does not compute its output")
    return Lowered(STRATEGY, emit, output)


def _add(node: onnx.NodeProto, emit: Emitter, values: dict[str, ir.Value | None]) -> None:
    """Add one node, or a constant that can become an initializer."""
    if _is_tensor(node):
        tensor = ir.from_proto(node.attribute[0].t)
        value = ir.Value(
            type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor
        )
        emit.constants.append((value, node.output[0]))
        values[node.output[0]] = value
        return
    attributes = [ir.from_proto(a) for a in node.attribute]
    read = [values[name] if name else None for name in node.input]
    new = ir.Node("", node.op_type, read, attributes, num_outputs=len(node.output))
    emit.nodes.append(new)
    values.update(zip(node.output, new.outputs, strict=True))


def _resolve(node: onnx.NodeProto, call_attributes: dict[str, onnx.AttributeProto]) -> None:
    """Replace references by the attributes of the call; missing attributes are omitted."""
    attributes = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in call_attributes:
                continue
            name = attribute.name
            attribute.CopyFrom(call_attributes[attribute.ref_attr_name])
            attribute.name = name
        attributes.append(attribute)
    kept = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)


def _is_tensor(node: onnx.NodeProto) -> bool:
    return (
        node.op_type == "Constant"
        and len(node.attribute) == 1
        and node.attribute[0].name == "value"
        and node.attribute[0].type == onnx.AttributeProto.TENSOR
    )
