"""Summarize a conversion: nodes by type, file sizes and ranks before and after, one line per operator.

A region that became dilated convolutions is one line, with all the nodes from its SpaceToBatch to its
BatchToSpace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from onnx_spatial.conversion.dilated_conv import DILATED
from onnx_spatial.conversion.report import CHAIN, OperatorReport
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.replace_nodes import ORIGIN
from onnx_spatial.model.io.source import Source
from onnx_spatial.operators import Rearrange

#: Convolutions, which have a weight and may become dilated.
_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")
#: Position of the weight among the inputs.
_WEIGHT = {"QLinearConv": 3}


@dataclass(frozen=True)
class Figures:
    """Figures of one model.

    Attributes:
        nodes: number of nodes by operator type, with those in subgraphs and functions.
        bytes: size of the model file, without external data.
        rank: the largest rank of a tensor that the file tells: declared, stored, transposed or reshaped.
        operators: number of spatial operators, and of convolutions that onnxruntime refuses.
        chains: number of chains of standard nodes that are rewritten.
    """

    nodes: dict[str, int]
    bytes: int
    rank: int
    operators: int
    chains: int = 0


@dataclass(frozen=True)
class Replacement:
    """An operator, or a region between SpaceToBatch and BatchToSpace, and what replaces it.

    Attributes:
        node: label of the operator; of a region, of its convolution or else of its last operator.
        graph: graph that holds it, in words.
        what: what it is now: "2 x depthwise 3x3, dilation 4, 960 channels".
        nodes_before, nodes_after: number of nodes.
        members: labels of the nodes of the original that it stands for.
    """

    node: str
    graph: str
    what: str
    nodes_before: int
    nodes_after: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """Estimated times of the rewritten chains for which both times are known.

    Operators that no runtime runs have no time before. Chains that became part of convolutions have
    none after: the convolutions are not priced.

    Attributes:
        chains: number of these chains.
        before_us, after_us: time of their nodes, and of the nodes in their place, in microseconds.
    """

    chains: int
    before_us: float
    after_us: float


@dataclass(frozen=True)
class Summary:
    """What a conversion did with a model.

    Attributes:
        text: what became of the operators: "10 operators became 5 dilated convolutions".
        before, after: figures of the original and of the result.
        replacements: in the order of the file.
        estimate: None if no part of the model has an estimated time before and after.
        calls: whether operators became calls of local functions, whose nodes are counted once.
    """

    text: str
    before: Figures
    after: Figures
    replacements: tuple[Replacement, ...]
    estimate: Estimate | None = None
    calls: bool = False

    def others(self) -> list[tuple[str, str, int, int]]:
        """Count the nodes outside of the replacements, so that all rows add up to the model.

        Each row says where the nodes are, what they are, and their number before and after.
        """
        before = sum(self.before.nodes.values()) - sum(r.nodes_before for r in self.replacements)
        after = sum(self.after.nodes.values()) - sum(r.nodes_after for r in self.replacements)
        stay = min(before, after)
        around = ("around them", "shape arithmetic and layout" if before > after else "")
        if before < after and self.calls:
            around = ("local functions", "")
        rows = [(*around, before - stay, after - stay), ("other nodes", "", stay, stay)]
        return [row for row in rows if any(row[2:])]

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes, as dicts and lists."""
        return {
            "text": self.text,
            "before": dict(vars(self.before)),
            "after": dict(vars(self.after)),
            "replacements": [
                {**vars(each), "members": list(each.members)} for each in self.replacements
            ],
            "estimate": None if self.estimate is None else dict(vars(self.estimate)),
        }


def summarize(
    original: Source,
    result: Source,
    operators: Sequence[OperatorReport],
    layouts: tuple[int, int] = (0, 0),
) -> Summary:
    """Summarize the conversion of a model from its report, rewritten chains included.

    `layouts` is the number of nodes that changed the layout of a value, before and after.
    """
    converted = [operator for operator in operators if operator.converted]
    chains = sum(operator.dialect == CHAIN for operator in converted)
    left = sum(s.left_over or s.action == "refuse" for s in operators)
    regions = _Regions(original.proto, result.proto, converted)
    return Summary(
        text=_text(converted, regions, layouts),
        before=_figures(original, len(converted) - chains + left, chains),
        after=_figures(result, left if not _is_kept(converted) else len(operators)),
        replacements=tuple(regions.replacements()),
        estimate=_estimate(converted),
        calls=any(operator.action == "function" for operator in converted),
    )


def _estimate(operators: Sequence[OperatorReport]) -> Estimate | None:
    """Add up the times of the operators that have both, apart from those that took no time before."""
    times = [
        (operator.before_us, operator.estimated_us)
        for operator in operators
        if operator.before_us and operator.estimated_us is not None
    ]
    if not times:
        return None
    before, after = (round(sum(each), 3) for each in zip(*times, strict=True))
    return Estimate(len(times), before, after)


def _is_kept(converted: Sequence[OperatorReport]) -> bool:
    """Tell whether converted operators are still nodes: calls of functions, Python operators."""
    return any(operator.action in ("function", "custom-op") for operator in converted)


