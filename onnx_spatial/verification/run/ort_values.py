"""Convert tensors of types that numpy lacks to and from onnxruntime.

onnxruntime's numpy interface knows numpy's own types. bfloat16, the 8-bit floats and types of less
than a byte go through the memory of an OrtValue, which has the layout of ONNX's raw data: elements of
4 and 2 bits are packed, the first one in the lowest bits, while numpy has a byte for each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnx_spatial.model.io import sparse
from onnx_spatial.verification.arrays import Array, dtype_of, element_type_of, is_native

_UNKNOWN = frozenset({onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING})

#: Element types that numpy lacks, by the name of a tensor of them in onnxruntime.
_RAW = {
    f"tensor({name.lower()})": int(number)
    for name, number in onnx.TensorProto.DataType.items()
    if number not in _UNKNOWN and not is_native(dtype_of(number))
}


def is_raw_type(name: str) -> bool:
    """Return whether outputs of a type, by its name in onnxruntime, need an OrtValue."""
    return name in _RAW


def is_raw(value: Any) -> bool:
    """Return whether a value must be fed as an OrtValue."""
    return isinstance(value, np.ndarray) and not is_native(value.dtype)


def to_ort(array: Array) -> ort.OrtValue:
    """Convert an array to an onnxruntime tensor.

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
    """Convert an onnxruntime value to an array; sequences to lists."""
    element_type = _RAW.get(value.data_type())
    if element_type is None:
        return value.numpy()
    size = value.tensor_size_in_bytes()
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return _unpacked(data, element_type, value.shape())


def dense(value: Any) -> Any:
    """Return an output of onnxruntime; as an array if it is the sparse tensor of a Constant."""
    if not hasattr(value, "get_coo_data"):
        return value
    return sparse.scattered(value.values(), value.get_coo_data().indices(), value.dense_shape())


def _packed(array: Array) -> bytes:
    return onnx.numpy_helper.from_array(np.ascontiguousarray(array)).raw_data


def _unpacked(data: bytes, element_type: int, shape: Sequence[int]) -> Array:
    tensor = onnx.TensorProto(data_type=element_type, dims=shape, raw_data=data)
    return onnx.numpy_helper.to_array(tensor)
