"""Define the command `onnx-spatial verify`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from onnx_spatial.cli import options
from onnx_spatial.cli.html import html_report
from onnx_spatial.cli.output import Output, append_to_step_summary
from onnx_spatial.cli.text import say
from onnx_spatial.errors import SpatialError


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
    from onnx_spatial.cli import render
    from onnx_spatial.model.io.reader import read, read_source
    from onnx_spatial.report.outcome import describe_verification
    from onnx_spatial.verification import verify as compare
    from onnx_spatial.verification.evidence import check_verified

    with html_report("verify", html, output, (original, converted)) as report:
        try:
            with output.progress() as progress:
                frozen = read_source(original, values["static"])
                how = options.verify_options(original, values)
                domains = values["domains"]
                result = compare(frozen, converted, how, domains=domains, progress=progress)
        except SpatialError as error:
            report.add_error(converted, error)
            raise
        differing = {(o.graph, o.node) for o in result.operators if o.counterexample is not None}
        used, is_shown = [], not (output.json or output.quiet)
        if differing and (is_shown or report.path is not None):
            from onnx_spatial.conversion.options import ConvertOptions
            from onnx_spatial.conversion.recognize import recognize  # a pass loads no lowering

            asked = ConvertOptions(domains=domains)
            reports = recognize(frozen, read(converted, data=False).proto, differing, asked)
            used = [report.to_dict() for report in reports]
        if report.path is not None:
            page = describe_verification(result, frozen, converted, operators=used)
            report.outcomes.append(page)
    append_to_step_summary("verify", converted, result.message)
    if is_shown:
        shown = describe_verification(result, operators=used, verbose=output.verbose)
        render.outcome(output.out, shown)
        say(output.out, f"took {output.time}", style="dim")
    check_verified(original, result, replace(how, strict=True))
    if output.json:
        output.document(result.to_dict())
    return 0
