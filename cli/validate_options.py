"""Define the options of `validate`, in the groups in which the command gets them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from onnx_spatial.cli import options
from onnx_spatial.conversion.options import MODES
from onnx_spatial.validation import Options, Report
from onnx_spatial.validation.report import FORMATS, Format, check_target, write
from onnx_spatial.validation.workers.clusters import CLUSTERS

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Selection:
    """Which of the models in the paths are validated."""

    exclude: tuple[str, ...]
    expect_failure: tuple[str, ...]
    changed_since: str | None
    part: str | None

    def models(self, paths: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Find the models; return their paths, and notes about those that are left out.

        Raises:
            UsageError: a path does not exist or holds no model.
            click.UsageError: --shard is not I/N.
        """
        from onnx_spatial.validation.select.changes import since
        from onnx_spatial.validation.select.discover import find, matches, shard

        models = find(paths, self.exclude)
        notes = [
            f"--expect-failure {glob}: matches no model"
            for glob in self.expect_failure
            if not any(matches(model, [glob]) for model in models)
        ]
        if self.changed_since is not None:
            of, models = len(models), since(models, self.changed_since)
            notes.append(f"{len(models)} of {of} models changed since {self.changed_since}")
        if self.part is not None:
            numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", self.part)
            if numbers is None:
                raise click.UsageError(f"--shard must be I/N, such as 1/4, not {self.part!r}")
            of, models = len(models), shard(models, int(numbers[1]), int(numbers[2]))
            notes.append(f"{len(models)} of {of} models are in part {self.part}")
        return models, notes


@dataclass(frozen=True)
class Processes:
    """Where models are validated, how many at a time, and within which bounds.

    Raises:
        click.UsageError: the options contradict each other.
    """

    jobs: int | None
    timeout: float
    memory: str | None
    executor: str
    scheduler: str | None

    def __post_init__(self) -> None:
        if self.executor == "local" and self.scheduler is not None:
            raise click.UsageError(f"--scheduler requires --executor {' or '.join(CLUSTERS)}")
        if self.executor != "local" and self.scheduler is None:
            raise click.UsageError(f"--executor {self.executor} requires --scheduler ADDRESS")
        if self.executor != "local" and self.jobs is not None:
            raise click.UsageError(
                "--jobs cannot be combined with --executor: the cluster decides how many run at a time"
            )

    @property
    def bytes(self) -> int | None:
        """The bound on memory; None for no bound.

        Raises:
            click.UsageError: --memory is no size.
        """
        if self.memory is None:
            return None
        number = r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]?)(?:i?B)?"
        found = re.fullmatch(number, self.memory.strip(), re.IGNORECASE)
        if found is None or not float(found[1]):
            raise click.UsageError(
                f"--memory must be a size such as 500M or 4G, not {self.memory!r}"
            )
        return int(float(found[1]) * _UNITS[found[2].upper()])

    @property
    def count(self) -> int:
        """How many run at a time."""
        return 1 if self.jobs is None else self.jobs or os.cpu_count() or 1

    def place(self) -> AbstractContextManager[Executor] | None:
        """The cluster; None for this machine."""
        return None if self.scheduler is None else CLUSTERS[self.executor](self.scheduler)


@dataclass(frozen=True)
class ReportFiles:
    """The files that reports are written to, by their format.

    Raises:
        ModelFileError: one cannot be written.
    """

    paths: Mapping[Format, Path]

    def __post_init__(self) -> None:
        for path in self.paths.values():
            check_target(path)

    def write(self, report: Report) -> None:
        """Write every file."""
        for report_format, path in self.paths.items():
            write(path, report_format.render(report).encode("utf-8", "backslashreplace"))


def _steps(
    modes: tuple[str, ...],
    rtol: float | None,
    no_fuse: bool,
    oracles: tuple[str, ...],
    strategy: str | None,
    domains: tuple[str, ...],
    static: tuple[str, ...],
    max_rank: int | None,
    shapes: tuple[str, ...],
    seed: int,
    strict: bool,
) -> Options:
    """What every model goes through."""
    return Options(
        modes=tuple(dict.fromkeys(modes)) or ("lower",),
        fuse=not no_fuse,
        max_rank=max_rank,
        strategy=strategy,
        domains=domains,
        static=tuple(options.parse_sizes("--static", static).items()),
        shapes=tuple(options.parse_shapes("--shape", shapes).items()),
        seed=seed,
        oracles=tuple(dict.fromkeys(oracles)),
        strict=strict,
        rtol=rtol,
    )


selection_options = options.grouped(
    "selection",
    Selection,
    click.option(
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="Leave these models out of folders and globs. May be repeated.",
    ),
    click.option(
        "--expect-failure",
        multiple=True,
        metavar="GLOB",
        help="Expect these models to fail; it is an error if they do not. May be repeated.",
    ),
    click.option(
        "--changed-since",
        metavar="REV",
        help="Validate only the models that changed since the git revision REV.",
    ),
    click.option(
        "--shard", "part", metavar="I/N", help="Validate only part I of N, for a CI matrix."
    ),
)

process_options = options.grouped(
    "processes",
    Processes,
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=0),
        metavar="N",
        help="Validate N models at a time; 0 means one per core (default: 1).",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        default=600,
        show_default=True,
        metavar="SECONDS",
        help="Fail a model that takes longer; 0 means no limit.",
    ),
    click.option(
        "--memory", metavar="SIZE", help="Fail a model that needs more memory, such as 4G."
    ),
    click.option(
        "--executor",
        type=click.Choice(("local", *CLUSTERS)),
        default="local",
        help="Run on this machine (the default) or on a cluster.",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Address of the cluster's scheduler."),
)


def report_options(command: options.F) -> options.F:
    """Add the option of each report format to a command, which gets them as `files`."""
    formats = {f"file_{entry.module}": entry for entry in FORMATS if entry.option}

    @functools.wraps(command)
    def run(*arguments: Any, **values: Any) -> Any:
        paths = {entry: values.pop(name) for name, entry in formats.items()}
        files = ReportFiles({entry: Path(path) for entry, path in paths.items() if path})
        return command(*arguments, **values, files=files)

    decorated: Any = run
    for name, entry in reversed(formats.items()):
        decorated = click.option(
            entry.option, name, type=click.Path(), metavar="FILE", help=entry.help
        )(decorated)
    return decorated  # type: ignore[no-any-return]


step_options = options.grouped(
    "steps",
    _steps,
    click.option(
        "--mode",
        "modes",
        type=click.Choice(MODES),
        multiple=True,
        help="Convert to standard operators, local functions, or Python operators (default: lower). "
        "May be repeated.",
    ),
    click.option(
        "--no-fuse", is_flag=True, help="Replace the operators only, no nodes around them."
    ),
    options.prefer_option,
    options.domain_option,
    options.static_option,
    options.max_rank_option,
    options.shape_option,
    options.seed_option,
    options.oracle_option,
    click.option(
        "--rtol",
        type=click.FloatRange(0, 1, max_open=True),
        metavar="R",
        help="Allow this difference from recorded outputs, relative to the largest value "
        "(default: 1e-4 for float32).",
    ),
    click.option("--strict", is_flag=True, help="Fail models that cannot be verified."),
)
