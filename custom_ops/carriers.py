"""Carry elements through a Python operator bit for bit, for types that it cannot take.

    direct     numbers and bools, unchanged
    bits       BitCast -> operator on uint16 -> BitCast: float16 and bfloat16 from opset 26
    positions  the operator moves positions, and Gather fetches the elements:

        Range -> Reshape -> operator -> Reshape -> Gather -> y
        x -> Reshape [-1] -> Concat(zero, .) -------^

    Position 0, which the operator pads with, is a zero in front of the elements.

onnxruntime-extensions aborts the process on a 16-bit float and on a string that is not UTF-8, and it
cuts strings at a zero byte. A Cast to float32 would quieten signalling NaNs. Positions keep every bit
of any type, at the price of two integer tensors of the same shape. Data of unknown type goes by
position if nothing is padded; otherwise it is taken to be numbers.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import dtype_name
from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import Emitter, Request
from onnx_spatial.lowering.core.padding import numpy_dtype

#: Element types of Python operators, those that numpy and onnxruntime-extensions both have.
PREPARED_TYPES = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
    TensorProto.BOOL,
)

_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_BY_POSITION = _HALVES | {TensorProto.STRING}

#: BitCast came with opset 26, Range with 11; Gather and Concat have taken bfloat16 since 13.
_BITCAST, _RANGE, _BFLOAT16, _ALLOW_ZERO = 26, 11, 13, 14


class Carrier(Protocol):
    """A way to carry elements through an operator."""

    #: Name that `inspect` shows.
    name: str

    def into(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the operator's input in place of its data."""

    def back(self, request: Request, emit: Emitter, moved: ir.Value) -> ir.Value:
        """Emit the output, made of the operator's result."""


def choose(request: Request) -> Carrier:
    """Choose the cheapest exact carrier for the element types that the data may have.

    Raises:
        ConversionError: there is none.
    """
    types = request.element_types
    if not types and not request.call.may_pad and request.opset >= _RANGE:
        return Positions(None)  # behind a foreign operator: strings, perhaps
    if types <= set(PREPARED_TYPES):
        return Direct()
    names = ", ".join(sorted(dtype_name(t) for t in types))
    if types - set(PREPARED_TYPES) - _BY_POSITION:
        raise ConversionError(
            f"Python operators do not support element type {names}", code=Code.ELEMENT_TYPE
        )
    if len(types) == 1 and types <= _HALVES and request.opset >= _BITCAST:
        return Bits(min(types))
    needed = _BFLOAT16 if TensorProto.BFLOAT16 in types else _RANGE
    if request.opset < needed:
        raise ConversionError(
            f"the model's opset is {request.opset}; Python operators on {names} need {needed} or "
            "newer",
            code=Code.OPSET_TOO_OLD,
        )
    pads = request.call.may_pad
    if pads and len(types) > 1:
        raise ConversionError(
            f"its function is called with several element types, {names}; Python operators pad only one "
            "(inline the function first with onnx.inliner.inline_local_functions)",
            code=Code.ELEMENT_TYPE,
        )
    return Positions(min(types) if pads else None)


class Direct:
    """Carries elements unchanged."""

    name = "direct"

    def into(self, request: Request, emit: Emitter) -> ir.Value:
        """Return the data itself."""
        value = request.inputs[0]
        assert value is not None
        return value

    def back(self, request: Request, emit: Emitter, moved: ir.Value) -> ir.Value:
        """Return the output itself."""
        return moved


class Bits:
    """Carries 16-bit floats as integers of the same bits."""

    name = "bits"

    def __init__(self, element_type: int) -> None:
        self._element_type = element_type

    def into(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the data as uint16."""
        return emit.op("BitCast", request.inputs[0], to=int(TensorProto.UINT16))

    def back(self, request: Request, emit: Emitter, moved: ir.Value) -> ir.Value:
        """Emit the output with its own type."""
        return emit.op("BitCast", moved, to=self._element_type)


class Positions:
    """Carries positions: 1, 2, 3, .. in the shape of the data, or from 0 if nothing is padded."""

    name = "positions"

    def __init__(self, padded: int | None) -> None:
        self._padded = padded  # element type of the zero; None: nothing is padded

    def into(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the positions of the elements."""
        x, shape = request.inputs[0], request.shape
        assert x is not None
        sizes = emit.shape_of(x)
        if emit.opset >= _ALLOW_ZERO:
            return emit.op("Reshape", self._counted(emit, sizes), sizes, allowzero=1)
        if shape is not None and all(isinstance(d, int) and d > 0 for d in shape):
            return emit.op("Reshape", self._counted(emit, sizes), sizes)
        # Before opset 14 Reshape cannot make a new dim of 0: make one of 1 and slice it off.
        grown = emit.size(emit.max(sizes, 1))
        full = emit.op("Reshape", self._counted(emit, grown), grown)
        return emit.op("Slice", full, emit.op("Sub", sizes, sizes), sizes)

    def back(self, request: Request, emit: Emitter, moved: ir.Value) -> ir.Value:
        """Emit the elements at the positions."""
        flat = emit.op("Reshape", request.inputs[0], emit.ints([-1], "flat"))
        if self._padded is not None:
            dtype = numpy_dtype(self._padded)
            zero = np.full(1, "", object) if dtype is None else np.zeros(1, dtype)
            flat = emit.op("Concat", emit.constant(zero, "zero"), flat, axis=0)
        return emit.op("Gather", flat, moved, axis=0)

    def _counted(self, emit: Emitter, sizes: ir.Value) -> ir.Value:
        """Emit as many positions as the product of the sizes."""
        one = emit.constant(np.array(1, np.int64), "one")
        number = emit.op("ReduceProd", sizes, keepdims=0)  # Size has no kernel for bfloat16
        if self._padded is None:
            return emit.op("Range", emit.constant(np.array(0, np.int64), "none"), number, one)
        return emit.op("Range", one, emit.op("Add", number, one), one)
