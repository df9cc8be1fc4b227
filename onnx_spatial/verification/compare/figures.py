"""Measure how far the elements of two arrays of numbers are apart.

    original    [1.0, 2.0, 4.0]
    converted   [1.0, 2.2, 4.0]     errors [0, 0.2, 0], 0.05 of the largest value

Errors are relative to the largest value of the original: an element near zero has an error of the size
of the terms that it is the sum of.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_spatial.verification.arrays import Array, is_float
from onnx_spatial.verification.evidence import WorstElement

Errors = npt.NDArray[np.floating[Any]]

#: numpy's kinds of types without arithmetic: strings and bool.
_NOT_NUMBERS = "OUSTb"
#: Elements that become double precision at a time: several arrays of eight bytes for each.
_CHUNK_ELEMENTS = 2**20
#: Elements that `measure` names.
_WORST_ELEMENTS = 3
#: Smallest and largest decade of errors that `measure` tells apart; others count with these.
_DECADES = (-20, 2)


def are_numbers(array: Array) -> bool:
    """Return whether differences of elements have a size: no strings and bools."""
    return array.dtype.kind not in _NOT_NUMBERS


def are_real(array: Array) -> bool:
    """Return whether elements are rounded: floating-point and complex numbers."""
    return is_float(array.dtype) or array.dtype.kind == "c"


def errors_of(expected: Array, actual: Array) -> tuple[Errors, float]:
    """Return the error of each element, and the largest finite expected value.

    An error is infinite where NaN or an infinity is on one side only. Those of types of up to 32 bits
    are float32.
    """
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    short = is_float(expected.dtype) and expected.dtype.itemsize <= 4
    errors: Errors = np.empty(expected.shape, np.float32 if short else np.float64)
    largest = 0.0
    for before, after, result in _chunks(expected, actual, errors):
        with np.errstate(all="ignore"):
            a, b = before.astype(wide), after.astype(wide)
            finite = np.isfinite(a) & np.isfinite(b)
            same = (np.isnan(a) & np.isnan(b)) | (a == b)
            apart = np.minimum(np.abs(a - b), np.finfo(errors.dtype).max)
            result[:] = np.where(finite, apart, np.where(same, 0.0, np.inf))
            largest = max(largest, np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
    return errors, float(largest)


def _chunks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the elements of arrays of one shape, some at a time."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _CHUNK_ELEMENTS):
        yield tuple(each[start : start + _CHUNK_ELEMENTS] for each in flat)


def measure(expected: Array, actual: Array, errors: Errors, largest: float) -> dict[str, Any]:
    """Return the figures of `OutputResult` for two arrays with these errors (`errors_of`), by name."""
    if not errors.size:
        return no_errors(expected)
    with np.errstate(all="ignore"):
        # By rank, not by interpolation, which makes NaN of infinities.
        p50, p99 = np.quantile(errors, (0.5, 0.99), method="higher")
        largest_error, mean = errors.max(), errors.mean()

    def relative(error: float) -> float:
        return float(error) / largest if largest else (math.inf if error else 0.0)

    return {
        "max_abs_error": float(largest_error),
        "max_relative_error": relative(largest_error),
        "mean_relative_error": relative(mean),
        "p50_relative_error": relative(p50),
        "p99_relative_error": relative(p99),
        "max_steps": _most_steps(expected, actual),
        "error_decades": _count_decades(errors, largest),
        "worst_elements": _worst_elements(expected, actual, errors),
    }


def no_errors(array: Array) -> dict[str, Any]:
    """Return the figures of `measure` for an array that is equal to another in every bit."""
    names = ("max_abs", "max_relative", "mean_relative", "p50_relative", "p99_relative")
    figures: dict[str, Any] = {f"{name}_error": 0.0 for name in names}
    return figures | {"max_steps": 0.0 if is_float(array.dtype) else None}


def _count_decades(errors: Errors, largest: float) -> dict[str, int]:
    """Count elements by the decade of their relative error, from "0" to "inf"."""
    counts: Counter[float] = Counter()
    for (chunk,) in _chunks(errors):
        with np.errstate(all="ignore"):
            powers = np.floor(np.log10(chunk / largest))
        powers = np.where(np.isfinite(powers), np.clip(powers, *_DECADES), powers)
        powers[chunk == 0] = -np.inf  # also 0 / 0
        values, numbers = np.unique(powers, return_counts=True)
        counts.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
    return {_decade(power): counts[power] for power in sorted(counts)}


def _decade(power: float) -> str:
    if math.isinf(power):
        return "inf" if power > 0 else "0"
    return f"1e{int(power):+03d}"


def _worst_elements(expected: Array, actual: Array, errors: Errors) -> tuple[WorstElement, ...]:
    flat = errors.reshape(-1)
    number = min(_WORST_ELEMENTS, flat.size)
    worst = np.argpartition(flat, flat.size - number)[flat.size - number :]
    worst = worst[np.lexsort((worst, -flat[worst]))]
    return tuple(
        WorstElement(index_of(int(i), errors.shape), str(expected.flat[i]), str(actual.flat[i]))
        for i in worst
        if flat[i] > 0
    )


def index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element from its position in C order."""
    return tuple(int(i) for i in np.unravel_index(position, shape))


def _most_steps(expected: Array, actual: Array) -> float | None:
    """Return the largest number of representable values between two elements (ULP distance).

    It is 0 between NaNs, infinite where one is NaN, and None for types that are not real, or differ.
    """
    dtype = expected.dtype
    if dtype != actual.dtype or not is_float(dtype) or dtype.itemsize > 8:
        return None
    return max((_chunk_steps(*chunks) for chunks in _chunks(expected, actual)), default=0.0)


def _chunk_steps(expected: Array, actual: Array) -> float:
    before, after = _ranks(expected), _ranks(actual)
    # A distance of 64-bit ranks needs 64 bits without a sign.
    with np.errstate(over="ignore"):
        apart = np.where(before > after, before - after, after - before).view(np.uint64)
    nans = [np.isnan(array) for array in (expected, actual)]
    if (nans[0] != nans[1]).any():
        return math.inf
    return float(np.max(apart, initial=0, where=~nans[0]))


def _ranks(array: Array) -> npt.NDArray[np.int64]:
    """Return the rank of each number among all numbers of its type; -0.0 and 0.0 share one."""
    ranks = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").astype(np.int64)
    lowest = np.int64(-(2 ** (8 * array.dtype.itemsize - 1)))
    with np.errstate(over="ignore"):
        return np.where(ranks < 0, lowest - ranks, ranks)
