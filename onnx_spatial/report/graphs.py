"""Show two models side by side: which nodes were removed, added or changed, and by what.

before            after              region 1 has the nodes with (1); the Relu is the same on both
SpaceToBatch (1)                     sides, and has a partner.
Conv (1)          Conv (1) changed
BatchToSpace (1)
Relu              Relu

`compare` pairs the nodes and joins them to regions, `graph_document` writes that as JSON for the script
of the page, and `SideBySide` has it with the figures, as plain data that goes from process to process.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import onnx
import onnx.helper

from onnx_spatial.analysis import dtype_name
from onnx_spatial.conversion.summary import Replacement, Summary
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.replace_nodes import ORIGIN
from onnx_spatial.operators.shapes import show
from onnx_spatial.report.figures import (
    figure_rows,
    file_size,
    interface,
    type_text,
)

Document = Mapping[str, Any]

#: Letters of an attribute that are shown.
_LONGEST = 120
#: Characters that the data of graphs may have on a page of many models: of all, and of one.
ROOM, _MOST = 20_000_000, 2_000_000

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


@dataclass
class ModelDiff:
    """The graphs of two models side by side, and the regions that differ.

    Each region has the label of its main node, and what it is now; empty if that is no operator.
    """

    graphs: list[GraphDiff] = field(default_factory=list)
    regions: list[tuple[str, str]] = field(default_factory=list)


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
    diff = ModelDiff(regions=[(each.node, each.what) for each in replacements])
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
            diff.regions.append((node.label, ""))
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


def graph_document(diff: ModelDiff) -> dict[str, Any]:
    """Return the graphs and regions of a comparison as JSON.

    A node has its label (l), operator type (o), domain (d), status (s), partner (p), region (r), the
    values that it reads (i) and computes (u), and its attributes (a). What is as in the partner before
    is left out, and so is what is empty.
    """
    return {
        "regions": [*map(list, diff.regions)],
        "graphs": [_graph(graph) for graph in diff.graphs],
    }


def script_json(document: dict[str, Any]) -> str:
    """Serialize JSON for a script element: no name in it can close the element."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    # Protobuf admits no lone surrogates, but messages of errors may have some.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _graph(graph: GraphDiff) -> dict[str, Any]:
    types: dict[str, str] = {}
    for each in graph.graphs:
        types |= _types(each)
    return {
        "name": graph.name,
        "types": types,
        "inputs": [_names(each, "input") for each in graph.graphs],
        "outputs": [_names(each, "output") for each in graph.graphs],
        "before": [_node(node) for node in graph.before],
        "after": [_node(node, after=True) for node in graph.after],
    }


def _names(graph: traversal.GraphLike | None, field: str) -> list[str]:
    if graph is None:
        return []
    values = getattr(graph, field)
    names = list(values) if isinstance(graph, onnx.FunctionProto) else [v.name for v in values]
    if field == "input" and isinstance(graph, onnx.GraphProto):
        stored = {tensor.name for tensor in graph.initializer}
        names = [name for name in names if name not in stored]
    return names


def _node(node: Node, *, after: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"s": node.status, "p": node.partner, "r": node.region}
    if not (after and node.status == "same"):
        message = node.message
        result |= {"l": node.label, "o": message.op_type, "d": message.domain}
        result |= {
            "i": sorted(traversal.needs(message), key=_order(message)),
            "u": [*message.output],
        }
        result["a"] = [[a.name, _attribute(a)] for a in message.attribute]
    return {key: value for key, value in result.items() if value not in (None, "", [], "same")}


def _order(node: onnx.NodeProto) -> Any:
    """Return a key that sorts names as a node reads them; those that its graphs capture come last."""
    place = {name: index for index, name in enumerate(node.input)}
    return lambda name: (place.get(name, len(place)), name)


