"""Read attributes and types from ONNX messages."""

from __future__ import annotations

from functools import cache

import onnx

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings import Conflict, InputFacts
from onnx_spatial.operators.spellings.call import AttributeValue


def attributes(node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """Return attributes as Python values; a reference to a function's attribute is a `Conflict`."""
    found: dict[str, AttributeValue] = {}
    kinds = onnx.AttributeProto
    for attribute in node.attribute:
        if attribute.name == shape_inference.NUMBER:
            continue
        if attribute.ref_attr_name:
            found[attribute.name] = Conflict()
        elif attribute.type == kinds.INT:
            found[attribute.name] = attribute.i
        elif attribute.type == kinds.INTS:
            found[attribute.name] = tuple(attribute.ints)
        elif attribute.type == kinds.FLOAT:
            found[attribute.name] = attribute.f
        elif attribute.type == kinds.FLOATS:
            found[attribute.name] = tuple(attribute.floats)
        elif attribute.type == kinds.STRING:
            found[attribute.name] = attribute.s.decode("utf-8", "replace")
        else:
            found[attribute.name] = object()
    return found


def input_facts(known: onnx.TypeProto | None) -> InputFacts:
    """Return element type and shape of an input."""
    element_type = shape_inference.element_type(known)
    if element_type is None:
        return InputFacts(None, shape_inference.dims(known))
    return InputFacts(dtype_name(element_type), shape_inference.dims(known))


@cache
def dtype_name(element_type: int) -> str:
    """Return the numpy name of an ONNX element type; "string" for strings."""
    if element_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(element_type).name
    except KeyError:
        return f"element type {element_type}"
