"""Run the original and the converted model on the same data and compare every output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial.facts import Finding
from onnx_spatial.graph import files
from onnx_spatial.verify import exactness, trials
from onnx_spatial.verify.compare import OutputResult, compare
from onnx_spatial.verify.exactness import Exactness
from onnx_spatial.verify.in_place import InPlace
from onnx_spatial.verify.inputs import GraphInput
from onnx_spatial.verify.interface import overridable
from onnx_spatial.verify.program import Program
from onnx_spatial.verify.report import Difference, Run
from onnx_spatial.verify.same_padding import REFUSAL
from onnx_spatial.verify.search import Trial
from onnx_spatial.verify.sessions import RunFailure, Session
from onnx_spatial.verify.trials import Request
from onnx_spatial.verify.values import Array, constant_value, dtype_name, same_bits


@dataclass
class EndToEnd:
    """What the runs of the whole models gave.

    Attributes:
        runs, outputs, forced: see `Verification`.
        failures: what is wrong.
        gaps: what could not be compared, because of sizes that were not found.
        obstacles: what could not be compared, because of what is in the model.
        difference: the first output that differs, or run that fails, with its inputs.
        executed: positions of the sites that took part in a run.
    """

    runs: list[Run] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    difference: Difference | None = None
    executed: set[int] = field(default_factory=set)

    def fail(self, message: str, difference: Difference | None = None) -> None:
        """Note something wrong, and with it the inputs that show it."""
        self.failures.append(message)
        self.difference = self.difference or difference


def run(
    original: files.Source,
    converted: files.Source,
    inputs: Sequence[GraphInput],
    findings: Sequence[Finding],
    in_place: InPlace,
    request: Request,
) -> EndToEnd:
    """Compare the outputs of two models that have the same inputs and outputs.

    Raises:
        UsageError: the data or shapes asked for do not fit the model, or it does not run on them.
    """
    result = EndToEnd()
    try:
        program = trials.program_of(original, findings, inputs)
        found = trials.find(program, original, inputs, findings, request)
        result.gaps, result.forced = found.gaps, found.forced
        if not found.trials:
            return result
        marks = _marks(program, found.trials[0], result)
    except RunFailure as failure:
        result.obstacles.append(str(failure))
        return result
    program.close()  # every session maps the weights or holds copies: one at a time
    _describe(found.trials, converted, request, result)
    for optimised in (False, True):
        session = _Converted(converted, original.folder, in_place, optimised=optimised)
        if not _compare(program, session, found.trials, marks, request, result):
            break
    result.executed = {site for trial in found.trials for site in trial.executed}
    return result


def _marks(program: Program, trial: Trial, result: EndToEnd) -> dict[str, Exactness]:
    """How exactly outputs can be expected; those that differ from run to run are `random`."""
    marks = exactness.of_outputs(program)
    again = program.run(trial.feeds)
    for name, value in trial.outputs.items():
        if not _same(value, again[name]):
            marks[name] |= Exactness(random=True)
        if marks[name].random:
            result.obstacles.append(f"output {name!r} differs from run to run: it is random")
    return marks


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if hasattr(a, "dtype") and hasattr(b, "dtype"):
        return same_bits(a, b)
    return bool(a == b)


def _describe(
    trials: Sequence[Trial], converted: files.Source, request: Request, result: EndToEnd
) -> None:
    defaults = {v.name for v in overridable(converted.proto)}
    for trial in trials:
        shapes = {n: a.shape for n, a in trial.feeds.items()}
        dtypes = {n: dtype_name(a) for n, a in trial.feeds.items()}
        overridden = tuple(n for n in trial.feeds if n in defaults)
        result.runs.append(Run(request.seed, shapes, dtypes, overridden))


def _compare(
    program: Program,
    session: _Converted,
    trials: Sequence[Trial],
    marks: Mapping[str, Exactness],
    request: Request,
    result: EndToEnd,
) -> bool:
    """Run the converted model and compare it with what the original gave; whether it loads."""
    try:
        session.load()
    except RunFailure as failure:
        _broken(program, "does not load", failure, trials[0], result)
        return False
    for number, trial in enumerate(trials):
        shapes = {n: a.shape for n, a in trial.feeds.items()}
        request.progress(f"run {number + 1}/{len(trials)}: {_sizes(shapes)}")
        try:
            outputs = session.run(trial.feeds)
        except RunFailure as failure:
            _broken(program, f"does not run{_mode(session.optimised)}", failure, trial, result)
            continue
        for name, expected in trial.outputs.items():
            found = compare(
                name,
                number,
                session.optimised,
                expected,
                outputs[name],
                marks[name],
                same_kernels=not program.substitutes,
            )
            _record(found, trial, result, marks[name])
    return True


def _record(found: Sequence[OutputResult], trial: Trial, result: EndToEnd, mark: Exactness) -> None:
    for output in found:
        if mark.random:
            result.outputs.append(replace(output, passed=None, reason="random: not compared"))
            continue
        result.outputs.append(output)
        if not output.passed:
            message = f"output {output.name!r}{_mode(output.optimised)}: {output.reason}"
            result.fail(message, Difference("output", output.name, None, message, trial.feeds))


def _broken(
    program: Program, message: str, failure: RunFailure, trial: Trial, result: EndToEnd
) -> None:
    """The converted model does not load or run; no fault of its own if the original does not."""
    refused = program.pads and REFUSAL in str(failure)
    if refused or any(_anonymous(str(failure)) == _anonymous(s) for s in program.substitutes):
        reason = f"onnxruntime cannot run the rest of the model: {failure}"
        if reason not in result.obstacles:
            result.obstacles.append(reason)
        return
    message = f"the converted model {message}: {failure}"
    result.fail(message, Difference("model", "", None, message, trial.feeds))


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
        self, source: files.Source, folder: Path | None, in_place: InPlace, *, optimised: bool
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
        data = self._source.data or files.serialize(self._source.proto, self._source.name)
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

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """The outputs; without optimisations the sites are compared in passing.

        Raises:
            RunFailure: it cannot run on this data.
        """
        if self.optimised:
            return self._session.run(feeds)
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
        return None if tensor is None else constant_value(tensor, str(self._folder or ""))
