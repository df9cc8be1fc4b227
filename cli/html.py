"""Write an HTML report of a command, also if it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say
from onnx_spatial.errors import ConversionError, SpatialError, VerificationError
from onnx_spatial.report.report_file import check_file, require, write

if TYPE_CHECKING:
    from onnx_spatial.report.section import Section

html_option = click.option(
    "--html",
    type=click.Path(),
    metavar="FILE",
    help="Write a report to look at: an HTML page with the graphs side by side, tables and plots.",
)


class Sectioned(Protocol):
    """A result about one model that has a section in the report."""

    def section(self, name: str | None = None, *, error: str = "") -> Section:
        """Return the section."""


R = TypeVar("R", bound=Sectioned)


class HtmlReport:
    """The sections of a report; without a file nothing is collected."""

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else Path(path)
        self.sections: list[Section] = []

    def watched(self, process: Callable[..., R]) -> Callable[..., R]:
        """Add what a function returns, or the error that it raises; its first argument is a model."""

        def run(model: str, *others: Any) -> R:
            try:
                result = process(model, *others)
            except SpatialError as failure:
                error = failure  # the name of an except clause ends with it
                self.add(lambda: error_section(model, error))
                raise
            self.add(lambda: result.section(model))
            return result

        return run

    def add(self, make: Callable[[], Section]) -> None:
        """Add a section."""
        if self.path is not None:
            self.sections.append(make())

    def write(self, command: str, output: Output) -> None:
        """Write the report.

        Raises:
            ModelFileError: it cannot be written.
        """
        if self.path is None:
            return
        from onnx_spatial.report.page import render

        write(self.path, render(command, self.sections).encode())
        if not output.quiet:
            say(output.err, f"report: {self.path}")


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
        for other in others:
            if other is not None and _is_same(Path(path), Path(other)):
                raise click.UsageError(f"--html {path} would replace the model {other}")
    report = HtmlReport(path)
    try:
        yield report
    except SpatialError:
        report.write(command, output)
        raise
    report.write(command, output)


def _is_same(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.absolute().resolve() == other.absolute().resolve()


def error_section(model: str, error: SpatialError) -> Section:
    """Make the section of a model that failed, with all that is known of it."""
    known: Any = None
    if isinstance(error, VerificationError):
        known = error.conversion
    elif isinstance(error, ConversionError):
        known = error.inspection
    if known is not None:
        section: Section = known.section(model, error=str(error))
        return section
    from onnx_spatial.report.section import Section as Empty

    return Empty(model, "failed", str(error))
