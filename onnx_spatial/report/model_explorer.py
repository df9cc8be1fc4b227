"""Make node data for Google's Model Explorer: overlays that colour the nodes of a model.

An overlay has a value for each node that it is about: what changed, the strategy, the price, the proof.
Graphs and nodes are named as the adapter model-explorer-onnx names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir

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
#: Of strategies, in the order of their names.
_PALETTE = (
    "#b9dcf5", "#fdd5a5", "#c9e7b4", "#e3ccf1", "#f9e79f", "#f5b7c8", "#b2e2d8", "#d9d9d9",
)  # fmt: skip
#: What hides sums of words, and counts them on a closed group of nodes.
_WORDS = {"hideInAggregatedStatsTable": True, "showExpandedSummaryOnGroupNode": True}
#: From the cheapest price to the highest.
_GRADIENT = [{"stop": 0, "bgColor": "#fff7e0"}, {"stop": 1, "bgColor": "#ff8a4c"}]
#: The overlays.
_KINDS = ("changes", "strategy", "price in us", "proof")
#: The proofs, the weakest first.
_PROOFS = (None, "sampled", "these sizes", "all sizes")


@dataclass
class _DrawnGraph:
    """A graph of the model in a graph of Model Explorer.

    Attributes:
        id: of the graph of Model Explorer.
        prefix: of its nodes there, if it is the body of an If.
        nodes: ids of the nodes, by their outputs.
    """

    id: str
    prefix: str = ""
    nodes: dict[tuple[str, ...], str] = field(default_factory=dict)

    def add(self, nodes: Iterable[onnx.NodeProto], named: Iterable[ir.Node]) -> None:
        """Add nodes with their names."""
        for node, ir_node in zip(nodes, named, strict=True):
            self.nodes[tuple(node.output)] = f"{self.prefix}{ir_node.name}"


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
    strategies = sorted({each.strategy for each in (*operators.values(), *regions.values())})
    colours = {name: _PALETTE[i % len(_PALETTE)] for i, name in enumerate(strategies)}
    made: dict[str, Overlay] = defaultdict(dict)
    for side, model in (("original", original), ("converted", result)):
        if model is None:
            continue
        drawn = _drawn_graphs(model)
        for graph in diff.graphs:
            if (shown := drawn.get(graph.name)) is None:  # the adapter does not draw it
                continue
            known = _known(graph, side, operators, regions)
            for kind, results in _results(graph, side, known, diff, colours, shown).items():
                if not results:
                    continue
                overlay: dict[str, Any] = {"name": f"{side}: {kind}", "results": {}}
                overlay |= {"gradient": _GRADIENT} if kind == "price in us" else _WORDS
                graphs = made[f"{side}.{kind.partition(' ')[0]}"]
                # The bodies of an If are drawn in the graph around it.
                graphs.setdefault(shown.id, overlay)["results"].update(results)
    return dict(made)


def _operators(
    sites: Sequence[Document], verification: Document | None
) -> Iterator[tuple[tuple[str, str], _Operator]]:
    checked = () if verification is None else verification["sites"]
    proofs = {(each["graph"], each["node"]): each["proven"] for each in checked}
    for site in sites:
        key = site["graph"], site["node"]
        strategy = site["strategy"] or site["function"] or site["action"]
        yield key, _Operator(strategy, site["estimated_us"], proofs.get(key), key in proofs)


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
    graph: GraphDiff,
    side: str,
    known: Sequence[tuple[Node, _Operator, bool]],
    diff: ModelDiff,
    strategy_colours: Mapping[str, str],
    shown: _DrawnGraph,
) -> dict[str, dict[str, Any]]:
    """Return the values of each overlay for one graph, by the id of the node."""
    nodes = graph.before if side == "original" else graph.after
    found: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    changes, strategies, prices, proofs = found.values()
    for node in nodes:
        if node.status != "same" and node.region is not None:
            what = f"{node.status}, region {node.region + 1}: {diff.regions[node.region].name}"
            changes[shown.nodes[tuple(node.message.output)]] = {
                "value": what,
                "bgColor": _COLOURS[node.status],
            }
    for node, operator, priced in known:
        key = shown.nodes[tuple(node.message.output)]
        strategies[key] = {
            "value": operator.strategy,
            "bgColor": strategy_colours[operator.strategy],
        }
        if priced and operator.price is not None:
            prices[key] = {"value": round(operator.price, 3)}
        if operator.verified:
            text = PROOFS.get(operator.proof or "", "not compared")
            proofs[key] = {"value": text, "bgColor": _COLOURS[operator.proof]}
    return found


def _drawn_graphs(model: onnx.ModelProto) -> dict[str, _DrawnGraph]:
    """Name the graphs and nodes of a model as the adapter does, by the name of the graph here.

    The adapter first gives nodes without a name, or with that of another node, one of their own.
    """
    from onnx_ir.passes.common import NameFixPass  # with much that nothing else needs

    named = ir.serde.deserialize_model(model)
    NameFixPass()(named)
    drawn: dict[str, _DrawnGraph] = {}
    main = _DrawnGraph(named.graph.name or "<main>")
    _add_graph(drawn, traversal.Place(), model.graph, named.graph, main, at_top=True)
    for function in model.functions:
        overload = f"::{function.overload}" if function.overload else ""
        place = traversal.Place((function.domain, function.name, function.overload))
        body = named.functions[function.domain, function.name, function.overload]
        graph = _DrawnGraph(f"[function]{function.domain}::{function.name}{overload}")
        graph.add(function.node, body)
        drawn[str(place)] = graph
    return drawn


def _add_graph(
    drawn: dict[str, _DrawnGraph],
    place: traversal.Place,
    graph: onnx.GraphProto,
    named: Iterable[ir.Node],
    shown: _DrawnGraph,
    *,
    at_top: bool,
) -> None:
    """Add a graph, with the bodies of its Ifs in it; of the main graph also the bodies of other nodes.

    Args:
        drawn: the graphs by name, to add to.
        place: of the graph.
        graph, named: the graph, and the same nodes with the names that the adapter gives them.
        shown: the graph of Model Explorer that the nodes are drawn in.
        at_top: whether that is the main graph.
    """
    pairs = list(zip(graph.node, named, strict=True))
    shown.add(graph.node, (node for _, node in pairs))
    drawn[str(place)] = shown
    for node, ir_node in pairs:
        is_if = ir_node.op_type == "If" and ir_node.domain == ""
        for attribute in node.attribute:
            if attribute.type != onnx.AttributeProto.GRAPH or not (is_if or at_top):
                continue
            name = f"{shown.prefix}{ir_node.name}/{attribute.name}"
            inner = place.inside(traversal.step(node.op_type, node.output, attribute.name))
            body = ir_node.attributes[attribute.name].as_graph()
            within = _DrawnGraph(shown.id, f"{name}/") if is_if else _DrawnGraph(name)
            _add_graph(drawn, inner, attribute.g, body, within, at_top=at_top and is_if)