def _figures(source: Source, operators: int, chains: int = 0) -> Figures:
    nodes = Counter(node.op_type for _, _, node in traversal.nodes(source.proto))
    size = source.proto.ByteSize() if source.data is None else len(source.data)
    return Figures(dict(sorted(nodes.items())), size, _rank(source.proto), operators, chains)


def _rank(model: onnx.ModelProto) -> int:
    ranks = [0]
    for _, graph in traversal.graphs(model):
        stored = {}
        values = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            values += [*graph.input, *graph.output]
            stored = {tensor.name: tensor.dims for tensor in graph.initializer}
            ranks += map(len, stored.values())
        ranks += [len(value.type.tensor_type.shape.dim) for value in values]
        for node in graph.node:
            if node.op_type == "Transpose":
                ranks += [len(a.ints) for a in node.attribute if a.name == "perm"]
            elif node.op_type == "Reshape" and len(node.input) > 1:
                ranks += stored.get(node.input[1], ())
    return max(ranks)


class _Regions:
    """The regions that lost their blocks, by the operator at their end."""

    def __init__(
        self,
        original: onnx.ModelProto,
        result: onnx.ModelProto,
        operators: Sequence[OperatorReport],
    ) -> None:
        self._operators = operators
        self._fused = {
            (operator.graph, operator.node): operator
            for operator in operators
            if not operator.nodes_after
        }
        self._produced: dict[str, dict[str, onnx.NodeProto]] = {}
        self._nodes = {
            (str(place), traversal.label(node)): (place, graph, node)
            for place, graph, node in traversal.nodes(original)
        }
        self._weights = {
            tensor.name: tuple(tensor.dims)
            for _, graph in traversal.graphs(result)
            for tensor in getattr(graph, "initializer", ())
        }
        self._dilated: dict[tuple[str, str], onnx.NodeProto] = {}
        for place, _, node in traversal.nodes(result):
            if op_traits.is_standard(node) and node.op_type in _CONVOLUTIONS:
                for key in (traversal.label(node), *_origins(node), *_reads(node)):
                    self._dilated.setdefault((str(place), key), node)

    def convolutions(self, operator: OperatorReport) -> list[tuple[str, onnx.NodeProto]]:
        """Return the convolutions in a region: label before, node in the result."""
        found = []
        for label in operator.between:
            _, _, node = self._nodes.get((operator.graph, label), (None, None, None))
            if node is None or node.op_type not in _CONVOLUTIONS:
                continue
            for key in (label, *_reads(node)):
                now = self._dilated.get((operator.graph, key))
                if now is not None and now.op_type == node.op_type:
                    found.append((label, now))
                    break
        return found

    def replacements(self) -> Iterator[Replacement]:
        """Yield the rows of the report; a SpaceToBatch counts with the first region that it opens."""
        regions = {
            (operator.graph, operator.node): self._entries(operator)
            for operator in self._operators
            if operator.between
        }
        counted = {entry for entries in regions.values() for entry in entries}
        seen: set[tuple[str, str]] = set()
        for operator in self._operators:
            key = (operator.graph, operator.node)
            if operator.between:
                new = {k: s for k, s in regions[key].items() if k not in seen}
                seen |= new.keys()
                yield self._region(operator, list(new.values()))
            elif key not in counted:
                after = 1 if operator.action == "function" else operator.nodes_after
                yield Replacement(
                    operator.node,
                    operator.graph,
                    _operator(operator),
                    operator.nodes_before,
                    after,
                    _members(operator),
                )

    def _entries(self, operator: OperatorReport) -> dict[tuple[str, str], OperatorReport]:
        """Return each fused operator in front of a region's nodes, by graph and label."""
        inside = {*operator.between, *operator.absorbed}
        found, seen = dict[tuple[str, str], OperatorReport](), set[str]()
        place, graph, node = self._nodes.get((operator.graph, operator.node), (None, None, None))
        if node is None or graph is None:
            return found
        producers = self._producers(operator.graph, graph)
        todo = [node]
        while todo:
            for name in todo.pop().input:
                producer = producers.get(name)
                if producer is None or name in seen:
                    continue
                seen.add(name)
                key = (str(place), traversal.label(producer))
                fused = self._fused.get(key)
                if fused is not None and fused is not operator:
                    found[key] = fused
                    inside.update(fused.absorbed)
                    todo.append(producer)
                elif key[1] in inside:
                    todo.append(producer)
        return found

    def _producers(self, place: str, graph: traversal.GraphLike) -> dict[str, onnx.NodeProto]:
        """Return the nodes of a graph by their outputs; made once for each graph."""
        if place not in self._produced:
            self._produced[place] = {name: each for each in graph.node for name in each.output}
        return self._produced[place]

    def _region(self, operator: OperatorReport, entries: Sequence[OperatorReport]) -> Replacement:
        convolutions = self.convolutions(operator)
        kinds = Counter(self._convolution(node) for _, node in convolutions)
        parts = (f"{n} x {kind}" if n > 1 else kind for kind, n in kinds.items())
        what = "; ".join(parts) or f"{operator.lowering}"
        node = convolutions[0][0] if convolutions else operator.node
        before = sum(each.nodes_before for each in (operator, *entries))
        members = tuple(label for each in (*entries, operator) for label in _members(each))
        return Replacement(node, operator.graph, what, before, operator.nodes_after, members)

    def _convolution(self, node: onnx.NodeProto) -> str:
        """Describe a convolution: "depthwise 3x3, dilation 4, 960 channels"."""
        attributes = {a.name: a for a in node.attribute}
        kernel = list(attributes["kernel_shape"].ints) if "kernel_shape" in attributes else []
        dilations = list(attributes["dilations"].ints) if "dilations" in attributes else [1]
        one = len({*dilations}) == 1
        dilation = f"dilation {_times(dilations[:1] if one else dilations)}"
        position = _WEIGHT.get(node.op_type, 1)
        weight = self._weights.get(node.input[position]) if len(node.input) > position else None
        kernel = kernel or list((weight or ())[2:])
        if weight is None or len(weight) < 2:
            return f"{f'{node.op_type} {_times(kernel)}'.strip()}, {dilation}"
        group = attributes["group"].i if "group" in attributes else 1
        inputs, outputs = weight[1] * group, weight[0]
        if node.op_type == "ConvTranspose":
            inputs, outputs = weight[0], weight[1] * group
        depthwise = group == inputs > 1
        kind = "depthwise" if depthwise and node.op_type == "Conv" else node.op_type
        kind = f"depthwise {kind}" if depthwise and kind != "depthwise" else kind
        groups = f", {group} groups" if group > 1 and not depthwise else ""
        channels = f"{inputs}" if inputs == outputs else f"{inputs} -> {outputs}"
        return f"{kind} {_times(kernel)}, {dilation}, {channels} channels{groups}"


