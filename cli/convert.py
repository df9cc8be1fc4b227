"""Define the commands `onnx-spatial convert` and `onnx-spatial optimize`, which share all options.

each model    convert -> verify -> write    one line for what is unverified or beyond the limits
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import options
from onnx_spatial.cli.destinations import Destinations
from onnx_spatial.cli.each_model import Progress, each_model
from onnx_spatial.cli.html import html_report
from onnx_spatial.cli.output import Output, append_to_step_summary
from onnx_spatial.cli.text import say
from onnx_spatial.report.figures import headline

if TYPE_CHECKING:
    from onnx_spatial.report.results import Conversion

#: Of a result that was written all the same.
_UNVERIFIED = "the result is not verified; --strict makes this an error"
_OPTIONS = (
    "path in_place dry_run check external "
    f"{options.EDITING} no_verify {options.VERIFYING} html {options.COMMON}"
)


@options.command(
    "Rewrite the spatial operators as standard operators and verify it.",
    options.MODELS,
    options=_OPTIONS,
    examples=(
        "convert model.onnx -o converted.onnx",
        "convert a.onnx b.onnx -o converted/ --strict",
        "convert models/*.onnx --check",
        "convert model.onnx --dry-run --html report.html",
    ),
)
def convert(**values: Any) -> int:
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
    return _convert_models("convert", **values)


@options.command(
    "Convert, and rewrite standard nodes that are spatial operators.",
    options.MODELS,
    options=_OPTIONS,
    examples=(
        "optimize model.onnx -o fast.onnx",
        "optimize a.onnx b.onnx -o fast/ --strict",
        "optimize models/*.onnx --check",
        "optimize model.onnx -o device.onnx --max-rank 4",
    ),
)
def optimize(**values: Any) -> int:
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
    return _convert_models("optimize", **values)


def _convert_models(
    command: str, *, models: tuple[str, ...], output: Output, html: str | None, **values: Any
) -> int:
    """Convert each model, also after one has failed, and return the exit code.

    Raises:
        click.UsageError: two options contradict each other.
        SpatialError: the only model fails.
    """
    places = Destinations(
        *(values[name] for name in ("path", "in_place", "dry_run", "check", "external"))
    )
    for name in ("strict_proof", "rtol", "atol", "outputs_only"):
        if values[name] not in (None, False) and (values["no_verify"] or places.check):
            option, other = name.replace("_", "-"), "check" if places.check else "no-verify"
            raise click.UsageError(f"--{option} and --{other} cannot be combined")
    asked = options.convert_options(values, chains=command == "optimize")
    files = places.of(models)
    verify = not (values["no_verify"] or places.check)

    def work(model: str, progress: Progress) -> Conversion:
        from onnx_spatial.api import edit_model

        file = files[model]
        result = edit_model(
            model,
            asked,
            static=values["static"],
            verify=options.verify_options(model, values) if verify else None,
            strict=values["strict"],
            output=file,
            in_place=places.in_place and not places.dry_run,
            external_data=places.external and file is not None,
            progress=progress,
        )
        what = "nothing to do" if result.summary is None else headline(result.summary)
        verdict = "" if result.verification is None else result.verification.message
        append_to_step_summary(command, model, what, verdict)
        if output.quiet:
            if (beyond := _beyond_limits(result)) is not None:
                say(output.err, f"error: {model}: {beyond}", style="red")
            if _is_unverified(result):
                say(output.err, f"warning: {model}: {_UNVERIFIED}", style="yellow")
        return result

    def show(model: str, result: Conversion) -> None:
        from onnx_spatial.cli import render

        render.outcome(output.out, result.describe(model, verbose=output.verbose, graphs=False))
        if result.output is not None:
            what = "wrote" if result.changed else "copied byte for byte to"
            say(output.out, f"{what} {result.output}")
        if command == "convert" and not result.changed and not result.operators:
            look = shlex.join(["onnx-spatial", "optimize", model])
            say(output.out, f"to find operators that are written as standard nodes: {look}")
        if result.backup is not None:
            say(output.out, f"the original is kept as {result.backup}")
        if places.check and result.changed:
            say(output.out, f"{model} would change; nothing was written")
        if _is_unverified(result):
            say(output.out, f"warning: {_UNVERIFIED}", style="yellow")
        if asked.mode == "custom-op" and result.output is not None:
            render.how_to_run(output.out, result.output)

    def conclude(result: Conversion) -> tuple[str, int]:
        changed = "would change" if places.check else "converted"
        outcome = "written" if result.output else changed if result.changed else "unchanged"
        return outcome, 3 if _beyond_limits(result) else int(places.check and result.changed)

    with html_report(command, html, output, [*models, *files.values()]) as report:
        return each_model(output, models, work, show, conclude, report)


def _beyond_limits(result: Conversion) -> str | None:
    """Say how many nodes are beyond the limits of the call; None if there are none."""
    limits = result.inspection.limits
    return None if limits is None else limits.text


def _is_unverified(result: Conversion) -> bool:
    return result.verification is not None and not result.verification
