"""Define the command `onnx-spatial optimize`."""

from __future__ import annotations

from typing import Any

import click

import onnx_spatial
from onnx_spatial.cli import help, options
from onnx_spatial.cli.destinations import Destinations, destination_options
from onnx_spatial.cli.html import html_option
from onnx_spatial.cli.output import Output


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
    Gathers become one strided convolution with the product behind them, or faster nodes.
    Transpose, Squeeze and Unsqueeze between convolutions are removed. Chains that only permute parts
    of axes become other nodes where these are clearly faster, or within --max-rank. Other chains
    stay as they are. `onnx-spatial inspect` lists the chains of a model.

    With --max-rank, the nodes of the result that are still beyond the limit are listed;
    the result is written, and the exit code is 3.

    Several models are written to the folder OUT, and keep their own folders inside it; all are
    converted, also after one has failed.
    """
    from onnx_spatial.cli import conversion

    return conversion.convert_models(
        "optimize", onnx_spatial.optimize, models, destinations, output, **others
    )
