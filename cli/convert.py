"""Define the command `onnx-spatial convert`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import onnx_spatial
from onnx_spatial.cli import options
from onnx_spatial.cli.output import Output
from onnx_spatial.conversion.options import MODES
from onnx_spatial.errors import VerificationError

#: Of a result that was written all the same.
UNDECIDED = "the result is not fully verified; --strict makes this an error"


@dataclass(frozen=True)
class Target:
    """Where the result goes.

    Raises:
        click.UsageError: the options contradict each other, or name no place.
    """

    path: str | None
    in_place: bool
    dry_run: bool

    def __post_init__(self) -> None:
        if not self.path and not self.dry_run and not self.in_place:
            raise click.UsageError(
                "missing output: use -o OUT, --in-place, or --dry-run to write nothing"
            )
        if self.in_place and self.path:
            raise click.UsageError("-o OUT and --in-place cannot be combined")

    @property
    def piped(self) -> bool:
        """Whether that is standard output."""
        return self.path == options.DASH

    @property
    def file(self) -> str | None:
        """The file of -o OUT; None if none is written by that name."""
        return None if self.dry_run or self.piped else self.path


def _tuning(tune: bool, tune_cache: str | None, tune_threads: int) -> dict[str, Any]:
    """Return the arguments for tuning.

    Raises:
        click.UsageError: there are options for it without --tune.
    """
    if not tune and (tune_cache or tune_threads):
        raise click.UsageError("--tune-cache and --tune-threads require --tune")
    return {"tune": tune, "tune_cache": tune_cache, "tune_threads": tune_threads}


#: -o, --in-place, --dry-run: the argument `target`.
target_options = options.grouped(
    "target",
    click.option("-o", "--output", "path", type=click.Path(), metavar="OUT", help="Write to OUT."),
    click.option("--in-place", is_flag=True, help="Replace MODEL by the result."),
    click.option("--dry-run", is_flag=True, help="Convert and verify, but write nothing."),
    make=Target,
)

_tuning_options = options.grouped(
    "tuning",
    click.option(
        "--tune", is_flag=True, help="Measure the lowerings on this machine and use the fastest."
    ),
    click.option(
        "--tune-cache",
        type=click.Path(),
        metavar="FILE",
        help="Keep the measured times in FILE. The same FILE gives the same OUT.",
    ),
    click.option(
        "--tune-threads",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Measure with N threads. 0 leaves the number to onnxruntime.",
    ),
    make=_tuning,
)


@click.command(short_help="Rewrite the spatial operators as standard operators and verify it.")
@click.argument("model", metavar="MODEL")
@target_options
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="lower",
    show_default=True,
    help="Convert to standard operators, local functions, or Python operators.",
)
@click.option("--inline", is_flag=True, help="Replace calls of local functions by their bodies.")
@click.option(
    "--raise-ir-version",
    is_flag=True,
    help="With --mode function, raise an IR version below 8 to 8, the first with local functions.",
)
@click.option("--no-fuse", is_flag=True, help="Change only the operators, no nodes beside them.")
@click.option(
    "--checked",
    is_flag=True,
    help="Make a run fail if sizes or parameters break a rule of an operator.",
)
@click.option("--no-verify", is_flag=True, help="Do not run and compare the two models.")
@_tuning_options
@options.prefer_option
@options.model_options
@options.verification_options
@options.output_options
def convert(
    model: str,
    target: Target,
    mode: str,
    inline: bool,
    raise_ir_version: bool,
    no_fuse: bool,
    checked: bool,
    no_verify: bool,
    tuning: dict[str, Any],
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
    """Rewrite the spatial operators of MODEL as standard operators, verify the result, write OUT.

    OUT is not written if the two models differ. Only the spatial operators change, and the nodes
    that are fused with them: convolutions between them become dilated convolutions, and Transposes
    beside them are merged into them. With --no-fuse only the operators change. A MODEL without
    spatial operators is copied byte for byte.

    If MODEL is -, it is read from standard input. If OUT is -, it is written to standard output, and
    all messages go to stderr.

    --in-place keeps the original as MODEL.orig until the result is verified, written and read back.
    MODEL.orig stays with --no-verify, and if the result is not fully verified.
    """
    from onnx_spatial.cli import data, render

    options.check_verification(strict_proof, tolerances, no_verify=no_verify)
    (source,) = data.models(model)
    if target.piped:
        data.check_standard_output(source, json=output.json)
    try:
        with output.progress() as progress:
            result = onnx_spatial.convert(
                source,
                target.file,
                mode=mode,
                inline=inline,
                fuse=not no_fuse,
                raise_ir_version=raise_ir_version,
                checked=checked,
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
                **tuning,
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
    undecided = result.verification is not None and not result.verification
    if output.json:
        output.document(result.to_dict())
    elif not output.quiet:
        console = output.err if target.piped else output.out
        render.conversion(console, result, Path(model), verbose=output.verbose)
        if undecided:
            console.print(f"warning: {UNDECIDED}", style="yellow", soft_wrap=True)
        if mode == "custom-op" and result.output is not None:
            render.how_to_run(output.out, result.output)
        if result.verification and result.output and source == model and not target.in_place:
            again = _command(model, result.output, {**model_options, **data_options}, tolerances)
            console.print(f"verify it again with: {again}", style="dim", soft_wrap=True)
    elif undecided:
        output.err.print(f"warning: {model}: {UNDECIDED}", style="yellow", soft_wrap=True)
    return 0


def _command(model: str, output: Path, given: dict[str, Any], tolerances: dict[str, Any]) -> str:
    """Return the command that compares the two files again."""
    from onnx_spatial.verification.compare.tolerance import tolerance_words

    words = ["onnx-spatial", "verify", model, str(output)]
    words += [word for name in given["domains"] for word in ("--domain", name)]
    words += [word for n, dim in given["static"].items() for word in ("--static", f"{n}={dim}")]
    for name, shape in given["shapes"].items():
        words += ["--shape", f"{name}={','.join(map(str, shape))}"]
    words += ["--inputs", given["inputs"]] if given["inputs"] else []
    words += ["--seed", str(given["seed"])] if given["seed"] else []
    return shlex.join([*words, *tolerance_words(**tolerances)])
