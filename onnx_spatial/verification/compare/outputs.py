"""Compare an output of the converted model with the original's, by bits or with a tolerance.

Bits must be equal where an output depends on data movement and integer arithmetic only. Behind
floating-point arithmetic |a - b| <= rtol * max|original| must hold for every element; NaN and infinities
must be the original's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array, differing_bits, dtype_name, is_float
from onnx_spatial.verification.compare.error_metrics import (
    NOT_NUMBERS,
    ErrorMetrics,
    errors,
    measure_errors,
)
from onnx_spatial.verification.compare.exactness import Exactness
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
) -> list[OutputResult]:
    """Compare an output of a run; a sequence of tensors is compared tensor by tensor.

    Args:
        name, run, optimised: see `OutputResult`.
        expected, actual: the original's and the converted model's.
        exactness: of the output.
        same_kernels: whether the original and the converted model compute reals by the same nodes in
            onnxruntime.
    """
    what = (name, run, optimised)
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [
            result
            for number, (e, a) in enumerate(zip(expected, actual, strict=True))
            for result in compare(
                f"{name}[{number}]", run, optimised, e, a, exactness, same_kernels=same_kernels
            )
        ]
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        flips = exactness.discrete and (optimised or not same_kernels)
        return [_compare_arrays(what, expected, actual, exactness.arithmetic, flips)]
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
        "", 0, check.optimised, expected, actual, exactness, same_kernels=same_kernels
    )
    return replace(
        check,
        mismatches=result.mismatches,
        reason=None if result.passed else result.reason,
        exact=False,
        max_relative_error=result.max_relative_error,
    )


def _compare_arrays(
    run: tuple[str, int, bool], expected: Array, actual: Array, arithmetic: bool, flips: bool
) -> OutputResult:
    dtype, shape, size = dtype_name(expected), expected.shape, expected.size
    what = (*run, dtype, shape, size)
    if dtype_name(actual) != dtype or actual.shape != shape:
        reason = f"its type is {dtype_name(actual)}, not {dtype}"
        if dtype_name(actual) == dtype:
            reason = f"its shape is {show(actual.shape)}, not {show(shape)}"
        return OutputResult(*what, mismatches=size, passed=False, reason=reason)
    differing = differing_bits(expected, actual)
    real = is_float(expected.dtype) or expected.dtype.kind == "c"
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
        found = measure_errors(expected, actual, apart, largest)
        outcome, mean = replace(outcome, **vars(found)), found.mean_relative_error
    outcome = replace(outcome, mismatches=count)
    if not count:
        return outcome
    steps = real or expected.dtype.itemsize == 1
    small = mean <= (DISCRETE_MEAN if steps else DISCRETE_MEAN_WIDE)
    reason = _reason(outcome)
    if flips and (count <= DISCRETE_SHARE * size or small):
        reason += "; accepted: a step before it converts floats to integers"
        return replace(outcome, reason=reason)
    return replace(outcome, passed=False, reason=reason)


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
        if outcome.tolerance:
            amount += f" where {outcome.tolerance:g} is allowed"
    return f"{outcome.mismatches} of {outcome.elements} elements differ{amount}"
