"""Render a report as an HTML page: an index of the models, and a section for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_spatial.report.error_plots import output_plots
from onnx_spatial.report.operator_rows import operator_rows
from onnx_spatial.report.page import render as render_page
from onnx_spatial.report.section import Section, check
from onnx_spatial.validation.result import ModelResult, Report

_LEVELS = {"error": "failed", "warning": "unverified"}


def render(report: Report) -> str:
    """Render a page; the graphs of the models are not in it.

    Raises:
        UsageError: jinja2 is missing.
    """
    notes = [f"{report.status}: {report.message}, {report.seconds:.1f} s", *report.notes]
    return render_page("validate", [_section(report, model) for model in report.models], notes)


def _section(report: Report, model: ModelResult) -> Section:
    headline = model.message.removeprefix(f"{model.status}: ")
    section = Section(model.model, model.status, headline, command=report.reproduce(model))
    section.remarks = [
        (f"{entry.source}: {entry.message}", _LEVELS.get(entry.level, ""))
        for entry in model.entries
    ]
    verified = [mode for mode in model.modes if mode.get("verification")]
    title = "" if len(verified) == 1 else "mode {}"
    section.checks = [check(m["verification"], title.format(m["mode"])) for m in verified]
    section.recorded = output_plots([_recorded(each) for each in model.recorded])
    first = verified[0]["verification"] if verified else None
    section.operators = operator_rows(model.sites, first)
    return section


def _recorded(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison with recorded data as one of an output in a run."""
    mode = f", mode {result['mode']}" if result["mode"] else ""
    return {**result, "name": f"{result['output']} ({result['set']}{mode})", "run": 0}
