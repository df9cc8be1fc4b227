"""Define the result of one comparison: of an operator, or of an output of the whole model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Check:
    """One comparison of an operator with its numpy kernel: bit for bit, or within a tolerance.

    An operator that was fused with nodes that compute with reals (a convolution) is compared together
    with them, to a reference in double precision.

    Attributes:
        how: "isolated": the nodes that replace the operator, cut out and run on generated data;
            "in place": its inputs and output in a run of the converted model.
        optimised: with onnxruntime's optimisations, or without any.
        dtype, shape: of the operator's data, or of the data of the part that it was fused into.
        elements: number of elements of its output, or of the output of that part.
        mismatches: elements whose bits differ, or that are outside the tolerance.
        reason: why it failed; None if it passed.
        exact: whether every bit has to be the same.
        max_ulps: largest error, in units in the last place of the sum of the magnitudes that make up
            an element, or of the largest element where that is not known; None where every bit
            has to be the same, or where there is no reference in double precision.
        max_relative_error: largest error relative to the largest element; None if `exact`.
        allowed_ulps: upper bound of `max_ulps`; None where it is None.
    """

    how: Literal["isolated", "in place"]
    optimised: bool
    dtype: str
    shape: tuple[int, ...]
    elements: int
    mismatches: int = 0
    reason: str | None = None
    exact: bool = True
    max_ulps: float | None = None
    max_relative_error: float | None = None
    allowed_ulps: float | None = None

    @property
    def passed(self) -> bool:
        """Whether no bit differs, or no element by more than is allowed."""
        return self.reason is None


@dataclass(frozen=True)
class WorstElement:
    """An element of an output with one of the largest errors: its index, and both values as text."""

    index: tuple[int, ...]
    original: str
    converted: str


@dataclass(frozen=True)
class OutputResult:
    """One comparison of an output of the whole model, in one run.

    Attributes:
        name: of the output.
        run: position of the run in `Verification.runs`.
        optimised: with onnxruntime's optimisations, or without any.
        dtype, shape: of the original's output.
        elements: number of elements.
        equal_bits: whether every bit is the same.
        max_abs_error: largest difference; None for strings, bools and where shapes differ.
        max_relative_error: the same relative to the largest value of the original.
        mean_relative_error, p50_relative_error, p99_relative_error: mean, median and 99th percentile
            of the differences, likewise.
        max_steps: largest number of representable values between the two; None for integers.
        tolerance: largest relative error allowed; 0 where bits must be equal.
        atol: absolute error that the caller allows beside it.
        mismatches: elements outside the tolerance.
        passed: the verdict; None if the output cannot be compared.
        reason: why it failed or cannot be compared; a remark if it passed.
        reference: "original", or "float64" where the original was computed in double precision too.
        max_ulps, allowed_ulps: with that reference, the largest error and its bound, in units in
            the last place of the sum of the magnitudes that make up an element; otherwise None.
        own_relative_error: with that reference, the largest error of the original itself.
        accepted: why a difference beyond the tolerance is right, if it is.
        error_decades: number of elements by their error, relative as above: "1e-07" counts those from
            1e-7 to below 1e-6, "0" those without one, "inf" NaN and infinities on one side. Empty if
            every bit is the same.
        worst_elements: those with the largest errors, the worst first.
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
    mean_relative_error: float | None = None
    p50_relative_error: float | None = None
    p99_relative_error: float | None = None
    max_steps: float | None = None
    reference: Literal["original", "float64"] = "original"
    max_ulps: float | None = None
    allowed_ulps: float | None = None
    own_relative_error: float | None = None
    accepted: Literal["optimised original", "rounding"] | None = None
    atol: float = 0.0
    error_decades: dict[str, int] = field(default_factory=dict)
    worst_elements: tuple[WorstElement, ...] = ()
