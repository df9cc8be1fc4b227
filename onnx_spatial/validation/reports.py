"""Render the report of a run: an HTML page, JUnit XML for CI systems, annotations for GitHub Actions.

JUnit has one test case for each model. A model that fails a check is a failure. A file that cannot be
read, or a process that left no result, is an error. A model that is unverified (without --strict),
skipped, or failed as expected is skipped.
"""

from __future__ import annotations

import os
import re
import socket
from datetime import UTC
from pathlib import Path, PurePath
from xml.etree import ElementTree

from onnx_spatial.errors import first_lines, one_line
from onnx_spatial.report.outcome import Outcome, describe_check, output_parts
from onnx_spatial.report.page import render as render_page
from onnx_spatial.report.page import run_facts
from onnx_spatial.validation.result import Kind, ModelResult, Report

_LEVELS = {"error": "failed", "warning": "unverified"}


def render(report: Report) -> str:
    """Render a page with the graphs of the models, as far as each has room for them.

    Raises:
        UsageError: jinja2 is missing.
    """
    outcomes = [describe(report, model) for model in report.models]
    verdict = report.status, f"{report.message} in {report.seconds:.1f} s"
    facts = run_facts(report.command(*report.models), report.started, report.tools)
    return render_page("validate", outcomes, report.notes, verdict=verdict, facts=facts)


def describe(report: Report, model: ModelResult, *, verbose: bool = True) -> Outcome:
    """Describe what was found of a model, in each mode and on its recorded data.

    Without `verbose` only its problems, and what is left of it.
    """
    message = model.message.removeprefix(f"{model.status}: ")
    outcome = Outcome(model.model, model.status, message, operators=len(model.operators))
    if model.page is not None:
        outcome.parts, outcome.facts = model.page.parts, model.page.facts
        outcome.shown = model.page.shown
    verified = [mode for mode in model.modes if verbose and mode.get("verification")]
    for mode in verified:
        of = f"mode {mode['mode']}" if len(verified) > 1 else ""
        outcome.checks += describe_check(mode["verification"], of=of)
    said = {line for part in outcome.checks for line in (part.message, *part.lines)}
    left = [each for each in model.entries if each.source == "inspect" and each.level == "info"]
    problems = [*model.problems(), *(left if model.status != "passed" else ())]
    for entry in model.entries if verbose else problems:
        nodes = f" [{', '.join(entry.nodes)}]" if entry.nodes and verbose else ""
        if entry.message not in said:
            line = f"{entry.source}: {entry.message}{nodes}"
            outcome.remarks.append((line, _LEVELS.get(entry.level, "")))
    if verbose:
        recorded = [{**each, "name": each["output"], "run": 0} for each in model.recorded]
        outcome.checks += output_parts(recorded, "Recorded data")
    outcome.command, outcome.log = report.command(model), model.log or ""
    return outcome


_ERRORS: frozenset[Kind | None] = frozenset(
    ("unreadable", "crash", "timeout", "memory", "lost", "not-run")
)
#: Characters that XML 1.0 cannot hold, escaped or not.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: Problems of one model that the summary lists.
_MAX_LISTED_PROBLEMS = 10


def junit_xml(report: Report) -> str:
    """Render JUnit XML."""
    cases = [(model, _junit_tag(model, strict=report.options.strict)) for model in report.models]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(outcome == "failure" for _, outcome in cases)),
        "errors": str(sum(outcome == "error" for _, outcome in cases)),
    }
    root = ElementTree.Element("testsuites", {"name": "onnx-spatial validate", **counts})
    root.set("time", _format_seconds(report.seconds))
    suite = ElementTree.SubElement(root, "testsuite", {"name": "onnx-spatial validate", **counts})
    suite.set("skipped", str(sum(outcome == "skipped" for _, outcome in cases)))
    suite.set("time", _format_seconds(report.seconds))
    suite.set("timestamp", report.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    suite.set("hostname", _legal_text(socket.gethostname()))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {**report.tools, "seed": str(report.options.seed)}.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _legal_text(value)})
    for model, outcome in cases:
        suite.append(_junit_case(model, outcome, report))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return document.decode() + "\n"


