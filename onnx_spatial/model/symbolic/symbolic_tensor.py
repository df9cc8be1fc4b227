"""Small tensors whose elements are expressions: shapes, pads, crops, axes on their way.

    Shape(x) = [n, h, w, c]        Slice(Shape(x), 1, 3) = [h, w]        Add([h, w], 4) = [h+4, w+4]

What operators compute of them is in `eval_elementwise`, what they only move is in `eval_movement`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from onnx_spatial.model.symbolic.polynomial import Polynomial

#: Elements that a tensor may have to be followed.
MAX_ENTRIES = 64

Table = npt.NDArray[np.object_]
#: Attribute values by name.
Attributes = Mapping[str, Any]

#: Element types that hold whole numbers.
INTEGERS = frozenset(
    {
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    }
)


@dataclass(frozen=True, eq=False)
class SymbolicTensor:
    """A small tensor.

    Attributes:
        element_type: its ONNX element type.
        table: an `Polynomial` for each element; true and false are 1 and 0, and what is neither
            a whole number nor bool is an atom.
    """

    element_type: int
    table: Table

    @property
    def elements(self) -> tuple[Polynomial, ...]:
        """The expressions in C order."""
        return tuple(self.table.reshape(-1).tolist())

    @property
    def constants(self) -> list[int] | None:
        """The elements in C order, if each is a known whole number."""
        if self.element_type not in INTEGERS:
            return None
        values = [e.constant for e in self.elements]
        known = [v for v in values if v is not None]
        return known if len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class LiteralKey:
    """Key of the atom that is a known number of another than an integer type.

    Attributes:
        element_type: its ONNX element type.
        data: its bytes, because -0.0 == 0.0 and no NaN equals itself.
    """

    element_type: int
    data: bytes


def table(elements: Sequence[Polynomial], shape: Sequence[int]) -> Table:
    """Expressions in C order as an array."""
    result = np.empty(len(elements), object)
    result[:] = elements
    return result.reshape(tuple(shape))


def of_array(value: npt.NDArray[np.generic]) -> SymbolicTensor | None:
    """A tensor that is known, if it is small and of numbers."""
    if value.size > MAX_ENTRIES or value.dtype.kind in "OSU":
        return None
    try:
        element_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    except (KeyError, ValueError):
        return None
    whole = element_type in INTEGERS or element_type == TensorProto.BOOL
    elements = [
        Polynomial.of(int(v)) if whole else literal(element_type, v) for v in value.reshape(-1)
    ]
    return SymbolicTensor(element_type, table(elements, value.shape))


def literal(element_type: int, value: np.generic) -> Polynomial:
    """A known number of another than an integer type."""
    return Polynomial.atom(LiteralKey(element_type, value.tobytes()))


def attributes(node: onnx.NodeProto) -> Attributes | None:
    """The attributes of a node; None if some are the caller's of its function, or unreadable."""
    if any(a.ref_attr_name for a in node.attribute):
        return None
    try:
        return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    except ValueError:
        return None
