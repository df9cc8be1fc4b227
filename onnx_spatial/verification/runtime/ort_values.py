"""Tensors of the types that numpy lacks, to and from onnxruntime.

onnxruntime's numpy interface knows numpy's own types. bfloat16, the 8-bit floats and whatever is
shorter than a byte go through an OrtValue, as the bits that lie in its memory: elements of 4 and of
2 bits are packed there, the first one in the lowest bits, and numpy has a byte for each.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnx_spatial.verification.arrays import (
    Array,
    bits_of,
    dtype_of,
    element_type_of,
    is_native,
)

_UNKNOWN = frozenset({onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING})

#: Element types by the name that onnxruntime has for a tensor of them, as far as numpy lacks them.
_RAW = {
    f"tensor({name.lower()})": int(number)
    for name, number in onnx.TensorProto.DataType.items()
    if number not in _UNKNOWN and not is_native(dtype_of(number))
}


def is_raw_type(name: str) -> bool:
    """Whether a value of this type, as onnxruntime calls it, can only be had as an OrtValue."""
    return name in _RAW


def is_raw(value: Any) -> bool:
    """Whether a value can only be fed as an OrtValue."""
    return isinstance(value, np.ndarray) and not is_native(value.dtype)


def to_ort(array: Array) -> ort.OrtValue:
    """A tensor that holds an array.

    Raises:
        RuntimeError: this onnxruntime has no tensors of that type.
    """
    if not is_raw(array):
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), element_type_of(array))
    data = _packed(array)
    if data:
        ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def from_ort(value: ort.OrtValue) -> Any:
    """The array in a tensor."""
    element_type = _RAW.get(value.data_type())
    if element_type is None:
        return value.numpy()
    shape, size = tuple(value.shape()), value.tensor_size_in_bytes()
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return _unpacked(data, dtype_of(element_type), int(np.prod(shape))).reshape(shape)


def _packed(array: Array) -> bytes:
    """The elements one after the other, with no bits between them but at the end."""
    bits = bits_of(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if bits >= 8:
        return flat.tobytes()
    each = 8 // bits
    codes = flat.view(np.uint8) & (2**bits - 1)
    codes = np.concatenate([codes, np.zeros(-len(codes) % each, np.uint8)]).reshape(-1, each)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    packed: Array = np.bitwise_or.reduce(codes << shifts, axis=1)
    return packed.tobytes()


def _unpacked(data: bytes, dtype: np.dtype[Any], count: int) -> Array:
    """The way back."""
    bits = bits_of(dtype)
    raw = np.frombuffer(data, np.uint8)
    if bits < 8:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        raw = ((raw[:, None] >> shifts) & (2**bits - 1)).reshape(-1)[:count]
    return raw.view(dtype)
