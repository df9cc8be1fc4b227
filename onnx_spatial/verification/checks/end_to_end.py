"""Run the original and the converted model on the same data and compare every output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import (
    Array,
    constant_value,
    dtype_name,
    dtype_of,
    same_bits,
)
from onnx_spatial.verification.checks import bit_patterns
from onnx_spatial.verification.checks.in_place import InPlace
from onnx_spatial.verification.compare import exactness, random_ops
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.float64_outputs import Float64Outputs
from onnx_spatial.verification.compare.outputs import OutputResult, compare
from onnx_spatial.verification.compare.rounding import Rounding, Verdict, is_comparable
from onnx_spatial.verification.interface import overridable
from onnx_spatial.verification.report import Difference, Run
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.same_padding import REFUSAL
from onnx_spatial.verification.runtime.sessions import RunFailure, Session
from onnx_spatial.verification.sizes import reference_runs
from onnx_spatial.verification.sizes.model_inputs import GraphInput
from onnx_spatial.verification.sizes.reference_runs import ReferenceRuns, RunRequest
from onnx_spatial.verification.sizes.trial_runs import Trial

#: Bytes of values that one run of the converted model keeps to compare sites in place.
MOST_WATCHED = 2**28


@dataclass
class EndToEnd:
    """What the runs of the whole models gave.

    Attributes:
        runs, outputs, forced: see `Verification`.
        failures: what is wrong.
        gaps: what could not be compared, because of sizes that were not found.
        obstacles: what could not be compared, because of what is in the model.
        undecided: differences that may be rounding or not.
        unsteady: sizes that were left out, as the original gives something else there in every run.
        difference: the first output that differs, or run that fails, with its inputs.
        executed: positions of the sites that took part in a run.
    """

    runs: list[Run] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    difference: Difference | None = None
    executed: set[int] = field(default_factory=set)

    def fail(self, message: str, difference: Difference | None = None) -> None:
        """Note something wrong, and with it the inputs that show it."""
        self.failures.append(message)
        self.difference = self.difference or difference


def run(
    original: reader.Source,
    converted: reader.Source,
    inputs: Sequence[GraphInput],
    infos: Sequence[OperatorInfo],
    in_place: InPlace,
    request: RunRequest,
) -> EndToEnd:
    """Compare the outputs of two models that have the same inputs and outputs.

    Raises:
        UsageError: the data or shapes asked for do not fit the model, or it does not run on them.
    """
    result = EndToEnd()
    try:
        program = reference_runs.program_of(original, infos, inputs)
        found = reference_runs.find(program, original, inputs, infos, request)
        result.gaps, result.forced = found.gaps, found.forced
        if not found.trials:
            return result
        marks = _marks(program, found, result)
        if request.inputs is None:
            found.trials += _any_bits(program, found.trials, request.seed)
    except RunFailure as failure:
        result.obstacles.append(str(failure))
        return result
    program.close()  # every session maps the weights or holds copies: one at a time
    _describe(found.trials, converted, request, result)
    loads = not infos and not program.pads and not program.substitutes
    rounding = Rounding(program, original if loads else None)
    baseline = _Baseline(
        program, marks, Float64Outputs(program, marks, [t.feeds for t in found.trials]), rounding
    )
    first, *others = in_place.parts(lambda site: _size(program, site), MOST_WATCHED)
    for optimised in (False, True):
        session = _Converted(converted, original.folder, first, optimised=optimised)
        if not _compare(baseline, session, found.trials, request, result):
            break
    else:
        for part in others:
            _watch(_Converted(converted, original.folder, part, optimised=False), found.trials)
    baseline.precise.close()
    rounding.close()
    result.executed = {site for trial in found.trials for site in trial.executed}
    return result


def _size(program: Program, site: int) -> int:
    """Bytes of the data that a site was given in the last run; 0 if it had no part in it."""
    met = program.site_inputs.get(site)
    return 0 if met is None else math.prod(met.shape) * dtype_of(met.element_type).itemsize


def _watch(session: _Converted, trials: Sequence[Trial]) -> None:
    """Run the converted model once more to compare sites in place."""
    try:
        session.load()
        for trial in trials:
            session.run(trial.feeds, watch_sites=not trial.any_bits)
    except RunFailure:
        return  # it ran before: then there is too little memory to look at so many values


@dataclass(frozen=True)
class _Baseline:
    """The original, and what is known of its outputs."""

    program: Program
    marks: Mapping[str, Exactness]
    precise: Float64Outputs
    rounding: Rounding
    #: Outputs that are known to differ, with optimisations or without: no further run is measured.
    wrong: set[tuple[str, bool]] = field(default_factory=set)

    def judged(self, found: OutputResult, trial: Trial, actual: object) -> OutputResult:
        """A comparison with the original, seen in double precision and beside what rounding does."""
        name = found.name
        found = self.precise.judged(found, trial.feeds, trial.outputs.get(name), actual)
        if found.passed or name not in self.marks or not self.marks[name].arithmetic:
            return found
        if not is_comparable(actual, trial.outputs[name]) or (name, found.optimised) in self.wrong:
            return found
        moved = self.rounding.of(trial.feeds, trial.outputs, optimised=found.optimised).get(name)
        if moved is None:
            obstacle = self.rounding.obstacle
            why = f"; what rounding does could not be measured: {obstacle}" if obstacle else ""
            return replace(found, reason=f"{found.reason}{why}")
        if moved.optimised is not None:
            mark = self.marks[name]
            (again,) = compare(name, found.run, True, moved.optimised, actual, mark)
            if again.passed:
                remark = "accepted: with optimisations the original itself gives that"
                reason = f"{found.reason}; {remark}"
                return replace(found, passed=True, reason=reason, accepted="optimised original")
        verdict = moved.verdict(actual, each=self.precise.has_magnitudes(found.run, name))
        if verdict is Verdict.DIFFERS:
            self.wrong.add((name, found.optimised))
            return found
        runs = f"{moved.runs} run{'' if moved.runs == 1 else 's'}"
        amount = f"rounding alone moved it by up to {moved.amount} in {runs} of the original"
        if verdict is Verdict.UNDECIDED:
            return replace(found, passed=None, reason=f"{found.reason}; undecided: {amount}")
        reason = f"{found.reason}; accepted: {amount}"
        return replace(found, passed=True, reason=reason, accepted="rounding")


def _marks(program: Program, found: ReferenceRuns, result: EndToEnd) -> dict[str, Exactness]:
    """How exactly outputs can be expected.

    The original runs a second time. Outputs of the first trial that are others then are `random`.
    A small model does all trials again, in other sessions; one of which an output is another then is
    dropped: there are sizes at which kernels read what nobody has written.
    """
    marks = exactness.of_outputs(program)
    first, *others = found.trials
    small = program.is_small(first.feeds)
    if small:
        program.close()
    again = program.run(first.feeds)
    for name, value in first.outputs.items():
        if not _same(value, again[name]):
            marks[name] |= Exactness(random=True)
        if marks[name].random:
            why = random_ops.sources(program.flat.graph, name)
            result.obstacles.append(f"output {name!r} differs from run to run: {why}")
    if not small:
        return marks
    steady = [name for name, mark in marks.items() if not mark.random]
    found.trials = [first]
    for trial in others:
        again = program.run(trial.feeds)
        changing = [n for n in steady if not _same(trial.outputs[n], again[n])]
        if changing:
            sizes = _sizes({n: a.shape for n, a in trial.feeds.items()})
            result.unsteady.append(
                f"output {changing[0]!r} of the original differs from run to run with {sizes}"
            )
        else:
            found.trials.append(trial)
    return marks


def _any_bits(program: Program, trials: Sequence[Trial], seed: int) -> list[Trial]:
    """More runs, on every bit pattern, where a model only moves what it is fed."""
    names = bit_patterns.moved_inputs(program)
    more = (bit_patterns.again(program, t, names, seed) for t in trials[:2]) if names else ()
    return [t for t in more if t is not None]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if hasattr(a, "dtype") and hasattr(b, "dtype"):
        return same_bits(a, b)
    return bool(a == b)


def _describe(
    trials: Sequence[Trial], converted: reader.Source, request: RunRequest, result: EndToEnd
) -> None:
    defaults = {v.name for v in overridable(converted.proto)}
    for trial in trials:
        shapes = {n: a.shape for n, a in trial.feeds.items()}
        dtypes = {n: dtype_name(a) for n, a in trial.feeds.items()}
        overridden = tuple(n for n in trial.feeds if n in defaults)
        result.runs.append(Run(request.seed, shapes, dtypes, overridden))


def _compare(
    baseline: _Baseline,
    session: _Converted,
    trials: Sequence[Trial],
    request: RunRequest,
    result: EndToEnd,
) -> bool:
    """Run the converted model and compare it with what the original gave; whether it loads."""
    try:
        session.load()
    except RunFailure as failure:
        _broken(baseline, session, "does not load", failure, trials[0], result)
        return False
    for number, trial in enumerate(trials):
        shapes = {n: a.shape for n, a in trial.feeds.items()}
        request.progress(f"run {number + 1}/{len(trials)}: {_sizes(shapes)}")
        try:
            outputs = session.run(trial.feeds, watch_sites=not trial.any_bits)
        except RunFailure as failure:
            message = f"does not run{_mode(session.optimised)}"
            _broken(baseline, session, message, failure, trial, result)
            continue
        for name, expected in trial.outputs.items():
            mark = baseline.marks[name]
            if trial.any_bits and mark.arithmetic:
                continue
            found = compare(
                name,
                number,
                session.optimised,
                expected,
                outputs[name],
                mark,
                same_kernels=not baseline.program.substitutes,
            )
            if len(found) == 1:
                found = [baseline.judged(found[0], trial, outputs[name])]
            _record(found, trial, result, mark)
    return True


def _record(found: Sequence[OutputResult], trial: Trial, result: EndToEnd, mark: Exactness) -> None:
    for output in found:
        if mark.random:
            result.outputs.append(replace(output, passed=None, reason="random: not compared"))
            continue
        # One line for each output and level: the table of outputs has the other runs.
        told = any(
            (o.name, o.optimised, o.passed) == (output.name, output.optimised, output.passed)
            for o in result.outputs
        )
        result.outputs.append(output)
        if output.passed or told:
            continue
        message = f"output {output.name!r}{_mode(output.optimised)}: {output.reason}"
        if output.passed is None:
            result.undecided.append(message)
        else:
            difference = Difference(
                "output", output.name, None, message, trial.feeds, optimised=output.optimised
            )
            result.fail(message, difference)


def _broken(
    baseline: _Baseline,
    session: _Converted,
    message: str,
    failure: RunFailure,
    trial: Trial,
    result: EndToEnd,
) -> None:
    """The converted model does not load or run; no fault of its own if the original does not."""
    program = baseline.program
    refused = program.pads and REFUSAL in str(failure)
    if refused or any(_anonymous(str(failure)) == _anonymous(s) for s in program.substitutes):
        reason = f"onnxruntime cannot run the rest of the model: {failure}"
        if reason not in result.obstacles:
            result.obstacles.append(reason)
        return
    message = f"the converted model {message}: {failure}"
    mode = session.optimised
    result.fail(message, Difference("model", "", None, message, trial.feeds, optimised=mode))


def _anonymous(message: str) -> str:
    """An error message without the names of nodes, which are other ones in parts of a model."""
    return re.sub(r"'[^']*'", "", message)


def _mode(optimised: bool) -> str:
    return f" with optimisations {'on' if optimised else 'off'}"


def _sizes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{n} {'x'.join(map(str, s)) or 'scalar'}" for n, s in shapes.items())


class _Converted:
    """The converted model: with optimisations, or without any and its sites laid bare."""

    def __init__(
        self, source: reader.Source, folder: Path | None, in_place: InPlace, *, optimised: bool
    ) -> None:
        self.optimised = optimised
        self._source = source
        self._folder = source.folder or folder
        self._in_place = in_place
        self._stored = {t.name: t for t in source.proto.graph.initializer}
        self._outputs = [v.name for v in source.proto.graph.output]
        self._extra = [] if optimised else [n for n in in_place.wanted() if n not in self._outputs]

    def load(self) -> None:
        """Make the session.

        Raises:
            RunFailure: the model does not load.
        """
        data = self._source.data or reader.serialize(self._source.proto, self._source.name)
        more = onnx.ModelProto()
        more.graph.output.extend(onnx.ValueInfoProto(name=n) for n in self._extra)
        try:
            # Serialized messages that are put together merge: two more kilobytes, and no copy.
            self._session = Session(
                data + more.SerializeToString(), optimise=self.optimised, folder=self._folder
            )
        except RunFailure:
            if not self._extra:
                raise
            self._extra = []
            self._session = Session(data, folder=self._folder)

    def run(self, feeds: Mapping[str, Array], *, watch_sites: bool) -> dict[str, Any]:
        """The outputs; without optimisations the sites are compared in passing, if `watch_sites`.

        Raises:
            RunFailure: it cannot run on this data.
        """
        if self.optimised or not watch_sites:
            return self._session.run(feeds, self._outputs)
        try:
            values = self._session.run(feeds, [*self._outputs, *self._extra])
        except RunFailure:
            if not self._extra:
                raise
            # numpy cannot fetch every type from a session that it can also feed strings to.
            values = self._session.run(feeds, self._outputs)
        self._in_place.compare({**feeds, **values}, self._initializer)
        return values

    def _initializer(self, name: str) -> Array | None:
        tensor = self._stored.get(name)
        return None if tensor is None else constant_value(tensor, self._folder)