def _junit_tag(model: ModelResult, *, strict: bool) -> str | None:
    """Return the tag of the result in a test case; None if the model passed."""
    if model.status == "passed":
        return None
    if model.status in ("skipped", "xfailed") or (model.status == "unverified" and not strict):
        return "skipped"
    return "error" if model.kind in _ERRORS else "failure"


def _junit_case(model: ModelResult, outcome: str | None, report: Report) -> ElementTree.Element:
    path = PurePath(model.model)
    # Jenkins splits class names at dots; a dot in a folder's name must not split it.
    folders = [p.replace(".", "_") for p in path.parent.parts if p not in ("/", ".", "..")]
    case = ElementTree.Element("testcase", {"name": _legal_text(path.name)})
    case.set("classname", _legal_text(".".join(folders) or "models"))
    case.set("time", _format_seconds(model.seconds))
    if outcome is not None:
        result = ElementTree.SubElement(case, outcome, {"message": _legal_text(model.message)})
        result.set("type", model.kind or model.status)
        result.text = _legal_text("\n".join(entry.line for entry in model.problems()))
    out = ElementTree.SubElement(case, "system-out")
    lines = [model.model, model.message, f"run it again with: {report.command(model)}"]
    out.text = _legal_text("\n".join(lines))
    if model.log:
        ElementTree.SubElement(case, "system-err").text = _legal_text(model.log)
    return case


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _legal_text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def github_annotations(report: Report) -> str:
    """Render an annotation for each model that neither passed nor failed as expected.

        ::error file=models/a.onnx,title=onnx-spatial%3A FAILED::what is wrong

    GitHub reads them in the output of a step. Paths are relative to GITHUB_WORKSPACE, the top of the
    checkout.
    """
    top = os.environ.get("GITHUB_WORKSPACE")
    failed = {id(model) for model in report.failed()}
    lines = []
    for model in report.models:
        if model.status in ("passed", "xfailed"):
            continue
        level = "error" if id(model) in failed else "warning"
        text = f"{model.message}\nrun it again with: {report.command(model)}"
        file = _escape_property(_relative_path(model.model, top))
        code = "" if model.code is None else f" [{model.code}]"
        title = _escape_property(f"onnx-spatial: {model.status.upper()}{code}")
        lines.append(f"::{level} file={file},title={title}::{_escape_data(text)}\n")
    return "".join(lines)


def _relative_path(path: str, top: str | None) -> str:
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  links stay as the repository has them
    if top and absolute.is_relative_to(top):
        return absolute.relative_to(top).as_posix()
    return path


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def github_summary(report: Report) -> str:
    """Render Markdown: the verdict, a row for each model, and the problems of each that did not pass."""
    lines = [
        f"### onnx-spatial validate: {report.status}",
        "",
        f"{escaped(report.message)}, {report.seconds:.1f} s",
        "",
        "| result | model | operators | time |",
        "|---|---|--:|--:|",
    ]
    lines += [
        f"| {model.status} | {escaped(model.model)} | {len(model.operators)} | {model.seconds:.1f} s |"
        for model in report.models
    ]
    for model in report.models:
        if model.status not in ("passed", "xfailed"):
            lines += _list_problems(report, model)
    lines += [line for note in report.notes for line in ("", escaped(note))]
    return "\n".join(lines) + "\n"


def _list_problems(report: Report, model: ModelResult) -> list[str]:
    lines = ["", f"**{escaped(model.model)}: {model.status}**", ""]
    problems = [escaped(entry.line) for entry in model.problems()]
    lines += [f"- {problem}" for problem in first_lines(problems, _MAX_LISTED_PROBLEMS)]
    return [*lines, "", "```console", report.command(model).replace("```", ""), "```"]


def escaped(text: str) -> str:
    """Escape what Markdown and HTML would read as markup; a text becomes one line."""
    one = one_line(" ".join(text.split()))
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", one).replace("<", "&lt;").replace(">", "&gt;")
