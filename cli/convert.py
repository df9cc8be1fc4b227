"""Define the command `onnx-spatial convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import onnx_spatial
from onnx_spatial.cli import help, options
from onnx_spatial.cli.destinations import Destinations, destination_options
from onnx_spatial.cli.html import html_option
from onnx_spatial.cli.output import Output
from onnx_spatial.conversion.options import MODES

if TYPE_CHECKING:
    from rich.console import Console

    from onnx_spatial import Conversion


@click.command(
    cls=help.Command,
    short_help="Rewrite the spatial operators as standard operators and verify it.",
    examples=(
        "convert model.onnx -o converted.onnx",
        "convert a.onnx b.onnx -o converted/ --strict",
        "convert models/*.onnx --check",
        "convert model.onnx --dry-run --html report.html",
    ),
)
@options.models_argument
@destination_options
@html_option
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="lower",
    show_default=True,
    help="Convert to standard operators, local functions, or Python operators.",
)
@click.option("--no-fuse", is_flag=True, help="Change only the operators, no nodes beside them.")
@click.option(
    "--checked",
    is_flag=True,
    help="Make a run fail if sizes or parameters break a rule of an operator.",
)
@options.conversion_options
def convert(
    models: tuple[str, ...],
    destinations: Destinations,
    mode: str,
    no_fuse: bool,
    output: Output,
    **others: Any,
) -> int:
    """Rewrite the spatial operators of each MODEL as standard operators, verify the result, write OUT.

    OUT is not written if the two models differ. Only the spatial operators change, and the nodes
    that are fused with them: convolutions between them become dilated convolutions, and Transposes
    beside them are merged into them. With --no-fuse only the operators change. A MODEL without
    spatial operators is copied byte for byte.

    Several models are written to the folder OUT, and keep their own folders inside it; all are
    converted, also after one has failed.

    --in-place keeps the original as MODEL.orig until the result is verified, written and read back.
    MODEL.orig stays with --no-verify, and if the result is not fully verified.
    """
    from onnx_spatial.cli import conversion, render

    def rewrite(*arguments: Any, no_fuse: bool, **others: Any) -> Conversion:
        return onnx_spatial.convert(*arguments, fuse=not no_fuse, **others)

    def advise(console: Console, path: Path) -> None:
        if mode == "custom-op":
            render.how_to_run(console, path)

    return conversion.convert_models(
        "convert",
        rewrite,
        models,
        destinations,
        output,
        mode=mode,
        no_fuse=no_fuse,
        advise=advise,
        **others,
    )
