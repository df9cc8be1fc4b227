"""Look through a model for nodes that a limit of rank, or a target, does not admit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import GraphFacts
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.limits import Limits
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import show

_RANDOM = op_traits.having(op_traits.Trait.RANDOM)


@dataclass(frozen=True)
class NodeBeyond:
    """A node beyond a limit, or one of which that is not known.

    Attributes:
        node, graph, op_type, domain: as of `Site`.
        value: name of the input or output with the largest rank; None for a refused operator type.
        rank: its rank; None if it is unknown.
        shape: its shape.
        limit: the largest rank that the operator may have here; None for a refused operator type.
        reason: what is beyond the limit, in one line without the node.
        kept: why the chain that the node belongs to is not rewritten; None if it belongs to none.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    value: str | None
    rank: int | None
    shape: tuple[Dim, ...] | None
    limit: int | None
    reason: str
    kept: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes, the shape as a list."""
        return {**vars(self), "shape": None if self.shape is None else list(self.shape)}


@dataclass(frozen=True)
class LimitReport:
    """The nodes of a model that limits do not admit.

    Attributes:
        max_rank: the largest rank, of the target or given; operator types may have another.
        target: name of the target; None without one.
        title: the limits in a few words.
        nodes: the nodes beyond the limits, in the order of `traversal.nodes`.
        unknown: nodes that read or compute values of unknown rank.
        notes: what else the target requires of the model, in one line each.
    """

    max_rank: int | None
    target: str | None
    title: str
    nodes: tuple[NodeBeyond, ...] = ()
    unknown: tuple[NodeBeyond, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """Say in one line how many nodes are beyond the limits; None if there are none."""
        if not self.nodes:
            return None
        one = len(self.nodes) == 1
        return f"{len(self.nodes):,} node{' does' if one else 's do'} not fit {self.title}"

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes, each node as a dict."""
        nodes, unknown = ([each.to_dict() for each in row] for row in (self.nodes, self.unknown))
        return {**vars(self), "nodes": nodes, "unknown": unknown, "notes": list(self.notes)}


def check_limits(
    model: onnx.ModelProto,
    limits: Limits,
    domains: Iterable[str] = (),
    folder: Path | None = None,
    *,
    kept: Mapping[tuple[str, str], str] | None = None,
) -> LimitReport:
    """List the nodes of a model that limits do not admit.

    Nodes that only compute constants are left out: runtimes compute these when they load a model.

    Args:
        model: the model; it is not changed.
        limits: what each node is compared with.
        domains: further domains of spatial operators.
        folder: where external data lies.
        kept: why chains are not rewritten, by graph and label of each of their nodes.
    """
    infos = analysis.find(model, domains, folder)
    functions = {(f.domain, f.name) for f in model.functions}
    constants = _Constants()
    nodes, unknown = list[NodeBeyond](), list[NodeBeyond]()
    facts = analysis.graph_facts(model, infos, folder)
    for (place, graph), known in zip(traversal.graphs(model), facts, strict=True):
        constants.add(graph, known)
        for node in graph.node:
            if (node.domain, node.op_type) in functions or constants.computes(node, known):
                continue
            beyond = _beyond(node, place, known, limits, constants)
            if beyond is not None:
                beyond = replace(beyond, kept=(kept or {}).get((beyond.graph, beyond.node)))
                (unknown if beyond.rank is None and beyond.limit is not None else nodes).append(
                    beyond
                )
    target = None if limits.target is None else limits.target.name
    notes = tuple(_notes(model, limits))
    return LimitReport(limits.max_rank, target, limits.title, tuple(nodes), tuple(unknown), notes)


def _notes(model: onnx.ModelProto, limits: Limits) -> Iterator[str]:
    """Yield what the target requires of the whole model and does not get."""
    if limits.target is None or not limits.target.fixed_sizes:
        return
    stored = {tensor.name for tensor in model.graph.initializer}
    shapes = {
        v.name: shape_inference.dims(v.type) for v in model.graph.input if v.name not in stored
    }
    open_ = [
        f"{name} {show(shape)}"
        for name, shape in shapes.items()
        if shape is not None and not all(isinstance(dim, int) for dim in shape)
    ]
    if open_:
        yield f"{limits.title} needs fixed sizes (--static): {', '.join(open_)}"


