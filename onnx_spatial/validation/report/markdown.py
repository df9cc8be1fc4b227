"""Render a report as Markdown: a table of the models, then the problems of those that failed.

GitHub Actions shows such a text on the page of a run.
"""

from __future__ import annotations

import re

from onnx_spatial.errors import one_line
from onnx_spatial.validation.result import ModelResult, Report

#: Problems of one model that are listed.
_SHOWN = 10


def render(report: Report) -> str:
    """Render the verdict, a row for each model, and what is wrong with each that did not pass."""
    lines = [
        f"### onnx-spatial validate: {report.status}",
        "",
        f"{escaped(report.message)}, {report.seconds:.1f} s",
        "",
        "| result | model | operators | time |",
        "|---|---|--:|--:|",
    ]
    lines += [
        f"| {model.status} | {escaped(model.model)} | {len(model.sites)} | {model.seconds:.1f} s |"
        for model in report.models
    ]
    for model in report.models:
        if model.status not in ("passed", "xfailed"):
            lines += _problems(report, model)
    lines += [line for note in report.notes for line in ("", escaped(note))]
    return "\n".join(lines) + "\n"


def _problems(report: Report, model: ModelResult) -> list[str]:
    problems = model.problems()
    lines = ["", f"**{escaped(model.model)}: {model.status}**", ""]
    lines += [f"- {escaped(p.line)}" for p in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"- and {len(problems) - _SHOWN} more")
    return [*lines, "", "```console", report.reproduce(model).replace("```", ""), "```"]


def escaped(text: str) -> str:
    """Escape what Markdown and HTML would read as markup; a text becomes one line."""
    one = one_line(" ".join(text.split()))
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", one).replace("<", "&lt;").replace(">", "&gt;")
