"""Print the report of `validate`: a table, the problems of each model, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from onnx_spatial.cli import render
from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say, say_command, say_first
from onnx_spatial.errors import one_line
from onnx_spatial.report.figures import duration
from onnx_spatial.validation import ModelResult, Report
from onnx_spatial.verification.evidence import count_proofs

_STYLES = {
    "passed": "bold green",
    "failed": "bold red",
    "xfailed": "green",
    "unverified": "bold yellow",
    "skipped": "dim",
    "interrupted": "bold yellow",
}
#: Columns of figures, with room for what they have in a log.
_FIGURES = {"operators": 9, "recorded sets": 13, "memory": 8, "time": 7}
#: Problems of one model that are shown without -v.
_SHOWN = 5
#: Failed models that one command line names.
_NAMED = 20


class Rows:
    """The table of a run, row by row: each as soon as it and those before it are done.

    Where it does not fit there are only results and models.

    Args:
        console: to print to.
        models: paths, as the results have them.
    """

    def __init__(self, console: Console, models: Sequence[str]) -> None:
        self._console = console
        names = max((cell_len(one_line(model)) for model in models), default=0)
        self._widths = (max(map(len, _STYLES)), names, *_FIGURES.values())
        self._fits = sum(self._widths) + 2 * len(_FIGURES) + 2 <= console.width
        self._done: dict[int, ModelResult] = {}
        self._printed = 0

    def add(self, number: int, model: ModelResult) -> None:
        """Take the result of the model at this position in the list."""
        self._done[number] = model
        while (found := self._done.pop(self._printed, None)) is not None:
            if not self._fits:
                say(self._console, _status(found).append(f"  {one_line(found.model)}", "default"))
            else:
                if not self._printed:
                    self._print(Text("result"), "model", *_FIGURES, style="bold")
                self._print(_status(found), one_line(found.model), *_figures(found))
            self._printed += 1

    def finish(self, report: Report) -> None:
        """Print the rows that are missing: after a run that was interrupted, or all."""
        for number in range(self._printed, len(report.models)):
            self.add(number, report.models[number])

    def _print(self, status: Text, *others: str, style: str = "") -> None:
        cells = [status, *map(Text, others)]
        for place, (cell, width) in enumerate(zip(cells, self._widths, strict=True)):
            cell.align("left" if place < 2 else "right", max(width, cell.cell_len))
        self._console.print(Text("  ").join(cells), style=style, soft_wrap=True)


def show(output: Output, report: Report, rows: Rows | None) -> None:
    """Print a report as the options ask for it; `rows` is the table if it was begun."""
    if output.quiet:
        for model in report.failed():
            say(output.err, f"error: {one_line(model.model)}: {model.message}")
    elif output.json:
        _verdict(output.err, report)
    else:
        rows = rows or Rows(output.out, [model.model for model in report.models])
        rows.finish(report)
        _everything(output.out, report, verbose=output.verbose)
    if report.interrupted:
        output.err.print("error: interrupted")


def _everything(console: Console, report: Report, *, verbose: bool) -> None:
    for model in report.models:
        _problems(console, report, model, verbose=verbose)
    again = report.failed()
    if 1 < len(again) <= _NAMED:
        console.print()
        command = one_line(report.command(*again))
        say_command(console, "run the failed models again with", command)
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
    _verdict(console, report)


def _verdict(console: Console, report: Report) -> None:
    time = f" in {duration(report.seconds * 1e6)}" if report.models else ""
    status = _word(report)
    line = Text(status.upper(), _STYLES[status]).append(f"  {report.message}{time}", "default")
    say(console, line)


def _word(report: Report) -> str:
    """Return the status of a run, or "unverified" if no model of it was verified."""
    statuses = {model.status for model in report.models}
    if report.status == "passed" and statuses and statuses <= {"unverified", "skipped"}:
        return "unverified" if "unverified" in statuses else "skipped"
    return report.status


def _status(model: ModelResult) -> Text:
    return Text(model.status.upper(), _STYLES[model.status])


def _figures(model: ModelResult) -> tuple[str, str, str, str]:
    sets = len({line["set"] for line in model.recorded})
    memory = "" if model.peak_memory is None else f"{model.peak_memory / 2**20:.0f} MB"
    time = duration(model.seconds * 1e6)
    if model.kind == "not-run":
        return "", "", "", ""
    return str(len(model.operators)), str(sets or ""), memory, time


def _problems(console: Console, report: Report, model: ModelResult, *, verbose: bool) -> None:
    entries = model.entries if verbose else model.problems()
    if not verbose and (model.status in ("skipped", "xfailed") or not entries):
        return
    console.print()
    head = _status(model).append(f"  {one_line(model.model)}", "default")
    say(console, head)
    if verbose:
        say(console, f"  {model.message}")
    lines = [f"{entry.source}: {entry.message}" for entry in entries]
    if verbose:
        nodes = (f" [{', '.join(map(one_line, e.nodes))}]" if e.nodes else "" for e in entries)
        lines = [*map("".join, zip(lines, nodes, strict=True))]
    say_first(console, lines, None if verbose else _SHOWN)
    if verbose:
        for mode in model.modes:
            render.assumptions(console, (mode["verification"] or {"operators": []})["operators"])
    if verbose and model.log:
        console.print("\n".join(f"  | {one_line(line)}" for line in model.log.splitlines()))
    if model.status not in ("passed", "xfailed"):
        command = one_line(report.command(model))
        say_command(console, "  run it again with", command)
