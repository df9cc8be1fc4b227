"""Make data for the grid: distinct elements if the type has enough, and bits that arithmetic loses."""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Rng = np.random.Generator

#: Element types by numpy's names, with ONNX's.
TYPES = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "bool",
    "string": "string",
}

#: What this project's Python operators take; whatever else is moved by its numbers.
PREPARED_TYPES = frozenset(TYPES) - {"float16", "bfloat16", "string"}

#: NaNs with a payload; quiet ones, because some kernels of runtimes make the others quiet.
_NANS = {
    "float16": 0x7E01,
    "bfloat16": 0x7FC1,
    "float32": 0x7FC00001,
    "float64": 0x7FF8000000000001,
}

#: Distances between 1 and the next number.
_EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}

#: Of the quantised cells: a power of two, so that every runtime rounds alike.
SCALE = 0.125
ZERO_POINTS = {"uint8": 100, "int8": -20}


def array(rng: Rng, dtype: str, shape: tuple[int, ...], *, extremes: bool = False) -> Array:
    """Return elements in random order, all distinct if the type has enough.

    Args:
        rng: draws the order.
        dtype: one of `TYPES`.
        shape: of the array.
        extremes: of floats, put -0.0, a NaN with a payload and the infinities among them.
    """
    count = prod(shape)
    order = rng.permutation(count)
    if dtype == "string":
        return np.array([f"ł{i}" if i % 4 == 0 else f"s{i}" for i in order], object).reshape(shape)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    type_ = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if dtype not in _NANS:
        info = np.iinfo(type_)
        span = int(info.max) - int(info.min) + 1
        step = max(1, (span - 1) // max(1, count - 1))
        levels = [int(info.min) + int(i) * step % span for i in order]
        return np.array(levels, type_).reshape(shape)
    # Around zero, and so that the last bits of the mantissa count.
    step = 1 + 3 * _EPSILONS[dtype]
    found: Array = ((order - count / 2) * step).astype(type_)
    if extremes and count >= 8:
        nan = np.array([_NANS[dtype]], f"u{type_.itemsize}").view(type_)[0]
        found[rng.choice(count, 4, replace=False)] = [-0.0, nan, np.inf, -np.inf]
    shaped: Array = found.reshape(shape)
    return shaped


def reals(rng: Rng, stored: str, shape: tuple[int, ...]) -> Array:
    """Return float32 numbers that become distinct numbers of type `stored` when they are quantised."""
    levels = array(rng, stored, shape).astype(np.float64) - ZERO_POINTS[stored]
    return ((levels + rng.uniform(-0.3, 0.3, shape)) * SCALE).astype(np.float32)
