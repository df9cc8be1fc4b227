"""Examine one model in its own process: read it, then run every check."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnx_spatial.errors import ModelFileError, SpatialError
from onnx_spatial.model.graph import patch_proto
from onnx_spatial.model.io import reader
from onnx_spatial.report.side_by_side import SideBySide
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.checks import conversions, recorded_data
from onnx_spatial.validation.checks.subject import ExaminedModel, ModelForm, Stage
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, Kind, ModelResult, Status
from onnx_spatial.verification import Tolerances

#: The checks, in this order; each adds entries to the model.
CHECKS: tuple[Callable[[ExaminedModel], None], ...] = (
    conversions.check,  # converts the model in every mode and verifies it against the original
    recorded_data.check,  # runs every form on recorded data
)


def examine(
    path: str,
    options: Options,
    stage: Stage = lambda source, text: None,
    reproduce_to: str | None = None,
    *,
    graphs: int | None = None,
) -> ModelResult:
    """Read a model, run every check, and return the result.

    Args:
        path: path of the model.
        options: options of the run.
        stage: called with the current step, which is reported if the process crashes.
        reproduce_to: folder for reproducers of differences.
        graphs: characters that the description of the graphs may have, for a page; None: it is not made.

    Raises:
        MemoryError: memory ran out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries; problems are reported as entries
        try:
            subject = _read(path, options, stage)
        except SpatialError as error:
            kind: Kind = "unreadable" if isinstance(error, ModelFileError) else "conversion"
            message = str(error).removeprefix(f"{path}: ")
            return ModelResult.without(path, "failed", kind, message, "load", error.code)
        subject.reproduce_to = None if reproduce_to is None else Path(reproduce_to)
        for check in CHECKS:
            check(subject)
        result = _result(subject)
        if graphs is not None:
            shown = _graphs(subject)
            shown.leave_out(graphs)
            result.graphs = shown.to_dict()
        return result


def _read(path: str, options: Options, stage: Stage) -> ExaminedModel:
    stage("load", "reading the model")
    source = reader.read(path)
    frozen, missing = patch_proto.freeze(source.proto, dict(options.static))
    static = {n: d for n, d in options.static if n not in missing}
    source = reader.resolved(source.holding(frozen) if static else source)
    names = {v.name for v in source.proto.graph.input}
    shapes = {n: s for n, s in options.shapes if n in names}
    outputs = [v.name for v in source.proto.graph.output]
    tolerances = Tolerances.of(options.rtol, options.atol).of_model(outputs)
    subject = ExaminedModel(Path(path), options, source, static, shapes, tolerances, stage)
    if options.inputs is not None:
        subject.inputs = data_sets.inputs(Path(options.inputs), source.proto)
    for name in missing:
        subject.add("info", "load", f"--static {name}: the model has no dim of this name")
    for name, _ in options.shapes:
        if name not in names:
            subject.add("info", "load", f"--shape {name}: the model has no input of this name")
    return subject


def _status(subject: ExaminedModel) -> Status:
    if subject.has_failed():
        return "failed"
    unverified = any(e.kind == "unverified" and e.level == "warning" for e in subject.entries)
    return "unverified" if unverified else "passed"


def _result(subject: ExaminedModel) -> ModelResult:
    status = _status(subject)
    problems = [e for e in subject.entries if e.level == "error"]
    if status == "unverified":
        problems = [e for e in subject.entries if e.kind == "unverified"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"{status}: {problems[0].message}{more}" if problems else _passed(subject)
    return ModelResult(
        str(subject.path),
        status,
        Entry("info", "", message).message,
        problems[0].kind if problems else None,
        subject.entries,
        _sites(subject),
        [_mode(form) for form in subject.forms],
        subject.recorded,
    )


def _passed(subject: ExaminedModel) -> str:
    """Say in one line what was compared and proven."""
    parts = []
    for form in subject.forms:
        result = form.verification
        text = form.message or ("" if result is None else result.message.removeprefix("passed: "))
        if form.mode is None:
            sites = subject.inspection is not None and subject.inspection.sites
            text = f"{'nothing' if sites else 'no operators'} to convert; it runs, "
            text += "with optimisations off and on"
        elif result is not None and result.sites and not result.outputs_only:
            text += f"; {result.proofs}"
        parts.append(f"mode {form.mode}: {text}" if len(subject.forms) > 1 else text)
    sets = dict.fromkeys(str(line["set"]) for line in subject.recorded if line["passed"])
    if sets:
        parts.append(f"matches the recorded data in {', '.join(sets)}")
    return f"passed: {'; '.join(parts)}"


def _sites(subject: ExaminedModel) -> list[dict[str, Any]]:
    """Return the report of each operator; of an optimization that of each chain, too."""
    found = subject.inspection
    return [] if found is None else [site.to_dict() for site in (*found.sites, *found.chains)]


def _graphs(subject: ExaminedModel) -> SideBySide:
    """Show what the first mode changed; of a model that no mode changes, the model alone."""
    for form in subject.forms:
        if form.changed:
            made = SideBySide.of(subject.source.proto, form.source.proto, form.conversion.summary)
            if len(subject.options.modes) > 1:
                made.sides = ("before", f"after, mode {form.mode}")
            return made
    return SideBySide.of(subject.source.proto, None, None, _sites(subject))


def _mode(form: ModelForm) -> dict[str, Any]:
    result = form.verification
    return {
        "mode": form.mode,
        "changed": form.changed,
        "status": None if result is None else result.status,
        "message": form.message or (None if result is None else result.message),
        "verification": None if result is None else result.to_dict(),
    }
