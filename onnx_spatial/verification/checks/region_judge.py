"""Judge the output of the converted part of a region by that of the original's part.

bits, or a tolerance from double precision  ->  how far rounding moves the original's part  ->
on rare numbers: what overflows in one order of operations, or vanishes in double precision
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.verification.arrays import Array, dtype_name, is_float
from onnx_spatial.verification.checks import region_trials
from onnx_spatial.verification.compare import overflow, to_float64
from onnx_spatial.verification.compare.error_metrics import errors, largest_finite
from onnx_spatial.verification.compare.float64_outputs import WORSE
from onnx_spatial.verification.compare.outputs import RTOL
from onnx_spatial.verification.compare.reference import Budget, Expected, Reference
from onnx_spatial.verification.compare.rounding import Rounding, Verdict
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.sizes.rare_numbers import BEYOND_ARITHMETIC

#: In double precision a difference by rounding is this share of what it was, or less.
_VANISHES = 1e-3
#: Numbers next to those that overflow may be far less precise, as in Log(Sigmoid).
_MAY_OVERFLOW = ("large", "constants")
#: Times the root of a type's unit, of the largest input: what a norm leaves of equal numbers.
_CANCELLED = 8.0
#: How a reason begins if the converted part fails.
NO_RUN = "it does not run"


@dataclass(frozen=True)
class Compared:
    """A comparison, its data, and the verdict of measured rounding beyond the tolerance.

    `at_any_size` tells that a difference does not depend on the sizes of the data.
    `overflows` tells that it differs only where rare numbers exceed the range of a type.
    """

    check: Check
    feeds: dict[str, Array]
    verdict: Verdict | None = None
    at_any_size: bool = False
    overflows: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the difference may be rounding or more."""
        return self.verdict is Verdict.UNDECIDED

    @property
    def differs(self) -> bool:
        """Whether both parts run, and compute something else."""
        reason = self.check.reason
        open_question = self.undecided or self.overflows
        return reason is not None and not open_question and not reason.startswith(NO_RUN)


class Doubt(str):
    """A reason why nothing is concluded: there is a difference that may not matter."""


class Undecided(Doubt):
    """A reason why nothing is concluded: rounding may explain the difference."""


class NeverRan(str):
    """A reason why a region cannot be compared: only the original's part runs."""


class Unreached(Doubt):
    """A reason why nothing is concluded: no run of the model reached the numbers that differ."""


class Overflows(Unreached):
    """A reason why nothing is concluded: it differs, but only where rare numbers overflow."""


