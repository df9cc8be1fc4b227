"""Outputs of the whole model in double precision, where it can be computed in little time.

Two models that compute the same reals in another order differ in the last digits, and neither is the
truth. In double precision it is seen how far each is from it: an element of the converted model must be
within what rounding may do to it (`reference`), and where it is further from the original than the
tolerance of `outputs` allows, it must be about as near to the truth as the original's own is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.verification.arrays import Array, dtype_name, is_float
from onnx_spatial.verification.compare import to_float64
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.reference import Budget, Expected, Reference
from onnx_spatial.verification.report import OutputResult
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import reference_runs
from onnx_spatial.verification.sizes.trial_runs import Trial

#: Seconds that double precision may take, in all.
SECONDS = 20.0
#: How many outputs are computed so.
MOST_OUTPUTS = 8
#: The converted model may be so many times as far from the truth as the original where it is further
#: from the original than the tolerance allows.
WORSE = 4.0


@dataclass(frozen=True)
class Known:
    """An output in double precision.

    Attributes:
        expected: it, and what rounding may do to it.
        own_error: largest error of the original, relative to the largest element.
    """

    expected: Expected
    own_error: float


class Precise:
    """The outputs of one model in double precision, run by run.

    Args:
        program: the original.
        marks: what had a part in each output.
        runs: of it, that may be asked for.

    Attributes:
        obstacle: why an output was not computed so, the last time that this happened; None if never.
    """

    def __init__(
        self, program: Program, marks: Mapping[str, Exactness], runs: Sequence[Trial]
    ) -> None:
        self.obstacle: str | None = None
        self._program = program
        self._left = SECONDS
        self._known: dict[tuple[int, str], Known | None] = {}
        self._references: dict[str, Reference] = {}
        self._wanted = [
            name for name, m in marks.items() if m.arithmetic and not (m.discrete or m.random)
        ][:MOST_OUTPUTS]
        if not all(reference_runs.is_small(program, t.feeds) for t in runs):
            self._stop("the model is large")

    def judged(self, found: OutputResult, run: int, trial: Trial, actual: object) -> OutputResult:
        """A comparison of an output, seen in double precision where that is known."""
        key = (run, found.name)
        if found.name not in self._wanted or not isinstance(actual, np.ndarray):
            return found
        if key not in self._known:
            self._known[key] = self._compute(found.name, trial)
        known = self._known[key]
        if known is None or (found.dtype, found.shape) != (dtype_name(actual), actual.shape):
            return found
        return judge(found, known, actual)

    def has_magnitudes(self, run: int, name: str) -> bool:
        """Whether each element of an output was judged by the magnitudes that make it up."""
        known = self._known.get((run, name))
        return known is not None and known.expected.has_magnitudes

    def close(self) -> None:
        """Let go of the sessions."""
        for reference in self._references.values():
            reference.close()
        self._references.clear()

    def _compute(self, name: str, trial: Trial) -> Known | None:
        own = trial.outputs[name]
        if self._left <= 0 or not isinstance(own, np.ndarray) or not is_float(own.dtype):
            return None
        started = time.monotonic()
        try:
            expected = self._reference(name).expected(trial.feeds, own)
        except (RunFailure, OperatorError, ModelFileError, MemoryError) as error:
            self._stop(str(error))
            return None
        self._left -= time.monotonic() - started
        if self._left <= 0:
            self._stop("double precision takes too long")
        if expected.precise is None:
            self.obstacle = self._reference(name).obstacle or self.obstacle
            return None
        own_error = expected.check("in place", False, own, own).max_relative_error
        return Known(expected, own_error or 0.0)

    def _reference(self, name: str) -> Reference:
        if name not in self._references:
            epsilon = to_float64.coarsest([self._program.flat])
            budget = Budget(self._left)
            self._references[name] = Reference(self._program, name, epsilon, budget)
        return self._references[name]

    def _stop(self, reason: str) -> None:
        self.obstacle = reason
        self._left = 0.0
        self.close()


def judge(found: OutputResult, known: Known, actual: Array) -> OutputResult:
    """A comparison with the original, overruled or made stricter by one in double precision."""
    check = known.expected.check("in place", found.optimised, actual, actual)
    if check.max_ulps is None:
        return found
    seen = replace(
        found,
        reference="float64",
        max_ulps=check.max_ulps,
        allowed_ulps=check.allowed_ulps,
        own_relative_error=known.own_error,
    )
    if not check.passed:
        return replace(seen, passed=False, mismatches=check.mismatches, reason=check.reason)
    if found.passed or (check.max_relative_error or 0.0) > WORSE * known.own_error:
        return seen
    remark = f"{found.reason}; accepted as both are as near to double precision"
    return replace(seen, passed=True, mismatches=0, reason=remark)
