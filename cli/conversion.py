"""Convert each model of a command line, verify and write it, and say what was done."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from onnx_spatial.cli import data, options, project_file, render, step_summary
from onnx_spatial.cli.destinations import Destinations
from onnx_spatial.cli.html import html_report
from onnx_spatial.cli.model_explorer import check_folder, write_overlays
from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import coded, say, say_command
from onnx_spatial.errors import Code, SpatialError, VerificationError
from onnx_spatial.report.figures import headline
from onnx_spatial.report.results import Conversion

#: Of a result that was written all the same.
UNDECIDED = "the result is not fully verified; --strict makes this an error"


def convert_models(
    command: str,
    convert: Callable[..., Conversion],
    models: Sequence[str],
    destinations: Destinations,
    output: Output,
    *,
    no_verify: bool,
    strict_proof: bool,
    model_options: dict[str, Any],
    data_options: dict[str, Any],
    tolerances: dict[str, Any],
    reproducer: str | None,
    html: str | None,
    model_explorer: str | None,
    advise: Callable[[Console, Path], None] = lambda *_: None,
    **others: Any,
) -> int:
    """Convert each model, also after one has failed, and return the exit code.

    Args:
        command: name of the command.
        convert: `onnx_spatial.convert` or `onnx_spatial.optimize`.
        models: paths, or - for standard input.
        destinations: where the results go.
        output: of the run.
        no_verify, strict_proof, model_options, data_options, tolerances, reproducer, html,
            model_explorer: options of the command.
        advise: prints how to use a result that was written.
        others: arguments of `convert`.

    Raises:
        click.UsageError: two options contradict each other.
        SpatialError: the only model fails.
    """
    options.check_verification(
        strict_proof, tolerances, no_verify=no_verify, check=destinations.check
    )
    check_folder(model_explorer, models)
    each = dict(zip(models, destinations.of(models), strict=True))
    sources = dict(zip(models, data.models(*models), strict=True))
    verify = not (no_verify or destinations.check)
    own = {model: project_file.options_of_model(model) for model in models}

    def options_of(model: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return options with those in their place that the project file sets for a model."""
        return {name: own[model].get(name, value) for name, value in values.items()}

    def convert_model(model: str, progress: options.Progress) -> Conversion:
        source, destination = sources[model], each[model]
        if destination.piped:
            data.check_standard_output(source, json=output.json)
        result = convert(
            source,
            destination.file,
            verify=verify,
            strict_proof=strict_proof,
            save_reproducer=reproducer,
            isolate=True,
            **options_of(model, model_options),
            **data.read_inputs(source, options_of(model, data_options)),
            **(options_of(model, tolerances) if verify else tolerances),
            **options_of(model, others),
            in_place=destination.in_place and not destination.dry_run,
            save_as_external_data=destinations.external and destination.file is not None,
            progress=progress,
        )
        if destination.piped and not destination.dry_run:
            static = options_of(model, model_options)["static"]
            data.to_standard_output(result, frozen=bool(static))
        write_overlays(model_explorer, model, result)
        step_summary.append(lambda: _markdown(command, model, result))
        if output.quiet and (beyond := _beyond(result)) is not None:
            say(output.err, coded(f"error: {model}: {beyond}", Code.BEYOND_LIMITS), style="red")
        if output.quiet and _is_undecided(result):
            text = coded(f"warning: {model}: {UNDECIDED}", Code.UNVERIFIED)
            say(output.err, text, style="yellow")
        return result

    def show(model: str, result: Conversion) -> None:
        console = output.err if each[model].piped else output.out
        render.conversion(console, result, Path(model), verbose=output.verbose)
        if destinations.check and result.changed:
            text = f"{model} would change; nothing was written"
            say(console, coded(text, Code.WOULD_CHANGE))
        if _is_undecided(result):
            say(console, coded(f"warning: {UNDECIDED}", Code.UNVERIFIED), style="yellow")
        if result.output is None:
            return
        advise(output.out, result.output)
        if result.verification and sources[model] == model and not destinations.in_place:
            given = options_of(model, {**others, **model_options, **data_options})
            bounds = options_of(model, tolerances)
            # Nodes of chains have no partner in the result: outputs alone can be compared.
            bounds["outputs_only"] |= any(s.converted for s in result.inspection.chains)
            again = _command(model, result.output, given, bounds)
            say_command(console, "verify it again with", again, style="dim")

    def explain(error: SpatialError) -> None:
        if isinstance(error, VerificationError):
            if not output.json and not output.quiet:
                render.verification(output.err, error.verification, verbose=output.verbose)
            data.keep(output, error.verification)

    def code_of(result: Conversion) -> int:
        return 3 if _beyond(result) is not None else int(destinations.check and result.changed)

    files = [*models, *(destination.file for destination in each.values())]
    with html_report(command, html, output, files) as report:
        run = report.watched(convert_model)
        return options.each_model(output, models, run, show, code_of, explain)


def _beyond(result: Conversion) -> str | None:
    """Say how many nodes are beyond the limits of the call; None if there are none."""
    limits = result.inspection.limits
    return None if limits is None else limits.text


def _is_undecided(result: Conversion) -> bool:
    return result.verification is not None and not result.verification


def _markdown(command: str, model: str, result: Conversion) -> str:
    """Return the result as Markdown."""
    made = result.summary
    what = "nothing to do" if made is None else headline(made)
    verdict = "" if result.verification is None else result.verification.message
    return step_summary.sentence(command, model, what, verdict)


def _command(model: str, output: Path, given: dict[str, Any], tolerances: dict[str, Any]) -> str:
    """Return the command that compares the two files again."""
    from onnx_spatial.verification.compare.tolerance import tolerance_words

    words = ["onnx-spatial", "verify", model, str(output)]
    words += [word for name in given["domains"] for word in ("--domain", name)]
    words += [word for n, dim in given["static"].items() for word in ("--static", f"{n}={dim}")]
    for name, shape in given["shapes"].items():
        words += ["--shape", f"{name}={','.join(map(str, shape))}"]
    words += ["--inputs", given["inputs"]] if given["inputs"] else []
    words += ["--seed", str(given["seed"])] if given["seed"] else []
    words += ["--finite"] if given["finite"] else []
    return shlex.join([*words, *tolerance_words(**tolerances)])
