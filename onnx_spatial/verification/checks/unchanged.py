"""Check that the converted model holds the rest of the original unchanged, definition by definition.

This takes the place of a run where the whole cannot be run: if every other value has the same definition
and every operator was compared on its own, nothing else can differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.verification.checks import interface
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.match.definitions import Definitions, Key


def check(context: Context) -> None:
    """List the parts of the original that the converted model lacks or changes.

    A model that no runtime loads may also be invalid where a run would tell: then it fails.
    """
    findings, models = context.findings, context.models
    compared = {
        (changed.place, name)
        for changed in findings.changed
        if changed.compared and changed.gap is None
        for name in changed.node.output
    }
    found = differences(context.definitions, findings.compared, compared)
    findings.rest = [*found, *interface.narrowed(models)]
    if not any(_disorder(models.original.proto)):
        findings.failures += _disorder(models.converted.proto)


def differences(
    definitions: Definitions, compared: Collection[int], values: Collection[Key] = ()
) -> Iterator[str]:
    """Yield one line for each part of the original that the converted model lacks or changes.

    Args:
        definitions: those of both models.
        compared: nodes that were compared, by position: spatial operators, the Transposes and regions
            with them.
        values: further values that were compared.
    """
    original, converted = definitions.original, definitions.converted
    for index, (place, _, node) in enumerate(traversal.nodes(original.model)):
        changed = (
            name
            for name in node.output
            if converted.computes(name, place)
            and not definitions.same(name, place)
            and (place, name) not in values
        )
        if index not in compared and next(changed, None) is not None:
            yield f"{node.op_type} {traversal.label(node)!r} in {place} differs from the original's"
    if not definitions.same_results(traversal.Place()):
        yield "an output of the model is computed otherwise"


def _disorder(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the first node of each graph that comes before one that computes its input."""
    for place, graph in traversal.graphs(model):
        later = {name for node in graph.node for name in node.output if name}
        for node in graph.node:
            if early := sorted(traversal.needs(node) & later):
                label = f"{node.op_type} {traversal.label(node)!r} in {place}"
                yield f"the nodes are not in topological order: {label} reads {early[0]!r} too early"
                break
            later.difference_update(node.output)
