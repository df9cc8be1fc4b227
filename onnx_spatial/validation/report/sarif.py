"""SARIF 2.1.0, which code scanning reads: one result for each error and warning."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onnx_spatial.validation.result import Entry, Kind, ModelResult, Report

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_RULES: dict[Kind, str] = {
    "difference": "The converted model gives something else than the original.",
    "recorded-data": "The model does not give what is recorded, or the data does not fit it.",
    "unreadable": "The file is no ONNX model, or is damaged, or its data is missing.",
    "conversion": "An operator breaks its own rules, or cannot be converted.",
    "does-not-run": "onnxruntime does not run the model.",
    "unverified": "The model could not be verified.",
    "crash": "The process that looked at the model crashed.",
    "timeout": "Looking at the model took longer than it may.",
    "memory": "Looking at the model took more memory than it may.",
    "lost": "The worker that looked at the model went away.",
    "not-run": "The model was not looked at: another one had failed, or the run was interrupted.",
    "xpassed": "The model was expected to fail, and does not.",
}
_ORDER = list(_RULES)
#: Levels of entries without a kind are remarks.
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(report: Report, base: Path | None = None) -> dict[str, Any]:
    """The log, ready for JSON.

    Args:
        report: to render.
        base: folder that paths become relative to, such as the top of the repository; None: the
            current one.
    """
    base = (base or Path.cwd()).resolve()
    results = [
        _result(model, entry, report, base) for model in report.models for entry in model.problems()
    ]
    driver = {
        "name": "onnx-spatial",
        "version": report.tools.get("version", "0"),
        "rules": [
            {"id": kind, "shortDescription": {"text": text}, "fullDescription": {"text": text}}
            for kind, text in _RULES.items()
        ],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "onnx-spatial/validate/"},
        "invocations": [_invocation(report)],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _invocation(report: Report) -> dict[str, Any]:
    """The run itself, which is no success where it did not come to its end."""
    found: dict[str, Any] = {
        "executionSuccessful": not report.interrupted,
        "exitCode": report.exit_code,
        "startTimeUtc": report.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if report.interrupted:
        text = f"interrupted: {report.message}"
        found["toolExecutionNotifications"] = [{"level": "error", "message": {"text": text}}]
    return found


def _result(model: ModelResult, entry: Entry, report: Report, base: Path) -> dict[str, Any]:
    kind = entry.kind or "unverified"
    strict = report.options.strict and entry.kind == "unverified"
    uri = _uri(Path(model.model), base)
    location: dict[str, Any] = {
        # GitHub shows only what has a line; a model has none.
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}
    }
    if entry.nodes:
        location["logicalLocations"] = [{"name": node, "kind": "node"} for node in entry.nodes]
    suppressed = [{"kind": "external", "justification": "--expect-failure"}]
    same = "\0".join((uri, kind, entry.source, *entry.nodes))
    return {
        "ruleId": kind,
        "ruleIndex": _ORDER.index(kind),
        "level": "error" if strict else _LEVELS[entry.level],
        "message": {"text": f"{entry.source}: {entry.message}"},
        "locations": [location],
        "suppressions": suppressed if model.status == "xfailed" else [],
        # The same trouble in another run: sizes and figures in the message may be other ones.
        "partialFingerprints": {"onnxSpatial/v1": hashlib.sha256(same.encode()).hexdigest()},
        "properties": {"reproduce": report.reproduce(model), "source": entry.source},
    }


def _uri(path: Path, base: Path) -> str:
    """The path relative to the base where it is below it, else a file URI."""
    absolute = path.absolute()
    for folder in (base, Path.cwd()):
        if absolute.is_relative_to(folder):
            return quote(os.fsencode(absolute.relative_to(folder).as_posix()))
    return absolute.as_uri()
