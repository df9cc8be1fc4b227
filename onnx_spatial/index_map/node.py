"""A node as the rules see it: its attributes, and its inputs as maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from onnx_spatial.index_map.cases import ZERO, UndecidedError
from onnx_spatial.index_map.tensor import Tensor
from onnx_spatial.model.symbolic.polynomial import Polynomial
from onnx_spatial.model.symbolic.symbolic_tensor import literal


class NodeView:
    """The operator, the attributes, and the inputs of a node; an omitted input is None."""

    def __init__(
        self,
        op_type: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Tensor | None],
        outputs: Sequence[str],
        place: str = "",
    ) -> None:
        #: Name of the first output, unique among all graphs.
        self.name = f"{place}{outputs[0] if outputs else ''}"
        self.op_type = op_type
        self.attributes = attributes
        self.outputs = outputs
        self._inputs = inputs

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute, or the default."""
        return self.attributes.get(name, default)

    def has(self, name: str) -> bool:
        """Tell whether the node has an attribute."""
        return name in self.attributes

    def optional(self, position: int) -> Tensor | None:
        """Return an input, None if it is omitted."""
        return self._inputs[position] if position < len(self._inputs) else None

    def input(self, position: int) -> Tensor:
        """Return an input that the operator requires."""
        tensor = self.optional(position)
        if tensor is None:
            raise UndecidedError(f"{self.op_type}: input {position} is missing")
        return tensor

    def inputs(self) -> list[Tensor]:
        """Return all inputs of an operator that requires them all."""
        return [self.input(i) for i in range(len(self._inputs))]

    @property
    def optionals(self) -> Sequence[Tensor | None]:
        """All inputs, None for those that are omitted."""
        return self._inputs

    def optional_sizes(self, name: str, position: int) -> list[Polynomial] | None:
        """Return integers that older opsets have as an attribute, newer ones as an input."""
        if name in self.attributes:
            return [Polynomial.of(v) for v in self.attributes[name]]
        tensor = self.optional(position)
        if tensor is None:
            return None
        if not tensor.whole:
            raise UndecidedError(f"{self.op_type}: {name} are no integers")
        return tensor.elements()

    def sizes(self, name: str, position: int) -> list[Polynomial]:
        """Return such integers, which the operator requires."""
        values = self.optional_sizes(name, position)
        if values is None:
            raise UndecidedError(f"{self.op_type}: {name} is missing")
        return values

    def optional_integers(self, name: str, position: int) -> list[int] | None:
        """Return such integers where they are known.

        Raises:
            UndecidedError: they are computed.
        """
        values = self.optional_sizes(name, position)
        if values is None:
            return None
        known = [v.constant for v in values]
        if any(v is None for v in known):
            raise UndecidedError(f"{self.op_type}: {name} are computed in the run")
        return [v for v in known if v is not None]

    def pad_value(self) -> Polynomial:
        """Return the value that a Pad fills with."""
        if self.has("value"):
            return number(np.float32(self.attributes["value"]))
        value = self.optional(2)
        return value.at((ZERO,) * value.rank) if value is not None else ZERO

    def fill_value(self) -> tuple[Polynomial, int]:
        """Return the value of a ConstantOfShape, and its element type."""
        value = self.get("value", None)
        if value is None:
            return ZERO, int(TensorProto.FLOAT)
        array = numpy_helper.to_array(value).reshape(-1)
        return number(array[0]), value.data_type


WHOLE = frozenset(
    {
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
        TensorProto.BOOL,
    }
)


def number(value: Any) -> Polynomial:
    """Return an element of a constant; the zeros of all types are the same."""
    if isinstance(value, str | bytes):
        return ZERO if not value else Polynomial.atom(("text", value))
    kind = np.asarray(value).dtype.kind
    if kind in "iub":  # exact, uint64 included
        return Polynomial.of(int(value))
    bits = np.asarray(value).tobytes()
    if not any(bits):
        return ZERO
    return literal(0, np.asarray(value)[()])
