"""Make node data for Google's Model Explorer: overlays that colour the nodes of a model.

An overlay has a value for each node that it is about: what changed, the strategy, the price, the proof.
Graphs and nodes are named as the adapter model-explorer-onnx names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from onnx_spatial.conversion.summary import Replacement
from onnx_spatial.model import traversal
from onnx_spatial.report.graph_diff import GraphDiff, ModelDiff, Node, compare
from onnx_spatial.report.operator_rows import PROOFS

Document = Mapping[str, Any]
#: An overlay: graph -> {"name": ..., "results": {node: {"value": ..., "bgColor": ...}}}.
Overlay = dict[str, dict[str, Any]]

_COLOURS = {
    "removed": "#ffb3ab",
    "added": "#a5e3ab",
    "changed": "#ffdf8a",
    "all sizes": "#a5e3ab",
    "these sizes": "#cfe8a5",
    "sampled": "#ffdf8a",
    None: "#ffb3ab",
}
#: From the cheapest price to the highest.
_GRADIENT = [{"stop": 0, "bgColor": "#fff7e0"}, {"stop": 1, "bgColor": "#ff8a4c"}]
#: The overlays.
_KINDS = ("changes", "strategy", "price in us", "proof")
#: The proofs, the weakest first.
_PROOFS = (None, "sampled", "these sizes", "all sizes")


@dataclass(frozen=True)
class _Operator:
    """What is known of an operator, or of all operators of a region."""

    strategy: str
    price: float | None
    proof: str | None
    verified: bool


def overlays(
    original: onnx.ModelProto,
    result: onnx.ModelProto | None,
    sites: Sequence[Document],
    verification: Document | None,
    replacements: Sequence[Replacement],
) -> dict[str, Overlay]:
    """Return the overlays of a conversion by name: "original.changes", "converted.proof", ...

    Args:
        original, result: the model before and after; None if nothing changed.
        sites: each a `Site.to_dict()`.
        verification: a `Verification.to_dict()`.
        replacements: the regions of the summary.
    """
    diff = compare(original, result, replacements)
    operators = dict(_operators(sites, verification))
    regions = _by_region(diff, operators)
    made: dict[str, Overlay] = defaultdict(dict)
    for side, model in (("original", original), ("converted", result)):
        if model is None:
            continue
        ids = dict(_graph_ids(model))
        for graph in diff.graphs:
            if graph.name not in ids:  # the adapter does not draw it
                continue
            known = _known(graph, side, operators, regions)
            for kind, results in _results(graph, side, known, diff).items():
                if results:
                    overlay: dict[str, Any] = {"name": f"{side}: {kind}", "results": results}
                    if kind == "price in us":
                        overlay["gradient"] = _GRADIENT
                    made[f"{side}.{kind.partition(' ')[0]}"][ids[graph.name]] = overlay
    return dict(made)


def _operators(
    sites: Sequence[Document], verification: Document | None
) -> Iterator[tuple[tuple[str, str], _Operator]]:
    checked = () if verification is None else verification["sites"]
    proofs = {(each["graph"], each["node"]): each["proven"] for each in checked}
    for site in sites:
        key = site["graph"], site["node"]
        price = site["measured_us"] if site["measured_us"] is not None else site["estimated_us"]
        strategy = site["strategy"] or site["function"] or site["action"]
        yield key, _Operator(strategy, price, proofs.get(key), key in proofs)


def _by_region(
    diff: ModelDiff, operators: Mapping[tuple[str, str], _Operator]
) -> dict[int, _Operator]:
    """Join the operators of each region: prices add up, and the weakest proof counts."""
    found: dict[int, list[_Operator]] = defaultdict(list)
    for graph in diff.graphs:
        for node in graph.before:
            if node.region is not None and (graph.name, node.label) in operators:
                found[node.region].append(operators[graph.name, node.label])
    joined = {}
    for region, parts in found.items():
        prices = [part.price for part in parts if part.price is not None]
        joined[region] = _Operator(
            ", ".join(dict.fromkeys(part.strategy for part in parts)),
            sum(prices) if prices else None,
            min((part.proof for part in parts), key=_PROOFS.index),
            all(part.verified for part in parts),
        )
    return joined


def _known(
    graph: GraphDiff,
    side: str,
    operators: Mapping[tuple[str, str], _Operator],
    regions: Mapping[int, _Operator],
) -> list[tuple[Node, _Operator, bool]]:
    """Return the nodes of operators, or of what replaced them, and whether one carries the price."""
    if side == "original":
        keyed = ((node, operators.get((graph.name, node.label))) for node in graph.before)
        return [(node, operator, True) for node, operator in keyed if operator is not None]
    seen: set[int] = set()
    known = []
    for node in graph.after:
        if node.status != "same" and node.region is not None and node.region in regions:
            known.append((node, regions[node.region], node.region not in seen))
            seen.add(node.region)
    return known


def _results(
    graph: GraphDiff, side: str, known: Sequence[tuple[Node, _Operator, bool]], diff: ModelDiff
) -> dict[str, dict[str, Any]]:
    """Return the values of each overlay for one graph, by the id of the node."""
    nodes = graph.before if side == "original" else graph.after
    ids = _node_ids(graph.graphs[side == "converted"])
    found: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    changes, strategies, prices, proofs = found.values()
    for node in nodes:
        if node.status != "same" and node.region is not None:
            what = f"{node.status}, region {node.region + 1}: {diff.regions[node.region].name}"
            changes[_id(ids, node)] = {"value": what, "bgColor": _COLOURS[node.status]}
    for node, operator, priced in known:
        key = _id(ids, node)
        strategies[key] = {"value": operator.strategy}
        if priced and operator.price is not None:
            prices[key] = {"value": round(operator.price, 3)}
        if operator.verified:
            text = PROOFS.get(operator.proof or "", "not compared")
            proofs[key] = {"value": text, "bgColor": _COLOURS[operator.proof]}
    return found


def _graph_ids(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """Yield the name of each graph that the adapter draws, and its id there."""
    main = traversal.Place()
    yield str(main), model.graph.name or "<main>"
    for index, node in enumerate(model.graph.node):
        for attribute, _ in traversal.subgraphs(node):
            place = main.inside(traversal.step(node.op_type, node.output, attribute))
            yield str(place), f"{node.name or f'<node_{index}>'}/{attribute}"
    for function in model.functions:
        overload = f"::{function.overload}" if function.overload else ""
        place = traversal.Place((function.domain, function.name, function.overload))
        yield str(place), f"[function]{function.domain}::{function.name}{overload}"


def _node_ids(graph: traversal.GraphLike | None) -> dict[str, str]:
    """Return the id of each node without a name, by its label."""
    nodes = () if graph is None else graph.node
    return {traversal.label(n): f"<node_{i}>" for i, n in enumerate(nodes) if not n.name}


def _id(ids: Mapping[str, str], node: Node) -> str:
    return node.message.name or ids[node.label]
