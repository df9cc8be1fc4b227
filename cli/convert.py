"""Define the commands `onnx-spatial convert` and `onnx-spatial optimize`, which share all options."""

from __future__ import annotations

from typing import Any

import click

from onnx_spatial.cli import help, options
from onnx_spatial.cli.destinations import Destinations, destination_options
from onnx_spatial.cli.html import html_option
from onnx_spatial.cli.output import Output


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
@options.conversion_options
def convert(
    models: tuple[str, ...], destinations: Destinations, output: Output, **others: Any
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
    from onnx_spatial.cli import conversion

    return conversion.convert_models("convert", models, destinations, output, **others)


@click.command(
    cls=help.Command,
    short_help="Convert, and rewrite standard nodes that are spatial operators.",
    examples=(
        "optimize model.onnx -o fast.onnx",
        "optimize a.onnx b.onnx -o fast/ --strict",
        "optimize models/*.onnx --check",
        "optimize model.onnx -o device.onnx --max-rank 4",
    ),
)
@options.models_argument
@destination_options
@html_option
@options.conversion_options
def optimize(
    models: tuple[str, ...], destinations: Destinations, output: Output, **others: Any
) -> int:
    """Do what `convert` does, and rewrite chains of standard nodes that are spatial operators.

    Exporters write SpaceToBatch and BatchToSpace as chains of Pad, Reshape, Transpose, Slice,
    SpaceToDepth and similar nodes. A chain is found by the data movement that it computes, not by
    names, and is proven to equal the operator for all sizes. SpaceToBatch, convolution and
    BatchToSpace become one dilated convolution. Patches written as a one-hot convolution or as
    Gathers become one strided convolution with the product behind them, or faster nodes. Transpose,
    Squeeze and Unsqueeze between convolutions are removed. Chains that only permute parts of axes
    become other nodes where these are clearly faster, or within --max-rank. Other chains stay as
    they are. `onnx-spatial inspect` lists the chains of a model.

    With another --mode than lower, each chain that is an operator becomes it first.

    With --max-rank, the nodes of the result that are still beyond the limit are listed;
    the result is written, and the exit code is 3.
    """
    from onnx_spatial.cli import conversion

    return conversion.convert_models("optimize", models, destinations, output, **others)
