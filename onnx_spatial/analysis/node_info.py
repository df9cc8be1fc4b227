"""Read attributes and types from ONNX messages."""

from __future__ import annotations

from functools import cache

import onnx

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings import Conflict, InputFacts
from onnx_spatial.operators.spellings.call import AttributeValue

_KINDS = onnx.AttributeProto
_READABLE = {_KINDS.INT, _KINDS.INTS, _KINDS.FLOAT, _KINDS.FLOATS, _KINDS.STRING}


def attributes(node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """Return attributes as Python values; a reference to a function's attribute is a `Conflict`."""
    return {a.name: _value(a) for a in node.attribute if a.name != shape_inference.NUMBER}


def _value(attribute: onnx.AttributeProto) -> AttributeValue:
    if attribute.ref_attr_name:
        return Conflict()
    if attribute.type not in _READABLE:
        return object()
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return tuple(value) if isinstance(value, list) else value


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


@cache
def element_type_named(dtype: str) -> int | None:
    """Return the ONNX element type with this `dtype_name`; None if there is none."""
    types = onnx.TensorProto.DataType.values()
    return next((int(t) for t in types if t and dtype_name(t) == dtype), None)
