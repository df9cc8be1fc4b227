"""Convert each model of a command line, verify and write it, and say what was done."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from onnx_spatial.cli import data, options, render, step_summary
from onnx_spatial.cli.destinations import Destination, Destinations
from onnx_spatial.cli.each_model import Progress, each_model
from onnx_spatial.cli.html import html_report
from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say, say_command
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.edit import edit_model
from onnx_spatial.errors import SpatialError, VerificationError
from onnx_spatial.report.figures import headline
from onnx_spatial.report.results import Conversion

#: Of a result that was written all the same.
UNVERIFIED = "the result is not verified; --strict makes this an error"


def convert_models(
    command: str,
    models: Sequence[str],
    destinations: Destinations,
    output: Output,
    *,
    editing: dict[str, Any],
    static: dict[str, int],
    no_verify: bool,
    how_to_verify: dict[str, Any],
    html: str | None,
) -> int:
    """Convert each model, also after one has failed, and return the exit code.

    Args:
        command: "convert" or "optimize".
        models: paths.
        destinations: where the results go.
        output: of the run.
        editing, static, no_verify, how_to_verify, html: options of the command.

    Raises:
        click.UsageError: two options contradict each other.
        SpatialError: the only model fails.
    """
    options.check_verification(how_to_verify, no_verify=no_verify, check=destinations.check)
    targets = dict(zip(models, destinations.of(models), strict=True))
    run = _Run(
        command,
        options.convert_options(chains=command == "optimize", **editing),
        static,
        how_to_verify,
        not (no_verify or destinations.check),
        targets,
        destinations,
        output,
    )
    files = [*models, *(target.file for target in targets.values())]
    with html_report(command, html, output, files) as report:
        watched = report.watched(run.convert_model)
        return each_model(
            output, models, watched, run.show, run.code_of, run.explain, run.outcome_of
        )


@dataclass(frozen=True)
class _Run:
    """The conversion of the models of a command line.

    Attributes:
        command: its name.
        options: what becomes of the operators.
        static: sizes of symbolic dims.
        how_to_verify: options of the verification.
        verify: whether there is one.
        targets: where the result of each model goes, by its path.
        destinations: the same as the options say it.
        output: of the run.
    """

    command: str
    options: ConvertOptions
    static: dict[str, int]
    how_to_verify: Mapping[str, Any]
    verify: bool
    targets: Mapping[str, Destination]
    destinations: Destinations
    output: Output

    def convert_model(self, model: str, progress: Progress) -> Conversion:
        """Convert a model, and write what is asked for; `show` prints the result."""
        target = self.targets[model]
        result = edit_model(
            model,
            self.options,
            static=self.static,
            verify=data.verify_options(model, self.how_to_verify) if self.verify else None,
            strict=self.how_to_verify["strict"],
            output=target.file,
            in_place=target.in_place and not target.dry_run,
            external_data=self.destinations.external and target.file is not None,
            progress=progress,
        )
        step_summary.append(lambda: _markdown(self.command, model, result))
        if self.output.quiet:
            _say_problems(self.output.err, model, result)
        return result

    def show(self, model: str, result: Conversion) -> None:
        """Print a result for a person."""
        output, console = self.output, self.output.out
        render.conversion(console, result, Path(model), verbose=output.verbose)
        if self.destinations.check and result.changed:
            text = f"{model} would change; nothing was written"
            say(console, text)
        if _is_unverified(result):
            say(console, f"warning: {UNVERIFIED}", style="yellow")
        if result.output is None:
            return
        if self.options.mode == "custom-op":
            render.how_to_run(console, result.output)
        if result.verification and not self.destinations.in_place:
            again = self._verify_command(model, result)
            say_command(console, "verify it again with", again, style="dim")

    def _verify_command(self, model: str, result: Conversion) -> str:
        """Return the command that compares the two files again."""
        from onnx_spatial.verification.options import tolerance_words

        given = self.how_to_verify
        words = ["onnx-spatial", "verify", model, str(result.output)]
        words += [word for name in self.options.domains for word in ("--domain", name)]
        words += [word for n, dim in self.static.items() for word in ("--static", f"{n}={dim}")]
        for name, shape in given["shapes"].items():
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += ["--inputs", given["inputs"]] if given["inputs"] else []
        words += ["--seed", str(given["seed"])] if given["seed"] else []
        only = given["outputs_only"]
        return shlex.join(
            [*words, *tolerance_words(given["rtol"], given["atol"], outputs_only=only)]
        )

    def explain(self, error: SpatialError) -> None:
        """Print what a verification found, and keep the inputs of the first difference."""
        if isinstance(error, VerificationError):
            if not self.output.json and not self.output.quiet:
                render.verification(
                    self.output.err, error.verification, verbose=self.output.verbose
                )
            data.keep(self.output, error.verification)

    def code_of(self, result: Conversion) -> int:
        """Return the exit code of a result."""
        return 3 if _beyond(result) is not None else int(self.destinations.check and result.changed)

    def outcome_of(self, result: Conversion) -> str:
        """Say in a word or two what became of a model."""
        if result.output is not None:
            return "written"
        if not result.changed:
            return "unchanged"
        return "would change" if self.destinations.check else "converted"


def _say_problems(console: Console, model: str, result: Conversion) -> None:
    """Print what --quiet leaves of a result: what is beyond the limits, or unverified."""
    if (beyond := _beyond(result)) is not None:
        say(console, f"error: {model}: {beyond}", style="red")
    if _is_unverified(result):
        say(console, f"warning: {model}: {UNVERIFIED}", style="yellow")


def _beyond(result: Conversion) -> str | None:
    """Say how many nodes are beyond the limits of the call; None if there are none."""
    limits = result.inspection.limits
    return None if limits is None else limits.text


def _is_unverified(result: Conversion) -> bool:
    return result.verification is not None and not result.verification


def _markdown(command: str, model: str, result: Conversion) -> str:
    """Return the result as Markdown."""
    made = result.summary
    what = "nothing to do" if made is None else headline(made)
    verdict = "" if result.verification is None else result.verification.message
    return step_summary.sentence(command, model, what, verdict)
