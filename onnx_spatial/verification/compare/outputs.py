"""Compare an output of the converted model with the original's, by bits or with a tolerance.

Bits must be equal where an output depends on data movement and integer arithmetic only. Behind
floating-point arithmetic |a - b| <= rtol * max|original| must hold for every element; NaN and infinities
must be the original's. A `Tolerance` that the caller sets takes the place of these rules.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import (
    Array,
    differing_bits,
    dtype_name,
    is_float,
    same_bits,
)
from onnx_spatial.verification.compare.error_metrics import (
    NOT_NUMBERS,
    ErrorMetrics,
    errors,
    measure_errors,
)
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.tolerance import Tolerance
from onnx_spatial.verification.report import Check, OutputResult

#: Largest error allowed behind floating-point arithmetic, relative to the output's largest value.
RTOL = {
    "float64": 1e-11,
    "complex128": 1e-11,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 2e-3,
    "bfloat16": 2e-2,
}
#: For the 8-bit floats, of two or three mantissa bits.
_RTOL_SHORT = 0.13

#: At a step from reals to whole numbers (QuantizeLinear, ArgMax, Cast, a comparison) the last bit of a
#: real decides. Where that real was computed otherwise (in the optimised run, in another order, or by
#: other kernels than onnxruntime's), this share of the elements may differ ...
DISCRETE_SHARE = 1e-3
#: ... or, as one flipped step affects all that a net computes from it, the mean error of reals and
#: 8-bit integers may be this share of the largest value: half a step in 256; that of others (sums of
#: such integers) less, because they may be labels.
DISCRETE_MEAN, DISCRETE_MEAN_WIDE = 2e-3, 1e-4

_REALS = Exactness(arithmetic=True)


def compare(
    name: str,
    run: int,
    optimised: bool,
    expected: Any,
    actual: Any,
    exactness: Exactness,
    *,
    same_kernels: bool = True,
    tolerance: Tolerance | None = None,
    details: bool = True,
) -> list[OutputResult]:
    """Compare an output of a run; a sequence of tensors is compared tensor by tensor.

    Args:
        name, run, optimised: see `OutputResult`.
        expected, actual: the original's and the converted model's.
        exactness: of the output.
        same_kernels: whether the original and the converted model compute reals by the same nodes in
            onnxruntime.
        tolerance: that the caller sets for the output; None: by its exactness.
        details: whether metrics are computed that no verdict needs (`measure_errors`).
    """
    what = (name, run, optimised)
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [
            result
            for number, (e, a) in enumerate(zip(expected, actual, strict=True))
            for result in compare(
                f"{name}[{number}]",
                run,
                optimised,
                e,
                a,
                exactness,
                same_kernels=same_kernels,
                tolerance=tolerance,
                details=details,
            )
        ]
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        flips = exactness.discrete and (optimised or not same_kernels)
        if tolerance is not None and _has_tolerance(expected, actual, tolerance):
            return [_compare_within(what, expected, actual, tolerance, flips)]
        arithmetic = exactness.arithmetic
        return [_compare_arrays(what, expected, actual, arithmetic, flips, details=details)]
    kind, other = type(expected).__name__, type(actual).__name__
    if kind != other:
        reason: str | None = f"it is a {other}, not a {kind}"
    elif isinstance(expected, list):
        reason = f"it has {len(actual)} tensors, not {len(expected)}"
    else:
        reason = None if expected == actual else f"the {kind}s differ"
    same = reason is None
    return [OutputResult(*what, kind, (), 1, same, passed=same, reason=reason)]


def within_tolerance(
    check: Check,
    expected: Array,
    actual: Array,
    exactness: Exactness = _REALS,
    *,
    same_kernels: bool = True,
) -> Check:
    """Judge a comparison of an operator again, with the tolerance for its exactness."""
    (result,) = compare(
        "",
        0,
        check.optimised,
        expected,
        actual,
        exactness,
        same_kernels=same_kernels,
        details=False,
    )
    return replace(
        check,
        mismatches=result.mismatches,
        reason=None if result.passed else result.reason,
        exact=False,
        max_relative_error=result.max_relative_error,
    )


def _compare_arrays(
    run: tuple[str, int, bool],
    expected: Array,
    actual: Array,
    arithmetic: bool,
    flips: bool,
    *,
    details: bool,
) -> OutputResult:
    dtype, shape, size = dtype_name(expected), expected.shape, expected.size
    what = (*run, dtype, shape, size)
    if (reason := _other_form(expected, actual)) is not None:
        outcome = OutputResult(*what, mismatches=size, passed=False, reason=reason)
        if not (_is_real(expected) and _is_real(actual) and actual.shape == shape):
            return outcome
        metrics = measure_errors(expected, actual, *errors(expected, actual), details=details)
        return replace(outcome, **vars(metrics))
    differing = differing_bits(expected, actual)
    real = _is_real(expected)
    tolerance = RTOL.get(dtype, _RTOL_SHORT) if real and arithmetic else 0.0
    outcome = OutputResult(*what, not differing.any(), tolerance=tolerance)
    numbers = expected.dtype.kind not in NOT_NUMBERS
    if outcome.equal_bits:
        nothing = ErrorMetrics(max_steps=0.0 if is_float(expected.dtype) else None)
        return replace(outcome, **vars(nothing)) if numbers else outcome
    count, mean = int(differing.sum()), math.inf
    if numbers:
        apart, largest = errors(expected, actual)
        count = int((apart > tolerance * largest).sum()) if tolerance else count
        found = measure_errors(expected, actual, apart, largest, details=details)
        outcome, mean = replace(outcome, **vars(found)), found.mean_relative_error
    outcome = replace(outcome, mismatches=count)
    if not count:
        return outcome
    return _judged(outcome, expected, flips, mean)


def _compare_within(
    run: tuple[str, int, bool], expected: Array, actual: Array, tolerance: Tolerance, flips: bool
) -> OutputResult:
    """Compare the values of two arrays of numbers with a tolerance that the caller sets."""
    dtype, shape, size = dtype_name(expected), expected.shape, expected.size
    default = RTOL.get(dtype, _RTOL_SHORT) if _is_real(expected) else 0.0
    rtol = default if tolerance.rtol is None else tolerance.rtol
    outcome = OutputResult(*run, dtype, shape, size, tolerance=rtol, atol=tolerance.atol)
    if actual.shape != shape:
        reason = f"its shape is {show(actual.shape)}, not {show(shape)}"
        return replace(outcome, mismatches=size, passed=False, reason=reason)
    apart, largest = errors(expected, actual)
    metrics = measure_errors(expected, actual, apart, largest)
    same_type = dtype_name(actual) == dtype
    outcome = replace(
        outcome, equal_bits=same_type and same_bits(expected, actual), **vars(metrics)
    )
    bound = tolerance.atol + rtol * largest
    # Double precision does not tell large integers apart.
    wrong = apart > bound if bound or _is_real(expected) else differing_bits(expected, actual)
    outcome = replace(outcome, mismatches=int(wrong.sum()))
    if not outcome.mismatches:
        return outcome
    return _judged(outcome, expected, flips, metrics.mean_relative_error)


def _judged(outcome: OutputResult, expected: Array, flips: bool, mean: float) -> OutputResult:
    """Fail a comparison with elements outside the tolerance, unless these follow from few flips."""
    steps = _is_real(expected) or expected.dtype.itemsize == 1
    small = mean <= (DISCRETE_MEAN if steps else DISCRETE_MEAN_WIDE)
    reason = _reason(outcome)
    if flips and (outcome.mismatches <= DISCRETE_SHARE * outcome.elements or small):
        reason += "; accepted: a step before it converts floats to integers"
        return replace(outcome, reason=reason)
    return replace(outcome, passed=False, reason=reason)


def _has_tolerance(expected: Array, actual: Array, tolerance: Tolerance) -> bool:
    """Return whether a tolerance applies: to reals of any types, and by name to integers of one type."""
    if _is_real(expected) and _is_real(actual):
        return True
    numbers = expected.dtype.kind not in NOT_NUMBERS
    return tolerance.named and numbers and dtype_name(actual) == dtype_name(expected)


def _is_real(array: Array) -> bool:
    return is_float(array.dtype) or array.dtype.kind == "c"


def _other_form(expected: Array, actual: Array) -> str | None:
    """Say that an array has another type or shape; None if it has not."""
    if dtype_name(actual) != dtype_name(expected):
        return f"its type is {dtype_name(actual)}, not {dtype_name(expected)}"
    if actual.shape != expected.shape:
        return f"its shape is {show(actual.shape)}, not {show(expected.shape)}"
    return None


def _reason(outcome: OutputResult) -> str:
    error, apart = outcome.max_relative_error, outcome.max_abs_error
    if error is None or apart is None:
        amount = ""
    elif math.isinf(apart):
        amount = ", some by NaN or infinity"
    elif not apart and outcome.max_steps is not None:
        amount = ", only in signs of zeros or bits of NaNs"
    elif not apart:
        amount = ", only in the last digits of large integers"
    elif math.isinf(error):
        amount = f", by at most {apart:.2g} where all values should be 0"
    else:
        amount = f", by at most {error:.2g} of the largest value"
        if outcome.atol:
            amount += f" ({apart:.2g}) where {outcome.tolerance:g} and {outcome.atol:g} are allowed"
        elif outcome.tolerance:
            amount += f" where {outcome.tolerance:g} is allowed"
    return f"{outcome.mismatches} of {outcome.elements} elements differ{amount}"
