"""Name the changes that explain a failed verification: of the opset, of constants, of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.verification.checks import node_changes
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.diagnosis.advice import UNCHANGED
from onnx_spatial.verification.report import Verification

#: Lines for changed constants, and for changed nodes; a model that differs everywhere gets none.
_MOST = 8


def explain(result: Verification, context: Context) -> None:
    """Put another opset or changed constants first, and add changed nodes that were not compared.

    A conversion gives new names to the constants that it computes, so one that keeps its name but not
    its values was edited.
    """
    first = result.first_difference
    opset = _opset(context) if first is not None and first.kind == "model" else None
    if opset is not None:
        _lead(result, [opset], "give the second model the opset of the first: convert that again")
        return
    operators = {operator.info.index for operator in context.findings.operators}
    constants = [
        line
        for name, line in node_changes.changed_initializers(context.models, operators)
        if not any(f"another constant {name!r}" in problem for problem in result.problems)
    ]
    if 0 < len(constants) <= _MOST:
        _lead(result, constants, UNCHANGED.format("this constant"))
    nodes = list(_nodes(context))
    if len(nodes) > _MOST:
        return
    result.problems += nodes
    if nodes and first is not None and first.kind in ("model", "output"):
        result.advice = UNCHANGED.format("this node" if len(nodes) == 1 else "these nodes")


def _lead(result: Verification, problems: list[str], advice: str) -> None:
    """Put problems in front of the others."""
    result.problems[:0] = problems
    more = len(result.problems) - 1
    result.message = f"failed: {problems[0]}" + (f" (and {more} more)" if more else "")
    result.advice = advice


def _opset(context: Context) -> str | None:
    """Say that the converted model has another opset; None if it has not."""
    models = context.models
    was, now = (
        op_traits.opset_of(source.proto.opset_import)
        for source in (models.original, models.converted)
    )
    return f"the opset was changed: it is {now}, not {was}" if was != now else None


def _nodes(context: Context) -> Iterator[str]:
    """Yield one line for each node that was changed in itself, and that no check compared."""
    findings = context.findings
    compared = {(changed.place, changed.node.output[0]) for changed in findings.changed}
    graphs = (context.original, context.converted)
    for index, (place, _, node) in enumerate(traversal.nodes(context.original.model)):
        output = next(iter(node.output), "")
        if index in findings.compared or (place, output) in compared:
            continue
        if not output or not context.converted.computes(output, place):
            continue
        change = node_changes.describe(node, node.output[0], place, context.models, graphs)
        if change is not None and change.inside:
            label = f"{node.op_type} node {traversal.label(node)!r} ({place})"
            yield f"{label} was changed: it {change.text}"
