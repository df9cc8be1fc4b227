"""Write the HTML report of a command, also if it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

import click

from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say
from onnx_spatial.errors import ConversionError, SpatialError, VerificationError
from onnx_spatial.report.report_file import check_file, require, write

if TYPE_CHECKING:
    from onnx_spatial.report.section import Section

P = ParamSpec("P")


class Result(Protocol):
    """A result about one model, which has a JSON document and a section of the report."""

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document."""

    def section(self, name: str | None = None, *, error: str = "") -> Section:
        """Return the section."""


class HtmlReport:
    """The sections of a report; without a file nothing is collected."""

    def __init__(self, path: str | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.sections: list[Section] = []

    def add(self, make: Callable[P, Section], *args: P.args, **kwargs: P.kwargs) -> None:
        """Add the section that a function makes."""
        if self.path is not None:
            self.sections.append(make(*args, **kwargs))

    def add_error(self, model: str, error: SpatialError) -> None:
        """Add the section of a model that failed, with all that is known of it."""
        self.add(_error_section, model, error)

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
        for other in filter(None, others):
            if _is_same(Path(path), Path(other)):
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


def _error_section(model: str, error: SpatialError) -> Section:
    from onnx_spatial.report.section import Section

    known: Any = None
    if isinstance(error, VerificationError):
        known = error.conversion
    elif isinstance(error, ConversionError):
        known = error.inspection
    if known is None:
        return Section(model, "failed", str(error))
    section: Section = known.section(model, error=str(error))
    return section
