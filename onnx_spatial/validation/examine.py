"""Examine one model: read it, convert it in memory in each mode, verify the result against the original,
and run it on recorded data. Each step adds entries to the model.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial.api import edit_model, verify_conversion
from onnx_spatial.conversion.options import ConvertOptions, Mode
from onnx_spatial.custom_ops import available
from onnx_spatial.errors import ConversionError, ModelFileError, SpatialError, UsageError
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.report.graphs import SideBySide
from onnx_spatial.report.outcome import Outcome
from onnx_spatial.report.results import Inspection
from onnx_spatial.validation import recorded
from onnx_spatial.validation.examined import ExaminedModel, ModelForm, nodes_by_label
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, Kind, ModelResult, Status
from onnx_spatial.verification import VerifyOptions
from onnx_spatial.verification.process import Progress
from onnx_spatial.verification.run.sessions import RunError

#: Kinds of warnings that leave a model unverified.
_UNDECIDED: tuple[Kind, ...] = ("unverified", "memory")


def examine(
    path: str,
    options: Options,
    note: Progress = lambda text: None,
    *,
    graphs: int | None = None,
) -> ModelResult:
    """Read a model, run every check, and return the result.

    Args:
        path: path of the model.
        options: options of the run.
        note: called with the current step, which is reported if the process crashes.
        graphs: characters that the description of the graphs may have, for a page; None: it is not made.

    Raises:
        MemoryError: memory ran out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries; problems are reported as entries
        try:
            subject = _read_model(path, options, note)
        except SpatialError as error:
            kind: Kind = "unreadable" if isinstance(error, ModelFileError) else "conversion"
            message = str(error).removeprefix(f"{path}: ")
            return ModelResult.without(path, "failed", kind, message, "load", error.code)
        _convert_and_verify(subject)
        recorded.compare_recorded(subject)
        result = _make_result(subject)
        if graphs is not None:
            result.page = _describe_page(subject)
            if result.page.shown is not None:
                result.page.shown.leave_out(graphs)
        return result


def _read_model(path: str, options: Options, note: Progress) -> ExaminedModel:
    note("load: reading the model")
    source = reader.read(path)
    frozen, missing = reader.freeze_dims(source.proto, dict(options.static))
    is_frozen = any(name not in missing for name, _ in options.static)
    source = reader.resolved(source.holding(frozen) if is_frozen else source)
    names = {v.name for v in source.proto.graph.input}
    shapes = {n: s for n, s in options.shapes if n in names}
    subject = ExaminedModel(Path(path), options, source, shapes, note)
    for name in missing:
        subject.add("info", "load", f"--static {name}: the model has no dim of this name")
    for name, _ in options.shapes:
        if name not in names:
            subject.add("info", "load", f"--shape {name}: the model has no input of this name")
    return subject


def _convert_and_verify(subject: ExaminedModel) -> None:
    """Convert in every mode and verify; a model that conversion does not change must run."""
    for mode in subject.options.modes:
        form = _convert_form(subject, mode)
        if form is None:
            continue
        if form.changed:
            _verify_form(subject, form)
            subject.forms.append(form)
        elif all(f.changed for f in subject.forms):
            form.mode = None
            _check_unchanged(subject, form)
            subject.forms.append(form)


def _convert_form(subject: ExaminedModel, mode: Mode) -> ModelForm | None:
    """Convert the model in one mode; None if that fails."""
    options, source = subject.options, f"convert:{mode}"
    subject.progress(source)("optimizing" if options.optimize else "converting")
    asked = ConvertOptions(
        mode,
        options.fuse,
        options.optimize,
        options.prefer,
        options.max_rank,
        options.checked,
        options.domains,
    )
    try:
        done = edit_model(subject.source, asked, strict=options.strict)
    except ConversionError as error:
        _add_refusals(subject, source, error)
        return None
    except SpatialError as error:
        subject.add("error", source, str(error), _kind_of(error), code=error.code)
        return None
    _set_inspection(subject, done.inspection)
    return ModelForm(mode, done)


def _kind_of(error: SpatialError) -> Kind:
    return "unreadable" if isinstance(error, ModelFileError) else "conversion"


def _set_inspection(subject: ExaminedModel, inspection: Inspection) -> None:
    """Keep the inspection of the first mode, and add the operators that are not converted."""
    if subject.inspection is not None:
        return
    subject.inspection = inspection
    for operator in inspection.named:
        if operator.action == "leave" and operator.reason is not None:
            message = f"{operator.op_type} node {operator.node!r} stays as it is: {operator.reason}"
            subject.add("info", "inspect", message, nodes=(operator.node,))


def _add_refusals(subject: ExaminedModel, source: str, error: ConversionError) -> None:
    """Add an error for each operator that is refused, or the error itself if there is none."""
    refused = []
    if isinstance(error.inspection, Inspection):
        _set_inspection(subject, error.inspection)
        refused = [
            operator for operator in error.inspection.operators if operator.action == "refuse"
        ]
    for operator in refused:
        message = f"{operator.op_type} node {operator.node!r} ({operator.graph}): {operator.reason}"
        subject.add("error", source, message, "conversion", (operator.node,), operator.code)
    if not refused:
        subject.add("error", source, str(error), "conversion", code=error.code)


