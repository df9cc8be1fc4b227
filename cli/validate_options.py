"""Define the options of `validate`, in the groups in which the command gets them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from onnx_spatial.cli import options
from onnx_spatial.conversion.options import MODES, Mode
from onnx_spatial.validation import Options
from onnx_spatial.validation.workers.clusters import CLUSTERS


@dataclass(frozen=True)
class Selection:
    """Which of the models in the paths are validated."""

    exclude: tuple[str, ...]
    expect_failure: tuple[str, ...]

    def models(self, paths: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Find the models; return their paths, and notes about those that are left out.

        Raises:
            UsageError: a path does not exist or holds no model.
        """
        from onnx_spatial.validation.select.discover import find, matches

        models = find(paths, self.exclude)
        notes = []
        if _is_typed("exclude"):
            every = find(paths)
            notes += [
                f"--exclude {glob}: leaves out no model; for a folder write '{glob.rstrip('/')}/*'"
                for glob in self.exclude
                if not any(matches(model, [glob]) for model in every)
            ]
        if _is_typed("expect_failure"):
            notes += [
                f"--expect-failure {glob}: matches no model"
                for glob in self.expect_failure
                if not any(matches(model, [glob]) for model in models)
            ]
        return models, notes


def _is_typed(name: str) -> bool:
    """Tell whether an option is on the command line; pyproject.toml has globs for other calls, too."""
    source = click.get_current_context().get_parameter_source(name)
    return source == ParameterSource.COMMANDLINE


def _processes(
    jobs: int | None, timeout: float, memory: int | None, executor: str, scheduler: str | None
) -> dict[str, Any]:
    """Return where models are validated, how many at a time, and within which limits.

    Raises:
        click.UsageError: the options contradict each other.
    """
    if executor == "local" and scheduler is not None:
        raise click.UsageError(f"--scheduler requires --executor {' or '.join(CLUSTERS)}")
    if executor != "local" and scheduler is None:
        raise click.UsageError(f"--executor {executor} requires --scheduler ADDRESS")
    if executor != "local" and jobs is not None:
        raise click.UsageError(
            "--jobs cannot be combined with --executor: the cluster decides how many run at a time"
        )
    return {
        "jobs": 1 if jobs is None else jobs or os.cpu_count() or 1,
        "timeout": timeout or None,
        "memory": memory,
        "executor": None if scheduler is None else CLUSTERS[executor](scheduler),
    }


def _steps(
    *,
    modes: tuple[Mode, ...],
    no_fuse: bool,
    static: dict[str, int],
    shapes: dict[str, tuple[int, ...]],
    **values: Any,
) -> Options:
    """Return what is done with each model."""
    return Options(
        modes=tuple(dict.fromkeys(modes)) or ("lower",),
        fuse=not no_fuse,
        static=tuple(static.items()),
        shapes=tuple(shapes.items()),
        **values,
    )


selection_options = options.grouped(
    "selection",
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
    make=Selection,
)

process_options = options.grouped(
    "processes",
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
        "--memory",
        callback=options.memory_size,
        metavar="SIZE",
        help="Fail a model that needs more memory, such as 4G.",
    ),
    click.option(
        "--executor",
        type=click.Choice(("local", *CLUSTERS)),
        default="local",
        help="Run on this machine (the default) or on a cluster.",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Address of the cluster's scheduler."),
    make=_processes,
)


step_options = options.grouped(
    "steps",
    click.option(
        "--mode",
        "modes",
        type=click.Choice(MODES),
        multiple=True,
        help="Convert to standard operators, local functions, or Python operators (default: lower). "
        "May be repeated.",
    ),
    click.option(
        "--optimize",
        is_flag=True,
        help="Optimize the models: rewrite chains of standard nodes that are spatial operators, too.",
    ),
    click.option(
        "--no-fuse", is_flag=True, help="Change only the operators, no nodes beside them."
    ),
    options.prefer_option,
    options.domain_option,
    options.static_option,
    options.max_rank_option,
    *options.data_of_models,
    options.oracle_option,
    *options.tolerance_options,
    click.option("--strict", is_flag=True, help="Fail models that cannot be verified."),
    options.strict_proof_option,
    make=_steps,
)
