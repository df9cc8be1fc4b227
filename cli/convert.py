"""Define the commands `onnx-spatial convert` and `onnx-spatial optimize`, which share all options.

each model    convert -> verify -> write    one line for what is unverified or beyond the limits,
                                            and the command that verifies the result again
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import help, options
from onnx_spatial.cli.destinations import Destinations, destination_options
from onnx_spatial.cli.each_model import Progress, Task, each_model
from onnx_spatial.cli.html import html_option, html_report
from onnx_spatial.cli.output import Output, append_to_step_summary
from onnx_spatial.cli.text import say, say_command
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.errors import SpatialError, VerificationError
from onnx_spatial.report.figures import headline

if TYPE_CHECKING:
    from onnx_spatial.report.results import Conversion

#: Of a result that was written all the same.
_UNVERIFIED = "the result is not verified; --strict makes this an error"


def _all_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options and arguments of both commands."""
    for add in (
        options.output_options,
        options.verification_options,
        options.no_verify_option,
        options.static_option,
        options.editing_options,
        html_option,
        destination_options,
        options.models_argument,
    ):
        command = add(command)
    return command


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
@_all_options
def convert(**arguments: Any) -> int:
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
    return _convert("convert", **arguments)


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
@_all_options
def optimize(**arguments: Any) -> int:
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
    return _convert("optimize", **arguments)


def _convert(
    command: str,
    *,
    models: tuple[str, ...],
    destinations: Destinations,
    output: Output,
    editing: dict[str, Any],
    static: dict[str, int],
    no_verify: bool,
    how_to_verify: dict[str, Any],
    html: str | None,
) -> int:
    """Convert each model, also after one has failed, and return the exit code.

    Raises:
        click.UsageError: two options contradict each other.
        SpatialError: the only model fails.
    """
    options.check_verification(how_to_verify, no_verify=no_verify, check=destinations.check)
    asked = options.convert_options(chains=command == "optimize", **editing)
    files = destinations.of(models)
    verify = not (no_verify or destinations.check)
    task = _Convert(command, asked, static, how_to_verify, verify, files, destinations, output)
    with html_report(command, html, output, [*models, *files.values()]) as report:
        return each_model(output, models, task, report)


@dataclass(frozen=True)
class _Convert(Task["Conversion"]):
    """The conversion of the models of a command line.

    Attributes:
        command: its name.
        options: what becomes of the operators.
        static: sizes of symbolic dims.
        how_to_verify: options of the verification.
        verify: whether there is one.
        files: the file that gets the result of each model; None: none does by a name of its own.
        destinations: the same as the options say it.
        output: of the run.
    """

    command: str
    options: ConvertOptions
    static: dict[str, int]
    how_to_verify: Mapping[str, Any]
    verify: bool
    files: Mapping[str, str | None]
    destinations: Destinations
    output: Output

    def work(self, model: str, progress: Progress) -> Conversion:
        from onnx_spatial.api import edit_model

        file = self.files[model]
        result = edit_model(
            model,
            self.options,
            static=self.static,
            verify=options.verify_options(model, self.how_to_verify) if self.verify else None,
            strict=self.how_to_verify["strict"],
            output=file,
            in_place=self.destinations.in_place and not self.destinations.dry_run,
            external_data=self.destinations.external and file is not None,
            progress=progress,
        )
        what = "nothing to do" if result.summary is None else headline(result.summary)
        verdict = "" if result.verification is None else result.verification.message
        append_to_step_summary(self.command, model, what, verdict)
        if self.output.quiet:
            if (beyond := _beyond(result)) is not None:
                say(self.output.err, f"error: {model}: {beyond}", style="red")
            if _is_unverified(result):
                say(self.output.err, f"warning: {model}: {_UNVERIFIED}", style="yellow")
        return result

    def show(self, model: str, result: Conversion) -> None:
        from onnx_spatial.cli import render

        output, console = self.output, self.output.out
        render.conversion(console, result, Path(model), verbose=output.verbose)
        if self.destinations.check and result.changed:
            say(console, f"{model} would change; nothing was written")
        if _is_unverified(result):
            say(console, f"warning: {_UNVERIFIED}", style="yellow")
        if result.output is None:
            return
        if self.options.mode == "custom-op":
            render.how_to_run(console, result.output)
        if result.verification and not self.destinations.in_place:
            again = self._verify_command(model, result.output)
            say_command(console, "verify it again with", again, style="dim")

    def _verify_command(self, model: str, converted: Path) -> str:
        """Return the command that compares the two files again."""
        from onnx_spatial.verification.options import tolerance_words

        how = self.how_to_verify
        words = ["onnx-spatial", "verify", model, str(converted)]
        words += [word for name in self.options.domains for word in ("--domain", name)]
        words += [word for n, dim in self.static.items() for word in ("--static", f"{n}={dim}")]
        for name, shape in how["shapes"].items():
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += ["--inputs", how["inputs"]] if how["inputs"] else []
        words += ["--seed", str(how["seed"])] if how["seed"] else []
        words += tolerance_words(how["rtol"], how["atol"], outputs_only=how["outputs_only"])
        return shlex.join(words)

    def explain(self, error: SpatialError) -> None:
        """Print what a verification found."""
        if isinstance(error, VerificationError) and not (self.output.json or self.output.quiet):
            from onnx_spatial.cli import render

            render.verification(self.output.err, error.verification, verbose=self.output.verbose)

    def exit_code(self, result: Conversion) -> int:
        return 3 if _beyond(result) is not None else int(self.destinations.check and result.changed)

    def outcome(self, result: Conversion) -> str:
        if result.output is not None:
            return "written"
        if not result.changed:
            return "unchanged"
        return "would change" if self.destinations.check else "converted"


def _beyond(result: Conversion) -> str | None:
    """Say how many nodes are beyond the limits of the call; None if there are none."""
    limits = result.inspection.limits
    return None if limits is None else limits.text


def _is_unverified(result: Conversion) -> bool:
    return result.verification is not None and not result.verification
