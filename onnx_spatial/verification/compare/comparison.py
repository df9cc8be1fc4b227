"""Compare two outputs: by bits where data is only moved, within a tolerance behind sums of reals.

moved data      every bit is the same
sums of reals   |a - b| <= rtol * max|original| for every element; NaN and infinities are the same
as asked        |a - b| <= atol + rtol * max|original|, by the options --rtol and --atol
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import (
    Array,
    differing_bits,
    dtype_name,
    element_type_of,
)
from onnx_spatial.verification.compare.figures import (
    are_numbers,
    are_real,
    errors_of,
    index_of,
    measure,
    no_errors,
)
from onnx_spatial.verification.compare.kinds import Kind, rtol_of
from onnx_spatial.verification.compare.tolerance import Tolerance
from onnx_spatial.verification.evidence import OutputResult

#: Share of the elements that may differ behind a step from reals to whole numbers (QuantizeLinear,
#: ArgMax, Cast, a comparison), where the last bit of a real decides. None differ in quantised forms of
#: the nets in models/, where both models run with the same optimisations; a tie may.
STEPS_SHARE = 1e-3

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Mismatch:
    """How an output differs from the expected one.

    Attributes:
        reason: "3 of 48 elements differ, by at most 0.5 of the largest value where 1e-05 is allowed".
        element: index of the first element that differs; None if another type or shape does.
    """

    reason: str
    element: tuple[int, ...] | None = None


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
    return [
        _compare_values(OutputResult(item, run, optimised, "", ()), a, b, kind, tolerance)[0]
        for item, a, b in _items(name, expected, actual)
    ]


def find_mismatch(
    expected: Any, actual: Any, kind: Kind, tolerance: Tolerance | None = None
) -> Mismatch | None:
    """Say how a value differs from the expected one; None if they agree.

    Args:
        expected, actual: the original's and the converted model's.
        kind: of the value.
        tolerance: that the caller sets; None: by its kind.
    """
    for item, a, b in _items("", expected, actual):
        blank = OutputResult(item, 0, False, "", ())
        result, differing = _compare_values(blank, a, b, kind, tolerance)
        if not result.passed:
            reason = f"{item}: {result.reason}" if item else str(result.reason)
            first = None if differing is None else int(np.flatnonzero(differing)[0])
            return Mismatch(reason, None if first is None else index_of(first, result.shape))
    return None


def describe_element(
    expected: Array, actual: Array, element: tuple[int, ...], inputs: Mapping[str, Array]
) -> str:
    """Say what an element is that should be another: "is x[0, 4, 1, 0] instead of x[0, 0, 1, 0]".

    It is named by its place if its bits are in the inputs once, else by its value.
    """
    wrong, right = (_describe(np.asarray(array[element]), inputs) for array in (actual, expected))
    return f"is {wrong} instead of {right}"


def _describe(element: Array, inputs: Mapping[str, Array]) -> str:
    places: list[str] = []
    for name, array in inputs.items():
        if dtype_name(array) != dtype_name(element):
            continue
        flat = array.reshape(-1)
        same = ~differing_bits(flat, np.broadcast_to(element, flat.shape))
        places += [f"{name}{show(index_of(int(i), array.shape))}" for i in np.flatnonzero(same)[:2]]
    return places[0] if len(places) == 1 else str(element)


def _items(name: str, expected: Any, actual: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the tensors of two sequences of one length with their names, else the two values."""
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, (a, b) in enumerate(zip(expected, actual, strict=True)):
            yield from _items(f"{name}[{number}]", a, b)
    else:
        yield name, expected, actual


def _compare_values(
    result: OutputResult, expected: Any, actual: Any, kind: Kind, tolerance: Tolerance | None
) -> tuple[OutputResult, Mask | None]:
    """Complete a comparison, and return the elements that differ by more than is allowed, if any do."""
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        return _compare_arrays(result, expected, actual, kind, tolerance)
    name, other = type(expected).__name__, type(actual).__name__
    if name != other:
        reason: str | None = f"it is a {other}, not a {name}"
    elif isinstance(expected, list):
        reason = f"it has {len(actual)} tensors, not {len(expected)}"
    else:
        reason = None if expected == actual else f"the {name}s differ"
    same = reason is None
    return replace(
        result, dtype=name, elements=1, equal_bits=same, passed=same, reason=reason
    ), None


def _compare_arrays(
    result: OutputResult, expected: Array, actual: Array, kind: Kind, tolerance: Tolerance | None
) -> tuple[OutputResult, Mask | None]:
    dtype, shape, size = dtype_name(expected), expected.shape, expected.size
    same_type = dtype_name(actual) == dtype
    numbers = are_numbers(expected) and are_numbers(actual)
    both_real = are_real(expected) and are_real(actual)
    # A tolerance is for reals of any types, and by name for integers of one type.
    if not (both_real or (numbers and same_type and tolerance is not None and tolerance.named)):
        tolerance = None
    rtol, atol = _allowed(expected, kind, tolerance)
    result = replace(result, dtype=dtype, shape=shape, elements=size, tolerance=rtol, atol=atol)

    other_form = None
    if not (same_type or (tolerance is not None and both_real)):
        other_form = f"its type is {dtype_name(actual)}, not {dtype}"
    elif actual.shape != shape:
        other_form = f"its shape is {show(actual.shape)}, not {show(shape)}"
    differing = differing_bits(expected, actual) if same_type and not other_form else None
    if differing is not None and not differing.any():
        figures = no_errors(expected) if numbers else {}
        return replace(result, equal_bits=True, **figures), None
    if numbers and (not other_form or both_real) and actual.shape == shape:
        errors, largest = errors_of(expected, actual)
        result = replace(result, **measure(expected, actual, errors, largest))
        # Double precision does not tell large integers apart: where none may differ, bits do.
        if rtol or atol or (tolerance is not None and both_real):
            differing = errors > atol + rtol * largest
    if other_form:
        return replace(result, mismatches=size, passed=False, reason=other_form), None
    assert differing is not None
    if not differing.any():
        return result, None
    result = replace(result, mismatches=int(differing.sum()))
    reason = _reason(result)
    if kind.steps and result.mismatches <= STEPS_SHARE * size:
        return replace(result, reason=f"{reason}; accepted: a step before it rounds reals"), None
    return replace(result, passed=False, reason=reason), differing


def _allowed(expected: Array, kind: Kind, tolerance: Tolerance | None) -> tuple[float, float]:
    """Return rtol and atol for an output."""
    rtol = rtol_of(element_type_of(expected))
    if tolerance is not None:
        return (rtol if tolerance.rtol is None else tolerance.rtol), tolerance.atol
    return (max(rtol, kind.rtol) if rtol and kind.rtol else 0.0), 0.0


def _reason(result: OutputResult) -> str:
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
