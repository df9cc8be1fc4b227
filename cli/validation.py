"""Print the report of `validate`: a line for each model, the problems of each, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console

from onnx_spatial.cli import render
from onnx_spatial.cli.output import Output
from onnx_spatial.cli.render import badge
from onnx_spatial.cli.text import say
from onnx_spatial.errors import count, one_line
from onnx_spatial.report.figures import duration, first
from onnx_spatial.validation import ModelResult, Report
from onnx_spatial.validation.page import describe
from onnx_spatial.verification.evidence import count_proofs

#: Letters of the longest status.
_WIDTH = len("UNVERIFIED")
#: Problems of one model that are shown without -v.
_MAX_SHOWN_PROBLEMS = 5
#: Failed models that one command line names.
_MAX_NAMED_MODELS = 20


class Rows:
    """A line for each model, printed as soon as it and those before it are done.

    Args:
        output: of the run; with --json and --quiet it gets none.
        models: paths, as the results have them.
    """

    def __init__(self, output: Output, models: Sequence[str]) -> None:
        self._console = None if output.json or output.quiet else output.out
        self._verbose = output.verbose
        self._width = max((cell_len(one_line(model)) for model in models), default=0)
        self._done: dict[int, ModelResult] = {}
        self._printed = 0

    def add(self, number: int, model: ModelResult) -> None:
        """Take the result of the model at this position in the list."""
        self._done[number] = model
        while (found := self._done.pop(self._printed, None)) is not None:
            if self._console is not None:
                name = one_line(found.model)
                gap = " " * (self._width - cell_len(name))
                row = f"{name}{gap}  {_model_figures(found, verbose=self._verbose)}"
                say(self._console, row.rstrip(), badge=badge(found.status, _WIDTH))
            self._printed += 1

    def finish(self, report: Report) -> None:
        """Print the rows that are missing: after a run that was interrupted, or all."""
        for number in range(self._printed, len(report.models)):
            self.add(number, report.models[number])


def show_report(output: Output, report: Report, rows: Rows) -> None:
    """Print a report as the options ask for it; `rows` has what was printed of it."""
    if output.quiet:
        for model in report.failed():
            say(output.err, f"error: {one_line(model.model)}: {model.message}")
    elif output.json:
        _show_verdict(output.err, report)
    else:
        rows.finish(report)
        _show_report(output.out, report, verbose=output.verbose)
    if report.interrupted:
        output.err.print("error: interrupted")


def _show_report(console: Console, report: Report, *, verbose: bool) -> None:
    for model in report.models:
        _show_details(console, report, model, verbose=verbose)
    again = report.failed()
    if 1 < len(again) <= _MAX_NAMED_MODELS:
        command = one_line(report.command(*again))
        console.print(f"\nrun the failed models again with: {command}", soft_wrap=True)
    for note in report.notes:
        say(console, note)
    if proven := [
        operator["proven"]
        for model in report.models
        for mode in model.modes
        if mode["status"] in ("passed", "unverified")
        and not mode["verification"].get("outputs_only")
        for operator in mode["verification"]["operators"]
    ]:
        console.print(count_proofs(proven))
    _show_verdict(console, report)


def _show_verdict(console: Console, report: Report) -> None:
    time = f" in {duration(report.seconds * 1e6)}" if report.models else ""
    say(console, f"{report.message}{time}", badge=badge(_run_word(report)))


def _run_word(report: Report) -> str:
    """Return the status of a run, or "unverified" if no model of it was verified."""
    statuses = {model.status for model in report.models}
    if report.status == "passed" and statuses and statuses <= {"unverified", "skipped"}:
        return "unverified" if "unverified" in statuses else "skipped"
    return report.status


def _model_figures(model: ModelResult, *, verbose: bool) -> str:
    if model.kind == "not-run":
        return ""
    sets = len({line["set"] for line in model.recorded})
    peak = model.peak_memory if verbose else None
    memory = "" if peak is None else f"{peak / 2**20:.0f} MB"
    recorded = f"{count(sets, 'set')} of recorded data" if sets else ""
    time = duration(model.seconds * 1e6)
    return ", ".join(
        filter(None, (count(len(model.operators), "operator"), recorded, memory, time))
    )


def _show_details(console: Console, report: Report, model: ModelResult, *, verbose: bool) -> None:
    shown = describe(report, model, verbose=verbose)
    if not verbose and (model.status in ("skipped", "xfailed") or not model.problems()):
        return
    console.print()
    say(console, one_line(model.model), badge=badge(model.status))
    if verbose and (model.status != "passed" or not shown.checks):
        say(console, f"  {model.message}")
    for line in first(
        [text for text, _ in shown.remarks], None if verbose else _MAX_SHOWN_PROBLEMS
    ):
        say(console, f"  {one_line(line)}")
    render.parts(console, shown.checks)
    if verbose and shown.log:
        console.print("\n".join(f"  | {one_line(line)}" for line in shown.log.splitlines()))
    if model.status not in ("passed", "xfailed"):
        console.print(f"  run it again with: {one_line(shown.command)}", soft_wrap=True)
