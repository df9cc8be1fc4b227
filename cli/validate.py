"""Define the command `onnx-spatial validate`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import help, options
from onnx_spatial.cli.html import html_option
from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say
from onnx_spatial.cli.validate_options import (
    Selection,
    process_options,
    selection_options,
    step_options,
)
from onnx_spatial.errors import one_line
from onnx_spatial.report.report_file import check_file, require, write
from onnx_spatial.validation import ModelResult, Options

if TYPE_CHECKING:
    from onnx_spatial.cli import validation
    from onnx_spatial.validation.run import Watch

#: A folder that is there, or can be made.
_FOLDER = click.Path(file_okay=False)


@click.command(
    cls=help.Command,
    short_help="Convert and verify every model of a folder, as a CI step.",
    examples=(
        "validate models/ -j 4 --junit-xml models.xml",
        "validate models/ --mode lower --mode function --strict-proof",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@selection_options
@step_options
@process_options
@click.option("--junit-xml", type=click.Path(), metavar="FILE", help="Write a JUnit XML report.")
@html_option
@click.option(
    "--reproducer",
    "reproduce_to",
    type=_FOLDER,
    metavar="DIR",
    help="If models differ, save in DIR small models, data and a script that show it.",
)
@options.output_options
def validate(
    paths: tuple[str, ...],
    selection: Selection,
    steps: Options,
    processes: dict[str, Any],
    junit_xml: str | None,
    html: str | None,
    reproduce_to: str | None,
    output: Output,
) -> int:
    """Convert and verify every model in the given files, folders and globs.

    Each model has a process of its own: there it is read, converted in memory in each mode, verified,
    and run on its recorded data (test_data_set_N beside it, or an .npz with its name). A model
    without spatial operators must run and compute the recorded outputs. All models are validated,
    also after one has failed.

    Exit code 1 if a model failed, 2 if a path does not exist or holds no model, 130 if the run was
    interrupted: the reports then hold the models that were finished.
    """
    from onnx_spatial.cli import step_summary, validation
    from onnx_spatial.validation import reports, run

    for path in filter(None, (junit_xml, html)):
        check_file(Path(path))
    if html is not None:
        require("jinja2")

    models, notes = selection.models(paths)
    rows = None
    if models and not (output.interactive or output.quiet or output.json):
        rows = validation.Rows(output.out, models)
    try:
        with _watching(output, models, rows) as watch:
            report = run.validate(
                models,
                steps,
                **processes,
                reproduce_to=reproduce_to,
                expect_failure=selection.expect_failure,
                graphs=html is not None,
                watch=watch,
            )
    except run.Interrupted as end:  # what is done by now is not lost
        report = end.report
    report.notes += notes
    if junit_xml is not None:
        write(Path(junit_xml), reports.junit_xml(report).encode("utf-8", "backslashreplace"))
    if html is not None:
        from onnx_spatial.validation import page

        write(Path(html), page.render(report).encode("utf-8", "backslashreplace"))
    if os.environ.get("GITHUB_ACTIONS", "").lower() == "true":
        output.err.print(reports.github_annotations(report), end="", soft_wrap=True)
    step_summary.append(lambda: reports.github_summary(report))
    if output.json:
        output.document(report.to_dict())
    validation.show(output, report, rows)
    return report.exit_code


@contextmanager
def _watching(output: Output, models: list[str], rows: validation.Rows | None) -> Iterator[Watch]:
    """Show progress: in one line on a terminal, with -v in a line for each model elsewhere."""
    with output.progress(timed=False) as progress:
        done = 0

        def watch(number: int, result: ModelResult) -> None:
            nonlocal done
            done += 1
            if rows is not None:
                rows.add(number, result)
            line = one_line(f"{done}/{len(models)} {result.model}: {result.status}")
            if progress is not None:
                progress(line)
            elif output.verbose and not output.quiet:
                say(output.err, line)

        if progress is not None:
            progress(f"0/{len(models)}")
        yield watch
