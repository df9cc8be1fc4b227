"""Run every form of a model on its recorded inputs, and compare with its recorded outputs.

moved data      every bit is the same, but for signs of zeros and kinds of NaN
sums of reals   |a - b| <= rtol * max|recorded| for every element (`RECORDED_RTOL`)
random numbers  are not compared where they differ: they belong to one run, or to one runtime
"""

from __future__ import annotations

from dataclasses import replace

from onnx import TensorProto

from onnx_spatial import analysis
from onnx_spatial.api import verify_conversion
from onnx_spatial.errors import SpatialError, UsageError
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.data_sets import DataSet
from onnx_spatial.validation.examined import ExaminedModel, ModelForm
from onnx_spatial.verification import OutputResult, VerifyOptions
from onnx_spatial.verification.evidence import plain
from onnx_spatial.verification.run.sessions import RunError, Session
from onnx_spatial.verification.values import RTOL, RTOL_OF_8_BITS, Kind, Kinds, compare

#: Allowed error, by the one between two forms of a model: other frameworks sum in another order, with
#: other kernels.
RECORDED_RTOL = {
    0.0: 0.0,
    RTOL[TensorProto.DOUBLE]: 1e-7,
    RTOL[TensorProto.FLOAT]: 1e-4,
    RTOL[TensorProto.FLOAT16]: 1e-2,
    RTOL[TensorProto.BFLOAT16]: 5e-2,
    RTOL_OF_8_BITS: RTOL_OF_8_BITS,
}


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
    for form in subject.forms:
        if subject.sets and (form.message is None or form.verification is not None):
            kinds = _value_kinds(subject)
            for optimised in (False, True):
                _run_recorded(subject, form, kinds, optimised=optimised)
        _conclude_form(subject, form)


def _value_kinds(subject: ExaminedModel) -> Kinds:
    """Return how exactly each value of the original can be expected."""
    proto = subject.source.proto
    known = analysis.find(proto, subject.options.domains, subject.source.folder)
    return Kinds(proto, known, known.facts)


def _run_recorded(
    subject: ExaminedModel, form: ModelForm, kinds: Kinds, *, optimised: bool
) -> None:
    """Run a form on every data set, and add what differs."""
    subject.progress(f"verify:{form.name}")("loading")
    try:
        session = form.session(optimise=optimised)
    except RunError as error:
        if not subject.has_failed():  # else there is an entry already
            _add_run_error(subject, form, f"verify:{form.name}", "it does not load", error)
        return
    for data in subject.sets:
        source = f"recorded:{data.name}"
        subject.progress(source)(f"running mode {form.name} on it")
        try:
            results = _compare_outputs(subject, data, session, kinds, optimised)
        except RunError as error:
            _add_run_error(subject, form, source, f"it does not run on {data.name}", error)
            continue
        form.matched |= any(result.passed is True for result in results)
        for result in results:
            _add_result(subject, form, data, result)


def _add_run_error(
    subject: ExaminedModel, form: ModelForm, source: str, message: str, error: RunError
) -> None:
    """Add an error, or a warning if onnxruntime lacks a kernel that the model needs."""
    verified = form.changed and form.verification is not None and bool(form.verification)
    if error.out_of_memory:
        level = subject.level_of_unverified(form)
        subject.add(level, source, f"{message}: {error}", "memory")
    elif error.lacks_kernel and not verified:
        subject.add("warning", source, f"{message}: {error}", "unverified")
    else:
        subject.add("error", source, f"{message}: {error}", "recorded-data")


def _compare_outputs(
    subject: ExaminedModel, data: DataSet, session: Session, kinds: Kinds, optimised: bool
) -> list[OutputResult]:
    """Run a session on recorded inputs and compare its outputs with the recorded ones.

    Raises:
        RunError: the model does not run on this data.
    """
    outputs, known = session.run(data.inputs), kinds.of_values()
    found: list[OutputResult] = []
    for name, expected in data.outputs.items():
        kind = known.get(name, Kind())
        wide = replace(kind, rtol=RECORDED_RTOL[kind.rtol])
        results = [
            _accept_signs(r) for r in compare(name, 0, optimised, expected, outputs[name], wide)
        ]
        if not all(result.passed for result in results):
            reason = kind.random
            if not reason:
                again = compare(
                    name, 0, optimised, outputs[name], session.run(data.inputs)[name], wide
                )
                reason = "" if all(each.passed for each in again) else "it differs from run to run"
            if reason:
                results = [replace(r, passed=None, reason=f"random: {reason}") for r in results]
                _add_random(subject, f"recorded:{data.name}", name, reason)
        found += results
    return found


def _accept_signs(result: OutputResult) -> OutputResult:
    """Accept signs of zeros and kinds of NaN, which differ between frameworks and releases."""
    if result.passed or result.max_abs_error != 0 or result.max_steps is None:
        return result
    return replace(result, mismatches=0, passed=True, reason=None)


def _add_random(subject: ExaminedModel, source: str, name: str, reason: str) -> None:
    message = f"output {name!r} is random, so it cannot be compared with recorded data: {reason}"
    if not any(entry.message == message for entry in subject.entries):
        subject.add("warning", source, message, "unverified")


def _add_result(
    subject: ExaminedModel, form: ModelForm, data: DataSet, result: OutputResult
) -> None:
    """Add the figures of an output to the report, and an error if it differs."""
    figures = {k: v for k, v in plain(result).items() if k not in ("name", "run")}
    subject.recorded.append({"set": data.name, "mode": form.mode, "output": result.name, **figures})
    if result.passed is not False:
        return
    where = f"mode {form.name}, optimisations {'on' if result.optimised else 'off'}"
    message = f"output {result.name!r} ({where}) differs from the recorded data: {result.reason}"
    if form.changed and form.verification:
        rounding = "the data was recorded with other rounding, or " if result.tolerance else ""
        message += f"; the converted model was verified to equal the original, so {rounding}"
        message += "the recorded data belongs to another model"
    subject.add("error", f"recorded:{data.name}", message, "recorded-data")


def _conclude_form(subject: ExaminedModel, form: ModelForm) -> None:
    """Add what is unverified: the form was compared neither on generated nor on recorded data."""
    result = form.verification
    if result is None or result.status != "unverified":
        return
    source = f"verify:{form.name}"
    if not subject.has_failed() and (_verify_on_recorded(subject, form, source) or form.matched):
        message = f"verified on recorded data only; on generated data: {result.message}"
        subject.add("info", source, message)
        form.message = "verified on recorded data"
        return
    for problem in result.problems:
        level = subject.level_of_unverified(form)
        subject.add(level, source, problem, "memory" if result.out_of_memory else "unverified")


def _verify_on_recorded(subject: ExaminedModel, form: ModelForm, source: str) -> bool:
    """Return whether original and form are equal on recorded inputs; add what differs."""
    equal = False
    for data in subject.sets:
        if not data.dense:
            continue
        options = VerifyOptions(inputs=data.inputs, seed=subject.options.seed)
        note = subject.progress(source)
        try:
            result = verify_conversion(form.conversion, options, subject.options.domains, note)
        except UsageError as error:
            place, message = f"recorded:{data.name}", str(error)
            subject.add("error", place, message, "recorded-data", code=error.code)
            return False
        if result.status == "failed":
            subject.add_differences(source, result)
            return False
        equal |= result.status == "passed"
    return equal
