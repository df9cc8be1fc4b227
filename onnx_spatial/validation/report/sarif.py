"""Render SARIF 2.1.0 for code scanning: one result for each error and warning."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onnx_spatial.errors import Code
from onnx_spatial.errors.messages import MESSAGES, help_uri
from onnx_spatial.validation.result import Entry, ModelResult, Report

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_ORDER = list(MESSAGES)
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(report: Report) -> str:
    """Render the log; paths are relative to GITHUB_WORKSPACE where it is set."""
    return json.dumps(document(report), indent=2) + "\n"


def document(report: Report, base: Path | None = None) -> dict[str, Any]:
    """Return the log, ready for JSON.

    Args:
        report: the report.
        base: folder that paths become relative to; None: GITHUB_WORKSPACE or the current folder.
    """
    base = (base or Path(os.environ.get("GITHUB_WORKSPACE") or ".")).resolve()
    results = [
        _result(model, entry, report, base) for model in report.models for entry in model.problems()
    ]
    driver = {
        "name": "onnx-spatial",
        "version": report.tools.get("version", "0"),
        "rules": [_rule(code) for code in MESSAGES],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "onnx-spatial/validate/"},
        "invocations": [_invocation(report)],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: Code) -> dict[str, Any]:
    """Describe a code; the address of its section in the pages is given where it is known."""
    message, uri = MESSAGES[code], help_uri(code)
    rule: dict[str, Any] = {
        "id": code,
        "name": code.name.title().replace("_", ""),
        "shortDescription": {"text": message.title},
        "fullDescription": {"text": message.cause},
        "help": {"text": f"{message.remedy} (onnx-spatial explain {code})"},
    }
    return rule if uri is None else {**rule, "helpUri": uri}


def _invocation(report: Report) -> dict[str, Any]:
    """Describe the run; one that was interrupted is not successful."""
    invocation: dict[str, Any] = {
        "executionSuccessful": not report.interrupted,
        "exitCode": report.exit_code,
        "startTimeUtc": report.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if report.interrupted:
        text = f"interrupted: {report.message}"
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": {"text": text}}]
    return invocation


def _result(model: ModelResult, entry: Entry, report: Report, base: Path) -> dict[str, Any]:
    kind, code = entry.kind or "unverified", entry.code or Code.UNVERIFIED
    strict = report.options.strict and entry.kind == "unverified"
    uri = _uri(Path(model.model), base)
    location: dict[str, Any] = {
        # GitHub shows only results with a line; models have none.
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}
    }
    if entry.nodes:
        location["logicalLocations"] = [{"name": node, "kind": "node"} for node in entry.nodes]
    suppressed = [{"kind": "external", "justification": "--expect-failure"}]
    identity = "\0".join((uri, kind, entry.source, *entry.nodes))
    return {
        "ruleId": code,
        "ruleIndex": _ORDER.index(code),
        "level": "error" if strict else _LEVELS[entry.level],
        "message": {"text": f"{entry.source}: {entry.message}"},
        "locations": [location],
        "suppressions": suppressed if model.status == "xfailed" else [],
        # Recognises the problem in other runs: sizes and errors in the message may change.
        "partialFingerprints": {"onnxSpatial/v1": hashlib.sha256(identity.encode()).hexdigest()},
        "properties": {
            "kind": kind,
            "reproduce": report.reproduce(model),
            "source": entry.source,
        },
    }


def _uri(path: Path, base: Path) -> str:
    """Return the path relative to the base or the current folder, or else a file URI."""
    absolute = path.absolute()
    for folder in (base, Path.cwd()):
        if absolute.is_relative_to(folder):
            return quote(os.fsencode(absolute.relative_to(folder).as_posix()))
    return absolute.as_uri()
