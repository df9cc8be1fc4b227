"""List the nodes of a model that read or compute tensors above a rank limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import GraphFacts
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.remove_unused import constants_of
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import Dim


@dataclass(frozen=True)
class NodeBeyond:
    """A node with a tensor above the limit, or with one of unknown rank.

    Attributes:
        node, graph, op_type, domain: as of `OperatorReport`.
        value: name of the input or output with the largest rank.
        rank: its rank; None if it is unknown.
        shape: its shape.
        reason: what is above the limit, in one line without the node.
        kept: why the chain that the node belongs to is not rewritten; None if it belongs to none.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    value: str
    rank: int | None
    shape: tuple[Dim, ...] | None
    reason: str
    kept: str | None = None


@dataclass(frozen=True)
class LimitReport:
    """The nodes of a model that exceed a rank limit.

    Attributes:
        max_rank: the limit.
        nodes: the nodes with tensors above it, in the order of `traversal.nodes`.
        unknown: nodes that read or compute values of unknown rank, and none above it.
    """

    max_rank: int
    nodes: tuple[NodeBeyond, ...]
    unknown: tuple[NodeBeyond, ...]

    @property
    def text(self) -> str | None:
        """Say in one line how many nodes are beyond the limit; None if there are none."""
        if not self.nodes:
            return None
        one = len(self.nodes) == 1
        return f"{len(self.nodes):,} node{' does' if one else 's do'} not fit rank {self.max_rank}"


def check_limits(
    model: onnx.ModelProto,
    max_rank: int,
    domains: Iterable[str] = (),
    folder: Path | None = None,
    *,
    kept: Mapping[tuple[str, str], str] | None = None,
) -> LimitReport:
    """List the nodes of a model that read or compute tensors above a rank limit.

    Nodes that only compute constants are left out: runtimes compute these when they load a model.

    Args:
        model: the model; it is not changed.
        max_rank: the limit.
        domains: further domains of spatial operators.
        folder: where external data lies.
        kept: why chains are not rewritten, by graph and label of each of their nodes.
    """
    functions = {(f.domain, f.name) for f in model.functions}
    constants: dict[traversal.Place, set[str]] = {}
    nodes: list[NodeBeyond] = []
    unknown: list[NodeBeyond] = []
    facts = analysis.find(model, domains, folder).facts
    for (place, graph), known in zip(traversal.graphs(model), facts, strict=True):
        constants[place] = constants_of(graph, constants.get(place.outer, set()))
        for node in graph.node:
            if (node.domain, node.op_type) in functions or all(
                not name or name in constants[place] or known.scope.value(name) is not None
                for name in node.output
            ):
                continue
            beyond = _find_excess(node, place, known, max_rank)
            if beyond is not None:
                beyond = replace(beyond, kept=(kept or {}).get((beyond.graph, beyond.node)))
                (unknown if beyond.rank is None else nodes).append(beyond)
    return LimitReport(max_rank, tuple(nodes), tuple(unknown))


def _find_excess(
    node: onnx.NodeProto, place: traversal.Place, known: GraphFacts, max_rank: int
) -> NodeBeyond | None:
    """Return that a node exceeds the limit, or else that a rank of it is unknown."""
    here = (traversal.label(node), str(place), node.op_type, node.domain)
    shapes = dict(_tensor_shapes(node, known))
    ranks = {name: len(shape) for name, shape in shapes.items() if shape is not None}
    largest = max(ranks, key=lambda name: ranks[name], default=None)
    if largest is not None and ranks[largest] > max_rank:
        reason = f"rank {ranks[largest]}, the limit is {max_rank}"
        return NodeBeyond(*here, largest, ranks[largest], shapes[largest], reason)
    lacking = next((name for name, shape in shapes.items() if shape is None), None)
    if lacking is None:
        return None
    return NodeBeyond(*here, lacking, None, None, f"the rank of {lacking!r} is unknown")


def _tensor_shapes(
    node: onnx.NodeProto, known: GraphFacts
) -> Iterator[tuple[str, tuple[Dim, ...] | None]]:
    """Yield the tensors that a node reads and computes; a shape is None if its rank is unknown."""
    for name in (*node.input, *node.output):
        declared = known.scope.type(name) if name else None
        kind = None if declared is None else declared.WhichOneof("value")
        if name and kind in (None, "tensor_type"):  # not sequences, optionals and maps
            yield name, shape_inference.dims(declared)
