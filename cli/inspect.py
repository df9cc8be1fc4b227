"""Define the command `onnx-spatial inspect`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
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

        render.outcome(output.out, result.describe(model, verbose=output.verbose, graphs=False))
        if result.command is not None and len(models) == 1:
            unknown = [o.domain for o in result.operators if o.unknown_domain]
            command = _next_command(result.command, model, values, unknown)
            output.out.print(f"do it with: {command}", soft_wrap=True)

    def conclude(result: Inspection) -> tuple[str, int]:
        return "inspected", 3 if result.refused else 0

    return each_model(output, models, work, show, conclude, HtmlReport())


def _next_command(
    name: str, model: str, values: Mapping[str, Any], unknown_domains: Sequence[str]
) -> str:
    """Return the command line that does what is listed, and accepts the domains that were not."""
    words = ["onnx-spatial", name, model, "-o", "OUT.onnx"]
    domains = dict.fromkeys([*values["domains"], *unknown_domains])
    words += [f"--domain={domain}" for domain in domains]
    words += [f"--static={dim}={size}" for dim, size in values["static"].items()]
    words += [f"--prefer={values['prefer']}"] if values["prefer"] else []
    words += [f"--max-rank={values['max_rank']}"] if values["max_rank"] else []
    return shlex.join(words)
