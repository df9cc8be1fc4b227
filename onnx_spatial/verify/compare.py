"""Compare one output of the converted model with the original's: bits, or a tolerance.

Where nothing but data movement and integer arithmetic leads to an output, its bits must be the same.
Behind floating-point arithmetic |a - b| <= rtol * max|original| must hold for every element, with
NaN where the original has NaN and the same infinity where it has one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_spatial.ops.shapes import show
from onnx_spatial.verify.exactness import Exactness
from onnx_spatial.verify.values import Array, differing_bits, dtype_name, is_float

#: Largest error allowed behind floating-point arithmetic, relative to the output's largest value.
RTOL = {
    "float64": 1e-11,
    "complex128": 1e-11,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 2e-3,
    "bfloat16": 2e-2,
}
#: numpy's kinds of types without arithmetic: strings and bool.
_NOT_NUMBERS = "OUSTb"

#: For the 8-bit floats, of two or three mantissa bits.
_RTOL_SHORT = 0.13

#: Behind a step from reals to whole numbers (QuantizeLinear, ArgMax, Cast, a comparison) the last
#: bit of a real decides. Where other kernels have computed that real (in the optimised run, or in
#: place of kernels that onnxruntime lacks), this share of the elements may differ ...
DISCRETE_SHARE = 1e-3
#: ... or, as one flipped step spreads to all that a net computes from it, the mean error of reals
#: and 8-bit integers may be this share of the largest value: half a step in 256.
DISCRETE_MEAN = 2e-3


@dataclass(frozen=True)
class OutputResult:
    """How one output came out in one run.

    Attributes:
        name: of the output.
        run: position of the run in `Verification.runs`.
        optimised: with onnxruntime's optimisations, or without any.
        dtype, shape: the original's.
        elements: how many.
        equal_bits: whether every bit is the same.
        max_abs_error: largest difference; None for strings, bools and where shapes differ.
        max_relative_error: the same relative to the largest value of the original.
        tolerance: largest relative error allowed; 0 where bits must be equal.
        mismatches: elements outside the tolerance.
        passed: the verdict; None if the output cannot be compared.
        reason: why it failed or cannot be compared; a remark if it passed.
    """

    name: str
    run: int
    optimised: bool
    dtype: str
    shape: tuple[int, ...]
    elements: int = 0
    equal_bits: bool = False
    max_abs_error: float | None = None
    max_relative_error: float | None = None
    tolerance: float = 0.0
    mismatches: int = 0
    passed: bool | None = True
    reason: str | None = None


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
    """Compare an output; a sequence of tensors is compared tensor by tensor.

    Args:
        name: of the output.
        run: number of the run.
        optimised: whether the converted model ran with optimisations.
        expected, actual: the original's and the converted model's.
        exactness: what led to the output.
        same_kernels: whether onnxruntime ran all other nodes of the original.
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
    if not differing.any():
        error = None if expected.dtype.kind in _NOT_NUMBERS else 0.0
        return OutputResult(*what, True, error, error, tolerance)
    figures: tuple[float | None, float | None] = (None, None)
    if expected.dtype.kind in _NOT_NUMBERS:
        count, mean = int(differing.sum()), math.inf
    else:
        errors, largest = _errors(expected, actual)
        count = int((errors > tolerance * largest).sum() if tolerance else differing.sum())
        worst = float(errors.max())
        figures = (worst, worst / largest if largest else math.inf)
        mean = float(errors.mean()) / largest if largest else math.inf
    outcome = OutputResult(*what, False, *figures, tolerance, count)
    if not count:
        return outcome
    small = mean <= DISCRETE_MEAN and (real or expected.dtype.itemsize == 1)
    reason = _reason(outcome)
    if flips and (count <= DISCRETE_SHARE * size or small):
        reason += "; accepted behind a step from reals to whole numbers"
        return replace(outcome, reason=reason)
    return replace(outcome, passed=False, reason=reason)


def _reason(outcome: OutputResult) -> str:
    error = outcome.max_relative_error
    amount = "" if error is None else f", by at most {error:.2g} of the largest value"
    wanted = f" where {outcome.tolerance:g} is allowed" if outcome.tolerance else ""
    return f"{outcome.mismatches} of {outcome.elements} elements differ{amount}{wanted}"


def _errors(expected: Array, actual: Array) -> tuple[npt.NDArray[np.float64], float]:
    """(error of each element, infinite where NaN or infinity differ; largest finite value)."""
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = expected.astype(wide), actual.astype(wide)
        finite = np.isfinite(a) & np.isfinite(b)
        same = (np.isnan(a) & np.isnan(b)) | (a == b)
        errors = np.where(finite, np.abs(a - b), np.where(same, 0.0, np.inf))
        values = np.abs(a[np.isfinite(a)])
    return errors, float(values.max()) if values.size else 0.0
