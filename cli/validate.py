"""`onnx-spatial validate`"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from onnx_spatial.api import MODES
from onnx_spatial.cli import options, validation
from onnx_spatial.errors import one_line
from onnx_spatial.validation import Interrupted, ModelResult, Options
from onnx_spatial.validation import validate as run_validation
from onnx_spatial.validation.report import FORMATS, check_target, write
from onnx_spatial.validation.run import Watch
from onnx_spatial.validation.select.changes import since
from onnx_spatial.validation.select.discover import find, matches, shard
from onnx_spatial.validation.workers.clusters import CLUSTERS

#: A folder that is there, or can be made.
_FOLDER = click.Path(file_okay=False)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
#: Report formats that are written to files, by the name of their parameter.
_REPORT_FILES = {
    entry.option.removeprefix("--").replace("-", "_"): entry for entry in FORMATS if entry.option
}

F = TypeVar("F", bound=Callable[..., Any])


def _report_options(command: F) -> F:
    """Add the option of each report format; its value is a keyword argument of the command."""
    for name, entry in reversed(_REPORT_FILES.items()):
        add = click.option(entry.option, name, type=click.Path(), metavar="FILE", help=entry.help)
        command = add(command)
    return command


@click.command(short_help="Prove every model of a folder: the CI step.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--mode",
    "modes",
    type=click.Choice(MODES),
    multiple=True,
    help="Convert into this form (default: lower); may be repeated.",
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave these out of folders.")
@click.option(
    "--expect-failure",
    multiple=True,
    metavar="GLOB",
    help="Models whose failure is the expected result; one that does not fail is a failure.",
)
@click.option("--changed-since", metavar="REV", help="Only models that git sees changed since REV.")
@click.option("--shard", "part", metavar="I/N", help="Only part I of N, for a CI matrix.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=0),
    metavar="N",
    help="Models at a time; 0: as many as there are cores (default: 1).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="End a model that takes longer; 0: no bound.",
)
@click.option("--memory", metavar="SIZE", help="End a model that takes more, such as 4G.")
@click.option("--fail-fast", is_flag=True, help="Start no further model after one failed.")
@click.option(
    "--cache",
    type=_FOLDER,
    metavar="DIR",
    help="Keep results in DIR, and go on with those there.",
)
@click.option("--rtol", type=click.FloatRange(0, 1, max_open=True), metavar="R", help=(
    "Allowed difference from recorded outputs, relative to the largest value "
    "(default: 1e-4 for float32)."
))  # fmt: skip
@_report_options
@click.option(
    "--write-test-data",
    "record_to",
    type=_FOLDER,
    metavar="DIR",
    help="Write models that passed to DIR, converted, each with a test_data_set_0.",
)
@click.option(
    "--reproducer",
    "reproduce_to",
    type=_FOLDER,
    metavar="DIR",
    help="Where a conversion gives something else, save small models, data and a script there.",
)
@click.option(
    "--executor",
    type=click.Choice(("local", *CLUSTERS)),
    default="local",
    help="Run on this machine or on a cluster.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Address of the scheduler of the cluster.")
@click.option("--no-fuse", is_flag=True, help="Replace nothing but the operators themselves.")
@options.oracle_option
@options.prefer_option
@options.model_options
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,64,48,3",
    help="Size of an input to run with, in models that have it; may be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of made-up inputs.")
@click.option("--strict", is_flag=True, help="Models that cannot be verified are failures.")
@options.output_options
@click.pass_context
def validate(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    modes: tuple[str, ...],
    exclude: tuple[str, ...],
    expect_failure: tuple[str, ...],
    changed_since: str | None,
    part: str | None,
    jobs: int | None,
    timeout: float,
    memory: str | None,
    fail_fast: bool,
    cache: str | None,
    rtol: float | None,
    record_to: str | None,
    reproduce_to: str | None,
    executor: str,
    scheduler: str | None,
    no_fuse: bool,
    oracles: tuple[str, ...],
    domains: tuple[str, ...],
    static: tuple[str, ...],
    max_rank: int | None,
    strategy: str | None,
    shapes: tuple[str, ...],
    seed: int,
    strict: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **reports: str | None,
) -> int:
    """Look at every model in the files, folders and globs given; fail when all have been looked at.

    Each is read, inspected, converted in memory in each mode, verified, and run on its recorded data
    (test_data_set_N beside it, or an .npz of its name), in a process of its own. A model without
    spatial operators has to run, and to give what is recorded.

    Exit code 1 if a model failed, 2 if a path does not exist or holds no model, 130 if it was
    interrupted: by then the reports have what was done.
    """
    output = options.start(context, as_json, quiet, verbose)
    wanted = Options(
        modes=tuple(dict.fromkeys(modes)) or ("lower",),
        fuse=not no_fuse,
        max_rank=max_rank,
        strategy=strategy,
        domains=domains,
        static=tuple(options.sizes("--static", static).items()),
        shapes=tuple(options.shapes("--shape", shapes).items()),
        seed=seed,
        oracles=tuple(dict.fromkeys(oracles)),
        strict=strict,
        rtol=rtol,
    )
    if jobs is not None and executor != "local":
        raise click.UsageError("--jobs is for this machine; the cluster has its own number")
    place = _place(executor, scheduler)
    targets = {
        _REPORT_FILES[name]: Path(path) for name, path in reports.items() if path is not None
    }
    for target in targets.values():
        check_target(target)
    models, notes = _models(paths, exclude, expect_failure, changed_since, part)
    rows = None
    if models and not (output.interactive or quiet or as_json):
        rows = validation.Rows(output.out, models)
    try:
        with _watching(output, models, rows) as watch:
            found = run_validation(
                models,
                wanted,
                jobs=jobs or (1 if jobs is None else os.cpu_count() or 1),
                timeout=timeout or None,
                memory=_bytes(memory),
                fail_fast=fail_fast,
                cache_folder=cache,
                record_to=record_to,
                reproduce_to=reproduce_to,
                expect_failure=expect_failure,
                executor=place,
                watch=watch,
            )
    except Interrupted as end:  # what is done by now is not lost
        found = end.report
    found.notes += notes
    for report_format, target in targets.items():
        write(target, report_format.render(found).encode("utf-8", "backslashreplace"))
    for report_format in FORMATS:
        if report_format.is_printed:
            output.err.print(report_format.render(found), end="", soft_wrap=True)
    if as_json:
        output.document(found.to_dict())
    validation.show(output, found, rows)
    return found.exit_code


def _models(
    paths: tuple[str, ...],
    exclude: tuple[str, ...],
    expect_failure: tuple[str, ...],
    revision: str | None,
    part: str | None,
) -> tuple[list[str], list[str]]:
    """(the models to look at, what is to say of those that are not)."""
    models = find(paths, exclude)
    notes = [
        f"--expect-failure {glob}: no model is called so"
        for glob in expect_failure
        if not any(matches(model, [glob]) for model in models)
    ]
    if revision is not None:
        of, models = len(models), since(models, revision)
        notes.append(f"{len(models)} of {of} models changed since {revision}")
    if part is not None:
        numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", part)
        if numbers is None:
            raise click.UsageError(f"--shard wants I/N, such as 1/4, not {part!r}")
        of, models = len(models), shard(models, int(numbers[1]), int(numbers[2]))
        notes.append(f"{len(models)} of {of} models are in part {part}")
    return models, notes


def _place(executor: str, scheduler: str | None) -> AbstractContextManager[Executor] | None:
    if executor == "local":
        if scheduler is not None:
            clusters = " or ".join(CLUSTERS)
            raise click.UsageError(f"--scheduler requires --executor {clusters}")
        return None
    if scheduler is None:
        raise click.UsageError(f"--executor {executor} requires --scheduler ADDRESS")
    return CLUSTERS[executor](scheduler)


def _bytes(size: str | None) -> int | None:
    if size is None:
        return None
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]?)(?:i?B)?", size.strip(), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise click.UsageError(f"--memory wants a size such as 500M or 4G, not {size!r}")
    return int(float(found[1]) * _UNITS[found[2].upper()])


@contextmanager
def _watching(
    output: options.Output, models: list[str], rows: validation.Rows | None
) -> Iterator[Watch]:
    """Says how far it got: in one line on a terminal, with -v in a line for each model elsewhere."""
    with output.progress() as progress:
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
                output.err.print(line, soft_wrap=True)

        if progress is not None:
            progress(f"0/{len(models)}")
        yield watch
