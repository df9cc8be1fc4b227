"""Show two models side by side: which nodes were removed, added or changed, and by what.

before            after              region 1 has the nodes with (1); the Relu is the same on both
SpaceToBatch (1)                     sides, and has a partner.
Conv (1)          Conv (1) changed
BatchToSpace (1)
Relu              Relu

`compare` pairs the nodes and joins them to regions, as JSON for the script of the page. `SideBySide` has
that with titles, as plain data that goes from process to process.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import onnx
import onnx.helper

from onnx_spatial.analysis import dtype_name
from onnx_spatial.conversion.report import OperatorReport
from onnx_spatial.conversion.summary import Replacement
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.new_nodes import ORIGIN
from onnx_spatial.operators.operator import show
from onnx_spatial.report.figures import file_size, type_text
from onnx_spatial.verification.evidence import OperatorResult

#: Letters of an attribute that are shown.
_MAX_ATTRIBUTE_LETTERS = 120
#: Characters that the data of all graphs of a page may have, and that of one model.
ROOM, _MAX_OF_MODEL = 20_000_000, 2_000_000

Status = Literal["same", "changed", "removed", "added"]


@dataclass(eq=False)
class Node:
    """A node of one of the two graphs; each is equal to itself only.

    Attributes:
        label: its name, or <its output>.
        message: the node itself.
        status: "removed" only before, "added" only after.
        partner: position of the same node in the other graph; None if it is only in this one.
        region: position in the list of regions; None if it is in none.
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


#: The nodes of one graph before and after, in topological order.
Sides = tuple[list[Node], list[Node]]


def compare(
    original: onnx.ModelProto,
    result: onnx.ModelProto | None,
    replacements: Sequence[Replacement] = (),
) -> dict[str, Any]:
    """Compare two models, graph by graph, and return the graphs and regions as JSON.

    A region has the label of its main node, and what it is now; empty if that is no operator. A node
    has its label (l), operator type (o), domain (d), status (s), partner (p), region (r), the values
    that it reads (i) and computes (u), and its attributes (a). What is as in the partner before is left
    out, and so is what is empty.

    Args:
        original: a model.
        result: the other model; None: there is only one, and all of its nodes are the same.
        replacements: the regions of the summary of a conversion. Other nodes that differ join the region
            next to them, or make regions of their own.
    """
    regions = [[each.node, each.what] for each in replacements]
    models = [dict(traversal.graphs(model)) for model in (original, result or original)]
    edited = _edited_weights(*models)
    documents = []
    for place in dict.fromkeys([*models[0], *models[1]]):
        graphs = [model.get(place) for model in models]
        before, after = (_list_nodes(graph) for graph in graphs)
        _pair_nodes(before, after, edited)
        here = [each if each.graph == str(place) else None for each in replacements]
        _assign_regions((before, after), here, regions)
        documents.append(
            {
                "name": str(place),
                "types": _value_types(graphs[0]) | _value_types(graphs[1]),
                "inputs": [_value_names(graph, "input") for graph in graphs],
                "outputs": [_value_names(graph, "output") for graph in graphs],
                "before": [_node_document(node) for node in before],
                "after": [_node_document(node, after=True) for node in after],
            }
        )
    return {"regions": regions, "graphs": documents}


def _edited_weights(*models: Mapping[traversal.Place, traversal.GraphLike]) -> set[str]:
    """Return the names of initializers in both models with other bytes, as far as files hold them."""
    before, after = (
        {
            (place, tensor.name): tensor
            for place, graph in model.items()
            for tensor in (graph.initializer if isinstance(graph, onnx.GraphProto) else ())
            if not tensor.external_data
        }
        for model in models
    )
    return {key[1] for key in before.keys() & after.keys() if before[key] != after[key]}


def _list_nodes(graph: traversal.GraphLike | None) -> list[Node]:
    nodes = [] if graph is None else traversal.in_order(graph)
    return [Node(traversal.label(message), message, "same") for message in nodes]