def _verify_form(subject: ExaminedModel, form: ModelForm) -> None:
    """Compare a form with the original; with strict_proof each part that differs must be proven."""
    source, unverified = f"verify:{form.name}", subject.level_of_unverified(form)
    if form.mode == "custom-op" and not available():
        form.message = "Python operators need onnxruntime-extensions, which is not installed"
        subject.add(unverified, source, form.message, "unverified")
        return
    options = VerifyOptions(seed=subject.options.seed, shapes=subject.shapes)
    try:
        form.verification = result = verify_conversion(
            form.conversion, options, subject.options.domains, subject.progress(source)
        )
    except UsageError as error:  # the shapes of the options do not fit
        form.message = str(error)
        subject.add(unverified, source, str(error), "unverified")
        return
    except SpatialError as error:
        form.message = str(error)
        subject.add("error", source, str(error), _kind_of(error), code=error.code)
        return
    if result.status == "failed":
        subject.add_differences(source, result)
    elif result.status == "passed":
        for part in result.unproven:
            nodes = nodes_by_label(result).get(part.node, ())
            if subject.options.strict_proof:
                subject.add("error", source, str(part), "unverified", nodes)
            else:
                subject.add("info", source, str(part), nodes=nodes)


def _check_unchanged(subject: ExaminedModel, form: ModelForm) -> None:
    """Load a model that conversion does not change, and compare its outputs optimised and not."""
    subject.progress("run")("loading")
    try:
        form.session(optimise=True)
    except RunError as error:
        is_valid = not error.lacks_kernel and _is_valid(subject)
        although = ", although onnx.checker accepts it" if is_valid else ""
        form.message = f"onnxruntime does not load it{although}: {error}"
        if error.out_of_memory:
            subject.add(subject.level_of_unverified(form), "run", form.message, "memory")
        elif error.lacks_kernel or is_valid:
            subject.add("warning", "run", form.message, "unverified")
        else:
            subject.add("error", "run", form.message, "does-not-run")
        return
    _verify_form(subject, form)


def _is_valid(subject: ExaminedModel) -> bool:
    """Return whether ONNX's own checker accepts a model.

    onnxruntime then lacks something: a newer operator, a kernel for an attribute, a locale.
    """
    opset = op_traits.opset_of(subject.source.proto.opset_import)
    if opset is not None and opset > onnx.defs.onnx_opset_version():
        return False  # the checker would judge by the newest versions that it knows
    try:
        onnx.checker.check_model(subject.path, full_check=True)
    except Exception:  # of the checker, of shape inference or of protobuf
        return False
    return True


def _judge_model(subject: ExaminedModel) -> Status:
    if subject.has_failed():
        return "failed"
    unverified = any(e.kind in _UNDECIDED and e.level == "warning" for e in subject.entries)
    return "unverified" if unverified else "passed"


def _make_result(subject: ExaminedModel) -> ModelResult:
    status = _judge_model(subject)
    problems = [e for e in subject.entries if e.level == "error"]
    if status == "unverified":
        problems = [e for e in subject.entries if e.kind in _UNDECIDED]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"{status}: {problems[0].message}{more}" if problems else _describe_pass(subject)
    return ModelResult(
        str(subject.path),
        status,
        Entry("info", "", message).message,
        problems[0].kind if problems else None,
        subject.entries,
        _operator_documents(subject),
        [_mode_document(form) for form in subject.forms],
        subject.recorded,
    )


def _describe_pass(subject: ExaminedModel) -> str:
    """Say in one line what was compared and proven."""
    parts = []
    for form in subject.forms:
        result = form.verification
        text = form.message or ("" if result is None else result.message.removeprefix("passed: "))
        if form.mode is None:
            operators = subject.inspection is not None and subject.inspection.named
            text = f"{'nothing' if operators else 'no operators'} to convert; it runs, "
            text += "with optimisations off and on"
        parts.append(f"mode {form.mode}: {text}" if len(subject.forms) > 1 else text)
    sets = dict.fromkeys(str(line["set"]) for line in subject.recorded if line["passed"])
    if sets:
        parts.append(f"matches the recorded data in {', '.join(sets)}")
    return f"passed: {'; '.join(parts)}"


def _operator_documents(subject: ExaminedModel) -> list[dict[str, Any]]:
    """Return the report of each operator; of an optimization that of each chain, too."""
    found = subject.inspection
    return [] if found is None else [operator.to_dict() for operator in found.operators]


def _describe_page(subject: ExaminedModel) -> Outcome:
    """Describe what the first mode changed; of a model that no mode changes, the model alone."""
    for form in subject.forms:
        if form.changed:
            made = replace(form.conversion, verification=form.verification).describe()
            if len(subject.options.modes) > 1 and made.shown is not None:
                made.shown.sides = ("before", f"after, mode {form.mode}")
            return made
    if subject.inspection is not None:
        return subject.inspection.describe()
    return Outcome("", "", "", shown=SideBySide.of(subject.source.proto, None))


def _mode_document(form: ModelForm) -> dict[str, Any]:
    result = form.verification
    return {
        "mode": form.mode,
        "changed": form.changed,
        "status": None if result is None else result.status,
        "message": form.message or (None if result is None else result.message),
        "verification": None if result is None else result.to_dict(),
    }
