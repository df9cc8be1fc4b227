"""Arrays of every ONNX element type: their bits, and seeded test data.

There are two kinds of data: `patterns` for operators that only move data (any bit pattern, all elements
distinct while the type has enough), `plain` for whole models (numbers around 1, small ids).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

#: Ways to fill integer inputs of a whole model, in the order in which they are tried: a model that uses
#: them as indices, sizes or classes only runs with some.
INTEGER_MODES = ("wide", "ids", "few", "binary", "ones")

#: At most so many integers are more likely sizes, counts or steps than data.
FEW = 8

#: Exponent and mantissa bits of the types of reals that have all special numbers.
FLOATS: dict[np.dtype[Any], tuple[int, int]] = {
    np.dtype(np.float16): (5, 10),
    np.dtype(ml_dtypes.bfloat16): (8, 7),
    np.dtype(np.float32): (8, 23),
    np.dtype(np.float64): (11, 52),
}


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
    array: Array
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            array = external_data.array(tensor, folder)
        else:
            array = onnx.numpy_helper.to_array(tensor)
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


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same type, shape and bits."""
    return dtype_name(a) == dtype_name(b) and a.shape == b.shape and not differing_bits(a, b).any()


def patterns(element_type: int, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Make data for operators that only move it: any bit pattern, distinct while the type has enough."""
    count = math.prod(shape)
    if element_type == STRING:
        return _strings(count, rng).reshape(shape)
    if element_type == BOOL:
        return _booleans(count, rng).reshape(shape)
    dtype = dtype_of(element_type)
    bits = bits_of(dtype)
    if bits <= 16:
        codes = _short_patterns(dtype, bits)
        raw = _repeated(codes, count, rng)
        if bits == 16 and dtype in FLOATS and count < len(codes):
            _insert_special(raw, special_patterns(dtype), rng)
    else:
        unit = np.dtype(f"u{min(dtype.itemsize, 8)}")
        raw = _odd_steps(count * (dtype.itemsize // unit.itemsize), unit, rng)
        if dtype in FLOATS:
            special = special_patterns(dtype)
            places = rng.permutation(count)[: min(len(special), count // 2)]
            raw[places] = rng.permutation(special)[: len(places)]
    return raw.view(dtype).reshape(shape)


def extremes(element_type: int, shape: Sequence[int], rng: np.random.Generator) -> Array | None:
    """Make data of NaNs with payloads, infinities, -0.0, subnormals and largest numbers only.

    There are few of them, so elements are not distinct. None for types without them.
    """
    dtype = dtype_of(element_type) if element_type not in (STRING, BOOL) else None
    if dtype not in FLOATS:
        return None
    special = special_patterns(dtype)
    return _repeated(special, math.prod(shape), rng).view(dtype).reshape(shape)


def _repeated(codes: Array, count: int, rng: np.random.Generator) -> Array:
    """Return all codes in random order, again and again."""
    rows = np.tile(codes, (-(-count // len(codes)), 1))
    return rng.permuted(rows, axis=1, out=rows).reshape(-1)[:count]


def _insert_special(raw: Array, special: Array, rng: np.random.Generator) -> None:
    """Put special patterns in place of others, of at most half of the elements."""
    missing = rng.permutation(np.setdiff1d(special, raw))
    plain_places = rng.permutation(np.flatnonzero(~np.isin(raw, special)))
    count = min(len(missing), len(raw) // 2, len(plain_places))
    raw[plain_places[:count]] = missing[:count]


def plain(
    element_type: int, shape: Sequence[int], rng: np.random.Generator, mode: str = "wide"
) -> Array:
    """Make data for whole models: reals in -1.5 .. 1.5, integers by `mode` (`INTEGER_MODES`)."""
    count = math.prod(shape)
    if element_type == STRING:
        return _strings(count, rng).reshape(shape)
    if element_type == BOOL:
        return _booleans(count, rng).reshape(shape)
    dtype = dtype_of(element_type)
    if dtype.kind in "iu" or "int" in dtype.name:
        return _integers(dtype, count, rng, mode).reshape(shape)
    values: Array = np.linspace(-1.5, 1.4375, count) if count > 1 else np.full(count, 0.8125)
    values = rng.permutation(values)
    if dtype == ml_dtypes.float8_e8m0fnu:  # which has no sign
        values = np.abs(values)
    if dtype.kind == "c":
        values = values + 1j * rng.permutation(values)
    return values.astype(dtype).reshape(shape)


def _strings(count: int, rng: np.random.Generator) -> Array:
    values = np.empty(count, object)
    values[:] = [f"{i} é" for i in rng.permutation(count)]
    if count > 1:
        values[rng.integers(count)] = ""  # the padding of strings, too
    return values


def _booleans(count: int, rng: np.random.Generator) -> Array:
    values = rng.integers(0, 2, count).astype(np.bool_)
    if count > 1 and values.all() == values.any():
        values[rng.integers(count)] ^= True
    return values


def _short_patterns(dtype: np.dtype[Any], bits: int) -> Array:
    codes: Array = np.arange(2**bits, dtype=f"u{dtype.itemsize}")
    if dtype != np.float16:
        return codes
    # onnxruntime's float16 kernels of Pad, Tile, Where and SpaceToDepth go through float32, which
    # sets the quiet bit of a signalling NaN; measured on 1.31: all other patterns survive.
    signalling = ((codes & 0x7C00) == 0x7C00) & ((codes & 0x03FF) != 0) & ((codes & 0x0200) == 0)
    return np.asarray(codes[~signalling])


def _odd_steps(count: int, unit: np.dtype[Any], rng: np.random.Generator) -> Array:
    """start + i * step modulo 2^bits with an odd step: distinct numbers all over the range."""
    limit = 2 ** (8 * unit.itemsize)
    start = rng.integers(0, limit, dtype=unit, endpoint=False)
    step = rng.integers(0, limit, dtype=unit, endpoint=False) | unit.type(1)
    return np.asarray(np.arange(count, dtype=unit) * step + start)


def special_patterns(dtype: np.dtype[Any]) -> Array:
    """Return -0.0, infinities, NaNs with payloads, subnormals, extremes; as bits.

    Signalling NaNs are among them, but for float16 (`_short_patterns`).
    """
    exponent, mantissa = FLOATS[dtype]
    sign = 1 << (exponent + mantissa)
    infinity = ((1 << exponent) - 1) << mantissa
    quiet = 1 << (mantissa - 1)
    values = [0, infinity, infinity | quiet, infinity | quiet | 0x2A]
    values += [infinity | 1, infinity | 0x15] if dtype != np.float16 else []
    values += [1, (1 << mantissa) - 1, 1 << mantissa, infinity - 1]
    return np.array([v | s for v in values for s in (0, sign)], f"u{dtype.itemsize}")


def _integers(dtype: np.dtype[Any], count: int, rng: np.random.Generator, mode: str) -> Array:
    values: Array
    if mode == "ones":
        values = np.ones(count, np.int64)
    elif mode == "binary":
        values = _booleans(count, rng).astype(np.int64)
    elif mode == "few":
        values = rng.integers(0, 10, count)
    elif count <= FEW:
        values = rng.permutation(np.arange(2, 2 + count))
    else:
        values = rng.permutation(np.arange(count)) - (count // 2 if mode == "wide" else 0)
    return values.astype(dtype)  # wraps around in short types
