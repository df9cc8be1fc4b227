"""Compute error metrics of two arrays of numbers, which say more than the worst element.

largest, mean, median, 99th percentile     absolute, and relative to the largest value
ULP distance                               numbers of the type that lie between two elements
elements by decade, worst elements         how errors are distributed, and where the largest ones are
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_spatial.verification.arrays import Array, is_float
from onnx_spatial.verification.report import WorstElement

#: numpy's kinds of types without arithmetic: strings and bool.
NOT_NUMBERS = "OUSTb"


@dataclass(frozen=True)
class ErrorMetrics:
    """Errors of an output, by the names and in the units of `OutputResult`.

    Infinite where NaN or an infinity is on one side only; `max_steps` is 0 between NaNs.
    """

    max_abs_error: float = 0.0
    max_relative_error: float = 0.0
    mean_relative_error: float = 0.0
    p50_relative_error: float = 0.0
    p99_relative_error: float = 0.0
    max_steps: float | None = None
    error_decades: dict[str, int] = field(default_factory=dict)
    worst_elements: tuple[WorstElement, ...] = ()


#: Worst elements that are kept.
_WORST = 3
#: Decades of errors; smaller and larger ones count with the first and the last.
_DECADES = (-20, 2)

#: Elements that are compared at a time: several arrays in double precision are eight bytes for each.
_AT_A_TIME = 2**20

Errors = npt.NDArray[np.floating[Any]]


def errors(expected: Array, actual: Array) -> tuple[Errors, float]:
    """Compute the error of each element, and the largest finite expected value.

    Errors are infinite where NaN or an infinity is on one side only. Both arrays have the same shape and
    types of numbers. Errors of types of up to 32 bits are float32.
    """
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    short = is_float(expected.dtype) and expected.dtype.itemsize <= 4
    distances: Errors = np.empty(expected.size, np.float32 if short else np.float64)
    limit = np.finfo(distances.dtype).max
    largest = 0.0
    before, after = expected.reshape(-1), actual.reshape(-1)
    for start in range(0, expected.size, _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        with np.errstate(all="ignore"):
            a, b = before[part].astype(wide), after[part].astype(wide)
            finite = np.isfinite(a) & np.isfinite(b)
            same = (np.isnan(a) & np.isnan(b)) | (a == b)
            apart = np.minimum(np.abs(a - b), limit)
            distances[part] = np.where(finite, apart, np.where(same, 0.0, np.inf))
            largest = max(largest, largest_finite(a))
    return distances.reshape(expected.shape), largest


def largest_finite(array: Array) -> float:
    """Return the largest magnitude among the finite numbers of an array; 0 if there are none."""
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def measure_errors(
    expected: Array, actual: Array, distances: Errors, largest: float, *, details: bool = True
) -> ErrorMetrics:
    """Compute the metrics of two arrays from the results of `errors`.

    Without `details` neither quantiles, decades nor single elements: reports show them, no verdict
    needs them.
    """
    steps = ulp_distance(expected, actual)
    if not distances.size:
        return ErrorMetrics(max_steps=steps)

    def relative(amount: float) -> float:
        return amount / largest if largest else (np.inf if amount else 0.0)

    with np.errstate(all="ignore"):
        most, mean = float(distances.max()), float(distances.mean())
        metrics = ErrorMetrics(most, relative(most), relative(mean), max_steps=steps)
        if not details:
            return metrics
        # By rank, not by interpolation, which makes NaN of infinities.
        p50, p99 = np.quantile(distances, (0.5, 0.99), method="higher")
    return replace(
        metrics,
        p50_relative_error=relative(float(p50)),
        p99_relative_error=relative(float(p99)),
        error_decades=_decades(distances, largest),
        worst_elements=_worst_elements(expected, actual, distances),
    )


def _decades(distances: Errors, largest: float) -> dict[str, int]:
    """Count the elements by the decade of their relative error, from "0" to "inf"."""
    counts: Counter[float] = Counter()
    flat = distances.reshape(-1)
    for start in range(0, flat.size, _AT_A_TIME):
        with np.errstate(all="ignore"):
            powers = np.floor(
                np.log10(flat[start : start + _AT_A_TIME].astype(np.float64) / largest)
            )
        powers = np.where(np.isfinite(powers), np.clip(powers, *_DECADES), powers)
        # Without a largest value, 0 / 0 is no error.
        values, numbers = np.unique(np.where(np.isnan(powers), -np.inf, powers), return_counts=True)
        counts.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
    return {_decade(power): counts[power] for power in sorted(counts)}


def _decade(power: float) -> str:
    if math.isinf(power):
        return "inf" if power > 0 else "0"
    return f"1e{int(power):+03d}"


def _worst_elements(expected: Array, actual: Array, distances: Errors) -> tuple[WorstElement, ...]:
    flat = distances.reshape(-1)
    number = min(_WORST, flat.size)
    worst = np.argpartition(flat, flat.size - number)[flat.size - number :]
    worst = worst[np.lexsort((worst, -flat[worst]))]
    indices = (np.unravel_index(int(i), distances.shape) for i in worst if flat[i] > 0)
    return tuple(
        WorstElement(tuple(int(i) for i in index), str(expected[index]), str(actual[index]))
        for index in indices
    )


def ulp_distance(expected: Array, actual: Array) -> float | None:
    """Largest ULP distance of two elements; None for types that are not real, or that differ."""
    if (
        expected.dtype != actual.dtype
        or not is_float(expected.dtype)
        or expected.dtype.itemsize > 8
    ):
        return None
    before, after = expected.reshape(-1), actual.reshape(-1)
    starts = range(0, expected.size, _AT_A_TIME)
    parts = (slice(start, start + _AT_A_TIME) for start in starts)
    return max((_max_distance(before[part], after[part]) for part in parts), default=0.0)


def _max_distance(expected: Array, actual: Array) -> float:
    first, second = _ranks(expected), _ranks(actual)
    with np.errstate(all="ignore"):
        a, b = expected.astype(np.float64), actual.astype(np.float64)
    nan = np.isnan(a) | np.isnan(b)
    # The distance of 64-bit numbers need not fit into 64 bits, so it is a float.
    apart = np.abs(first.astype(np.float64) - second.astype(np.float64))
    close = np.abs(first - second).astype(np.float64)
    apart = np.where(apart < 2.0**53, close, apart)
    apart = np.where(nan, np.where(np.isnan(a) & np.isnan(b), 0.0, np.inf), apart)
    return float(apart.max())


def _ranks(array: Array) -> npt.NDArray[np.int64]:
    """Return the rank of each number among all numbers of its type; -0.0 and 0.0 share one."""
    bits = 8 * array.dtype.itemsize
    raw = np.ascontiguousarray(array).reshape(array.shape).view(f"i{array.dtype.itemsize}")
    wide = raw.astype(np.int64)
    lowest = np.int64(-(2 ** (bits - 1)))
    with np.errstate(over="ignore"):
        return np.where(wide < 0, lowest - wide, wide)


class Distance:
    """The distance of two arrays of one shape and type.

    Attributes:
        whole: whether all elements are whole numbers, or of a type without distances.
        changed: share of elements that differ.
        strange: elements that are finite on one side only.
        each: distance of each element; 0 for those.
        mean, p50, p99, largest: of the distances.
    """

    def __init__(self, expected: Array, actual: Array) -> None:
        self.changed = self.mean = self.p50 = self.p99 = self.largest = 0.0
        self.each: Errors = np.zeros(expected.shape, np.float32)
        self.strange = np.zeros(expected.shape, np.bool_)
        self.whole = expected.dtype.kind in NOT_NUMBERS or (
            _is_whole(expected) and _is_whole(actual)
        )
        if not expected.size:
            return
        if expected.dtype.kind in NOT_NUMBERS:
            self.changed = float((expected != actual).mean())
            return
        distances, _ = errors(expected, actual)
        finite = np.isfinite(distances)
        near = distances[finite]
        self.each = np.where(finite, distances, 0)
        self.changed = float((distances > 0).mean())
        self.strange = ~finite
        if near.size:
            p50, p99 = np.quantile(near, (0.5, 0.99), method="higher")
            self.p50, self.p99 = float(p50), float(p99)
            with np.errstate(over="ignore"):
                self.mean = float(near.mean())
            self.largest = float(near.max())


def _is_whole(array: Array) -> bool:
    if not is_float(array.dtype):
        return True
    with np.errstate(all="ignore"):
        return bool((array == np.rint(array.astype(np.float64))).all())
