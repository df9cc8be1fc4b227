"""Define the command `onnx-spatial validate`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from onnx_spatial.cli import options
from onnx_spatial.cli.output import Output, append_markdown
from onnx_spatial.cli.text import say
from onnx_spatial.errors import one_line
from onnx_spatial.report.report_file import check_file, require, write
from onnx_spatial.validation import ModelResult, Options

if TYPE_CHECKING:
    from onnx_spatial.cli import validation
    from onnx_spatial.validation.run import Watch


@options.command(
    "Convert and verify every model of a folder, as a CI step.",
    click.Argument(["paths"], nargs=-1, required=True, type=click.Path(), metavar="PATH..."),
    options=(
        "exclude expect_failure modes optimize no_fuse checked prefer max_rank domains static "
        "shapes seed strict strict_proof memory timeout jobs executor scheduler "
        f"html junit_xml {options.COMMON}"
    ),
    examples=(
        "validate models/ -j 4 --junit-xml models.xml",
        "validate models/ --mode lower --mode function --strict-proof",
    ),
)
def validate(paths: tuple[str, ...], output: Output, **values: Any) -> int:
    """Convert and verify every model in the given files, folders and globs.

    Each model has a process of its own: there it is read, converted in memory in each mode, verified,
    and run on its recorded data (test_data_set_N beside it, or an .npz with its name). A model
    without spatial operators must run and compute the recorded outputs. All models are validated,
    also after one has failed.

    Exit code 1 if a model failed, 2 if a path does not exist or holds no model, 130 if the run was
    interrupted: the reports then hold the models that were finished.
    """
    jobs, scheduler = values["jobs"], values["scheduler"]
    junit_xml, html = values["junit_xml"], values["html"]
    _check_executor(values["executor"], scheduler, jobs)
    for path in filter(None, (junit_xml, html)):
        check_file(Path(path))
    if html is not None:
        require("jinja2")

    from onnx_spatial.cli import validation
    from onnx_spatial.validation import reports, run
    from onnx_spatial.validation.models import find

    models = find(paths, values["exclude"])
    rows = validation.Rows(output, models)
    with (
        nullcontext() if scheduler is None else run.dask_executor(scheduler) as cluster,
        _watch_progress(output, models, rows) as watch,
    ):
        report = run.validate(
            models,
            _examination_options(values),
            jobs=jobs or (1 if jobs is None else os.cpu_count() or 1),
            timeout=values["timeout"],
            memory=values["memory"],
            expect_failure=values["expect_failure"],
            graphs=html is not None,
            executor=cluster,
            watch=watch,
        )
    report.notes += _useless_globs(paths, models, values)
    if junit_xml is not None:
        write(Path(junit_xml), reports.junit_xml(report).encode("utf-8", "backslashreplace"))
    if html is not None:
        from onnx_spatial.validation import page

        write(Path(html), page.render(report).encode("utf-8", "backslashreplace"))
    if os.environ.get("GITHUB_ACTIONS", "").lower() == "true":
        output.err.print(reports.github_annotations(report), end="", soft_wrap=True)
    append_markdown(reports.github_summary(report))
    if output.json:
        output.document(report.to_dict())
    if not (output.quiet or report.interrupted):
        for path in filter(None, (junit_xml, html)):
            say(output.err, f"report: {path}")
    validation.show_report(output, report, rows)
    return report.exit_code


def _examination_options(values: Mapping[str, Any]) -> Options:
    """Return what is done with each model."""
    same = "optimize checked prefer max_rank domains seed strict strict_proof"
    return Options(
        modes=tuple(dict.fromkeys(values["modes"])),
        fuse=not values["no_fuse"],
        static=tuple(values["static"].items()),
        shapes=tuple(values["shapes"].items()),
        **{name: values[name] for name in same.split()},
    )


def _check_executor(executor: str, scheduler: str | None, jobs: int | None) -> None:
    """Check that the options on where models are validated fit together.

    Raises:
        click.UsageError: they contradict each other.
    """
    if executor == "local":
        if scheduler is not None:
            raise click.UsageError("--scheduler requires --executor dask")
    elif scheduler is None:
        raise click.UsageError(f"--executor {executor} requires --scheduler ADDRESS")
    elif jobs is not None:
        raise click.UsageError(
            "--jobs cannot be combined with --executor: the cluster decides how many run at a time"
        )


def _useless_globs(
    paths: Sequence[str], models: Sequence[str], values: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a note on each glob of the command line that matches no model.

    Those of pyproject.toml are for other calls, too.
    """
    from onnx_spatial.validation.models import find, matches

    source = click.get_current_context().get_parameter_source
    globs = {
        name: values[name]
        for name in ("exclude", "expect_failure")
        if source(name) == ParameterSource.COMMANDLINE
    }
    all_models = find(paths) if globs.get("exclude") else []
    for glob in globs.get("exclude", ()):
        if not any(matches(model, [glob]) for model in all_models):
            advice = f"for a folder write '{glob.rstrip('/')}/*'"
            yield f"--exclude {glob}: leaves out no model; {advice}"
    for glob in globs.get("expect_failure", ()):
        if not any(matches(model, [glob]) for model in models):
            yield f"--expect-failure {glob}: matches no model"


@contextmanager
def _watch_progress(
    output: Output, models: Sequence[str], rows: validation.Rows
) -> Iterator[Watch]:
    """Show progress: in one line on a terminal, by a row for each model elsewhere."""
    with output.progress(timed=False) as progress:
        done = 0

        def watch(number: int, result: ModelResult) -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(one_line(f"{done}/{len(models)} {result.model}: {result.status}"))
            else:
                rows.add(number, result)

        if progress is not None:
            progress(f"0/{len(models)}")
        yield watch
