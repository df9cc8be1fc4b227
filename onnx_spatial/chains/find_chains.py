"""Find the chains of standard nodes that are spatial operators, by their index maps.

For each path of data (`paths`) the parts are sought whose map is that of SpaceToBatch or BatchToSpace
(`blocks`), or that of patches (`patches`). A chain is listed only if its map is that of the
operator for all sizes that the original runs with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path as FilePath

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.blocks import Blocks, find_blocks, paths_of_blocks
from onnx_spatial.chains.chain_map import Formula, GraphScope, graph_scopes
from onnx_spatial.chains.one_hot import find_one_hot
from onnx_spatial.chains.patches import Patches, find_patches, paths_of_patches
from onnx_spatial.chains.paths import DataGraph, Path
from onnx_spatial.maps.budget import Budget
from onnx_spatial.model import traversal
from onnx_spatial.operators import Dim, SpaceToBatch

#: Steps (`Budget`) for a path, and for a model.
_PATH_STEPS, _MODEL_STEPS = 200_000, 1_000_000

#: Processor seconds for a model: many times of what its steps take.
_MODEL_SECONDS = 300.0


#: Operator type of patches, by the number of spatial axes; converters have none for one axis.
_PATCHES = {2: "ExtractImagePatches", 3: "ExtractVolumePatches"}


@dataclass(frozen=True)
class Chain:
    """A chain of standard nodes that is a spatial operator.

    Attributes:
        place: the graph that holds it.
        source: name of the data.
        output: name of the result.
        nodes: the nodes that move the data, in order; others compute their parameters.
        blocks: the operator; None if it is `patches`.
        element_type: ONNX element type of the data; 0 if it is unknown.
        input_shape, output_shape: as far as they are known.
        patches: the operator, if the chain is patches.
        one_hot: whether a one-hot Conv moves the data.
        cost: estimated microseconds of the nodes in a run, if the operator alone may be faster.
    """

    place: traversal.Place
    source: str
    output: str
    nodes: tuple[onnx.NodeProto, ...]
    blocks: Blocks[Formula] | None
    element_type: int = 0
    input_shape: tuple[Dim, ...] | None = None
    output_shape: tuple[Dim, ...] | None = None
    patches: Patches | None = None
    one_hot: bool = False
    cost: float = 0.0

    @property
    def op_type(self) -> str:
        """The operator type that the chain is."""
        if self.blocks is not None:
            return "SpaceToBatchND" if self.blocks.kind is SpaceToBatch else "BatchToSpaceND"
        assert self.patches is not None
        return _PATCHES.get(self.patches.axes, self.patches.operator.name)


def list_chains(
    proto: onnx.ModelProto,
    operators: analysis.Analysis | None = None,
    folder: FilePath | None = None,
    notes: list[str] | None = None,
) -> list[Chain]:
    """Return the chains of a model, in the order of its graphs.

    Args:
        proto: the model; it is not changed.
        operators: its named spatial operators; None: it has none.
        folder: where external data lies.
        notes: gets a line of text for each search that was stopped before its end.
    """
    local = {(f.domain, f.name) for f in proto.functions}
    copying = find_one_hot(proto, folder)
    graphs = [
        _Graph.with_paths(place, DataGraph(graph, local, copying.get(place, ())))
        for place, graph in traversal.graphs(proto)
    ]
    if not any(graph.may_hold_blocks or graph.may_hold_patches for graph in graphs):
        return []
    if operators is None:
        operators = analysis.Analysis(proto, (), folder)
    scopes = graph_scopes(proto, operators, folder)
    chains: list[Chain] = []
    budget = Budget(_MODEL_STEPS, _MODEL_SECONDS)
    for graph, scope in zip(graphs, scopes, strict=True):
        known = replace(scope, one_hot=copying.get(graph.place, {}))
        of_graph: dict[str, Chain] = {}
        for path in graph.may_hold_blocks:
            if budget.is_exhausted:
                break
            share = Budget(_PATH_STEPS, within=budget)
            for part, blocks in find_blocks(known, path, share):
                of_graph.setdefault(
                    part.values[-1], replace(_list_chain(known, part), blocks=blocks)
                )
            if share.is_exhausted and notes is not None:
                steps = _MODEL_STEPS if budget.is_exhausted else _PATH_STEPS
                limit = (
                    f"{_MODEL_SECONDS:.0f} seconds" if budget.is_timed_out else f"{steps:,} steps"
                )
                between = f"between {path.values[0]!r} and {path.values[-1]!r} in {graph.place}"
                notes.append(f"the search for chains stopped after {limit}, {between}")
        patches = [
            replace(
                _list_chain(known, found.path),
                patches=found.patches,
                one_hot=found.one_hot,
                cost=found.cost,
            )
            for found in find_patches(known, graph.data, graph.may_hold_patches, budget)
        ]
        chains += _without_overlaps(list(of_graph.values()), patches)
    return chains


@dataclass(frozen=True)
class _Graph:
    """A graph, and its paths that may hold operators."""

    place: traversal.Place
    data: DataGraph
    may_hold_blocks: list[Path]
    may_hold_patches: list[Path]

    @classmethod
    def with_paths(cls, place: traversal.Place, data: DataGraph) -> _Graph:
        """Find the paths of a graph."""
        return cls(place, data, paths_of_blocks(data), paths_of_patches(data))


def _without_overlaps(blocks: list[Chain], patches: list[Chain]) -> list[Chain]:
    """Return the chains of a graph that can be rewritten together.

    Patches are more than the block operators that a part of their nodes are, formally, on one image.
    Patches between two block operators go: these and the Conv are a dilated Conv. So do windows side by
    side whose places are in the batch: that is a SpaceToBatch.
    """
    nodes_of = {id(chain): {n.output[0] for n in chain.nodes} for chain in (*blocks, *patches)}
    kept: list[Chain] = []
    for chain in patches:
        own = nodes_of[id(chain)]
        inside = any(nodes_of[id(each)] <= own for each in blocks)
        if inside and chain.patches is not None and chain.patches.fills_batches:
            continue
        others = [each for each in blocks if not nodes_of[id(each)] <= own]
        starts, ends = ({getattr(o, name) for o in others} for name in ("output", "source"))
        between = chain.source in starts and chain.output in ends
        if not between and all(nodes_of[id(each)].isdisjoint(own) for each in others):
            kept.append(chain)
            blocks = others
    return [*blocks, *kept]


def _list_chain(graph: GraphScope, path: Path) -> Chain:
    """Return a part of a path as a chain."""
    source, output = path.values[0], path.values[-1]
    types = graph.element_type(source), graph.dims(source), graph.dims(output)
    return Chain(graph.place, source, output, tuple(path.nodes), None, *types)