def _attribute(attribute: onnx.AttributeProto) -> str:
    kind = str(onnx.AttributeProto.AttributeType.Name(attribute.type)).lower()
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    if kind == "tensor":
        return f"tensor {_stored(attribute.t)}"
    if kind.removesuffix("s") not in ("int", "float", "string"):
        return kind
    text = str(onnx.helper.printable_attribute(attribute)).partition(" = ")[2]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _types(graph: traversal.GraphLike | None) -> dict[str, str]:
    """Return the declared types of values: "float32 [1, 64, 64, 3]"."""
    if graph is None:
        return {}
    types, values = dict[str, str](), list(graph.value_info)
    if isinstance(graph, onnx.GraphProto):
        values += [*graph.input, *graph.output]
        types = {tensor.name: _stored(tensor) for tensor in graph.initializer}
    return types | {v.name: type_text(v.type) for v in values if v.type.tensor_type.elem_type}


def _stored(tensor: onnx.TensorProto) -> str:
    return f"{dtype_name(tensor.data_type)} {show(tensor.dims)}"


def room(models: int) -> int:
    """Return how many characters the data of each model's graphs may have on a page."""
    return min(_MOST, ROOM // max(1, models))


@dataclass
class SideBySide:
    """What a page shows of a model before and after.

    Attributes:
        sides: titles of the two graphs; one if there is only one.
        interface: inputs and outputs of the model, by kind.
        figures: rows of what, before and after.
        replacements: operators and regions with what took their place (`Replacement` as dicts).
        others: rows of the nodes outside of them: where, what, before and after.
        graphs: `graph_document`; None if the graphs are too large for the page.
        left_out: why the page has no graphs; empty if it has them.
    """

    sides: tuple[str, ...] = ()
    interface: dict[str, list[str]] = field(default_factory=dict)
    figures: list[tuple[str, str, str]] = field(default_factory=list)
    replacements: list[Document] = field(default_factory=list)
    others: list[tuple[str, str, int, int]] = field(default_factory=list)
    graphs: dict[str, Any] | None = None
    left_out: str = ""

    @classmethod
    def of(
        cls,
        original: onnx.ModelProto,
        result: onnx.ModelProto | None,
        summary: Summary | None = None,
        operators: Sequence[Document] = (),
    ) -> SideBySide:
        """Compare two models.

        Args:
            original: the model.
            result: what it was converted to; None if there is only one model.
            summary: of the conversion.
            operators: without a summary, each makes a region: dicts of an `OperatorReport` or an
                `OperatorResult`.
        """
        sides = ("before", "after") if result is not None else ("the model",)
        made = cls(sides, interface(original))
        regions: Sequence[Replacement]
        if summary is None:
            regions = [_region(each) for each in operators]
        else:
            regions = summary.replacements
            made.figures = list(figure_rows(summary))
            made.replacements = summary.to_dict()["replacements"]
            made.others = summary.others()
        made.graphs = graph_document(compare(original, result, regions))
        return made

    def leave_out(self, most: int) -> None:
        """Leave the graphs out if their data has more than so many characters."""
        if self.graphs is None or (size := len(script_json(self.graphs))) <= most:
            return
        nodes = sum(len(each["before"]) + len(each["after"]) for each in self.graphs["graphs"])
        self.graphs = None
        self.left_out = (
            f"The graphs, with {nodes:,} nodes, are not drawn: they take {file_size(size)}, and each "
            f"model has room for {file_size(most)}. Alone they are drawn by convert MODEL --dry-run "
            "--html FILE."
        )

    def regions(self) -> dict[tuple[str, str], int | None]:
        """Return the position of the region of each node before, by graph and label."""
        if self.graphs is None:
            members = enumerate(self.replacements)
            return {(each["graph"], node): at for at, each in members for node in each["members"]}
        graphs = self.graphs["graphs"]
        return {(g["name"], node["l"]): node.get("r") for g in graphs for node in g["before"]}

    @property
    def script(self) -> str:
        """JSON of the graphs for the script of a page; empty if none are drawn."""
        return "" if self.graphs is None else script_json(self.graphs)


def _region(operator: Document) -> Replacement:
    members = (operator["node"], *operator.get("absorbed", ()))
    return Replacement(operator["node"], operator["graph"], "", len(members), 0, members)
