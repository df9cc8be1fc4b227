"""Compare outputs with the original's: how exact these are, and how far rounding moves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array, same_bits
from onnx_spatial.verification.checks.findings import Findings
from onnx_spatial.verification.compare import exactness, random_ops
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.float64_outputs import Float64Outputs
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.compare.rounding import Rounding, Verdict, is_comparable
from onnx_spatial.verification.compare.tolerance import Tolerances
from onnx_spatial.verification.report import OutputResult
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.sizes.trial_runs import Trial, shapes


class Baseline:
    """The outputs of the original, with double precision and measured rounding where they are needed.

    `marks` say how exactly each can be expected; `source` is the original if onnxruntime loads it;
    `proven` tells whether the converted model is proven to compute the same, `same_order` whether it
    computes all reals by the original's nodes; `tolerances` are those that the caller sets.
    """

    def __init__(
        self,
        program: Program,
        marks: Mapping[str, Exactness],
        source: reader.Source | None,
        *,
        proven: bool = False,
        same_order: bool = True,
        tolerances: Tolerances | None = None,
    ) -> None:
        self.tolerances = tolerances or Tolerances()
        self.program = program
        self._same_kernels = same_order and not program.substitutes
        self.marks = marks
        self._precise = Float64Outputs(program, marks, proven=proven)
        self._rounding = Rounding(program, source)
        # Outputs that differ, with optimisations or without: nothing more is measured for them.
        self._wrong: set[tuple[str, bool]] = set()

    def compare(
        self, name: str, run: int, optimised: bool, trial: Trial, actual: object
    ) -> list[OutputResult]:
        """Compare an output of the converted model with that of a trial."""
        tolerance, expected = self.tolerances.of_output(name), trial.outputs[name]
        if self.program.unsized and _is_empty(expected) and _is_empty(actual):
            # onnxruntime happens to infer more or less of the dims that ONNX leaves open.
            expected = np.zeros_like(expected, shape=actual.shape)
        results = compare(
            name,
            run,
            optimised,
            expected,
            actual,
            self.marks[name],
            same_kernels=self._same_kernels,
            tolerance=tolerance,
        )
        if tolerance is not None or len(results) > 1:  # a tolerance that is set decides alone
            return results
        return [self._judged(results[0], trial, actual)]

    def close(self) -> None:
        """Release the sessions."""
        self._precise.close()
        self._rounding.close()

    def _judged(self, result: OutputResult, trial: Trial, actual: object) -> OutputResult:
        """Judge a comparison by double precision, then by the rounding of the original itself."""
        name, optimised = result.name, result.optimised
        result = self._precise.judged(result, trial, actual)
        if result.passed or name not in self.marks or not self.marks[name].arithmetic:
            return result
        if not is_comparable(actual, trial.outputs[name]) or (name, optimised) in self._wrong:
            return result
        movement = self._rounding.of(trial.feeds, trial.outputs, optimised=optimised).get(name)
        if movement is None:
            obstacle = self._rounding.obstacle
            why = f"; the effect of rounding could not be measured: {obstacle}" if obstacle else ""
            return replace(result, reason=f"{result.reason}{why}")
        if movement.optimised is not None:
            mark = self.marks[name]
            (other,) = compare(name, result.run, True, movement.optimised, actual, mark)
            if other.passed:
                remark = "accepted: the original computes the same with optimisations on"
                reason = f"{result.reason}; {remark}"
                return replace(result, passed=True, reason=reason, accepted="optimised original")
        verdict = movement.verdict(actual, each=self._precise.has_magnitudes(result.run, name))
        if verdict is Verdict.DIFFERS:
            self._wrong.add((name, optimised))
            return result
        runs = f"{movement.runs} run{'' if movement.runs == 1 else 's'}"
        amount = f"rounding alone changed it by up to {movement.amount} in {runs} of the original"
        if verdict is Verdict.UNDECIDED:
            return replace(result, passed=None, reason=f"{result.reason}; undecided: {amount}")
        reason = f"{result.reason}; accepted: {amount}"
        return replace(result, passed=True, reason=reason, accepted="rounding")


def _is_empty(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.size == 0


def repeated(
    program: Program, trials: Sequence[Trial], findings: Findings, *, proven: bool = False
) -> tuple[dict[str, Exactness], list[Trial]]:
    """Run the original again; return how exact its outputs are, and the trials that repeat.

    Outputs of the first trial that change are `random`. A small model does all trials again, in other
    sessions; one in which another output changes is dropped: at some sizes kernels read memory that
    was never written. If the converted model is `proven`, the same sessions do for its one trial.
    """
    marks = exactness.of_outputs(program)
    first, *others = trials
    small = program.is_small(first.feeds)
    if small and not proven:
        program.close()
    outputs = program.run(first.feeds)
    for name, value in first.outputs.items():
        if not _same(value, outputs[name]):
            marks[name] |= Exactness(random=True)
        if marks[name].random:
            why = random_ops.sources(program.flat.graph, name)
            findings.obstacles.append(f"output {name!r} differs from run to run: {why}")
    if not small:
        return marks, list(trials)
    steady = [name for name, mark in marks.items() if not mark.random]
    kept = [first]
    for trial in others:
        outputs = program.run(trial.feeds)
        changing = [n for n in steady if not _same(trial.outputs[n], outputs[n])]
        if changing:
            what = f"output {changing[0]!r} of the original"
            findings.unsteady.append(f"{what} differs from run to run with {shapes(trial.feeds)}")
        else:
            kept.append(trial)
    return marks, kept


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if hasattr(a, "dtype") and hasattr(b, "dtype"):
        return same_bits(a, b)
    return bool(a == b)
