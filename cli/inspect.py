"""Define the command `onnx-spatial inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import help, options
from onnx_spatial.cli.each_model import Progress, Task, each_model
from onnx_spatial.cli.html import HtmlReport
from onnx_spatial.cli.output import Output
from onnx_spatial.conversion.options import ConvertOptions

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
def inspect(models: tuple[str, ...], static: dict[str, int], output: Output, **editing: Any) -> int:
    """List the spatial operators of each MODEL and what `convert` would do with them.

    Times are estimates. -v also lists the other lowerings.

    Exit code 3 if an operator cannot be converted, 2 if a file cannot be read.
    """
    task = _Inspect(options.convert_options(chains=True, **editing), static, output)
    return each_model(output, models, task, HtmlReport())


@dataclass(frozen=True)
class _Inspect(Task["Inspection"]):
    options: ConvertOptions
    static: dict[str, int]
    output: Output

    def work(self, model: str, progress: Progress) -> Inspection:
        from onnx_spatial.api import inspect_model

        return inspect_model(model, self.options, self.static, progress)

    def show(self, model: str, result: Inspection) -> None:
        from onnx_spatial.cli import render

        render.inspection(self.output.out, result, verbose=self.output.verbose)

    def exit_code(self, result: Inspection) -> int:
        return 3 if any(operator.action == "refuse" for operator in result.operators) else 0

    def outcome(self, result: Inspection) -> str:
        return "inspected"
