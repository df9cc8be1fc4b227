"""Run every form of a model on its recorded inputs and compare with its recorded outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from onnx_spatial import analysis
from onnx_spatial.errors import OperatorError, SpatialError, UsageError
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.checks.conversions import say_differences, serialized
from onnx_spatial.validation.checks.subject import ExaminedModel, ModelForm
from onnx_spatial.validation.data_sets import DataSet
from onnx_spatial.validation.options import RECORDED_RTOL
from onnx_spatial.verification import OutputResult, verify
from onnx_spatial.verification.compare import random_ops
from onnx_spatial.verification.compare.exactness import Exactness, of_outputs
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.compare.rounding import Rounding, Verdict, is_comparable
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session
from onnx_spatial.verification.sizes.model_inputs import graph_inputs, named_dims

#: For the 8-bit floats and whatever else has no line of its own.
_RTOL_OTHER = 0.13

_RANDOM = "random: not compared"


def check(subject: ExaminedModel) -> None:
    """Read the recorded data, run the forms on it, and see what is proven by that."""
    for path in data_sets.find(subject.path):
        source = f"recorded:{path.name}"
        subject.stage(source, "reading recorded data")
        try:
            found = data_sets.read(path, subject.source.proto)
        except SpatialError as error:
            subject.add("error", source, str(error), "recorded-data")
            continue
        for name in found.unknown:
            message = f"{path}: holds {name!r}, which is no input or output of the model"
            subject.add("warning", source, message, "recorded-data")
        subject.sets.append(found)
    known = _known(subject) if any(s.outputs for s in subject.sets) else _Known({})
    for form in subject.forms:
        if form.message is None or form.verification is not None:  # it can be run
            _replay(subject, form, known)
        _conclude(subject, form)


@dataclass(frozen=True)
class _Known:
    """What is known of a model: how exactly its outputs can be expected, and its graph, inlined.

    Nothing is known where the model is not understood.
    """

    marks: Mapping[str, Exactness]
    graph: onnx.GraphProto = field(default_factory=onnx.GraphProto)
    program: Program | None = None
    rounding: Rounding | None = None
    #: What the original gives on recorded inputs, by the id of these, which the subject keeps.
    outputs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def weighed(
        self, result: OutputResult, feeds: Mapping[str, Any], recorded: Any
    ) -> OutputResult:
        """A mismatch beside what rounding does to the original: whoever recorded it rounds otherwise."""
        if self.program is None or self.rounding is None:
            return result
        try:
            if id(feeds) not in self.outputs:
                self.outputs[id(feeds)] = self.program.run(feeds)
        except RunFailure:
            return result
        outputs = self.outputs[id(feeds)]
        moved = self.rounding.of(feeds, outputs, optimised=True).get(result.name)
        if moved is None or not is_comparable(recorded, outputs[result.name]):
            return result
        verdict = moved.verdict(recorded)
        if verdict is Verdict.DIFFERS:
            return result
        amount = f"rounding alone moves the original by up to {moved.amount}"
        if verdict is Verdict.UNDECIDED:
            return replace(result, passed=None, reason=f"{result.reason}; undecided: {amount}")
        remark = f"{result.reason}; accepted: {amount}"
        return replace(result, passed=True, reason=remark, accepted="rounding")


def _known(subject: ExaminedModel) -> _Known:
    source, inputs = subject.source, graph_inputs(subject.source.proto)
    try:
        named = named_dims(source.proto, inputs)
        found = analysis.find(named, subject.options.domains, source.folder)
        known = [f.index for f in found if f.known_domain]
        program = Program(source.proto, known, source.folder)
        return _Known(of_outputs(program), program.flat.graph, program, Rounding(program))
    except (RunFailure, OperatorError):
        return _Known({})


def _replay(subject: ExaminedModel, form: ModelForm, known: _Known) -> None:
    compared = False
    for optimised in (False, True):
        try:
            session = Session(
                serialized(form.source), optimise=optimised, folder=form.source.folder
            )
        except RunFailure as failure:
            if subject.sets and not subject.has_failed():  # else it was said before
                _say_not_run(subject, form, f"verify:{form.name}", "it does not load", failure)
            return
        for data in subject.sets:
            source = f"recorded:{data.name}"
            subject.stage(source, f"running mode {form.name} on it")
            try:
                results = _compared(subject, data, session, optimised, known)
            except RunFailure as failure:
                message = f"it does not run on {data.name}"
                _say_not_run(subject, form, source, message, failure)
                continue
            compared |= any(result.passed is True for result in results)
            for result in results:
                _note(subject, form, data, result)
    form.matched = compared


def _say_not_run(
    subject: ExaminedModel, form: ModelForm, source: str, message: str, failure: RunFailure
) -> None:
    """A failure, unless it is onnxruntime that lacks what the model needs."""
    ours = form.changed and form.verification is not None and form.verification.status == "passed"
    message = f"{message}: {failure}"
    if failure.lacks_kernel and not ours:
        subject.add("warning", source, message, "unverified")
    else:
        subject.add("error", source, message, "recorded-data")


def _compared(
    subject: ExaminedModel,
    data: DataSet,
    session: Session,
    optimised: bool,
    known: _Known,
) -> list[OutputResult]:
    """What a session gives, compared with what is recorded.

    Random numbers are those of one run, with a seed those of one runtime: what differs and has to
    do with them, or is computed once more and differs from itself, is no mismatch.

    Raises:
        RunFailure: it does not run on this data.
    """

    def judged(name: str, expected: Any, actual: Any) -> list[OutputResult]:
        mark = known.marks.get(name, Exactness(arithmetic=True))
        found = compare(name, 0, optimised, expected, actual, mark, same_kernels=False)
        return [_judge(result, mark, subject.options.rtol) for result in found]

    outputs = session.run(data.inputs, list(session.outputs))
    again: dict[str, Any] = {}
    results: list[OutputResult] = []
    for name, expected in data.outputs.items():
        found = judged(name, expected, outputs[name])
        if not _all_right(found):
            random = bool(random_ops.operators(known.graph, name, data.inputs))
            if not random:
                again = again or session.run(data.inputs, list(session.outputs))
                random = not _all_right(judged(name, outputs[name], again[name]))
            if random:
                why = random_ops.sources(known.graph, name, data.inputs)
                _say_random(subject, f"recorded:{data.name}", name, why)
                found = [replace(r, passed=None, reason=_RANDOM) for r in found]
            elif len(found) == 1 and subject.options.rtol is None:
                found = [_weighed(subject, data, known, found[0], expected)]
        results += found
    return results


def _weighed(
    subject: ExaminedModel, data: DataSet, known: _Known, result: OutputResult, recorded: Any
) -> OutputResult:
    mark = known.marks.get(result.name)
    if mark is None or not mark.arithmetic:
        return result
    found = known.weighed(result, data.inputs, recorded)
    if found.passed is None:
        message = f"output {found.name!r} {_is_not(found)}"
        subject.add("warning", f"recorded:{data.name}", message, "unverified")
    return found


def _all_right(results: Sequence[OutputResult]) -> bool:
    return all(result.passed is not False for result in results)


def _say_random(subject: ExaminedModel, source: str, name: str, why: str) -> None:
    message = f"output {name!r} is random, so that nothing recorded proves it: {why}"
    if not any(entry.message == message for entry in subject.entries):
        subject.add("warning", source, message, "unverified")


def _judge(result: OutputResult, mark: Exactness, rtol: float | None) -> OutputResult:
    """The verdict by the tolerance for recorded data instead of that for two forms of one model."""
    if mark.random:
        return replace(result, passed=None, reason=_RANDOM)
    if result.equal_bits:
        return result
    if result.max_abs_error == 0 and result.max_steps is not None:
        # The sign of a zero, or which NaN it is: frameworks, and releases of one, do not agree.
        return replace(result, mismatches=0, passed=True, reason=None)
    if not result.tolerance:
        return result
    allowed = RECORDED_RTOL.get(result.dtype, _RTOL_OTHER) if rtol is None else rtol
    error, apart = result.max_relative_error, result.max_abs_error
    if error is not None and error <= allowed:
        return replace(result, tolerance=allowed, mismatches=0, passed=True, reason=None)
    if result.passed and mark.discrete:  # accepted behind a step to whole numbers
        return replace(result, tolerance=allowed)
    if error is None or apart is None or math.isinf(apart):
        reason = "differs by NaN or infinity"
    elif math.isinf(error):
        reason = f"differs by {apart:.2g} at most, where everything recorded is 0"
    else:
        reason = (
            f"differs by {error:.2g} of the largest value at most, where {allowed:g} is allowed"
        )
    return replace(result, tolerance=allowed, passed=False, reason=reason)


def _note(subject: ExaminedModel, form: ModelForm, data: DataSet, result: OutputResult) -> None:
    figures = {k: v for k, v in vars(result).items() if k not in ("name", "run")}
    for key, value in figures.items():
        if isinstance(value, float) and not math.isfinite(value):
            figures[key] = None
    figures["shape"] = list(result.shape)
    line: dict[str, Any] = {"set": data.name, "mode": form.mode, "output": result.name, **figures}
    subject.recorded.append(line)
    if result.passed is False:
        how = f"optimisations {'on' if result.optimised else 'off'}"
        message = f"output {result.name!r} (mode {form.name}, {how}) {_is_not(result)}"
        if form.changed and form.verification is not None and form.verification:
            message += "; the conversion is proven to give what the original gives, "
            other = "the recorded data belongs to another model"
            rounds = f"what recorded it rounds otherwise (--rtol allows more), or {other}"
            message += f"so {rounds if result.tolerance else other}"
        subject.add("error", f"recorded:{data.name}", message, "recorded-data")


def _is_not(result: OutputResult) -> str:
    return f"is not what is recorded: {result.reason}"


def _conclude(subject: ExaminedModel, form: ModelForm) -> None:
    """Say what is left unproven: made-up data proved nothing, and recorded data has not, either."""
    found = form.verification
    if found is None or found.status != "unverified":
        return
    source = f"verify:{form.name}"
    if not subject.has_failed() and (_proven_on_recorded(subject, form, source) or _matches(form)):
        subject.add(
            "info", source, f"proven on recorded data only; on made-up data: {found.message}"
        )
        form.message = "proven on recorded data"
        return
    for problem in found.problems or [found.message]:
        subject.add("warning", source, problem, "unverified")


def _matches(form: ModelForm) -> bool:
    """Whether what is recorded proves all there is: a model as it came, or one whose sites all are."""
    assert form.verification is not None
    return form.matched and (not form.changed or form.verification.sites_only)


def _proven_on_recorded(subject: ExaminedModel, form: ModelForm, source: str) -> bool:
    """Whether original and form give the same on recorded inputs; what differs is said."""
    proven = False
    for data in subject.sets:
        if not data.dense:
            continue
        try:
            found = verify(
                subject.source,
                form.source,
                inputs=data.inputs,
                seed=subject.options.seed,
                domains=subject.options.domains,
                progress=lambda text: subject.stage(source, text),
            )
        except UsageError as error:
            subject.add("error", f"recorded:{data.name}", str(error), "recorded-data")
            return False
        if found.status == "failed":
            say_differences(subject, source, found)
            return False
        proven |= found.status == "passed"
    return proven
