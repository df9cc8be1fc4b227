"""`onnx-spatial convert`"""

from __future__ import annotations

import shlex
from pathlib import Path

import click

import onnx_spatial
from onnx_spatial.cli import data, options, render
from onnx_spatial.errors import VerificationError
from onnx_spatial.model.io import writer as writing
from onnx_spatial.options import MODES

#: Of a result that was written all the same.
_UNDECIDED = (
    "it could not be decided whether the result is the same model; --strict refuses such a result"
)


@click.command(short_help="Rewrite the spatial operators as standard ones and prove it.")
@click.argument("model", metavar="MODEL")
@click.option("-o", "--output", "target", type=click.Path(), metavar="OUT", help="Where to write.")
@click.option("--in-place", is_flag=True, help="Put the result in the place of MODEL.")
@click.option("--dry-run", is_flag=True, help="Convert and verify, write nothing.")
@click.option("--mode", type=click.Choice(MODES), default="lower", show_default=True)
@click.option("--inline", is_flag=True, help="Put the bodies of local functions in their place.")
@click.option(
    "--raise-ir-version",
    is_flag=True,
    help="With --mode function: raise an IR version that is older than local functions to 8.",
)
@click.option("--no-fuse", is_flag=True, help="Replace nothing but the operators themselves.")
@click.option("--checked", is_flag=True, help="Let every run that breaks a rule fail.")
@click.option("--no-verify", is_flag=True, help="Write the result without proof.")
@click.option("--tune", is_flag=True, help="Measure the lowerings here and take the fastest.")
@click.option(
    "--tune-cache",
    type=click.Path(),
    metavar="FILE",
    help="Keep what was measured in FILE; the same file gives the same OUT.",
)
@click.option(
    "--tune-threads",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Measure with N threads, instead of as many as onnxruntime takes.",
)
@options.prefer_option
@options.model_options
@options.verification_options
@options.output_options
@click.pass_context
def convert(
    context: click.Context,
    model: str,
    target: str | None,
    in_place: bool,
    dry_run: bool,
    mode: str,
    inline: bool,
    raise_ir_version: bool,
    no_fuse: bool,
    checked: bool,
    no_verify: bool,
    tune: bool,
    tune_cache: str | None,
    tune_threads: int,
    domains: tuple[str, ...],
    static: tuple[str, ...],
    max_rank: int | None,
    strategy: str | None,
    shapes: tuple[str, ...],
    inputs: str | None,
    seed: int,
    strict: bool,
    reproducer: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Rewrite the spatial operators of MODEL as standard operators, prove it, and write OUT.

    OUT appears unless the two models differ; it holds the same model, down to the last name, with
    nothing but the spatial operators replaced, the convolutions between them made dilated ones, and
    the Transposes around them taken in (--no-fuse: nothing but the operators). A MODEL without any is
    copied byte for byte.
    MODEL - is standard input; OUT - is standard output, and all else goes to stderr.
    With --in-place OUT is MODEL, whose original is kept as MODEL.orig until the result was proven,
    written and read back (with --no-verify, or if it could not be decided, it stays there).
    With --tune the lowering of each operator is the one that is the fastest on this machine.
    """
    output = options.start(context, as_json, quiet, verbose)
    if not target and not dry_run and not in_place:
        raise click.UsageError(
            "say where to write with -o OUT, or --dry-run to write nothing, or --in-place"
        )
    if in_place and target:
        raise click.UsageError("give either -o OUT or --in-place, not both")
    if not tune and (tune_cache or tune_threads):
        raise click.UsageError("--tune-cache and --tune-threads want --tune")
    piped = target == data.DASH
    (given,) = data.models(model)
    if piped:
        data.check_standard_output(given, json=as_json)
    try:
        with output.progress() as progress:
            result = onnx_spatial.convert(
                given,
                None if dry_run or piped else target,
                mode=mode,
                inline=inline,
                fuse=not no_fuse,
                raise_ir_version=raise_ir_version,
                checked=checked,
                max_rank=max_rank,
                strategy=strategy,
                verify=not no_verify,
                seed=seed,
                static=options.sizes("--static", static),
                domains=domains,
                inputs=data.inputs(given, inputs),
                shapes=options.shapes("--shape", shapes),
                strict=strict,
                save_reproducer=reproducer,
                tune=tune,
                tune_cache=tune_cache,
                tune_threads=tune_threads,
                in_place=in_place and not dry_run,
                progress=progress,
            )
    except VerificationError as error:
        if not as_json and not quiet:
            render.verification(output.err, error.verification, verbose=verbose)
        data.keep(output, error.verification)
        raise
    if piped and not dry_run:
        write = writing.content_of if result.changed or static else writing.as_read
        data.to_standard_output(write(result.result))
    undecided = result.verification is not None and not result.verification
    if as_json:
        output.document(result.to_dict())
    elif not quiet:
        console = output.err if piped else output.out
        render.conversion(console, result, Path(model), verbose=verbose)
        if undecided:
            console.print(f"warning: {_UNDECIDED}", style="yellow", soft_wrap=True)
        if mode == "custom-op" and result.output is not None:
            render.how_to_run(output.out, result.output)
        if result.verification and result.output is not None and given == model and not in_place:
            named = [("--domain", domains), ("--static", static), ("--shape", shapes)]
            again = [word for option, values in named for v in values for word in (option, v)]
            again += ["--inputs", inputs] if inputs else []
            again += ["--seed", str(seed)] if seed else []
            command = shlex.join(["onnx-spatial", "verify", model, str(result.output), *again])
            output.out.print(f"prove it again with: {command}", style="dim", soft_wrap=True)
    elif undecided:
        output.err.print(f"warning: {model}: {_UNDECIDED}", style="yellow", soft_wrap=True)
    return 0
