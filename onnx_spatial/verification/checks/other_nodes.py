"""Check the nodes that are not spatial operators and that the converted model changes, one by one.

    original   x -> [Conv, weights w]  -> c          converted   x -> [Conv, weights w'] -> c

A conversion leaves the rest of a model alone. Where it did not, the outputs of the whole say little: a
wrong weight may change them by less than rounding may in a deep net, a branch may never be taken, and
a limit that the original does not have may be beyond the usual numbers. So the region that leads to
the value of such a node is compared (`matching_region`), by the magnitudes of its sums, and on rare
numbers: thousands, thousandths, equal ones, NaNs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import ChangedNode
from onnx_spatial.verification.checks.proof import prove_region
from onnx_spatial.verification.checks.region import Compared, Doubt
from onnx_spatial.verification.checks.unchanged import Equality
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegion

#: Nodes that are compared, and seconds for all of them: a model that another tool wrote anew differs
#: everywhere.
MOST_NODES = 64
SECONDS = 10.0


def check(context: Context) -> None:
    """Compare the nodes that the converted model changes.

    Those in branches and loops may take part in no run of the whole: a gap if they cannot be compared,
    unless they are convolutions that have a check of their own.
    """
    findings = context.findings
    elsewhere = {c.info.index for c in findings.convolutions}
    outputs = {v.name for v in context.models.original.proto.graph.output}
    deadline = time.monotonic() + SECONDS
    findings.sampled += _added_and_unread(context)
    for index, node, place in _changed(context):
        name, inner = node.output[0], bool(place.steps) and index not in elsewhere
        # Sizes are right if what is made with them is; another tool may compute them otherwise.
        size = context.regions.is_size(name, place) and not context.regions.is_data(name, place)
        if size and not place.steps and name not in outputs:
            findings.computes_sizes_otherwise = True
            _prove(node, place, context)
            continue
        changed = ChangedNode(node, place)
        findings.changed.append(changed)
        if len(findings.changed) > MOST_NODES or time.monotonic() > deadline:
            findings.sampled.append(f"{_label(node, place)} was changed, and too many others")
            if inner:
                changed.leave("too many nodes were changed")
            continue
        region = _prove(node, place, context)
        compared: list[Compared] | str
        if isinstance(region, str):
            compared = region
        else:
            compared = context.region_results.on_rare_numbers(region)
            context.watched.append((changed, context.region_results.comparison(region)))
        if not isinstance(compared, str):
            for each in compared:
                changed.record(each.check, each.feeds, name)
        elif inner or isinstance(compared, Doubt):
            changed.leave(compared)


def _prove(node: onnx.NodeProto, place: traversal.Place, context: Context) -> MatchingRegion | str:
    """Return the region that leads to a changed node, and note if it is not proven to be the same."""
    region = context.regions.at(place, node.output[0])
    reason: str | None = region if isinstance(region, str) else None
    if isinstance(region, MatchingRegion):
        proof = prove_region(region, context)
        reason = proof.reason if proof.scope == "sampled" else None
    if reason is not None:
        context.findings.sampled.append(f"{_label(node, place)} was changed: {reason}")
    return region


def _label(node: onnx.NodeProto, place: traversal.Place) -> str:
    return f"{node.op_type} node {traversal.label(node)!r} ({place})"


def _added_and_unread(context: Context) -> Iterator[str]:
    """Yield the nodes of the converted model that it adds and whose outputs nothing reads.

    Runtimes run them all the same, and may fail.
    """
    original = context.original
    for place, graph in traversal.graphs(context.converted.model):
        named = [v if isinstance(v, str) else v.name for v in graph.output]
        read = set(named).union(*(traversal.needs(node) for node in graph.node))
        for node in graph.node:
            names = [name for name in node.output if name]
            if read.isdisjoint(names) and not any(original.computes(n, place) for n in names):
                yield f"{_label(node, place)} was added, and nothing reads it"


def _changed(context: Context) -> Iterator[tuple[int, onnx.NodeProto, traversal.Place]]:
    """Yield position, node and graph of the nodes whose message or stored inputs are changed."""
    same, compared = Equality(context.models), context.findings.compared
    original, converted = context.original, context.converted

    def is_changed(node: onnx.NodeProto, place: traversal.Place) -> bool:
        counterpart = converted.find(node.output[0], place)
        if not isinstance(counterpart, onnx.NodeProto) or not same.nodes(node, counterpart):
            return True
        stored = ((original.find(n, place), converted.find(n, place)) for n in node.input)
        return any(
            isinstance(was, onnx.TensorProto)
            and not (isinstance(now, onnx.TensorProto) and same.tensors(was, now))
            for was, now in stored
        )

    for index, (place, _, node) in enumerate(traversal.nodes(original.model)):
        if index in compared or not node.output or not node.output[0]:
            continue
        if converted.computes(node.output[0], place) and is_changed(node, place):
            yield index, node, place
