"""Define the command `onnx-spatial verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import options
from onnx_spatial.cli.html import html_report
from onnx_spatial.cli.output import Output, append_to_step_summary
from onnx_spatial.cli.text import say
from onnx_spatial.conversion.options import STRATEGY_NAMES, ConvertOptions
from onnx_spatial.errors import SpatialError

if TYPE_CHECKING:
    import onnx

    from onnx_spatial.verification import Verification


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
    from onnx_spatial.model.io.reader import read_source
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
        ways = [] if result else _ways(original, converted, result, values)
        if report.path is not None:
            page = describe_verification(result, frozen, converted, operators=ways)
            report.outcomes.append(page)
    append_to_step_summary("verify", converted, result.message)
    if not output.json and not output.quiet:
        shown = describe_verification(result, operators=ways, verbose=output.verbose)
        render.outcome(output.out, shown)
        say(output.out, f"took {output.time}", style="dim")
    check_verified(original, result, replace(how, strict=True))
    if output.json:
        output.document(result.to_dict())
    return 0


def _ways(
    original: str, converted: str, result: Verification, values: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the reports of the operators that differ, by the conversion that leaves the same nodes.

    CONVERTED says of each node which operator it stands for, but not by which lowering.
    """
    from onnx_spatial.api import edit_model
    from onnx_spatial.model.io.reader import read

    differing = {(o.graph, o.node) for o in result.operators if o.counterexample is not None}
    written = _nodes_by_origin(read(converted, data=False).proto)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    possible: dict[tuple[str, str], Any] = {}  # without --prefer all lowerings are candidates
    for prefer in (None, *STRATEGY_NAMES):
        if not written or found.keys() == differing:
            break
        asked = ConvertOptions(prefer=prefer, domains=values["domains"])
        try:
            made = edit_model(original, asked, static=values["static"], verify=None)
        except SpatialError:
            continue
        nodes = _nodes_by_origin(made.model)
        for operator in made.operators:
            place, origin = (operator.graph, operator.node), f"{operator.op_type} {operator.node}"
            report = operator.to_dict()
            report["candidates"] = possible.setdefault(place, report["candidates"])
            if place in differing and nodes.get(origin) == written.get(origin):
                found.setdefault(place, report)
    return [*found.values()]


def _nodes_by_origin(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Return the types of the nodes that stand for each operator, by its type and name."""
    from onnx_spatial.model import traversal
    from onnx_spatial.model.graph.replace_nodes import ORIGIN

    types: dict[str, list[str]] = {}
    for _, _, node in traversal.nodes(model):
        for entry in node.metadata_props:
            if entry.key == ORIGIN:
                types.setdefault(entry.value, []).append(node.op_type)
    return types