def _members(operator: OperatorReport) -> tuple[str, ...]:
    return (*operator.absorbed, *operator.between, operator.node)


def _times(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _origins(node: onnx.NodeProto) -> Iterator[str]:
    for entry in node.metadata_props:
        if entry.key == ORIGIN:
            yield entry.value.partition(" ")[2]


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the name of the weight, as a key that is no label of a node."""
    position = _WEIGHT.get(node.op_type, 1)
    if len(node.input) <= position:
        return []
    return [f"weight {node.input[position]}"]


def _operator(operator: OperatorReport) -> str:
    """Describe an operator that was replaced on its own, or with its neighbours."""
    if not operator.spatial:
        return f"{operator.op_type}, explicit pads"
    absorbed = f" with {len(operator.absorbed)} other nodes" if operator.absorbed else ""
    if len(operator.absorbed) == 1:
        absorbed = " with 1 other node"
    return f"{operator.op_type}{absorbed}, {operator.function or operator.lowering}"


def layout_text(before: int, after: int) -> str:
    """Say what became of changes of layout, of which there is one or more; "" if nothing did."""
    if before == after:
        return "changes of layout moved to smaller values" if before else ""
    return f"{_count(before - after, 'change')} of layout removed"


def _text(converted: Sequence[OperatorReport], regions: _Regions, layouts: tuple[int, int]) -> str:
    """Say what became of the operators, in one clause for each way."""
    operators = [operator for operator in converted if operator.spatial]
    cancelled = [operator for operator in operators if operator.lowering == "cancelled"]
    became = [operator for operator in operators if operator.lowering != "cancelled"]
    clauses = [f"{_named(became)} became {_products(became, regions)}"] if became else []
    if cancelled:
        alone = all(operator.op_type == Rearrange.name for operator in cancelled)
        clauses.append(f"{_named(cancelled)} cancelled {'out' if alone else 'each other'}")
    if refused := len(converted) - len(operators):
        clauses.append(f"{_count(refused, 'convolution')} got explicit pads")
    if text := layout_text(*layouts):
        clauses.append(text)
    return ", ".join(clauses) or "no operator was converted"


def _named(operators: Sequence[OperatorReport]) -> str:
    """Count operators, and chains of standard nodes that are operators."""
    chains = sum(operator.dialect == CHAIN for operator in operators)
    numbers = {"operator": len(operators) - chains, "chain": chains}
    return " and ".join(_count(number, noun) for noun, number in numbers.items() if number)


def _products(operators: Sequence[OperatorReport], regions: _Regions) -> str:
    if operators[0].action == "function":
        functions = {operator.function: operator.nodes_after for operator in operators}
        nodes = _count(sum(functions.values()), "standard node")
        return f"calls of {_count(len(functions), 'local function')} ({nodes})"
    parts: Counter[str] = Counter()
    for operator in operators:
        if operator.lowering == DILATED and operator.between:
            parts["dilated convolution"] += max(len(regions.convolutions(operator)), 1)
        elif operator.lowering == "strided convolution":
            parts["strided convolution"] += 1
        elif operator.nodes_after and not operator.between:
            parts["node" if operator.action == "custom-op" else "standard node"] += (
                operator.nodes_after
            )
    texts = [_count(number, noun) for noun, number in parts.items() if number]
    if not texts:
        return "nothing: the nodes between work without blocks"
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
