"""Write the HTML report of a command, also if it fails."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say
from onnx_spatial.errors import SpatialError
from onnx_spatial.report.report_file import check_file, require, run_facts, versions, write

if TYPE_CHECKING:
    from onnx_spatial.report.outcome import Outcome
    from onnx_spatial.report.results import Conversion, Inspection


class HtmlReport:
    """The outcomes of a report; without a file nothing is collected."""

    def __init__(self, path: str | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.outcomes: list[Outcome] = []

    def add(self, result: Inspection | Conversion, model: str, error: str = "") -> None:
        """Add what became of a model."""
        if self.path is not None:
            self.outcomes.append(result.describe(model, error=error))

    def add_error(self, model: str, error: SpatialError) -> None:
        """Add a model that failed, with all that is known of it."""
        known: Any = getattr(error, "conversion", None) or getattr(error, "inspection", None)
        if known is not None:
            self.add(known, model, str(error))
        elif self.path is not None:
            from onnx_spatial.report.outcome import Outcome

            self.outcomes.append(Outcome(model, "failed", str(error)))


@contextmanager
def html_report(
    command: str, path: str | None, output: Output, others: Iterable[str | None]
) -> Iterator[HtmlReport]:
    """Yield a report that is written in the end, also if a model fails.

    Args:
        command: name of the command, in the title.
        path: file of the report; None: there is none.
        output: of the run.
        others: files that the command reads or writes, if they are known.

    Raises:
        UsageError: jinja2 is missing.
        ModelFileError: the report cannot be written.
        click.UsageError: it would replace one of the other files.
    """
    if path is not None:
        require("jinja2")
        check_file(Path(path))
        for other in filter(None, others):
            if _is_same(Path(path), Path(other)):
                raise click.UsageError(f"--html {path} would replace the model {other}")
    report = HtmlReport(path)
    failure = None
    try:
        yield report
    except SpatialError as error:
        failure = error
    if report.path is not None:
        from onnx_spatial.report.page import render

        line = shlex.join(["onnx-spatial", *sys.argv[1:]])
        facts = run_facts(line, datetime.now(UTC), versions())
        write(report.path, render(command, report.outcomes, facts=facts).encode())
        if not output.quiet:
            say(output.err, f"report: {report.path}")
    if failure is not None:
        raise failure


def _is_same(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.absolute().resolve() == other.absolute().resolve()
