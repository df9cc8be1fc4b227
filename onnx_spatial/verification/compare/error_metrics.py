"""How far two arrays of numbers are apart, in figures that say more than the worst element.

largest, mean, median, 99 of 100     in the unit of the numbers, and of the largest value
representable values between         how many numbers of the type lie between two elements
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_spatial.verification.arrays import Array, is_float

#: numpy's kinds of types without arithmetic: strings and bool.
NOT_NUMBERS = "OUSTb"


@dataclass(frozen=True)
class ErrorMetrics:
    """Errors of an output, relative to its largest finite value where the name says so.

    Attributes:
        max_abs, max_relative: the largest; infinite where NaN or an infinity is on one side only.
        mean_relative, p50_relative, p99_relative: the mean, and what half or 99 % of the elements
            do not exceed.
        max_steps: most numbers of the type that lie between two elements, of real types only; NaN
            counts as equal to NaN and is no number of steps from anything else.
    """

    max_abs: float = 0.0
    max_relative: float = 0.0
    mean_relative: float = 0.0
    p50_relative: float = 0.0
    p99_relative: float = 0.0
    max_steps: float | None = None


#: Elements that are compared at a time: double precision takes eight bytes for each of several arrays.
_AT_A_TIME = 2**20

Errors = npt.NDArray[np.floating[Any]]


def errors(expected: Array, actual: Array) -> tuple[Errors, float]:
    """(error of each element, infinite where NaN or infinity differ; largest finite value).

    Both have the same shape and a type of numbers. Errors of types of up to 32 bits are float32.
    """
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    short = is_float(expected.dtype) and expected.dtype.itemsize <= 4
    found: Errors = np.empty(expected.size, np.float32 if short else np.float64)
    limit = np.finfo(found.dtype).max
    largest = 0.0
    before, after = expected.reshape(-1), actual.reshape(-1)
    for start in range(0, expected.size, _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        with np.errstate(all="ignore"):
            a, b = before[part].astype(wide), after[part].astype(wide)
            finite = np.isfinite(a) & np.isfinite(b)
            same = (np.isnan(a) & np.isnan(b)) | (a == b)
            apart = np.minimum(np.abs(a - b), limit)
            found[part] = np.where(finite, apart, np.where(same, 0.0, np.inf))
            values = np.abs(a[np.isfinite(a)])
        largest = max(largest, float(values.max()) if values.size else 0.0)
    return found.reshape(expected.shape), largest


def measure_errors(expected: Array, actual: Array, found: Errors, largest: float) -> ErrorMetrics:
    """The figures of two arrays of one shape and type of numbers; `errors` gives the rest."""
    steps = ulp_distance(expected, actual)
    if not found.size:
        return ErrorMetrics(max_steps=steps)
    with np.errstate(all="ignore"):
        # By rank, not by interpolation, which makes NaN of infinities.
        p50, p99 = np.quantile(found, (0.5, 0.99), method="higher")
        amounts = [float(v) for v in (found.max(), found.mean(), p50, p99)]
    worst, mean, half, most = (v / largest if largest else (np.inf if v else 0.0) for v in amounts)
    return ErrorMetrics(amounts[0], worst, mean, half, most, steps)


def ulp_distance(expected: Array, actual: Array) -> float | None:
    """How many numbers of their type two elements are apart at most; None for no real types."""
    if not is_float(expected.dtype) or expected.dtype.itemsize > 8:
        return None
    before, after = expected.reshape(-1), actual.reshape(-1)
    starts = range(0, expected.size, _AT_A_TIME)
    parts = (slice(start, start + _AT_A_TIME) for start in starts)
    return max((_steps(before[part], after[part]) for part in parts), default=0.0)


def _steps(expected: Array, actual: Array) -> float:
    first, second = _ranks(expected), _ranks(actual)
    with np.errstate(all="ignore"):
        a, b = expected.astype(np.float64), actual.astype(np.float64)
    nan = np.isnan(a) | np.isnan(b)
    # Of 64-bit numbers the distance need not fit into 64 bits, so it is a float.
    apart = np.abs(first.astype(np.float64) - second.astype(np.float64))
    close = np.abs(first - second).astype(np.float64)
    apart = np.where(apart < 2.0**53, close, apart)
    apart = np.where(nan, np.where(np.isnan(a) & np.isnan(b), 0.0, np.inf), apart)
    return float(apart.max())


def _ranks(array: Array) -> npt.NDArray[np.int64]:
    """The place of each number among all of its type; -0.0 and 0.0 share one."""
    bits = 8 * array.dtype.itemsize
    raw = np.ascontiguousarray(array).reshape(array.shape).view(f"i{array.dtype.itemsize}")
    wide = raw.astype(np.int64)
    lowest = np.int64(-(2 ** (bits - 1)))
    with np.errstate(over="ignore"):
        return np.where(wide < 0, lowest - wide, wide)
