"""Run every form of a model on its recorded inputs and compare with its recorded outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onnx_spatial import facts
from onnx_spatial.errors import OperatorError, SpatialError, UsageError
from onnx_spatial.validation import recorded
from onnx_spatial.validation.conversions import say_differences, serialized
from onnx_spatial.validation.options import RECORDED_RTOL
from onnx_spatial.validation.recorded import DataSet
from onnx_spatial.validation.subject import Form, Subject
from onnx_spatial.verify import OutputResult, verify
from onnx_spatial.verify.compare import compare
from onnx_spatial.verify.exactness import Exactness, of_outputs
from onnx_spatial.verify.inputs import graph_inputs, named_dims
from onnx_spatial.verify.program import Program
from onnx_spatial.verify.sessions import RunFailure, Session

#: For the 8-bit floats and whatever else has no line of its own.
_RTOL_OTHER = 0.13


def check(subject: Subject) -> None:
    """Read the recorded data, run the forms on it, and see what is proven by that."""
    for path in recorded.find(subject.path):
        source = f"recorded:{path.name}"
        subject.stage(source, "reading recorded data")
        try:
            found = recorded.read(path, subject.source.proto)
        except SpatialError as error:
            subject.add("error", source, str(error), "recorded-data")
            continue
        for name in found.unknown:
            message = f"{path}: holds {name!r}, which is no input or output of the model"
            subject.add("warning", source, message, "recorded-data")
        subject.sets.append(found)
    marks = _marks(subject) if any(s.outputs for s in subject.sets) else {}
    for form in subject.forms:
        if form.message is None or form.verification is not None:  # it can be run
            _replay(subject, form, marks)
        _conclude(subject, form)


def _marks(subject: Subject) -> Mapping[str, Exactness]:
    """How exactly the outputs can be expected; nothing is known where the model is not understood."""
    source, inputs = subject.source, graph_inputs(subject.source.proto)
    try:
        named = named_dims(source.proto, inputs)
        found = facts.find(named, subject.options.domains, source.folder)
        known = [f.index for f in found if f.known_domain]
        return of_outputs(Program(source.proto, known, source.folder))
    except (RunFailure, OperatorError):
        return {}


def _replay(subject: Subject, form: Form, marks: Mapping[str, Exactness]) -> None:
    compared = False
    for optimised in (False, True):
        try:
            session = Session(
                serialized(form.source), optimise=optimised, folder=form.source.folder
            )
        except RunFailure as failure:
            if subject.sets and not subject.has_failed():  # else it was said before
                _say_not_run(subject, f"verify:{form.name}", f"it does not load: {failure}")
            return
        for data in subject.sets:
            source = f"recorded:{data.name}"
            subject.stage(source, f"running mode {form.name} on it")
            try:
                outputs = session.run(data.inputs, list(session.outputs))
            except RunFailure as failure:
                _say_not_run(subject, source, f"it does not run on {data.name}: {failure}")
                continue
            for name, expected in data.outputs.items():
                mark = marks.get(name, Exactness(arithmetic=True))
                for result in compare(
                    name, 0, optimised, expected, outputs[name], mark, same_kernels=False
                ):
                    judged = _judge(result, mark, subject.options.rtol)
                    compared |= judged.passed is True
                    _note(subject, form, data, judged)
    form.matched = compared


def _say_not_run(subject: Subject, source: str, message: str) -> None:
    subject.add("error", source, message, "recorded-data")


def _judge(result: OutputResult, mark: Exactness, rtol: float | None) -> OutputResult:
    """The verdict by the tolerance for recorded data instead of that for two forms of one model."""
    if mark.random:
        return replace(result, passed=None, reason="random: not compared")
    if not result.tolerance or result.equal_bits:
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


def _note(subject: Subject, form: Form, data: DataSet, result: OutputResult) -> None:
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
            message += "so the recorded data belongs to another model"
        subject.add("error", f"recorded:{data.name}", message, "recorded-data")


def _is_not(result: OutputResult) -> str:
    return f"is not what is recorded: {result.reason}"


def _conclude(subject: Subject, form: Form) -> None:
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


def _matches(form: Form) -> bool:
    """Whether what is recorded proves all there is: a model as it came, or one whose sites all are."""
    assert form.verification is not None
    return form.matched and (not form.changed or form.verification.sites_only)


def _proven_on_recorded(subject: Subject, form: Form, source: str) -> bool:
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
