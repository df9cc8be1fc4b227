"""Find the chains of standard nodes that are spatial operators, by their index maps.

For each path of data (`paths`) the parts are sought whose map is that of SpaceToBatch or BatchToSpace
(`find_blocks`), or that of patches (`find_patches`). A chain is listed only if its map is that of the
operator for all sizes that the original runs with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import GraphScope, graph_scopes
from onnx_spatial.chains.find_blocks import find_blocks
from onnx_spatial.chains.find_patches import find_patches
from onnx_spatial.chains.formulas import Formula
from onnx_spatial.chains.one_hot import find_one_hot
from onnx_spatial.chains.patches import Patches
from onnx_spatial.chains.paths import Path, all_paths, paths
from onnx_spatial.chains.reading import Blocks
from onnx_spatial.maps.budget import Budget
from onnx_spatial.model import traversal
from onnx_spatial.operators import Dim

#: Steps (`Budget`) for a path, and for a model.
_PATH_STEPS, _MODEL_STEPS = 200_000, 1_000_000

#: Processor seconds for a model: many times of what its steps take.
_SECONDS = 300.0


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


def find(
    proto: onnx.ModelProto,
    infos: Sequence[analysis.OperatorInfo] = (),
    folder: FilePath | None = None,
    notes: list[str] | None = None,
) -> list[Chain]:
    """Return the chains of a model, in the order of its graphs.

    Args:
        proto: the model; it is not changed.
        infos: its named spatial operators.
        folder: where external data lies.
        notes: gets a line of text for each search that was stopped before its end.
    """
    local = {(f.domain, f.name) for f in proto.functions}
    graphs = list(traversal.graphs(proto))
    found = [paths(graph, local) for _, graph in graphs]
    copying = find_one_hot(proto, folder)
    if not any(found) and not copying:
        return []
    scopes = graph_scopes(proto, infos, folder)
    chains: list[Chain] = []
    budget = Budget(_MODEL_STEPS, _SECONDS)
    for (place, graph), scope, each in zip(graphs, scopes, found, strict=True):
        known = replace(scope, one_hot=copying.get(place, {}))
        of_graph: dict[str, Chain] = {}
        for path in each:
            if budget.is_exhausted:
                break
            part = Budget(_PATH_STEPS, within=budget)
            for blocks in find_blocks(known, path, part):
                chain = _listed(place, known, path, blocks.start, blocks.end)
                of_graph.setdefault(chain.output, replace(chain, blocks=blocks.blocks))
            if part.is_exhausted and notes is not None:
                steps = _MODEL_STEPS if budget.is_exhausted else _PATH_STEPS
                limit = f"{_SECONDS:.0f} seconds" if budget.is_timed_out else f"{steps:,} steps"
                between = f"between {path.values[0]!r} and {path.values[-1]!r} in {place}"
                notes.append(f"the search for chains stopped after {limit}, {between}")
        patches = _patches(place, graph, known, local, budget)
        chains += _without_overlaps(list(of_graph.values()), list(patches))
    return chains


def _patches(
    place: traversal.Place,
    graph: traversal.GraphLike,
    known: GraphScope,
    local: Collection[tuple[str, str]],
    budget: Budget,
) -> Iterator[Chain]:
    """Yield the chains of a graph that are patches."""
    if not known.one_hot and not any(n.op_type == "Gather" for n in graph.node):
        return
    readers: dict[str, list[onnx.NodeProto | None]] = defaultdict(list)
    for node in graph.node:
        for name in traversal.needs(node):
            readers[name].append(node)
    for value in graph.output:
        readers[value if isinstance(value, str) else value.name].append(None)
    every = all_paths(graph, local, known.one_hot)
    for part in find_patches(known, every, readers, budget):
        chain = _listed(place, known, part.path, part.start, part.end)
        yield replace(chain, patches=part.patches, one_hot=part.one_hot, cost=part.cost)


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


def _listed(place: traversal.Place, graph: GraphScope, path: Path, start: int, end: int) -> Chain:
    """Return a part of a path as a chain."""
    nodes = tuple(node for step in path.nodes[start:end] for node in reversed(step))
    source, output = path.values[start], path.values[end]
    types = graph.element_type(source), graph.dims(source), graph.dims(output)
    return Chain(place, source, output, nodes, None, *types)
