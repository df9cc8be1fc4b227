"""What one model goes through, in its own process: read, inspect, and then every check."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnx_spatial.errors import ModelFileError, SpatialError
from onnx_spatial.model.graph import patch_proto
from onnx_spatial.model.io import reader
from onnx_spatial.validation.checks import conversions, record_data, recorded_data
from onnx_spatial.validation.checks.subject import ExaminedModel, ModelForm, Stage
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, Kind, ModelResult, Status

#: In this order; each adds entries to the subject. A further proof of a model is a further line here.
CHECKS: tuple[Callable[[ExaminedModel], None], ...] = (
    conversions.check,  # every mode: converted, and verified against the original
    recorded_data.check,  # every form: on recorded data
)


def examine(
    path: str,
    options: Options,
    stage: Stage = lambda source, text: None,
    record_to: str | None = None,
    reproduce_to: str | None = None,
) -> ModelResult:
    """Put one model through everything. Whatever is wrong with it is in the result.

    Args:
        path: its file.
        options: what it goes through.
        stage: is told what is being done, so that it is known where a crash came.
        record_to: folder to write the model to with a set of recorded data, if it passes.
        reproduce_to: folder for what shows a difference, if there is one.

    Raises:
        MemoryError: it takes more memory than there is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries remark on odd models; errors are ours to tell
        try:
            subject = _read(path, options, stage)
        except SpatialError as error:
            kind: Kind = "unreadable" if isinstance(error, ModelFileError) else "conversion"
            message = str(error).removeprefix(f"{path}: ")
            return ModelResult.without(path, "failed", kind, message, "load")
        subject.reproduce_to = None if reproduce_to is None else Path(reproduce_to)
        for check in CHECKS:
            check(subject)
        if record_to is not None and _status(subject) == "passed":
            record_data.write(subject, Path(record_to))
        return _result(subject)


def _read(path: str, options: Options, stage: Stage) -> ExaminedModel:
    stage("load", "reading the model")
    source = reader.read(path)
    frozen, missing = patch_proto.freeze(source.proto, dict(options.static))
    static = {n: d for n, d in options.static if n not in missing}
    source = reader.resolved(source.holding(frozen) if static else source)
    names = {v.name for v in source.proto.graph.input}
    shapes = {n: s for n, s in options.shapes if n in names}
    subject = ExaminedModel(Path(path), options, source, static, shapes, stage)
    for name in missing:
        subject.add("info", "load", f"it has no dim {name!r} to fix with --static")
    for name, _ in options.shapes:
        if name not in names:
            subject.add("info", "load", f"it has no input {name!r} to give a --shape")
    return subject


def _status(subject: ExaminedModel) -> Status:
    if subject.has_failed():
        return "failed"
    unproven = any(e.kind == "unverified" and e.level == "warning" for e in subject.entries)
    return "unverified" if unproven else "passed"


def _result(subject: ExaminedModel) -> ModelResult:
    status = _status(subject)
    problems = [e for e in subject.entries if e.level == "error"]
    if status == "unverified":
        problems = [e for e in subject.entries if e.kind == "unverified"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"{status}: {problems[0].message}{more}" if problems else _praise(subject)
    return ModelResult(
        str(subject.path),
        status,
        Entry("info", "", message).message,
        problems[0].kind if problems else None,
        subject.entries,
        [site.to_dict() for site in subject.inspection.sites] if subject.inspection else [],
        [_mode(form) for form in subject.forms],
        subject.recorded,
    )


def _praise(subject: ExaminedModel) -> str:
    """What was proven, in one line."""
    parts = []
    for form in subject.forms:
        found = form.verification
        what = form.message or ("" if found is None else found.message.removeprefix("passed: "))
        if form.mode is None:
            sites = subject.inspection is not None and subject.inspection.sites
            what = f"{'nothing' if sites else 'no operators'} to convert; it runs, "
            what += "with optimisations off and on"
        parts.append(f"mode {form.mode}: {what}" if len(subject.forms) > 1 else what)
    sets = dict.fromkeys(str(line["set"]) for line in subject.recorded if line["passed"])
    if sets:
        parts.append(f"gives what is recorded in {', '.join(sets)}")
    return f"passed: {'; '.join(parts)}"


def _mode(form: ModelForm) -> dict[str, Any]:
    found = form.verification
    return {
        "mode": form.mode,
        "changed": form.changed,
        "status": None if found is None else found.status,
        "message": form.message or (None if found is None else found.message),
        "verification": None if found is None else found.to_dict(),
    }
