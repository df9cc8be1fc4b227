"""Define the command `onnx-spatial export`."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import help, options
from onnx_spatial.cli.each_model import Progress, each_model
from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say

if TYPE_CHECKING:
    from onnx_spatial.tf2onnx import Export


@click.command(
    cls=help.Command,
    short_help="Export a TensorFlow model with tf2onnx, converted and verified.",
    examples=(
        "export saved_model -o model.onnx",
        "export net.keras -o model.onnx --record",
        "export net.tflite -o model.onnx --opset 18",
    ),
)
@click.argument("models", metavar="MODEL", nargs=1, type=click.Path())
@click.option(
    "-o", "--output", "path", type=click.Path(), metavar="OUT", required=True, help="Write to OUT."
)
@click.option(
    "--signature",
    metavar="NAME",
    help="Export this signature of a SavedModel, not serving_default.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Write inputs and TensorFlow's outputs to an .npz file beside OUT, for validate.",
)
@click.option(
    "--opset",
    type=click.IntRange(min=7),
    metavar="N",
    help="Export at opset N, not tf2onnx's default.",
)
@click.option("--no-fuse", is_flag=True, help="Change only the operators, no nodes beside them.")
@options.prefer_option
@options.max_rank_option
@options.shape_option
@options.seed_option
@click.option("--strict", is_flag=True, help="Fail unless the whole model was run end to end.")
@options.strict_proof_option
@options.output_options
def export(models: str, path: str, no_fuse: bool, output: Output, **others: Any) -> int:
    """Export a TensorFlow MODEL with tf2onnx, convert its spatial operators, and write OUT.

    MODEL is a SavedModel folder, a Keras file (.keras, .h5) or a TFLite file. tf2onnx keeps the spatial
    operators as they are; they are then converted and verified as by `onnx-spatial convert`.
    TensorFlow runs MODEL, and OUT is not written if its outputs differ from those of the result.

    Needs TensorFlow and tf2onnx: pip install 'onnx-spatial[tf2onnx]'.
    """
    from onnx_spatial.cli import render
    from onnx_spatial.tf2onnx import export as run

    if not output.verbose:
        logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)

    def export_model(model: str, progress: Progress) -> Export:
        return run(model, path, fuse=not no_fuse, progress=progress, **others)

    def show(model: str, result: Export) -> None:
        conversion = replace(result.conversion, output=None)  # it is said in the end
        render.conversion(output.out, conversion, Path(model), verbose=output.verbose)
        verdict, _, text = result.message.partition(": ")
        say(output.out, f"{verdict.upper()}  {text}")
        for file in filter(None, (result.conversion.output, result.record)):
            say(output.out, f"wrote {file}")

    return each_model(output, [models], export_model, show)
