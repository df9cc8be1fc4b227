"""Run every form of a model on its recorded inputs and compare with its recorded outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from onnx_spatial.errors import OperatorError, SpatialError, UsageError
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.data_sets import DataSet
from onnx_spatial.validation.examined import ExaminedModel, ModelForm, serialized
from onnx_spatial.verification import OutputResult, VerifyOptions, verify
from onnx_spatial.verification.compare import random_ops
from onnx_spatial.verification.compare.exactness import Exactness, of_outputs
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.compare.rounding import Rounding, Verdict, is_comparable
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.report import plain
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session

#: Allowed difference from recorded outputs behind floating-point arithmetic, relative to the largest
#: value of the output: other frameworks sum in another order, with other kernels.
RECORDED_RTOL = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
#: For the 8-bit floats and other types without an entry in `RECORDED_RTOL`.
_RTOL_OTHER = 0.13

_RANDOM = "random: not compared"


def compare_recorded(subject: ExaminedModel) -> None:
    """Read the recorded data, run the forms on it, and conclude what is verified."""
    for path in data_sets.find(subject.path):
        source = f"recorded:{path.name}"
        subject.progress(source)("reading recorded data")
        try:
            data = data_sets.read(path, subject.source.proto)
        except SpatialError as error:
            subject.add("error", source, str(error), "recorded-data", code=error.code)
            continue
        for name in data.unknown:
            message = f"{path}: holds {name!r}, which is no input or output of the model"
            subject.add("warning", source, message, "recorded-data")
        subject.sets.append(data)
    reference = _reference(subject) if any(s.outputs for s in subject.sets) else _Reference({})
    for form in subject.forms:
        if form.message is None or form.verification is not None:  # it can be run
            _replay(subject, form, reference)
        _conclude(subject, form)


@dataclass(frozen=True)
class _Reference:
    """The original as reference; empty if the model is not understood.

    Attributes:
        exactness: how exactly each output can be expected.
        graph: its graph, with functions inlined.
        program, rounding: to run it, and to see what rounding does to its outputs.
        outputs: its outputs by the id of recorded inputs, which the subject keeps alive.
    """

    exactness: Mapping[str, Exactness]
    graph: onnx.GraphProto = field(default_factory=onnx.GraphProto)
    program: Program | None = None
    rounding: Rounding | None = None
    outputs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def weigh(self, result: OutputResult, inputs: Mapping[str, Any], recorded: Any) -> OutputResult:
        """Accept a mismatch that is no larger than what rounding does to the original."""
        if self.program is None or self.rounding is None:
            return result
        try:
            if id(inputs) not in self.outputs:
                self.outputs[id(inputs)] = self.program.run(inputs)
        except RunFailure:
            return result
        outputs = self.outputs[id(inputs)]
        change = self.rounding.of(inputs, outputs, optimised=True).get(result.name)
        if change is None or not is_comparable(recorded, outputs[result.name]):
            return result
        verdict = change.verdict(recorded)
        if verdict is Verdict.DIFFERS:
            return result
        amount = f"rounding alone changes the original's output by up to {change.amount}"
        if verdict is Verdict.UNDECIDED:
            return replace(result, passed=None, reason=f"{result.reason}; undecided: {amount}")
        reason = f"{result.reason}; accepted: {amount}"
        return replace(result, passed=True, reason=reason, accepted="rounding")


def _reference(subject: ExaminedModel) -> _Reference:
    """Make the original ready to run, also where a foreign operator keeps it from running."""
    source = subject.source
    try:
        infos = ReferenceModel(source, subject.options.domains).known_infos
        known = [info.index for info in infos]
        program = Program(source.proto, known, source.folder)
        return _Reference(of_outputs(program), program.flat.graph, program, Rounding(program))
    except (RunFailure, OperatorError):
        return _Reference({})


def _replay(subject: ExaminedModel, form: ModelForm, reference: _Reference) -> None:
    """Run a form on every data set, with optimisations off and on, and add what differs."""
    for optimised in (False, True):
        subject.progress(f"verify:{form.name}")("loading")
        try:
            session = Session(
                serialized(form.source), optimise=optimised, folder=form.source.folder
            )
        except RunFailure as failure:
            if subject.sets and not subject.has_failed():  # else there is an entry already
                _add_run_failure(subject, form, f"verify:{form.name}", "it does not load", failure)
            return
        for data in subject.sets:
            source = f"recorded:{data.name}"
            subject.progress(source)(f"running mode {form.name} on it")
            try:
                results = _compare(subject, data, session, optimised, reference)
            except RunFailure as failure:
                message = f"it does not run on {data.name}"
                _add_run_failure(subject, form, source, message, failure)
                continue
            form.matched |= any(result.passed is True for result in results)
            for result in results:
                _add_result(subject, form, data, result)


def _add_run_failure(
    subject: ExaminedModel, form: ModelForm, source: str, message: str, failure: RunFailure
) -> None:
    """Add an error, or a warning if onnxruntime lacks a kernel that the model needs."""
    verified = (
        form.changed and form.verification is not None and form.verification.status == "passed"
    )
    message = f"{message}: {failure}"
    if failure.lacks_kernel and not verified:
        subject.add("warning", source, message, "unverified")
    else:
        subject.add("error", source, message, "recorded-data")


def _compare(
    subject: ExaminedModel,
    data: DataSet,
    session: Session,
    optimised: bool,
    reference: _Reference,
) -> list[OutputResult]:
    """Run a session on recorded inputs and compare its outputs with the recorded ones.

    Random numbers belong to one run, or with a seed to one runtime. An output that differs and depends
    on them, or that differs from itself in a second run, is no mismatch.

    Raises:
        RunFailure: the model does not run on this data.
    """
    exactness = reference.exactness

    def compared(name: str, expected: Any, actual: Any) -> list[OutputResult]:
        exact = exactness.get(name, Exactness(arithmetic=True))
        results = compare(name, 0, optimised, expected, actual, exact, same_kernels=False)
        return [_judge(result, exact) for result in results]

    outputs = session.run(data.inputs, list(session.outputs))
    again: dict[str, Any] = {}
    all_results: list[OutputResult] = []
    for name, expected in data.outputs.items():
        results = compared(name, expected, outputs[name])
        if _any_failed(results):
            random = bool(random_ops.operators(reference.graph, name, data.inputs))
            if not random:
                again = again or session.run(data.inputs, list(session.outputs))
                random = _any_failed(compared(name, outputs[name], again[name]))
            if random:
                reason = random_ops.sources(reference.graph, name, data.inputs)
                _add_random(subject, f"recorded:{data.name}", name, reason)
                results = [replace(r, passed=None, reason=_RANDOM) for r in results]
            elif len(results) == 1 and name in exactness:
                results = [_weigh(subject, data, reference, results[0], expected)]
        all_results += results
    return all_results


def _weigh(
    subject: ExaminedModel,
    data: DataSet,
    reference: _Reference,
    result: OutputResult,
    recorded: Any,
) -> OutputResult:
    """Weigh a mismatch behind arithmetic against rounding; add a warning if that is undecided."""
    if not reference.exactness[result.name].arithmetic:
        return result
    result = reference.weigh(result, data.inputs, recorded)
    if result.passed is None:
        message = f"output {result.name!r} {_difference(result)}"
        subject.add("warning", f"recorded:{data.name}", message, "unverified")
    return result


def _any_failed(results: Sequence[OutputResult]) -> bool:
    return any(result.passed is False for result in results)


def _add_random(subject: ExaminedModel, source: str, name: str, reason: str) -> None:
    message = f"output {name!r} is random, so it cannot be compared with recorded data: {reason}"
    if not any(entry.message == message for entry in subject.entries):
        subject.add("warning", source, message, "unverified")


def _judge(result: OutputResult, exactness: Exactness) -> OutputResult:
    """Apply the tolerance for recorded data in place of the one for two forms of a model."""
    if exactness.random:
        return replace(result, passed=None, reason=_RANDOM)
    if result.equal_bits:
        return result
    if result.max_abs_error == 0 and result.max_steps is not None:
        # Only signs of zeros or kinds of NaN differ, as they do between frameworks and releases.
        return replace(result, mismatches=0, passed=True, reason=None)
    if not result.tolerance:
        return result
    allowed = RECORDED_RTOL.get(result.dtype, _RTOL_OTHER)
    relative, absolute = result.max_relative_error, result.max_abs_error
    if relative is not None and relative <= allowed:
        return replace(result, tolerance=allowed, mismatches=0, passed=True, reason=None)
    if result.passed and exactness.discrete:  # accepted behind a step to whole numbers
        return replace(result, tolerance=allowed)
    if relative is None or absolute is None or math.isinf(absolute):
        reason = "differs by NaN or infinity"
    elif math.isinf(relative):
        reason = f"differs by {absolute:.2g}, where all recorded values are 0"
    else:
        reason = f"differs by {relative:.2g} of the largest value; {allowed:g} is allowed"
    return replace(result, tolerance=allowed, passed=False, reason=reason)


def _add_result(
    subject: ExaminedModel, form: ModelForm, data: DataSet, result: OutputResult
) -> None:
    """Add the figures of an output to the report, and an error if it differs."""
    figures = {k: v for k, v in plain(result).items() if k not in ("name", "run")}
    subject.recorded.append({"set": data.name, "mode": form.mode, "output": result.name, **figures})
    if result.passed is False:
        optimisations = f"optimisations {'on' if result.optimised else 'off'}"
        message = (
            f"output {result.name!r} (mode {form.name}, {optimisations}) {_difference(result)}"
        )
        if form.changed and form.verification is not None and form.verification:
            message += "; the converted model was verified to equal the original, so "
            if result.tolerance:
                message += "the data was recorded with other rounding, or "
            message += "the recorded data belongs to another model"
        subject.add("error", f"recorded:{data.name}", message, "recorded-data")


def _difference(result: OutputResult) -> str:
    return f"differs from the recorded data: {result.reason}"


def _conclude(subject: ExaminedModel, form: ModelForm) -> None:
    """Add what is unverified: the form was compared neither on generated nor on recorded data."""
    result = form.verification
    if result is None or result.status != "unverified":
        return
    source = f"verify:{form.name}"
    # Equal outputs verify an unconverted model, or one in which only the operators were replaced.
    matched = form.matched and (not form.changed or result.operators_only)
    if not subject.has_failed() and (_equal_on_recorded(subject, form, source) or matched):
        message = f"verified on recorded data only; on generated data: {result.message}"
        subject.add("info", source, message)
        form.message = "verified on recorded data"
        return
    for problem in result.problems or [result.message]:
        subject.add("warning", source, problem, "unverified")


def _equal_on_recorded(subject: ExaminedModel, form: ModelForm, source: str) -> bool:
    """Return whether original and form are equal on recorded inputs; add what differs."""
    equal = False
    for data in subject.sets:
        if not data.dense:
            continue
        try:
            result = verify(
                subject.source,
                form.source,
                VerifyOptions(inputs=data.inputs, seed=subject.options.seed),
                domains=subject.options.domains,
                progress=subject.progress(source),
            )
        except UsageError as error:
            place, message = f"recorded:{data.name}", str(error)
            subject.add("error", place, message, "recorded-data", code=error.code)
            return False
        if result.status == "failed":
            subject.add_differences(source, result)
            return False
        equal |= result.status == "passed"
    return equal
