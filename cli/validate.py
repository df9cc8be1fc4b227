"""Define the command `onnx-spatial validate`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from onnx_spatial.cli import help, options
from onnx_spatial.cli.html import html_option
from onnx_spatial.cli.output import Output, append_markdown
from onnx_spatial.cli.text import say
from onnx_spatial.conversion.options import Mode
from onnx_spatial.errors import one_line
from onnx_spatial.report.report_file import check_file, require, write
from onnx_spatial.validation import ModelResult, Options

if TYPE_CHECKING:
    from onnx_spatial.cli import validation
    from onnx_spatial.validation.run import Watch


def _examination(
    *,
    modes: tuple[Mode, ...],
    no_fuse: bool,
    static: dict[str, int],
    shapes: dict[str, tuple[int, ...]],
    **others: Any,
) -> Options:
    """Return what is done with each model."""
    return Options(
        modes=tuple(dict.fromkeys(modes)) or ("lower",),
        fuse=not no_fuse,
        static=tuple(static.items()),
        shapes=tuple(shapes.items()),
        **others,
    )


_examination_options = options.grouped(
    "examination",
    options.mode_option("modes", multiple=True, help=" (default: lower). May be repeated"),
    click.option(
        "--optimize",
        is_flag=True,
        help="Optimize the models: rewrite chains of standard nodes that are spatial operators, too.",
    ),
    options.no_fuse_option,
    options.checked_option,
    options.prefer_option,
    options.domain_option,
    options.static_option,
    options.max_rank_option,
    options.shape_option,
    options.seed_option,
    click.option("--strict", is_flag=True, help="Fail models that cannot be verified."),
    options.strict_proof_option,
    make=_examination,
)


@click.command(
    cls=help.Command,
    short_help="Convert and verify every model of a folder, as a CI step.",
    examples=(
        "validate models/ -j 4 --junit-xml models.xml",
        "validate models/ --mode lower --mode function --strict-proof",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Leave these models out of folders and globs. May be repeated.",
)
@click.option(
    "--expect-failure",
    multiple=True,
    metavar="GLOB",
    help="Expect these models to fail; it is an error if they do not. May be repeated.",
)
@_examination_options
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=0),
    metavar="N",
    help="Validate N models at a time; 0 means one per core (default: 1).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Fail a model that takes longer; 0 means no limit.",
)
@options.memory_option("Fail a model that needs more memory, such as 4G.")
@click.option(
    "--executor",
    type=click.Choice(("local", "dask")),
    default="local",
    help="Run on this machine (the default) or on a cluster.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Address of the cluster's scheduler.")
@click.option("--junit-xml", type=click.Path(), metavar="FILE", help="Write a JUnit XML report.")
@html_option
@options.output_options
def validate(
    paths: tuple[str, ...],
    exclude: tuple[str, ...],
    expect_failure: tuple[str, ...],
    examination: Options,
    jobs: int | None,
    timeout: float,
    memory: int | None,
    executor: str,
    scheduler: str | None,
    junit_xml: str | None,
    html: str | None,
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
    _check_executor(executor, scheduler, jobs)
    for path in filter(None, (junit_xml, html)):
        check_file(Path(path))
    if html is not None:
        require("jinja2")

    from onnx_spatial.cli import validation
    from onnx_spatial.validation import reports, run
    from onnx_spatial.validation.models import find

    models = find(paths, exclude)
    rows = None
    if not (output.interactive or output.quiet or output.json):
        rows = validation.Rows(output.out, models)
    with (
        nullcontext() if scheduler is None else run.dask(scheduler) as cluster,
        _watching(output, models, rows) as watch,
    ):
        report = run.validate(
            models,
            examination,
            jobs=jobs or (1 if jobs is None else os.cpu_count() or 1),
            timeout=timeout or None,
            memory=memory,
            expect_failure=expect_failure,
            graphs=html is not None,
            executor=cluster,
            watch=watch,
        )
    report.notes += _useless_globs(paths, models, exclude, expect_failure)
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
    validation.show(output, report, rows)
    return report.exit_code


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
    paths: Sequence[str],
    models: Sequence[str],
    exclude: Sequence[str],
    expect_failure: Sequence[str],
) -> Iterator[str]:
    """Yield a note on each glob of the command line that matches no model.

    Those of pyproject.toml are for other calls, too.
    """
    from onnx_spatial.validation.models import find, matches

    source = click.get_current_context().get_parameter_source
    if exclude and source("exclude") == ParameterSource.COMMANDLINE:
        all_models = find(paths)
        for glob in exclude:
            if not any(matches(model, [glob]) for model in all_models):
                advice = f"for a folder write '{glob.rstrip('/')}/*'"
                yield f"--exclude {glob}: leaves out no model; {advice}"
    if source("expect_failure") == ParameterSource.COMMANDLINE:
        for glob in expect_failure:
            if not any(matches(model, [glob]) for model in models):
                yield f"--expect-failure {glob}: matches no model"


@contextmanager
def _watching(
    output: Output, models: Sequence[str], rows: validation.Rows | None
) -> Iterator[Watch]:
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
