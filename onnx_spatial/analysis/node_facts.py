"""Read what a message says of a node, and join what is known of the node at several call sites.

    float[2, n]   and   float[2, n]      float[2, ?]        n may be another size in each call
    pads = [0, 1] and   pads = [0, 2]    pads: unknown

What call sites disagree on becomes unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import onnx

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import Conflict, InputFacts, NodeFacts
from onnx_spatial.operators.spellings.call import AttributeValue

_KINDS = onnx.AttributeProto
_READABLE = {_KINDS.INT, _KINDS.INTS, _KINDS.FLOAT, _KINDS.FLOATS, _KINDS.STRING}


def attributes(node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """Return attributes as Python values; a reference to a function's attribute is a `Conflict`."""
    return {a.name: _attribute_value(a) for a in node.attribute if a.name != shape_inference.NUMBER}


def _attribute_value(attribute: onnx.AttributeProto) -> AttributeValue:
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


def join(each: Sequence[NodeFacts]) -> NodeFacts:
    """Join the facts of one node at several call sites."""
    if len(each) == 1:
        return each[0]
    width = max(len(f.inputs) for f in each)
    inputs = tuple(
        join_inputs([f.inputs[i] for f in each if i < len(f.inputs)]) for i in range(width)
    )
    return replace(each[0], inputs=inputs, attributes=_join_attributes(each))


def _join_attributes(each: Sequence[NodeFacts]) -> dict[str, AttributeValue]:
    first, *others = (f.attributes for f in each)
    return {
        name: value if all(o.get(name) == value for o in others) else Conflict()
        for name, value in first.items()
    }


def join_inputs(each: Sequence[InputFacts | None]) -> InputFacts | None:
    """Join the facts of one input; None if the input is missing at every call site."""
    known = [f for f in each if f is not None]
    if not known:
        return None
    first = known[0]
    if len(known) == 1:
        return first
    dtype = first.dtype if all(f.dtype == first.dtype for f in known) else None
    shape = first.shape
    for other in known[1:]:
        shape = join_shapes(shape, other.shape)
    value = first.value
    if value is not None and not all(
        f.value is not None and np.array_equal(f.value, value) for f in known[1:]
    ):
        value = None
    return InputFacts(dtype, shape, value)


def join_shapes(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """Join two shapes of one value; None if the ranks differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    # The same symbolic dim may have another size in another call.
    return tuple(x if x == y and isinstance(x, int) else None for x, y in zip(a, b, strict=True))
