"""Render a report as an HTML page: an index of the models, and a section for each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from onnx_spatial.report.figures import file_size
from onnx_spatial.report.graphs import ROOM, SideBySide
from onnx_spatial.report.page import render as render_page
from onnx_spatial.report.report_file import run_facts
from onnx_spatial.report.section import Section, check, compared_outputs, index_rows, operator_rows
from onnx_spatial.validation.result import ModelResult, Report

_LEVELS = {"error": "failed", "warning": "unverified"}


def render(report: Report) -> str:
    """Render a page with the graphs of the models, as many as it has room for.

    Raises:
        UsageError: jinja2 is missing.
    """
    notes = [*report.notes]
    sections = [_section(report, model) for model in report.models]
    left = _leave_out(sections)
    if left:
        notes.append(
            f"{left} of {len(sections)} models are without graphs, as the page has room for "
            f"{file_size(ROOM)} of them; models that failed come first."
        )
    verdict = report.status, f"{report.message} in {report.seconds:.1f} s"
    started = report.started
    facts = run_facts(report.command(*report.models), started, report.tools)
    return render_page("validate", sections, notes, verdict=verdict, facts=facts)


def _section(report: Report, model: ModelResult) -> Section:
    headline = model.message.removeprefix(f"{model.status}: ")
    section = Section(model.model, model.status, headline, command=report.command(model))
    section.remarks = [
        (f"{entry.source}: {entry.message}", _LEVELS.get(entry.level, ""))
        for entry in model.entries
    ]
    verified = [mode for mode in model.modes if mode.get("verification")]
    title = "" if len(verified) == 1 else "mode {}"
    section.checks = [check(m["verification"], title.format(m["mode"])) for m in verified]
    section.recorded = compared_outputs([_recorded(each) for each in model.recorded])
    first = verified[0]["verification"] if verified else None
    regions: dict[tuple[str, str], int | None] = {}
    if model.graphs is not None:
        graphs = SideBySide(**model.graphs)
        regions = graphs.regions()
        section.show(graphs)
    section.operators = operator_rows(model.operators, first, regions)
    return section


def _leave_out(sections: Sequence[Section]) -> int:
    """Leave out the graphs that exceed the size of the page, those of failed models last; count them."""
    size = left = 0
    for _, section in index_rows(sections):
        size += len(section.graphs)
        if section.graphs and size > ROOM:
            section.left_out = (
                "The graphs are left out: those of other models fill the page. This draws them: "
                f"onnx-spatial convert {shlex.quote(section.name)} --dry-run --html report.html"
            )
            section.graphs = ""
            left += 1
    return left


def _recorded(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison with recorded data as one of an output in a run."""
    mode = f", mode {result['mode']}" if result["mode"] else ""
    return {**result, "name": f"{result['output']} ({result['set']}{mode})", "run": 0}
