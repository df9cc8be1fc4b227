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
        graphs: whether it needs the graphs of the models.
        package: package that it needs beside those that everything needs; empty: none.
        variable: environment variable that a CI system sets to "true" if it reads reports in the
            output of a step: the report is then printed on standard error. Empty: there is none.
    """

    module: str
    option: str = ""
    help: str = ""
    variable: str = ""
    package: str = ""
    graphs: bool = False

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
    Format(
        "html",
        "--html",
        "Write a report to look at: an HTML page with the graphs side by side, tables and plots.",
        package="jinja2",
        graphs=True,
    ),
    Format("github", variable="GITHUB_ACTIONS"),
)


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `Report.to_dict()`."""
    document: dict[str, Any] = json.loads(Path(__file__).with_name(SCHEMA).read_text("utf-8"))
    return document
