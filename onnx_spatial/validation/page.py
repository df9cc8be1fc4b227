"""Describe what was found of each model, for the screen and for an HTML page."""

from __future__ import annotations

from onnx_spatial.report.outcome import Outcome, describe_check, output_parts
from onnx_spatial.report.page import render as render_page
from onnx_spatial.report.report_file import run_facts
from onnx_spatial.validation.result import ModelResult, Report

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