def _pair_nodes(before: list[Node], after: list[Node], edited: set[str]) -> None:
    """Find the partner of each node: by name, type and outputs, then by name and type.

    What reads an edited weight is changed.
    """
    for with_outputs in (True, False):
        unpaired = defaultdict[tuple[str, ...], deque[int]](deque)
        for index, node in enumerate(after):
            if node.partner is None:
                unpaired[_node_key(node, with_outputs)].append(index)
        for index, node in enumerate(before):
            if node.partner is None and (alike := unpaired.get(_node_key(node, with_outputs))):
                node.partner = alike.popleft()
                after[node.partner].partner = index
    for node in before:
        if node.partner is None:
            node.status = "removed"
            continue
        partner = after[node.partner]
        reads_edited = not edited.isdisjoint(node.message.input)
        if reads_edited or _node_form(node.message) != _node_form(partner.message):
            node.status = partner.status = "changed"
    for node in after:
        if node.partner is None:
            node.status = "added"


def _node_key(node: Node, with_outputs: bool) -> tuple[str, ...]:
    message = node.message
    outputs = message.output if with_outputs else ()
    return node.label, message.domain, message.op_type, *outputs


def _node_form(node: onnx.NodeProto) -> tuple[object, ...]:
    """Return what a node computes from what; graphs inside it are compared on their own."""
    attributes = {a.name: a for a in node.attribute if not (a.HasField("g") or a.graphs)}
    return list(node.input), list(node.output), attributes


def _assign_regions(
    sides: Sides, replacements: Sequence[Replacement | None], regions: list[list[str]]
) -> None:
    """Give each node that differs a region, and so the nodes of an operator's region that do not.

    A node before belongs to the region that has its label; a node after to that of its partner, of the
    node that it was added for, or of the node that computed its output. Others join a neighbour.
    """
    before, after = sides
    region_of_label: dict[str, int] = {}
    for region, replacement in enumerate(replacements):
        for label in () if replacement is None else replacement.members:
            region_of_label.setdefault(label, region)
    region_of_output: dict[str, int] = {}
    for node in before:
        node.region = region_of_label.get(node.label)
        if node.region is not None:
            region_of_output |= dict.fromkeys(filter(None, node.message.output), node.region)
    for node in after:
        of_partner = None if node.partner is None else before[node.partner].region
        of_origin = None if node.status == "same" else region_of_label.get(node.origin or "")
        of_outputs = map(region_of_output.get, node.message.output)
        candidates = (of_partner, of_origin, *of_outputs)
        node.region = next((region for region in candidates if region is not None), None)
    neighbours = _list_neighbours(sides)
    _spread_regions([*before, *after], neighbours)
    for node in (*before, *after):
        if node.region is None and node.status != "same":
            node.region = len(regions)
            regions.append([node.label, ""])
            _spread_regions([node], neighbours)


def _spread_regions(start: Iterable[Node], neighbours: Mapping[Node, Sequence[Node]]) -> None:
    """Let nodes that differ join the region of a neighbour, breadth first."""
    queue = deque(node for node in start if node.region is not None)
    while queue:
        node = queue.popleft()
        for neighbour in neighbours.get(node, ()):
            if neighbour.region is None and neighbour.status != "same":
                neighbour.region = node.region
                queue.append(neighbour)


def _list_neighbours(sides: Sides) -> dict[Node, list[Node]]:
    """Return what each node reads from, what reads it, and across the sides what may be its successor.

    That is the partner of a node that changed, and what computes a value of a node that was removed.
    """
    pairs: list[tuple[Node, Node]] = []
    for nodes in sides:
        producers = _by_output(nodes)
        for node in nodes:
            sources = sorted(traversal.needs(node.message))
            pairs += [(producers[name], node) for name in sources if name in producers]
    before, after = sides
    for node in before:
        if node.status == "changed" and node.partner is not None:
            pairs.append((node, after[node.partner]))
    removed = _by_output(node for node in before if node.status == "removed")
    pairs += [(removed[v], node) for node in after for v in node.message.output if v in removed]
    neighbours = defaultdict(list)
    for one, other in pairs:
        neighbours[one].append(other)
        neighbours[other].append(one)
    return neighbours


def _by_output(nodes: Iterable[Node]) -> dict[str, Node]:
    return {name: node for node in nodes for name in node.message.output if name}


