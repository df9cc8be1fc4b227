"""Define the command `onnx-spatial inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import help, options
from onnx_spatial.cli.each_model import Progress, each_model
from onnx_spatial.cli.output import Output

if TYPE_CHECKING:
    from onnx_spatial import Inspection


@click.command(
    cls=help.Command,
    short_help="List the spatial operators and what convert would do with each.",
    examples=("inspect model.onnx", "inspect -v models/*.onnx --json"),
)
@options.models_argument
@options.prefer_option
@options.max_rank_option
@options.domain_option
@options.static_option
@options.output_options
def inspect(
    models: tuple[str, ...],
    static: dict[str, int],
    output: Output,
    **editing: Any,
) -> int:
    """List the spatial operators of each MODEL and what `convert` would do with them.

    Times are estimates. -v also lists the other lowerings.

    Exit code 3 if an operator cannot be converted, 2 if a file cannot be read.
    """
    from onnx_spatial.api import inspect_model
    from onnx_spatial.cli import render

    asked = options.convert_options(chains=True, **editing)

    def run_one(model: str, progress: Progress) -> Inspection:
        return inspect_model(model, asked, static, progress)

    def show(_: str, inspection: Inspection) -> None:
        render.inspection(output.out, inspection, verbose=output.verbose)

    def code_of(inspection: Inspection) -> int:
        return 3 if any(operator.action == "refuse" for operator in inspection.operators) else 0

    return each_model(output, models, run_one, show, code_of, outcome_of=lambda _: "inspected")
