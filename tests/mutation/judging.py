"""Whether a mutant gives anything else than the original on any legal input.

The original runs in onnx's reference evaluator with the tests' own definitions of the operators
(`reference`), the mutant in onnxruntime with optimisations off and on. Nothing of the package under
test is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import reference
import running
from subjects import Feeds, Subject

#: How many inputs a mutant is tried on.
INPUTS = 40
#: An error is one if it is so many times the largest of the right conversion on any input ...
NOISE = 8.0
#: ... and at least this share of the largest value.
FLOOR = 1e-6


@dataclass
class Judge:
    """What a subject gives on many legal inputs.

    Attributes:
        subject: it.
        cases: inputs and what the original gives.
        names, types: of the outputs.
    """

    subject: Subject
    cases: list[tuple[Feeds, list[np.ndarray]]] = field(default_factory=list)

    @classmethod
    def of(cls, subject: Subject, inputs: int = INPUTS) -> Judge:
        """Run the original on inputs made of the subject's name."""
        rng = np.random.default_rng([ord(c) for c in subject.name])
        made = cls(subject)
        for _ in range(inputs):
            feeds = subject.feeds(rng)
            outputs = reference.run(subject.model, feeds)
            made.cases.append((feeds, [np.asarray(o) for o in outputs]))
        return made

    def noise(self, converted: onnx.ModelProto) -> float:
        """The largest error of a right conversion, relative to the largest value of an output."""
        worst = 0.0
        for level in running.LEVELS:
            session = running.session(converted, level)
            for feeds, expected in self.cases:
                for wanted, given in zip(
                    expected, running.run_session(session, feeds), strict=True
                ):
                    error = self._error(wanted, given)
                    assert isinstance(error, float), error
                    worst = max(worst, error)
        return worst

    def difference(self, mutant: onnx.ModelProto, noise: float) -> tuple[str, str] | None:
        """("loud", why) if it does not load or run or has other outputs; ("silent", how) if it gives
        other numbers; None if nothing differs.
        """
        expected_names = [v.name for v in self.subject.model.graph.output]
        stored = {t.name for t in self.subject.model.graph.initializer}
        expected_inputs = [v.name for v in self.subject.model.graph.input if v.name not in stored]
        for level in running.LEVELS:
            try:
                session = running.session(mutant, level)
            except Exception as error:  # whatever onnxruntime says
                return "loud", f"does not load: {str(error)[:120]}"
            if [o.name for o in session.get_outputs()] != expected_names:
                return "silent", "its outputs have other names, or another order"
            if [i.name for i in session.get_inputs()] != expected_inputs:
                return "loud", "its inputs have other names"
            for feeds, expected in self.cases:
                try:
                    given = running.run_session(session, feeds)
                except Exception as error:  # as above
                    return "loud", f"does not run: {str(error)[:120]}"
                for wanted, result in zip(expected, given, strict=True):
                    error = self._error(wanted, result)
                    if isinstance(error, str):
                        return "silent", error
                    if error > max(NOISE * noise, FLOOR if self.subject.arithmetic else 0.0):
                        sizes = {n: a.shape for n, a in feeds.items()}
                        return "silent", f"{error:.1e} of the largest value apart at {sizes}"
        return None

    def _error(self, wanted: np.ndarray, given: np.ndarray) -> float | str:
        if given.shape != wanted.shape or given.dtype != wanted.dtype:
            return f"{given.dtype} {given.shape}, not {wanted.dtype} {wanted.shape}"
        if not self.subject.arithmetic:
            return 0.0 if running.same_bits(wanted, given) else float("inf")
        if not wanted.size:
            return 0.0
        a, b = wanted.astype(np.float64), given.astype(np.float64)
        if not np.isfinite(b).all():
            return float("inf")
        return float(np.abs(a - b).max() / (np.abs(a).max() or 1.0))


def shapes(model: onnx.ModelProto, feeds: Feeds) -> dict[str, Any]:
    """What every Shape of the main graph gives on one input, by name."""
    names = [n.output[0] for n in model.graph.node if n.op_type == "Shape"]
    if not names:
        return {}
    more = onnx.ModelProto()
    more.CopyFrom(model)
    kept = {v.name for v in model.graph.output}
    wanted = [n for n in names if n not in kept]
    more.graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted)
    results = running.run(more, feeds, running.LEVELS[0])
    return dict(zip(wanted, results[len(kept) :], strict=True))


def witness(
    original: onnx.ModelProto,
    right: onnx.ModelProto,
    wrong: onnx.ModelProto,
    feeds: Iterable[Feeds],
    exact: bool = False,
    run: Callable[[onnx.ModelProto, Feeds], Iterable[np.ndarray]] = reference.run,
) -> str | None:
    """Return how a wrong conversion differs from the original on one of the inputs.

    The right conversion tells how much is noise; inputs on which it does not agree with the evaluator
    tell nothing. None if no input shows a difference.

    Args:
        original: runs in onnx's evaluator, or as `run` says.
        right, wrong: run in onnxruntime with optimisations off.
        feeds: inputs to try.
        exact: whether every bit counts.
        run: gives the outputs of the original.
    """
    level = running.LEVELS[0]
    opened = running.session(right, level)
    try:
        broken = running.session(wrong, level)
    except Exception as error:  # whatever onnxruntime says
        return f"does not load: {str(error)[:120]}"
    if [o.name for o in broken.get_outputs()] != [o.name for o in opened.get_outputs()]:
        return "its outputs have other names, or another order"
    for given in feeds:
        expected = [np.asarray(o) for o in run(original, given)]
        noise = [
            apart(e, r) for e, r in zip(expected, running.run_session(opened, given), strict=True)
        ]
        if not all(math.isfinite(n) for n in noise):
            continue
        sizes = {n: a.shape for n, a in given.items()}
        try:
            results = running.run_session(broken, given)
        except Exception as error:  # as above
            return f"does not run at {sizes}: {str(error)[:120]}"
        for e, r, n in zip(expected, results, noise, strict=True):
            if exact and n == 0 and not running.same_bits(e, r):
                return f"other bits at {sizes}"
            floor = {np.float16: 1e-2}.get(e.dtype.type, 1e-5) if e.dtype.kind == "f" else 0.0
            error = apart(e, r)
            if error > max(NOISE * n, floor):
                return f"{error:.1e} of the largest value apart at {sizes}"
    return None


def apart(wanted: np.ndarray, given: np.ndarray) -> float:
    """The largest error by the largest value; infinite where NaNs, infinities or shapes differ."""
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return math.inf
    if wanted.dtype.kind not in "fiub":
        return 0.0 if running.same_bits(wanted, given) else math.inf
    if wanted.dtype.kind != "f":
        return float(np.not_equal(wanted, given).any()) and 1.0
    a, b = wanted.astype(np.float64), given.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    if not np.isfinite(b).all():
        return math.inf
    return float(np.abs(a - b).max(initial=0) / (np.abs(a).max(initial=0) or 1.0))