def script_json(document: dict[str, Any]) -> str:
    """Serialize JSON for a script element: no name in it can close the element."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    # Protobuf admits no lone surrogates, but messages of errors may have some.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _value_names(graph: traversal.GraphLike | None, field: str) -> list[str]:
    if graph is None:
        return []
    stored = traversal.stored_names(graph) if field == "input" else ()
    return [name for name in traversal.value_names(getattr(graph, field)) if name not in stored]


def _node_document(node: Node, *, after: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"s": node.status, "p": node.partner, "r": node.region}
    if not (after and node.status == "same"):
        message = node.message
        result |= {"l": node.label, "o": message.op_type, "d": message.domain}
        result["i"] = sorted(traversal.needs(message), key=_input_order(message))
        result["u"] = list(message.output)
        result["a"] = [[a.name, _attribute_text(a)] for a in message.attribute]
    return {key: value for key, value in result.items() if value not in (None, "", [], "same")}


def _input_order(node: onnx.NodeProto) -> Callable[[str], tuple[int, str]]:
    """Return a key that sorts names as a node reads them; those that its graphs capture come last."""
    position = {name: index for index, name in enumerate(node.input)}
    return lambda name: (position.get(name, len(position)), name)


def _attribute_text(attribute: onnx.AttributeProto) -> str:
    kind = str(onnx.AttributeProto.AttributeType.Name(attribute.type)).lower()
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    if kind == "tensor":
        return f"tensor {_tensor_type(attribute.t)}"
    if kind.removesuffix("s") not in ("int", "float", "string"):
        return kind
    text = str(onnx.helper.printable_attribute(attribute)).partition(" = ")[2]
    return text if len(text) <= _MAX_ATTRIBUTE_LETTERS else f"{text[:_MAX_ATTRIBUTE_LETTERS]}..."


def _value_types(graph: traversal.GraphLike | None) -> dict[str, str]:
    """Return the declared types of values: "float32 [1, 64, 64, 3]"."""
    if graph is None:
        return {}
    types = {tensor.name: _tensor_type(tensor) for tensor in getattr(graph, "initializer", ())}
    values = traversal.declared_values(graph)
    return types | {v.name: type_text(v.type) for v in values if v.type.tensor_type.elem_type}


def _tensor_type(tensor: onnx.TensorProto) -> str:
    return f"{dtype_name(tensor.data_type)} {show(tensor.dims)}"


def room_for_graphs(models: int) -> int:
    """Return how many characters the data of each model's graphs may have on a page."""
    return min(_MAX_OF_MODEL, ROOM // max(1, models))


@dataclass
class SideBySide:
    """What a page shows of a model before and after.

    Attributes:
        sides: titles of the two graphs; one if there is only one.
        largest: the region with the most nodes before and after; None if there is none.
        graphs: of `compare`; None if the graphs are too large for the page.
        left_out: why the page has no graphs; empty if it has them.
    """

    sides: tuple[str, ...] = ()
    largest: int | None = None
    graphs: dict[str, Any] | None = None
    left_out: str = ""

    @classmethod
    def of(
        cls,
        original: onnx.ModelProto,
        result: onnx.ModelProto | None,
        operators: Sequence[Replacement | OperatorReport | OperatorResult] = (),
    ) -> SideBySide:
        """Compare two models.

        Args:
            original: the model.
            result: what it was converted to; None if there is only one model.
            operators: what makes regions: the replacements of a conversion, or operators.
        """
        regions = [each if isinstance(each, Replacement) else _region(each) for each in operators]
        sizes = [each.nodes_before + each.nodes_after for each in regions]
        return cls(
            ("before", "after") if result is not None else ("the model",),
            sizes.index(max(sizes)) if sizes else None,
            compare(original, result, regions),
        )

    def leave_out(self, most: int) -> None:
        """Leave the graphs out if their data has more than so many characters."""
        size = len(self.script)
        if self.graphs is None or size <= most:
            return
        nodes = sum(len(graph["before"]) + len(graph["after"]) for graph in self.graphs["graphs"])
        self.graphs = None
        self.left_out = (
            f"The graphs, with {nodes:,} nodes, are not drawn: they take {file_size(size)}, and each "
            f"model has room for {file_size(most)}. Alone they are drawn by convert MODEL --dry-run "
            "--html FILE."
        )

    def regions(self) -> dict[tuple[str, str], int | None]:
        """Return the position of the region of each node before, by graph and label."""
        graphs = [] if self.graphs is None else self.graphs["graphs"]
        return {(g["name"], node["l"]): node.get("r") for g in graphs for node in g["before"]}

    @property
    def script(self) -> str:
        """JSON of the graphs for the script of a page; empty if none are drawn."""
        return "" if self.graphs is None else script_json(self.graphs)


def _region(operator: OperatorReport | OperatorResult) -> Replacement:
    members = (operator.node, *getattr(operator, "absorbed", ()))
    return Replacement(operator.node, operator.graph, "", len(members), 0, members)
