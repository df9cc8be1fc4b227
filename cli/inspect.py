"""`onnx-spatial inspect`"""

from __future__ import annotations

import click

import onnx_spatial
from onnx_spatial.api import Inspection
from onnx_spatial.cli import data, options, render


@click.command(short_help="What is in a model, what would be done, and why not.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@options.prefer_option
@options.model_options
@options.output_options
@click.pass_context
def inspect(
    context: click.Context,
    models: tuple[str, ...],
    domains: tuple[str, ...],
    static: tuple[str, ...],
    max_rank: int | None,
    strategy: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Say which spatial operators each MODEL holds and what `convert` would do with them.

    MODEL - is standard input. Times are estimates; -v has those of the alternatives, and
    `onnx-spatial bench` measures them.

    Exit code 3 if an operator could not be converted, 2 if a file could not be read.
    """
    output = options.start(context, as_json, quiet, verbose)
    sizes = options.sizes("--static", static)
    given = dict(zip(models, data.models(*models), strict=True))

    def look(model: str, progress: options.Progress) -> Inspection:
        return onnx_spatial.inspect(
            given[model],
            domains=domains,
            static=sizes,
            max_rank=max_rank,
            strategy=strategy,
            progress=progress,
        )

    def show(found: Inspection) -> None:
        render.inspection(output.out, found, verbose=verbose)

    def code_of(found: Inspection) -> int:
        return 3 if any(site.action == "refuse" for site in found.sites) else 0

    return options.each_model(output, models, look, show, code_of)
