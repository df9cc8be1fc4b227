"""Compare outputs of the whole model with double precision, where little time is enough to compute it.

Two models that compute the same reals in another order differ in the last digits, and neither is exact.
Double precision shows the error of each. An element of the converted model must be within the bounds of
rounding (`reference`). Where it is further from the original than the tolerance of `outputs` allows, its
error must be about as small as the original's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.verification.arrays import Array, dtype_name, is_float
from onnx_spatial.verification.compare import to_float64
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.reference import Budget, Expected, Reference
from onnx_spatial.verification.report import OutputResult
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.stopwatch import Stopwatch
from onnx_spatial.verification.sizes.trial_runs import Trial

#: Seconds for double precision, in all.
SECONDS = 20.0
#: Outputs of a model that are computed in double precision.
MOST_OUTPUTS = 8
#: Beyond the tolerance, the error of the converted model may be so many times that of the original.
WORSE = 4.0


class Float64Outputs:
    """The outputs of one model in double precision, run by run.

    Args:
        program, marks: the original, and how exact its outputs are.
        proven: whether only what differs beyond the tolerance needs double precision, because the
            converted model is proven to compute the same.

    Attributes:
        obstacle: why the last output without double precision has none; None if all have it.
    """

    def __init__(
        self,
        program: Program,
        marks: Mapping[str, Exactness],
        *,
        proven: bool = False,
    ) -> None:
        self._proven = proven
        self.obstacle: str | None = None
        self._program = program
        self._left = SECONDS
        self._outputs: dict[tuple[int, str], Expected | None] = {}
        self._references: dict[str, Reference] = {}
        self._names = [
            name for name, m in marks.items() if m.arithmetic and not (m.discrete or m.random)
        ][:MOST_OUTPUTS]

    def judged(self, result: OutputResult, trial: Trial, actual: object) -> OutputResult:
        """Judge a comparison with the original's output by double precision, if that is known."""
        key = (result.run, result.name)
        if result.name not in self._names or not isinstance(actual, np.ndarray):
            return result
        if (self._proven or trial.sizes_only) and result.passed:
            return result
        if key not in self._outputs:
            self._outputs[key] = self._compute(result.name, trial.feeds, trial.outputs[result.name])
        known = self._outputs[key]
        if known is None or (result.dtype, result.shape) != (dtype_name(actual), actual.shape):
            return result
        return judge(result, known, actual)

    def has_magnitudes(self, run: int, name: str) -> bool:
        """Return whether each element of an output was judged by the magnitudes of its own terms."""
        known = self._outputs.get((run, name))
        return known is not None and known.has_magnitudes

    def close(self) -> None:
        """Release the sessions."""
        for reference in self._references.values():
            reference.close()
        self._references.clear()

    def _compute(self, name: str, feeds: Mapping[str, Array], own: object) -> Expected | None:
        if self._left <= 0 or not isinstance(own, np.ndarray) or not is_float(own.dtype):
            return None
        if not self._program.is_small(feeds):
            self.obstacle = "the model is large"
            return None
        stopwatch = Stopwatch()
        try:
            expected = self._reference(name).expected(feeds, own)
        except (RunFailure, OperatorError, ModelFileError, MemoryError) as error:
            self._stop(str(error))
            return None
        self._left -= stopwatch.seconds
        if self._left <= 0:
            self._stop("double precision takes too long")
        if expected.precise is None:
            self.obstacle = self._reference(name).obstacle or self.obstacle
            return None
        return expected

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


def judge(result: OutputResult, known: Expected, actual: Array) -> OutputResult:
    """Overrule a comparison with the original, or make it stricter, by double precision."""
    check = known.check("in place", result.optimised, actual, actual)
    if check.max_ulps is None:
        return result
    judged = replace(
        result,
        reference="float64",
        max_ulps=check.max_ulps,
        allowed_ulps=check.allowed_ulps,
        own_relative_error=known.own_error,
    )
    if not check.passed:
        return replace(judged, passed=False, mismatches=check.mismatches, reason=check.reason)
    if result.passed or (check.max_relative_error or 0.0) > WORSE * known.own_error:
        return judged
    remark = (
        f"{result.reason}; accepted: the original is as far from the result in double precision"
    )
    return replace(judged, passed=True, mismatches=0, reason=remark)
