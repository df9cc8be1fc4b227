"""Render a report as an HTML page: an index of the models, and a section for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_spatial.report.page import render as render_page
from onnx_spatial.report.report_file import run_facts
from onnx_spatial.report.section import Section, check, compared_outputs, operator_rows
from onnx_spatial.validation.result import ModelResult, Report

_LEVELS = {"error": "failed", "warning": "unverified"}


def render(report: Report) -> str:
    """Render a page with the graphs of the models, as far as each has room for them.

    Raises:
        UsageError: jinja2 is missing.
    """
    sections = [_section(report, model) for model in report.models]
    verdict = report.status, f"{report.message} in {report.seconds:.1f} s"
    facts = run_facts(report.command(*report.models), report.started, report.tools)
    return render_page("validate", sections, report.notes, verdict=verdict, facts=facts)


def _section(report: Report, model: ModelResult) -> Section:
    headline = model.message.removeprefix(f"{model.status}: ")
    section = Section(model.model, model.status, headline, command=report.command(model))
    verified = [mode for mode in model.modes if mode.get("verification")]
    shown = {line for mode in verified for line in _lines(mode["verification"])}
    section.remarks = [
        (f"{entry.source}: {entry.message}", _LEVELS.get(entry.level, ""))
        for entry in model.entries
        if entry.message not in shown
    ]
    title = "" if len(verified) == 1 else "mode {}"
    section.checks = [check(m["verification"], title.format(m["mode"])) for m in verified]
    section.recorded = compared_outputs([_recorded(each) for each in model.recorded])
    first = verified[0]["verification"] if verified else None
    if model.graphs is not None:
        section.shown = model.graphs
    section.operators = operator_rows(model.operators, first, section.shown.regions())
    return section


def _lines(verification: Mapping[str, Any]) -> list[str]:
    """Return what the part of a section on a verification says."""
    unproven = (
        f"{each['node']} is not proven: {each['reason']}" for each in verification["unproven"]
    )
    return [*verification["problems"], *unproven]


def _recorded(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison with recorded data as one of an output in a run."""
    mode = f", mode {result['mode']}" if result["mode"] else ""
    return {**result, "name": f"{result['output']} ({result['set']}{mode})", "run": 0}