class RegionJudge:
    """Judge the outputs of a region.

    Args:
        original: the original's part.
        converted: the converted part, with external data in `folder`.
        output: name of the value that both compute.
        budget: seconds that are left for double precision.
    """

    def __init__(
        self,
        original: Program,
        converted: onnx.ModelProto,
        folder: Path | None,
        output: str,
        budget: Budget,
    ) -> None:
        self._original, self._converted = original, converted
        self._folder, self._output, self._budget = folder, output, budget

    @cached_property
    def reference(self) -> Reference:
        """The output of the original's part in double precision."""
        epsilon = to_float64.coarsest([self._original.flat, self._converted])
        return Reference(self._original, self._output, epsilon, self._budget)

    @cached_property
    def _converted_reference(self) -> Reference:
        program = Program(self._converted, (), self._folder)
        return Reference(program, self._output, self.reference.epsilon, self._budget)

    @cached_property
    def _rounding(self) -> Rounding:
        return Rounding(self._original, seconds=region_trials.SECONDS)

    def close(self) -> None:
        """Release the sessions."""
        for name in ("reference", "_converted_reference", "_rounding"):
            if name in self.__dict__:
                self.__dict__[name].close()

    def judge(
        self,
        how: Literal["isolated", "in place"],
        optimised: bool,
        feeds: dict[str, Array],
        expected: Expected,
        actual: Array | str,
        default: Array,
        spread: str | None = None,
    ) -> Compared:
        """Compare an output within the tolerance, then with the rounding of the original's part.

        Args:
            how, optimised: see `Check`.
            feeds: inputs of the run.
            expected: output of the original's part.
            actual: output of the converted part, or in words why there is none.
            default: an array for the report if the part has no inputs.
            spread: kind of rare numbers in the inputs, if they hold any.
        """
        own = expected.own
        # The largest array of reals among the inputs: most likely the data.
        x = max(feeds.values(), key=lambda a: (is_float(a.dtype), a.size), default=default)

        def checked(expected: Expected, actual: Array | str) -> Check:
            return expected.check(
                how,
                optimised,
                x,
                actual,
                same_kernels=not self._original.substitutes,
                converted=lambda: self._converted_reference.in_float64(feeds),
                spread=spread,
            )

        if spread is not None and self.reference.computes:
            actual = overflow.unlimited(own, actual)
        bounded = checked(expected, actual)
        check = _also_plain(bounded, expected, spread)
        if not check.passed and spread == "shifted" and _as_inexact(check, expected):
            check = replace(check, mismatches=0, reason=None)
        if check.passed or isinstance(actual, str) or not expected.exactness.arithmetic:
            return Compared(check, feeds)
        if actual.dtype != own.dtype or actual.shape != own.shape:
            return Compared(check, feeds)
        # A tool may have stored the form that onnxruntime's optimisations give.
        movements = self._rounding.of(
            feeds, {self._output: own}, optimised=optimised or spread == "shifted"
        )
        if self._output not in movements:
            return Compared(check, feeds)
        each = expected.has_magnitudes or spread in BEYOND_ARITHMETIC
        verdict = movements[self._output].verdict(actual, each=each)
        if spread is not None:
            verdict = self._on_rare_numbers(
                verdict, feeds, own, actual, spread, is_bounded=bounded.passed
            )
        if verdict is Verdict.ACCEPTED:
            check = replace(check, mismatches=0, reason=None, max_ulps=None, allowed_ulps=None)
        elif verdict is not Verdict.UNDECIDED and spread is not None:
            counted = self._counted(feeds, own, actual, spread)
            rest = np.where(counted, actual, np.zeros((), own.dtype))
            if not counted.all() and checked(expected.only(counted), rest).passed:
                return Compared(check, feeds, overflows=True)
        return Compared(check, feeds, verdict)

    def _on_rare_numbers(
        self,
        verdict: Verdict,
        feeds: Mapping[str, Array],
        own: Array,
        actual: Array,
        spread: str,
        *,
        is_bounded: bool,
    ) -> Verdict:
        """Settle a verdict of rounding by double precision, or leave it open."""
        if verdict is Verdict.ACCEPTED:
            return verdict
        if verdict is Verdict.UNDECIDED:
            open_order = is_bounded or spread in BEYOND_ARITHMETIC
            if open_order or self._vanishes_in_float64(feeds, own, actual):
                return Verdict.ACCEPTED
        epsilon = self.reference.epsilon or 0.0
        is_rest = spread == "equal" and _is_cancellation(actual, own, feeds, epsilon)
        return Verdict.ACCEPTED if is_rest else verdict

    def _counted(
        self, feeds: Mapping[str, Array], own: Array, actual: Array, spread: str
    ) -> npt.NDArray[np.bool_]:
        """Return the elements that count: those that did not overflow, and are not close to that."""
        counted = overflow.not_overflowed(feeds, own, actual)
        if spread in _MAY_OVERFLOW and not counted.all():
            counted &= ~self._agree_in_float64(feeds, own)
        return counted

    def _vanishes_in_float64(self, feeds: Mapping[str, Array], own: Array, actual: Array) -> bool:
        """Return whether a difference all but vanishes where both parts run in double precision."""
        before = self.reference.in_float64(feeds)
        after = None if before is None else self._converted_reference.in_float64(feeds)
        if before is None or after is None or after.shape != before.shape:
            return False
        apart, remaining = (errors(*pair)[0] for pair in ((own, actual), (before, after)))
        return bool(remaining.max(initial=0.0) <= _VANISHES * apart.max(initial=0.0))

    def _agree_in_float64(self, feeds: Mapping[str, Array], own: Array) -> npt.NDArray[np.bool_]:
        """Return the elements of which both parts in double precision agree."""
        before = self.reference.in_float64(feeds)
        after = None if before is None else self._converted_reference.in_float64(feeds)
        if before is None or after is None or not before.shape == after.shape == own.shape:
            return np.zeros(own.shape, bool)
        least = RTOL["float64"] * largest_finite(before)
        with np.errstate(all="ignore"):
            allowed = np.maximum(RTOL.get(dtype_name(own), 0.0) * np.abs(before), least)
            return np.asarray(np.abs(after - before) <= allowed)


def _is_cancellation(actual: Array, own: Array, feeds: Mapping[str, Array], epsilon: float) -> bool:
    """Return whether a difference may be what is left of equal numbers where their mean is taken off.

    A norm divides the rounding of one number, which is its unit, by the root of its epsilon.
    """
    if not is_float(own.dtype):
        return False
    largest = max(
        (float(np.abs(a).max(initial=0)) for a in feeds.values() if is_float(a.dtype)), default=0.0
    )
    with np.errstate(all="ignore"):
        distance = np.abs(actual.astype(np.float64) - own.astype(np.float64))
    same = (actual == own) | (np.isnan(actual) & np.isnan(own))
    return bool((same | (distance <= _CANCELLED * np.sqrt(epsilon) * largest)).all())


def _also_plain(check: Check, expected: Expected, spread: str | None) -> Check:
    """Hold short reals, and all on shifted data, to the rtol of outputs, too.

    Their sums may be off by more, and a variance that loses its digits is far below its terms.
    """
    own = expected.own
    rtol = RTOL.get(dtype_name(own), 0.0)
    error = check.max_relative_error or 0.0
    if not check.passed or check.allowed_ulps is None or error <= rtol:
        return check
    if own.dtype.itemsize > 2 and spread != "shifted":
        return check
    if largest_finite(own) <= expected.ulps * np.max(expected.unit, initial=0.0):
        return check  # all of it is less than what rounding makes of its terms
    reason = (
        f"elements differ by at most {error:.2g} of the largest value where {rtol:g} is allowed"
    )
    return replace(check, mismatches=max(1, check.mismatches), reason=reason)


def _as_inexact(check: Check, expected: Expected) -> bool:
    """Tell whether the original's own error in double precision is about as large."""
    error = check.max_relative_error
    return error is not None and error <= WORSE * expected.own_error
