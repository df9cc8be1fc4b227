"""Render JUnit XML: one test case for each model.

A model that fails a check is a failure. A file that cannot be read, or a process that left no result,
is an error. A model that is unverified (without --strict), skipped, or failed as expected is skipped.
"""

from __future__ import annotations

import re
import socket
from datetime import UTC
from pathlib import PurePath
from xml.etree import ElementTree

from onnx_spatial.validation.result import Kind, ModelResult, Report

_ERRORS: frozenset[Kind | None] = frozenset(
    ("unreadable", "crash", "timeout", "memory", "lost", "not-run")
)
#: Characters that XML 1.0 cannot hold, escaped or not.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """Render the document."""
    cases = [(model, _outcome(model, strict=report.options.strict)) for model in report.models]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(outcome == "failure" for _, outcome in cases)),
        "errors": str(sum(outcome == "error" for _, outcome in cases)),
    }
    root = ElementTree.Element("testsuites", {"name": "onnx-spatial validate", **counts})
    root.set("time", _time(report.seconds))
    suite = ElementTree.SubElement(root, "testsuite", {"name": "onnx-spatial validate", **counts})
    suite.set("skipped", str(sum(outcome == "skipped" for _, outcome in cases)))
    suite.set("time", _time(report.seconds))
    suite.set("timestamp", report.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    suite.set("hostname", _legal(socket.gethostname()))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {**report.tools, "seed": str(report.options.seed)}.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _legal(value)})
    for model, outcome in cases:
        suite.append(_case(model, outcome, report))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return document.decode() + "\n"


def _outcome(model: ModelResult, *, strict: bool) -> str | None:
    """Return the tag of the result in a test case; None if the model passed."""
    if model.status == "passed":
        return None
    if model.status in ("skipped", "xfailed") or (model.status == "unverified" and not strict):
        return "skipped"
    return "error" if model.kind in _ERRORS else "failure"


def _case(model: ModelResult, outcome: str | None, report: Report) -> ElementTree.Element:
    path = PurePath(model.model)
    # Jenkins splits class names at dots; a dot in a folder's name must not split it.
    folders = [p.replace(".", "_") for p in path.parent.parts if p not in ("/", ".", "..")]
    case = ElementTree.Element("testcase", {"name": _legal(path.name)})
    case.set("classname", _legal(".".join(folders) or "models"))
    case.set("time", _time(model.seconds))
    if outcome is not None:
        result = ElementTree.SubElement(case, outcome, {"message": _legal(model.message)})
        result.set("type", model.kind or model.status)
        result.text = _legal("\n".join(entry.line for entry in model.problems()))
    out = ElementTree.SubElement(case, "system-out")
    lines = [model.model, model.message, f"run it again with: {report.reproduce(model)}"]
    out.text = _legal("\n".join(lines))
    if model.log:
        ElementTree.SubElement(case, "system-err").text = _legal(model.log)
    return case


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
