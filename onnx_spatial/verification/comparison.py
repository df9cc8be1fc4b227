"""Compare two outputs: by bits where data is only moved, within a tolerance behind sums of reals.

moved data      every bit is the same
sums of reals   |a - b| <= rtol * max|original| for every element; NaN and infinities are the same
as asked        |a - b| <= atol + rtol * max|original|, by the options --rtol and --atol

original    [1.0, 2.0, 4.0]
converted   [1.0, 2.2, 4.0]     errors [0, 0.2, 0], 0.05 of the largest value

Errors are relative to the largest value of the original: an element near zero has an error of the size
of the terms that it is the sum of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_spatial.operators.operator import show
from onnx_spatial.verification.arrays import (
    Array,
    differing_bits,
    dtype_name,
    element_type_of,
    is_float,
)
from onnx_spatial.verification.evidence import OutputResult, WorstElement
from onnx_spatial.verification.kinds import Kind, rtol_of
from onnx_spatial.verification.options import Tolerance

#: Share of the elements that may differ behind a step from reals to whole numbers (QuantizeLinear,
#: ArgMax, Cast, a comparison), where the last bit of a real decides. None differ in quantised forms of
#: the nets in models/, where both models run with the same optimisations; a tie may.
STEPS_SHARE = 1e-3


def compare(
    name: str,
    run: int,
    optimised: bool,
    expected: Any,
    actual: Any,
    kind: Kind,
    tolerance: Tolerance | None = None,
) -> list[OutputResult]:
    """Compare an output of a run; a sequence of tensors is compared tensor by tensor.

    Args:
        name, run, optimised: see `OutputResult`.
        expected, actual: the original's and the converted model's.
        kind: of the output.
        tolerance: that the caller sets for the output; None: by its kind.
    """
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [
            result
            for number, pair in enumerate(zip(expected, actual, strict=True))
            for result in compare(f"{name}[{number}]", run, optimised, *pair, kind, tolerance)
        ]
    was, now = type(expected).__name__, type(actual).__name__
    result = OutputResult(name, run, optimised, was, (), elements=1)
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        return [_compare_arrays(result, expected, actual, kind, tolerance)]
    reason = None
    if was != now:
        reason = f"it is a {now}, not a {was}"
    elif isinstance(expected, list):
        reason = f"it has {len(actual)} tensors, not {len(expected)}"
    elif expected != actual:
        reason = f"the {was}s differ"
    return [replace(result, equal_bits=not reason, passed=not reason, reason=reason)]


def find_mismatch(
    expected: Any, actual: Any, kind: Kind, tolerance: Tolerance | None = None
) -> OutputResult | None:
    """Return the first comparison of a value that fails; None if all agree.

    Args:
        expected, actual: the original's and the converted model's.
        kind: of the value.
        tolerance: that the caller sets; None: by its kind.
    """
    for result in compare("", 0, False, expected, actual, kind, tolerance):
        if not result.passed:
            reason = f"{result.name}: {result.reason}" if result.name else result.reason
            return replace(result, reason=reason)
    return None


def describe_element(
    expected: Array, actual: Array, element: tuple[int, ...], inputs: Mapping[str, Array]
) -> str:
    """Say what an element is that should be another: "is x[0, 4, 1, 0] instead of x[0, 0, 1, 0]".

    It is named by where it comes from if its bits are in the inputs once, else by its value.
    """
    wrong, right = (
        _describe_source(np.asarray(array[element]), inputs) for array in (actual, expected)
    )
    return f"is {wrong} instead of {right}"


def _describe_source(element: Array, inputs: Mapping[str, Array]) -> str:
    sources: list[str] = []
    for name, array in inputs.items():
        if dtype_name(array) != dtype_name(element):
            continue
        flat = array.reshape(-1)
        same = ~differing_bits(flat, np.broadcast_to(element, flat.shape))
        sources += [
            f"{name}{show(_index_of(int(i), array.shape))}" for i in np.flatnonzero(same)[:2]
        ]
    return sources[0] if len(sources) == 1 else str(element)


def _compare_arrays(
    result: OutputResult, expected: Array, actual: Array, kind: Kind, tolerance: Tolerance | None
) -> OutputResult:
    """Complete a comparison of two arrays."""
    dtype, shape, size = dtype_name(expected), expected.shape, expected.size
    same_type = dtype_name(actual) == dtype
    numbers = _are_numbers(expected) and _are_numbers(actual)
    both_real = _are_real(expected) and _are_real(actual)
    # A tolerance is for reals of any types, and by name for integers of one type.
    if not (both_real or (numbers and same_type and tolerance is not None and tolerance.named)):
        tolerance = None
    rtol, atol = _allowed_errors(expected, kind, tolerance)
    result = replace(result, dtype=dtype, shape=shape, elements=size, tolerance=rtol, atol=atol)
    other_form = ""
    if not (same_type or (tolerance is not None and both_real)):
        other_form = f"its type is {dtype_name(actual)}, not {dtype}"
    elif actual.shape != shape:
        other_form = f"its shape is {show(actual.shape)}, not {show(shape)}"
    differing = differing_bits(expected, actual) if same_type and not other_form else None
    if differing is not None and not differing.any():
        figures = _figures_of_equal(expected) if numbers else {}
        return replace(result, equal_bits=True, **figures)
    if numbers and (not other_form or both_real) and actual.shape == shape:
        errors, largest, steps = _errors_of(expected, actual)
        figures = (
            _measure_errors(expected, actual, errors, largest)
            if size
            else _figures_of_equal(expected)
        )
        result = replace(result, **{**figures, "max_steps": steps})
        # Double precision does not tell large integers apart: where none may differ, bits do.
        if rtol or atol or (tolerance is not None and both_real):
            differing = errors > atol + rtol * largest
    if other_form:
        return replace(result, mismatches=size, passed=False, reason=other_form)
    assert differing is not None
    if not differing.any():
        return result
    result = replace(result, mismatches=int(differing.sum()))
    reason = _say_difference(result)
    if kind.steps and result.mismatches <= STEPS_SHARE * size:
        return replace(result, reason=f"{reason}; accepted: a step before it rounds reals")
    first = _index_of(int(differing.argmax()), shape)
    return replace(result, passed=False, reason=reason, element=first)


def _allowed_errors(
    expected: Array, kind: Kind, tolerance: Tolerance | None
) -> tuple[float, float]:
    """Return rtol and atol for an output."""
    rtol = rtol_of(element_type_of(expected))
    if tolerance is not None:
        return (rtol if tolerance.rtol is None else tolerance.rtol), tolerance.atol
    return (max(rtol, kind.rtol) if rtol and kind.rtol else 0.0), 0.0


def _say_difference(result: OutputResult) -> str:
    error, apart = result.max_relative_error, result.max_abs_error
    if error is None or apart is None:
        amount = ""
    elif math.isinf(apart):
        amount = ", some by NaN or infinity"
    elif not apart and result.max_steps is not None:
        amount = ", only in signs of zeros or bits of NaNs"
    elif not apart:
        amount = ", only in the last digits of large integers"
    elif math.isinf(error):
        amount = f", by at most {apart:.2g} where all values should be 0"
    else:
        amount = f", by at most {error:.2g} of the largest value"
        if result.atol:
            amount += f" ({apart:.2g}) where {result.tolerance:g} and {result.atol:g} are allowed"
        elif result.tolerance:
            amount += f" where {result.tolerance:g} is allowed"
    return f"{result.mismatches} of {result.elements} elements differ{amount}"


# Figures

_Errors = npt.NDArray[np.floating[Any]]

#: numpy's kinds of types without arithmetic: strings and bool.
_NOT_NUMBERS = "OUSTb"
#: Elements that become double precision at a time: several arrays of eight bytes for each.
_CHUNK_ELEMENTS = 2**20
#: Elements with the largest errors that are named.
_WORST_ELEMENTS = 3
#: Smallest and largest decade of errors that are told apart; others count with these.
_DECADES = (-20, 2)


def _are_numbers(array: Array) -> bool:
    """Return whether differences of elements have a size: no strings and bools."""
    return array.dtype.kind not in _NOT_NUMBERS


def _are_real(array: Array) -> bool:
    """Return whether elements are rounded: floating-point and complex numbers."""
    return is_float(array.dtype) or array.dtype.kind == "c"


def _errors_of(expected: Array, actual: Array) -> tuple[_Errors, float, float | None]:
    """Return the error of each element, the largest finite expected value, and the most steps.

    An error is infinite where NaN or an infinity is on one side only. Those of types of up to 32 bits
    are float32. Steps are None for types that are not real, or differ.
    """
    dtype = expected.dtype
    wide = np.complex128 if dtype.kind == "c" else np.float64
    short, stepped = (
        is_float(dtype) and dtype.itemsize <= 4,
        is_float(dtype) and dtype.itemsize <= 8,
    )
    errors: _Errors = np.empty(expected.shape, np.float32 if short else np.float64)
    flat = [array.reshape(-1) for array in (expected, actual, errors)]
    largest, steps = 0.0, 0.0 if stepped and dtype == actual.dtype else None
    for start in range(0, errors.size, _CHUNK_ELEMENTS):
        before, after, result = (each[start : start + _CHUNK_ELEMENTS] for each in flat)
        with np.errstate(all="ignore"):
            a, b = before.astype(wide), after.astype(wide)
            finite = np.isfinite(a) & np.isfinite(b)
            same = (np.isnan(a) & np.isnan(b)) | (a == b)
            apart = np.minimum(np.abs(a - b), np.finfo(errors.dtype).max)
            result[:] = np.where(finite, apart, np.where(same, 0.0, np.inf))
            largest = max(largest, np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
            if steps is not None:
                steps = max(steps, _most_steps(before, after, np.isnan(a), np.isnan(b)))
    return errors, float(largest), steps


def _most_steps(
    expected: Array, actual: Array, nan: npt.NDArray[np.bool_], other_nan: npt.NDArray[np.bool_]
) -> float:
    """Return the largest number of representable values between two elements (ULP distance).

    It is 0 between NaNs, and infinite where one is NaN.
    """
    if (nan != other_nan).any():
        return math.inf
    bits = 8 * expected.dtype.itemsize
    ranks = []  # among all numbers of the type; -0.0 and 0.0 share one
    for array in (expected, actual):
        rank = np.ascontiguousarray(array).view(f"i{bits // 8}").astype(np.int64)
        ranks.append(np.where(rank < 0, np.int64(-(2 ** (bits - 1))) - rank, rank))
    # A distance of 64-bit ranks needs 64 bits without a sign.
    apart = (np.maximum(*ranks) - np.minimum(*ranks)).view(np.uint64)
    return float(np.max(apart, initial=0, where=~nan))


def _measure_errors(
    expected: Array, actual: Array, errors: _Errors, largest: float
) -> dict[str, Any]:
    """Return the figures of `OutputResult` for two arrays with these errors, by name."""

    def of_largest(error: float) -> float:
        return float(error) / largest if largest else (math.inf if error else 0.0)

    flat = errors.reshape(-1)
    number = min(_WORST_ELEMENTS, flat.size)
    worst = np.argpartition(flat, flat.size - number)[flat.size - number :]
    worst = worst[np.lexsort((worst, -flat[worst]))]
    with np.errstate(all="ignore"):
        # By rank, not by interpolation, which makes NaN of infinities.
        p50, p99 = np.quantile(flat, (0.5, 0.99), method="higher")
        mean, powers = flat.mean(), np.floor(np.log10(flat / largest))
    powers = np.where(np.isfinite(powers), np.clip(powers, *_DECADES), powers)
    powers[flat == 0] = -np.inf  # also 0 / 0
    decades = zip(*np.unique(powers, return_counts=True), strict=True)
    return {
        "max_abs_error": float(flat.max()),
        "max_relative_error": of_largest(flat.max()),
        "mean_relative_error": of_largest(mean),
        "p50_relative_error": of_largest(p50),
        "p99_relative_error": of_largest(p99),
        "error_decades": {_name_decade(power): int(count) for power, count in decades},
        "worst_elements": tuple(
            WorstElement(
                _index_of(int(i), errors.shape), *(str(v.flat[i]) for v in (expected, actual))
            )
            for i in worst
            if flat[i] > 0
        ),
    }


def _name_decade(power: float) -> str:
    if math.isinf(power):
        return "inf" if power > 0 else "0"
    return f"1e{int(power):+03d}"


def _figures_of_equal(array: Array) -> dict[str, Any]:
    """Return the figures of an array that is equal to another in every bit."""
    names = ("max_abs", "max_relative", "mean_relative", "p50_relative", "p99_relative")
    figures: dict[str, Any] = {f"{name}_error": 0.0 for name in names}
    return figures | {"max_steps": 0.0 if is_float(array.dtype) else None}


def _index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element from its position in C order."""
    return tuple(int(i) for i in np.unravel_index(position, shape))
