"""Define the command `onnx-spatial optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import onnx_spatial
from onnx_spatial.cli import options
from onnx_spatial.cli.convert import UNDECIDED, Target, target_options
from onnx_spatial.cli.output import Output
from onnx_spatial.errors import VerificationError

EXAMPLES = """\b
Examples:
  onnx-spatial optimize model.onnx -o fast.onnx
  onnx-spatial optimize model.onnx --dry-run --json
  onnx-spatial inspect model.onnx"""


@click.command(
    short_help="Convert, and rewrite standard nodes that are spatial operators.", epilog=EXAMPLES
)
@click.argument("model", metavar="MODEL")
@target_options
@click.option("--no-verify", is_flag=True, help="Do not run and compare the two models.")
@options.prefer_option
@options.model_options
@options.verification_options
@options.output_options
def optimize(
    model: str,
    target: Target,
    no_verify: bool,
    strategy: str | None,
    model_options: dict[str, Any],
    data_options: dict[str, Any],
    tolerances: dict[str, Any],
    strict: bool,
    strict_proof: bool,
    reproducer: str | None,
    memory: int | None,
    output: Output,
) -> int:
    """Do what `convert` does, and rewrite chains of standard nodes that are spatial operators.

    Exporters write SpaceToBatch and BatchToSpace as chains of Pad, Reshape, Transpose, Slice,
    SpaceToDepth and similar nodes. A chain is found by the data movement that it computes, not by
    names, and is proven to equal the operator for all sizes. SpaceToBatch, convolution and
    BatchToSpace become one dilated convolution. Other chains stay as they are.
    `onnx-spatial inspect` lists the chains of a model.

    If MODEL is -, it is read from standard input. If OUT is -, it is written to standard output, and
    all messages go to stderr.
    """
    from onnx_spatial.cli import data, render

    options.check_verification(strict_proof, tolerances, no_verify=no_verify)
    (source,) = data.models(model)
    if target.piped:
        data.check_standard_output(source, json=output.json)
    try:
        with output.progress() as progress:
            result = onnx_spatial.optimize(
                source,
                target.file,
                strategy=strategy,
                verify=not no_verify,
                strict=strict,
                strict_proof=strict_proof,
                save_reproducer=reproducer,
                isolate=True,
                memory=memory,
                **model_options,
                **data.read_inputs(source, data_options),
                **tolerances,
                in_place=target.in_place and not target.dry_run,
                progress=progress,
            )
    except VerificationError as error:
        if not output.json and not output.quiet:
            render.verification(output.err, error.verification, verbose=output.verbose)
        data.keep(output, error.verification)
        raise
    if target.piped and not target.dry_run:
        data.to_standard_output(result, frozen=bool(model_options["static"]))
    if output.json:
        output.document(result.to_dict())
    elif not output.quiet:
        console = output.err if target.piped else output.out
        render.optimization(console, result, Path(model), verbose=output.verbose)
    if result.verification is not None and not result.verification and not output.json:
        output.err.print(f"warning: {model}: {UNDECIDED}", style="yellow", soft_wrap=True)
    return 0
