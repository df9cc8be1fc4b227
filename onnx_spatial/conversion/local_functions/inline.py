"""Return the body of a local function as nodes that replace one of its calls.

`onnx.inliner`, which `model.inference.functions` uses, inlines a model as a whole, as protobuf bytes: no
tensor above 2 GiB, and a body that cannot be inlined makes the whole model invalid or raises. Here a
call becomes what lowering would write: its constants are initializers, its nodes are named after it and
carry its origin, and each call may be refused with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import Emitter, Lowered

#: Reported in the place of a strategy.
STRATEGY = "function body"


def inlined(
    function: onnx.FunctionProto,
    node: onnx.NodeProto,
    inputs: Sequence[ir.Value | None],
    opset: int,
) -> Lowered:
    """Copy the nodes of a function of this package, which hold no graphs, for a call with these inputs.

    Raises:
        ConversionError: the body is of another opset, or no valid graph.
    """
    where = f"function {function.domain}:{function.name}"
    versions = {o.domain: o.version for o in function.opset_import}
    if versions.get("", opset) != opset:
        raise ConversionError(
            f"{where} is of opset {versions['']} and its call of {opset}; use mode 'lower'",
            code=Code.FUNCTION_BODY,
        )
    values: dict[str, ir.Value | None] = dict.fromkeys(function.input)
    values.update(zip(function.input, inputs, strict=False))
    call_attributes = {a.name: a for a in node.attribute}
    emit = Emitter(opset)
    for message in function.node:
        if any(name and name not in values for name in message.input):
            raise ConversionError(
                f"{where} reads a value that nothing in it computes", code=Code.FUNCTION_BODY
            )
        try:
            _add(message, _resolved(message, call_attributes), emit, values)
        except Exception as error:  # onnx_ir raises many types for messages that make no sense
            raise ConversionError(
                f"{where} cannot be read: {error}", code=Code.FUNCTION_BODY
            ) from None
    output = values.get(function.output[0])
    if output is None or all(output not in n.outputs for n in emit.nodes):
        raise ConversionError(f"{where} does not compute its output", code=Code.FUNCTION_BODY)
    return Lowered(STRATEGY, emit, output)


def _add(
    node: onnx.NodeProto,
    attributes: Sequence[ir.Attr],
    emit: Emitter,
    values: dict[str, ir.Value | None],
) -> None:
    """Add one node, or a constant that can become an initializer."""
    names_and_types = [(a.name, a.type) for a in attributes]
    if node.op_type == "Constant" and names_and_types == [("value", ir.AttributeType.TENSOR)]:
        tensor = attributes[0].as_tensor()
        value = ir.Value(
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        emit.constants.append((value, node.output[0]))
        values[node.output[0]] = value
        return
    read = [values[name] if name else None for name in node.input]
    new = ir.Node("", node.op_type, read, attributes, num_outputs=len(node.output))
    emit.nodes.append(new)
    values.update(zip(node.output, new.outputs, strict=True))


def _resolved(
    node: onnx.NodeProto, call_attributes: Mapping[str, onnx.AttributeProto]
) -> list[ir.Attr]:
    """Replace references by the attributes of the call; missing attributes are omitted."""
    attributes = []
    for attribute in node.attribute:
        if attribute.ref_attr_name not in ("", *call_attributes):
            continue
        copy = onnx.AttributeProto()
        copy.CopyFrom(call_attributes.get(attribute.ref_attr_name, attribute))
        copy.name = attribute.name
        attributes.append(ir.serde.deserialize_attribute(copy))
    return attributes
