"""Compare the graphs of two models: which nodes were removed, added or changed, and by what.

before            after              region 1 has the nodes with (1); the Relu is the same on both
SpaceToBatch (1)                     sides, and has a partner.
Conv (1)          Conv (1) changed
BatchToSpace (1)
Relu              Relu
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import onnx

from onnx_spatial.conversion.summary import Replacement
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.replace_nodes import ORIGIN

Status = Literal["same", "changed", "removed", "added"]


@dataclass
class Node:
    """A node of one of the two graphs.

    Attributes:
        label: its name, or <its output>.
        message: the node itself.
        status: "removed" only before, "added" only after.
        partner: position of the same node in the other graph; None if it is only in this one.
        region: position in `ModelDiff.regions`; None if it is in none.
    """

    label: str
    message: onnx.NodeProto
    status: Status
    partner: int | None = None
    region: int | None = None

    @property
    def origin(self) -> str | None:
        """Name of the node in whose place a conversion added it."""
        for entry in self.message.metadata_props:
            if entry.key == ORIGIN:
                return str(entry.value).partition(" ")[2]
        return None


@dataclass
class GraphDiff:
    """A graph of both models; one that only one of them has is empty on the other side.

    Attributes:
        name: of the graph, in words.
        graphs: the graph before and after; None where there is none.
        before, after: its nodes in topological order.
    """

    name: str
    graphs: tuple[traversal.GraphLike | None, traversal.GraphLike | None]
    before: list[Node] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Region:
    """Nodes of the original, and the nodes that took their place.

    Attributes:
        name: label of its main node.
        what: what it is now; empty if it is no operator.
    """

    name: str
    what: str


@dataclass
class ModelDiff:
    """The graphs of two models side by side, and the regions that differ."""

    graphs: list[GraphDiff] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)


def compare(
    original: onnx.ModelProto,
    result: onnx.ModelProto | None,
    replacements: Sequence[Replacement] = (),
) -> ModelDiff:
    """Compare two models, graph by graph.

    Args:
        original: a model.
        result: the other model; None: there is only one, and all of its nodes are the same.
        replacements: the regions of the summary of a conversion. Other nodes that differ join the region
            next to them, or make regions of their own.
    """
    diff = ModelDiff(regions=[Region(each.node, each.what) for each in replacements])
    sides = [dict(traversal.graphs(model)) for model in (original, result or original)]
    for place in dict.fromkeys([*sides[0], *sides[1]]):
        graph = GraphDiff(str(place), (sides[0].get(place), sides[1].get(place)))
        graph.before, graph.after = (_nodes(each) for each in graph.graphs)
        _pair(graph.before, graph.after)
        _assign_regions(graph, diff, replacements)
        diff.graphs.append(graph)
    return diff


def _nodes(graph: traversal.GraphLike | None) -> list[Node]:
    nodes = [] if graph is None else traversal.in_order(graph)
    return [Node(traversal.label(message), message, "same") for message in nodes]


def _pair(before: list[Node], after: list[Node]) -> None:
    """Find the partner of each node: by name, type and outputs, then by name and type."""
    for with_outputs in (True, False):
        waiting = defaultdict(list)
        for index, node in enumerate(after):
            if node.partner is None:
                waiting[_key(node, with_outputs)].append(index)
        for candidates in waiting.values():
            candidates.reverse()  # the first one is taken first
        for index, node in enumerate(before):
            if node.partner is None and (found := waiting.get(_key(node, with_outputs))):
                node.partner = found.pop()
                after[node.partner].partner = index
    for node in before:
        if node.partner is None:
            node.status = "removed"
        elif _form(node.message) != _form(after[node.partner].message):
            node.status = after[node.partner].status = "changed"
    for node in after:
        if node.partner is None:
            node.status = "added"


def _key(node: Node, with_outputs: bool) -> tuple[str, ...]:
    message = node.message
    outputs = message.output if with_outputs else ()
    return node.label, message.domain, message.op_type, *outputs


def _form(node: onnx.NodeProto) -> tuple[object, ...]:
    """Return what a node computes from what; graphs inside it are compared on their own."""
    attributes = {a.name: a for a in node.attribute if not (a.HasField("g") or a.graphs)}
    return list(node.input), list(node.output), attributes


def _assign_regions(graph: GraphDiff, diff: ModelDiff, replacements: Sequence[Replacement]) -> None:
    """Give each node that differs a region, and so the nodes of an operator's region that do not."""
    of_label: dict[str, int] = {}
    for index, replacement in enumerate(replacements):
        if replacement.graph == graph.name:
            for label in replacement.members:
                of_label.setdefault(label, index)
    of_output = dict[str, int]()
    for node in graph.before:
        node.region = of_label.get(node.label)
        if node.region is not None:
            of_output |= dict.fromkeys(filter(None, node.message.output), node.region)
    for node in graph.after:
        partner = None if node.partner is None else graph.before[node.partner].region
        origin = None if node.status == "same" else of_label.get(node.origin or "")
        outputs = [of_output[name] for name in node.message.output if name in of_output]
        found = (r for r in (partner, origin, *outputs) if r is not None)
        node.region = next(found, None)
    nodes, links = [*graph.before, *graph.after], _links(graph)
    _spread(nodes, links)
    for node in nodes:
        if node.region is None and node.status != "same":
            node.region = len(diff.regions)
            diff.regions.append(Region(node.label, ""))
            _spread([node], links)


def _spread(start: Iterable[Node], links: Mapping[int, Sequence[Node]]) -> None:
    """Let nodes that differ join the region of a neighbour, or of their partner."""
    todo = [node for node in start if node.region is not None]
    while todo:
        reached = []
        for node in todo:
            for other in links.get(id(node), ()):
                if other.region is None:
                    other.region = node.region
                    reached.append(other)
        todo = reached


def _links(graph: GraphDiff) -> dict[int, list[Node]]:
    """Return the neighbours of each node that differ themselves, by `id`."""
    links = defaultdict(list)
    named: dict[str, Node] = {}
    for nodes in (graph.before, graph.after):
        producer = {name: node for node in nodes for name in node.message.output if name}
        for node in nodes:
            sources = (producer.get(name) for name in sorted(traversal.needs(node.message)))
            for first, second in _both(node, filter(None, sources)):
                if second.status != "same":
                    links[id(first)].append(second)
    for node in graph.before:
        if node.status == "changed" and node.partner is not None:
            for first, second in _both(node, [graph.after[node.partner]]):
                links[id(first)].append(second)
        elif node.status == "removed":
            named |= {name: node for name in node.message.output if name}
    for node in graph.after:
        twins = {id(named[name]): named[name] for name in node.message.output if name in named}
        for first, second in _both(node, twins.values()):
            links[id(first)].append(second)
    return links


def _both(node: Node, others: Iterable[Node]) -> Iterator[tuple[Node, Node]]:
    for other in others:
        yield node, other
        yield other, node
