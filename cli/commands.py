"""Define the commands.

inspect             each model    find -> decide               what would be done
convert, optimize   each model    convert -> verify -> write   what was done, and the verdict
verify              two models    prove and run                the verdict
validate            each model    convert -> verify -> run     a report
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import options
from onnx_spatial.cli.each_model import Destinations, HtmlReport, Progress, each_model
from onnx_spatial.cli.output import (
    Output,
    append_to_step_summary,
    print_how_to_run,
    print_outcome,
    say,
)
from onnx_spatial.errors import SpatialError
from onnx_spatial.report.figures import headline

if TYPE_CHECKING:
    from onnx_spatial import Inspection
    from onnx_spatial.report.results import Conversion


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
        print_outcome(output.out, result.describe(model, verbose=output.verbose, graphs=False))
        if result.command is not None and len(models) == 1:
            unknown = [o.domain for o in result.operators if o.unknown_domain]
            both = result.command == "optimize" and result.conversion is not None
            for name in ("convert", "optimize") if both else (result.command,):
                words = "or, with the rest," if both and name == "optimize" else "do it with:"
                command = _next_command(name, model, values, unknown)
                output.out.print(f"{words} {command}", soft_wrap=True)

    def conclude(result: Inspection) -> tuple[str, int]:
        return "inspected", 3 if result.refused else 0

    return each_model(output, models, work, show, conclude, HtmlReport("inspect", None, output, ()))


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
        try:
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
        except SpatialError as error:
            append_to_step_summary(command, model, f"error: {error}")
            raise
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
        print_outcome(output.out, result.describe(model, verbose=output.verbose, graphs=False))
        if result.output is not None:
            what = "wrote" if result.changed else "copied byte for byte to"
            say(output.out, f"{what} {result.output}")
            if not result.changed and result.inspection.remaining:
                say(output.out, f"{result.output} does not load in onnxruntime, like the original")
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
            print_how_to_run(output.out, result.output)

    def conclude(result: Conversion) -> tuple[str, int]:
        changed = "would change" if places.check else "converted"
        outcome = "written" if result.output else changed if result.changed else "unchanged"
        return outcome, 3 if _beyond_limits(result) else int(places.check and result.changed)

    with HtmlReport(command, html, output, [*models, *files.values()]) as report:
        return each_model(output, models, work, show, conclude, report)


def _beyond_limits(result: Conversion) -> str | None:
    """Say how many nodes are beyond the limits of the call; None if there are none."""
    limits = result.inspection.limits
    return None if limits is None else limits.text


def _is_unverified(result: Conversion) -> bool:
    return result.verification is not None and not result.verification


@options.command(
    "Prove that two models compute the same, and run them.",
    click.Argument(["original"], type=click.Path(), metavar="ORIGINAL"),
    click.Argument(["converted"], type=click.Path(), metavar="CONVERTED"),
    options=f"domains static {options.VERIFYING} html {options.COMMON}",
    examples=(
        "verify model.onnx converted.onnx",
        "verify model.onnx converted.onnx --html report.html",
        "verify model.onnx float16.onnx --rtol 1e-2 --outputs-only",
    ),
)
def verify(original: str, converted: str, output: Output, html: str | None, **values: Any) -> int:
    """Prove that CONVERTED computes what ORIGINAL does, then run both on the same data and compare.

    Each part in which the files differ is proven from its nodes, for all sizes if possible. CONVERTED
    runs in onnxruntime, and so does ORIGINAL, with its spatial operators in Python.

    A version of ORIGINAL in float16 or int8 is compared with --rtol 1e-2 --outputs-only, or whatever
    difference of outputs you accept.

    Exit code 1 if anything differs or nothing could be shown, with --strict-proof also if a part is not
    proven.
    """
    from onnx_spatial.model.io.reader import read, read_source
    from onnx_spatial.report.outcome import describe_verification
    from onnx_spatial.verification import verify as compare
    from onnx_spatial.verification.evidence import check_verified

    with HtmlReport("verify", html, output, (original, converted)) as report:
        try:
            with output.progress() as progress:
                frozen = read_source(original, values["static"])
                how = options.verify_options(original, values)
                domains = values["domains"]
                result = compare(frozen, converted, how, domains=domains, progress=progress)
        except SpatialError as error:
            report.add_error(converted, error)
            append_to_step_summary("verify", converted, f"error: {error}")
            raise
        differing = {(o.graph, o.node) for o in result.operators if o.counterexample is not None}
        is_shown = not (output.json or output.quiet)
        recognized = []
        if differing and (is_shown or report.path is not None):
            from onnx_spatial.conversion.options import ConvertOptions
            from onnx_spatial.conversion.recognize import recognize  # a pass loads no lowering

            asked = ConvertOptions(domains=domains)
            recognized = recognize(frozen, read(converted, data=False).proto, differing, asked)
        if report.path is not None:
            page = describe_verification(result, frozen, converted, operators=recognized)
            report.outcomes.append(page)
    append_to_step_summary("verify", converted, result.message)
    if is_shown:
        shown = describe_verification(result, operators=recognized, verbose=output.verbose)
        print_outcome(output.out, shown)
        say(output.out, f"took {output.time}", style="dim")
    check_verified(original, result, replace(how, strict=True))
    if output.json:
        output.document(result.to_dict())
    return 0


@options.command(
    "Convert and verify every model of a folder, as a CI step.",
    click.Argument(["paths"], nargs=-1, required=True, type=click.Path(), metavar="PATH..."),
    options=(
        "exclude expect_failure modes optimize no_fuse checked prefer max_rank domains static "
        "shapes seed strict strict_proof memory timeout jobs executor scheduler "
        f"html junit_xml {options.COMMON}"
    ),
    examples=(
        "validate models/ -j 4 --junit-xml models.xml",
        "validate models/ --mode lower --mode function --strict-proof",
    ),
)
def validate(paths: tuple[str, ...], output: Output, **values: Any) -> int:
    """Convert and verify every model in the given files, folders and globs.

    Each model has a process of its own: there it is read, converted in memory in each mode, verified,
    and run on its recorded data (test_data_set_N beside it, or an .npz with its name). A model
    without spatial operators must run and compute the recorded outputs. All models are validated,
    also after one has failed.

    Exit code 1 if a model failed, 2 if a path does not exist or holds no model, 130 if the run was
    interrupted: the reports then hold the models that were finished.
    """
    from onnx_spatial.cli.validate import validate_models

    return validate_models(paths, output, values)
