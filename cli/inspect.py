"""Define the command `onnx-spatial inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx_spatial.cli import options
from onnx_spatial.cli.each_model import Progress, each_model
from onnx_spatial.cli.html import HtmlReport
from onnx_spatial.cli.output import Output

if TYPE_CHECKING:
    from onnx_spatial import Inspection


@options.command(
    "List the spatial operators and what convert would do with each.",
    options.MODELS,
    options=f"prefer max_rank domains static {options.COMMON}",
    examples=("inspect model.onnx", "inspect -v models/*.onnx --json"),
)
def inspect(models: tuple[str, ...], output: Output, **values: Any) -> int:
    """List the spatial operators of each MODEL and what `convert` would do with them.

    Times are estimates. -v also lists the other lowerings.

    Exit code 3 if an operator cannot be converted, 2 if a file cannot be read.
    """
    asked = options.convert_options(values, chains=True)

    def work(model: str, progress: Progress) -> Inspection:
        from onnx_spatial.api import inspect_model

        return inspect_model(model, asked, values["static"], progress)

    def show(model: str, result: Inspection) -> None:
        from onnx_spatial.cli import render
        from onnx_spatial.report.outcome import describe

        shown = describe(result, model, verbose=output.verbose, graphs=False)
        render.outcome(output.out, shown)

    def conclude(result: Inspection) -> tuple[str, int]:
        refused = any(operator.action == "refuse" for operator in result.operators)
        return "inspected", 3 if refused else 0

    return each_model(output, models, work, show, conclude, HtmlReport())
