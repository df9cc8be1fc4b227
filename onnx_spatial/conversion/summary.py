"""Summarize a conversion: nodes by type, file sizes and ranks before and after, one line per operator.

A region that became dilated convolutions is one line, with all the nodes from its SpaceToBatch to its
BatchToSpace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.conversion.replace import DILATED
from onnx_spatial.conversion.report import CHAIN, OperatorReport
from onnx_spatial.documents import Document
from onnx_spatial.errors import count
from onnx_spatial.model import traversal
from onnx_spatial.model.io.source import Source
from onnx_spatial.operators import Rearrange


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
class Summary(Document):
    """What a conversion did with a model.

    Attributes:
        text: what became of the operators: "10 operators became 5 dilated convolutions".
        before, after: figures of the original and of the result.
        replacements: in the order of the file.
        estimate: None if no part of the model has an estimated time before and after.
        calls: whether operators became calls of local functions, whose nodes are counted once.
    """

    KEYS = "text before after replacements estimate"

    text: str
    before: Figures
    after: Figures
    replacements: tuple[Replacement, ...]
    estimate: Estimate | None = None
    calls: bool = False

    def other_nodes(self) -> list[tuple[str, str, int, int]]:
        """Count the nodes outside of the replacements, so that all rows add up to the model.

        Each row says where the nodes are, what they are, and their number before and after.
        """
        before = sum(self.before.nodes.values()) - sum(r.nodes_before for r in self.replacements)
        after = sum(self.after.nodes.values()) - sum(r.nodes_after for r in self.replacements)
        stay = min(before, after)
        beside = ("removed with them", "shape arithmetic and layout")
        if before < after:
            beside = ("local functions" if self.calls else "added with them", "")
        rows = [(*beside, before - stay, after - stay), ("other nodes", "", stay, stay)]
        return [row for row in rows if any(row[2:])]


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
    return Summary(
        text=describe_products(converted, layouts),
        before=_measure_model(original, len(converted) - chains + left, chains),
        after=_measure_model(result, left if not _is_kept(converted) else len(operators)),
        replacements=tuple(_list_replacements(converted)),
        estimate=_sum_times(converted),
        calls=any(operator.action == "function" for operator in converted),
    )


def _sum_times(operators: Sequence[OperatorReport]) -> Estimate | None:
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


def _measure_model(source: Source, operators: int, chains: int = 0) -> Figures:
    nodes = Counter(node.op_type for _, _, node in traversal.nodes(source.proto))
    size = source.proto.ByteSize() if source.data is None else len(source.data)
    return Figures(
        dict(sorted(nodes.items())), size, _largest_rank(source.proto), operators, chains
    )


def _largest_rank(model: onnx.ModelProto) -> int:
    ranks = [0]
    for _, graph in traversal.graphs(model):
        stored = {tensor.name: tensor.dims for tensor in getattr(graph, "initializer", ())}
        ranks += map(len, stored.values())
        values = traversal.declared_values(graph)
        ranks += [len(value.type.tensor_type.shape.dim) for value in values]
        for node in graph.node:
            if node.op_type == "Transpose":
                ranks += [len(a.ints) for a in node.attribute if a.name == "perm"]
            elif node.op_type == "Reshape" and len(node.input) > 1:
                ranks += stored.get(node.input[1], ())
    return max(ranks)


def _list_replacements(operators: Sequence[OperatorReport]) -> Iterator[Replacement]:
    """Yield the rows of the report; a SpaceToBatch counts with the first region that it opens."""
    by_output = {(operator.graph, operator.output): operator for operator in operators}
    openers = {
        id(operator): [by_output[operator.graph, name] for name in operator.entries]
        for operator in operators
    }
    inside_a_region = {id(opener) for region in openers.values() for opener in region}
    for operator in operators:
        if id(operator) in inside_a_region:
            continue
        region = [*openers[id(operator)], operator]
        members = (n for each in region for n in (*each.absorbed, *each.between, each.node))
        label = operator.convolutions[0][0] if operator.convolutions else operator.node
        yield Replacement(
            label,
            operator.graph,
            _describe_product(operator),
            sum(each.nodes_before for each in region),
            1 if operator.action == "function" else operator.nodes_after,
            tuple(members),
        )


def _describe_product(operator: OperatorReport) -> str:
    """Describe what a region is now, or an operator that was replaced with its neighbours or alone.

    "2 x Conv 3x3, dilation 2, 8 channels", "4 standard nodes (row-gather)", "nothing (cancelled)".
    """
    if operator.between:
        kinds = Counter(kind for _, kind in operator.convolutions)
        parts = (f"{n} x {kind}" if n > 1 else kind for kind, n in kinds.items())
        return "; ".join(parts) or f"{operator.lowering}"
    if not operator.spatial:
        return f"{operator.op_type}, explicit pads"
    if operator.action == "function":
        return f"call of {operator.function}"
    noun = "node" if operator.action == "custom-op" else "standard node"
    made = count(operator.nodes_after, noun) if operator.nodes_after else "nothing"
    return f"{made} ({operator.lowering})"


def layout_text(before: int, after: int) -> str:
    """Say what became of changes of layout, of which there is one or more; "" if nothing did."""
    if before == after:
        return "Transposes moved to where tensors are smaller" if before else ""
    return f"{count(before - after, 'change')} of layout removed"


def describe_products(converted: Sequence[OperatorReport], layouts: tuple[int, int]) -> str:
    """Say what became of the operators, in one clause for each way."""
    operators = [operator for operator in converted if operator.spatial]
    cancelled = [operator for operator in operators if operator.lowering == "cancelled"]
    became = [operator for operator in operators if operator.lowering != "cancelled"]
    clauses = [f"{_count_operators(became)} became {_count_products(became)}"] if became else []
    if cancelled:
        alone = all(operator.op_type == Rearrange.name for operator in cancelled)
        clauses.append(
            f"{_count_operators(cancelled)} cancelled {'out' if alone else 'each other'}"
        )
    if refused := len(converted) - len(operators):
        clauses.append(f"{count(refused, 'convolution')} got explicit pads")
    if text := layout_text(*layouts):
        clauses.append(text)
    return ", ".join(clauses) or "no operator was converted"


def _count_operators(operators: Sequence[OperatorReport]) -> str:
    """Count operators, and chains of standard nodes that are operators."""
    chains = sum(operator.dialect == CHAIN for operator in operators)
    numbers = {"operator": len(operators) - chains, "chain": chains}
    return " and ".join(count(number, noun) for noun, number in numbers.items() if number)


def _count_products(operators: Sequence[OperatorReport]) -> str:
    if operators[0].action == "function":
        functions = {operator.function: operator.nodes_after for operator in operators}
        nodes = count(sum(functions.values()), "standard node")
        return f"calls of {count(len(functions), 'local function')} ({nodes})"
    parts: Counter[str] = Counter()
    for operator in operators:
        if operator.lowering == DILATED and operator.between:
            parts["dilated convolution"] += max(len(operator.convolutions), 1)
        elif operator.lowering == "strided convolution":
            parts["strided convolution"] += 1
        elif operator.nodes_after and not operator.between:
            parts["node" if operator.action == "custom-op" else "standard node"] += (
                operator.nodes_after
            )
    texts = [count(number, noun) for noun, number in parts.items() if number]
    if not texts:
        return "nothing: the nodes between work without blocks"
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last
