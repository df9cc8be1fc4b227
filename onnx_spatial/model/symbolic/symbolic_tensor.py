"""Define symbolic tensors: small tensors of polynomials, such as shapes, pads, crops and axes.

    Shape(x) = [n, h, w, c]        Slice(Shape(x), 1, 3) = [h, w]        Add([h, w], 4) = [h+4, w+4]

`eval_elementwise` evaluates arithmetic on them, `eval_movement` data movement.
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

#: Most elements of a symbolic tensor.
MAX_ENTRIES = 64

Table = npt.NDArray[np.object_]
#: Attribute values by name.
Attributes = Mapping[str, Any]

#: Integer element types.
INTEGERS = frozenset(
    {
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    }
)


@dataclass(frozen=True, eq=False)
class SymbolicTensor:
    """A small tensor of polynomials.

    Attributes:
        element_type: its ONNX element type.
        table: a `Polynomial` for each element; True and False are 1 and 0, and elements that are
            neither integer nor bool are atoms.
    """

    element_type: int
    table: Table

    @property
    def elements(self) -> tuple[Polynomial, ...]:
        """Elements in C order."""
        return tuple(self.table.reshape(-1).tolist())

    @property
    def constants(self) -> list[int] | None:
        """Elements in C order, if each is a known integer."""
        if self.element_type not in INTEGERS:
            return None
        known = [v for e in self.elements if (v := e.constant) is not None]
        return known if len(known) == self.table.size else None


@dataclass(frozen=True, slots=True)
class LiteralKey:
    """Key of the atom for a known number that is not an integer.

    Attributes:
        element_type: its ONNX element type.
        data: its bytes, because -0.0 == 0.0 and a NaN does not equal itself.
    """

    element_type: int
    data: bytes


def table(elements: Sequence[Polynomial], shape: Sequence[int]) -> Table:
    """Make an array of polynomials in C order."""
    result = np.empty(len(elements), object)
    result[:] = elements
    return result.reshape(tuple(shape))


def of_array(value: npt.NDArray[np.generic]) -> SymbolicTensor | None:
    """Convert a known array; None if it is large or not numeric."""
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
    """Return the atom for a known number that is not an integer."""
    return Polynomial.atom(LiteralKey(element_type, value.tobytes()))


def attributes(node: onnx.NodeProto) -> Attributes | None:
    """Return the attributes of a node; None if one refers to its function's or is unreadable."""
    if any(a.ref_attr_name for a in node.attribute):
        return None
    try:
        return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    except ValueError:
        return None
