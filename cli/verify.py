"""`onnx-spatial verify`"""

from __future__ import annotations

import click

import onnx_spatial
from onnx_spatial.api import check
from onnx_spatial.cli import data, options, render
from onnx_spatial.errors import VerificationError


@click.command(short_help="Run two models and compare them.")
@click.argument("original", metavar="ORIGINAL")
@click.argument("converted", metavar="CONVERTED")
@options.domain_option
@options.static_option
@options.oracle_option
@options.verification_options
@options.output_options
@click.pass_context
def verify(
    context: click.Context,
    original: str,
    converted: str,
    domains: tuple[str, ...],
    static: tuple[str, ...],
    oracles: tuple[str, ...],
    shapes: tuple[str, ...],
    inputs: str | None,
    seed: int,
    strict: bool,
    reproducer: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run ORIGINAL (spatial operators by their numpy definition) and CONVERTED, and compare.

    One of them can be -, which is standard input.

    Exit code 1 if anything differs.
    """
    output = options.start(context, as_json, quiet, verbose)
    before, after = data.models(original, converted)
    with output.progress() as progress:
        result = onnx_spatial.verify(
            data.frozen(before, options.sizes("--static", static)),
            after,
            inputs=data.inputs(before, inputs),
            seed=seed,
            shapes=options.shapes("--shape", shapes),
            domains=domains,
            oracles=oracles,
            save_reproducer=reproducer,
            progress=progress,
        )
    if not as_json and not quiet:
        render.verification(output.out, result, verbose=verbose)
    try:
        check(original, result, strict=strict)
    except VerificationError:
        data.keep(output, result)
        raise
    if as_json:
        output.document(result.to_dict())
    return 0