def _beyond(
    node: onnx.NodeProto,
    place: traversal.Place,
    known: GraphFacts,
    limits: Limits,
    constants: _Constants,
) -> NodeBeyond | None:
    """Return the first limit that a node exceeds, or else that a rank of it is unknown."""
    here = (traversal.label(node), str(place), node.op_type, node.domain)
    if op_traits.is_standard(node):
        dilations = [d for a in node.attribute if a.name == "dilations" for d in a.ints]
        reason = limits.refusal(node.op_type, dilations) or _not_constant(
            node, known, limits, constants
        )
        if reason is not None:
            return NodeBeyond(*here, None, None, None, None, reason)
    limit = limits.rank_of(node.op_type)
    if limit is None:
        return None
    shapes = dict(_shapes(node, known))
    ranks = {name: limits.counted(shape) for name, shape in shapes.items() if shape is not None}
    largest = max(ranks, key=lambda name: ranks[name], default=None)
    if largest is not None and ranks[largest] > limit:
        shape = shapes[largest]
        rank = len(shape or ())
        reason = f"rank {rank}, the limit is {limit}"
        return NodeBeyond(*here, largest, rank, shape, limit, reason)
    lacking = next((name for name, shape in shapes.items() if shape is None), None)
    if lacking is None:
        return None
    return NodeBeyond(*here, lacking, None, None, limit, f"the rank of {lacking!r} is unknown")


def _not_constant(
    node: onnx.NodeProto, known: GraphFacts, limits: Limits, constants: _Constants
) -> str | None:
    """Return which input the target needs as a constant; None if all of these are."""
    if limits.target is None:
        return None
    for position in limits.target.constant_inputs.get(node.op_type, ()):
        name = node.input[position] if position < len(node.input) else ""
        if name and not constants.holds(name, known):
            parameter = onnx.defs.get_schema(node.op_type).inputs[position].name
            return f"{limits.target.title} runs {node.op_type} only with constant {parameter}"
    return None


def _shapes(
    node: onnx.NodeProto, known: GraphFacts
) -> Iterator[tuple[str, tuple[Dim, ...] | None]]:
    """Yield the tensors that a node reads and computes; a shape is None if its rank is unknown."""
    for name in (*node.input, *node.output):
        declared = known.scope.type(name) if name else None
        kind = None if declared is None else declared.WhichOneof("value")
        if name and kind in (None, "tensor_type"):  # not sequences, optionals and maps
            yield name, shape_inference.dims(declared)


class _Constants:
    """Values that no input of the model changes, by graph."""

    def __init__(self) -> None:
        self._names: dict[int, set[str]] = {}

    def add(self, graph: traversal.GraphLike, known: GraphFacts) -> None:
        """Find the constants of a graph; those of the graphs around it are known."""
        names = self._names.setdefault(id(known.scope), set())
        names.update(tensor.name for tensor in getattr(graph, "initializer", ()))
        for node in traversal.in_order(graph):
            inputs = (name for name in node.input if name)
            if _is_foldable(node) and all(self.holds(name, known) for name in inputs):
                names.update(node.output)

    def computes(self, node: onnx.NodeProto, known: GraphFacts) -> bool:
        """Tell whether a node computes only constants."""
        return all(not name or self.holds(name, known) for name in node.output)

    def holds(self, name: str, known: GraphFacts) -> bool:
        """Tell whether a value is constant."""
        owner = known.scope.owner(name)
        held = owner is not None and name in self._names.get(id(owner), ())
        return held or known.scope.value(name) is not None


def _is_foldable(node: onnx.NodeProto) -> bool:
    inner = any(True for _ in traversal.subgraphs(node))
    return op_traits.is_standard(node) and node.op_type not in _RANDOM and not inner
