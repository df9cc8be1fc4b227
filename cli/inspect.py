"""`onnx-spatial inspect`"""

from __future__ import annotations

import click

import onnx_spatial
from onnx_spatial.cli import options, render
from onnx_spatial.errors import SpatialError


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

    Times are estimates; -v has those of the alternatives, and `onnx-spatial bench` measures them.

    Exit code 3 if an operator could not be converted, 2 if a file could not be read.
    """
    output = options.start(context, as_json, quiet, verbose)
    sizes = options.sizes("--static", static)
    code = 0
    documents: list[dict[str, object]] = []
    for model in models:
        try:
            with output.progress() as progress:
                found = onnx_spatial.inspect(
                    model,
                    domains=domains,
                    static=sizes,
                    max_rank=max_rank,
                    strategy=strategy,
                    progress=progress,
                )
        except SpatialError as error:
            if len(models) == 1:
                raise
            output.err.print(f"error: {error}", soft_wrap=True)
            documents.append({"model": model, "error": str(error), "exit_code": error.exit_code})
            code = max(code, error.exit_code)
            continue
        documents.append(found.to_dict())
        if any(site.action == "refuse" for site in found.sites):
            code = max(code, 3)
        if not as_json and not quiet:
            render.inspection(output.out, found, verbose=verbose)
    if as_json:
        one = len(models) == 1
        output.document(documents[0] if one else {"version": 1, "models": documents})
    return code
