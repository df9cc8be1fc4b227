"""Define the report formats that `validate` writes to files or prints for a CI system.

A format is a module of this package with a function `render(report: Report) -> str`, and a line in
`FORMATS`: the command line takes its options from there. Modules are imported when they render, so
that `--help` loads none of them.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_spatial.errors import Code, ModelFileError
from onnx_spatial.model.io.atomic import atomic_write

if TYPE_CHECKING:
    from onnx_spatial.validation.result import Report

SCHEMA = "validation-report-1.schema.json"


@dataclass(frozen=True)
class Format:
    """A report format.

    Attributes:
        module: name of the module in this package that has `render`.
        option: option of the command line that takes the file to write; empty: there is none.
        help: help text of the option, a sentence.
        variable: environment variable that a CI system sets to "true" if it reads reports in the
            output of a step: the report is then printed on standard error. Empty: there is none.
    """

    module: str
    option: str = ""
    help: str = ""
    variable: str = ""

    @property
    def is_printed(self) -> bool:
        """Whether the environment asks for the report on standard error."""
        return os.environ.get(self.variable, "").lower() == "true"

    def render(self, report: Report) -> str:
        """Render a report as text."""
        module = importlib.import_module(f"{__name__}.{self.module}")
        text: str = module.render(report)
        return text


FORMATS = (
    Format("json_report", "--report", "Write a JSON report."),
    Format("junit", "--junit-xml", "Write a JUnit XML report."),
    Format("sarif", "--sarif", "Write a SARIF report."),
    Format("markdown", "--markdown", "Write a Markdown report."),
    Format("github", variable="GITHUB_ACTIONS"),
)


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `Report.to_dict()`."""
    document: dict[str, Any] = json.loads(Path(__file__).with_name(SCHEMA).read_text("utf-8"))
    return document


def check_target(path: Path) -> None:
    """Check, before any work is done, that a report can be written to a file.

    Raises:
        ModelFileError: its folder does not exist, or it is a folder itself.
    """
    if str(path) == "-":  # standard output has the table, or with --json the document
        raise ModelFileError(
            "-: reports are written to files, not to stdout (use ./- for a file called -)",
            code=Code.UNWRITABLE,
        )
    if path.is_dir():
        raise ModelFileError(f"{path}: cannot be written: it is a folder", code=Code.UNWRITABLE)
    if not path.parent.is_dir():
        raise ModelFileError(
            f"{path}: cannot be written: there is no folder {str(path.parent)!r}",
            code=Code.UNWRITABLE,
        )


def write(path: Path, content: bytes) -> None:
    """Write a report in one step: the file has all of it or does not change.

    Raises:
        ModelFileError: it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, or /dev/stdout
            path.write_bytes(content)
            return
        atomic_write(path, content)
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot be written: {error.strerror or error}", code=Code.UNWRITABLE
        ) from None
