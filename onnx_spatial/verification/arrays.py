"""Arrays of every ONNX element type, and their bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.errors import Code, ModelFileError
from onnx_spatial.model.io import external_data

Array = npt.NDArray[Any]

STRING = onnx.TensorProto.STRING
BOOL = onnx.TensorProto.BOOL


def dtype_of(element_type: int) -> np.dtype[Any]:
    """numpy's dtype for an ONNX element type; object for strings."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))


def element_type_of(array: Array) -> int:
    """ONNX's element type for an array."""
    if array.dtype.kind in "OUST":
        return STRING
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def type_of(array: Array) -> onnx.TypeProto:
    """ONNX's type for arrays of the element type and rank of one, and of any sizes."""
    return onnx.helper.make_tensor_type_proto(element_type_of(array), [None] * array.ndim)


def dtype_name(array: Array) -> str:
    """Return the element type in reports: float32, bfloat16, string."""
    return "string" if array.dtype.kind in "OUST" else str(array.dtype.name)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds real floating-point numbers, ml_dtypes' included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def is_native(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is numpy's own: not bfloat16, nor a type shorter than float16 or int8."""
    return dtype.isbuiltin == 1  # the kind does not tell: that of float8_e5m2 is "f"


def bits_of(dtype: np.dtype[Any]) -> int:
    """Number of bits of an element; in numpy it fills at least a byte."""
    if is_native(dtype):
        return 8 * dtype.itemsize
    info = ml_dtypes.finfo if is_float(dtype) else ml_dtypes.iinfo
    return int(info(dtype).bits)


def constant_value(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    """Return the array in a tensor message, external data read from `folder`; strings as Python strings.

    Raises:
        ModelFileError: the data cannot be read, does not fill the shape, or has an unknown type.
    """
    try:
        array = external_data.read_array(tensor, folder)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ModelFileError(
            f"tensor {tensor.name!r} cannot be read: {error}", code=Code.DAMAGED
        ) from None
    if array.dtype.kind in "OS":
        decoded = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.flat]
        array = np.array(decoded, object).reshape(array.shape)
    return array


def differing_bits(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Return elements in which two arrays of one type and shape differ by any bit of the type."""
    if a.dtype.kind in "OUST":
        return np.asarray(a.astype(object) != b.astype(object), np.bool_).reshape(a.shape)
    width = min(a.dtype.itemsize, 8)
    first, second = (np.ascontiguousarray(v).reshape(-1, 1).view(f"u{width}") for v in (a, b))
    differences = first ^ second
    if bits_of(a.dtype) < 8:  # the other bits of the byte have no meaning
        differences &= 2 ** bits_of(a.dtype) - 1
    return np.asarray(differences.any(axis=1)).reshape(a.shape)
