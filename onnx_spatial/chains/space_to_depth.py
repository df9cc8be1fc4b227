"""Find chains that move the places of blocks to the channels, in front of a convolution.

    x -> Slices of every second row and column -> Concat -> Conv        YOLO's Focus
    x -> SpaceToDepth -> Conv        x -> Reshape -> Transpose -> Reshape -> Conv

    y[n, p, i, j] = x[n, c(p), 2*i + r(p), 2*j + s(p)]        the channels p in any order

The map is read channel by channel, and must be this one in all cases of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.paths import Path, paths
from onnx_spatial.chains.scopes import graph_scopes
from onnx_spatial.index_map.budget import Budget
from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.expressions import ELEMENT, Index
from onnx_spatial.index_map.tensor import Tensor
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial
from onnx_spatial.operators import Dim

#: The most channels that are read, and the largest block of an axis.
_CHANNELS, _BLOCK = 256, 16

#: Steps (`Budget`) for a part of a path, and for a model; seconds, many times of what they take.
_PART_STEPS, _MODEL_STEPS, _SECONDS = 40_000, 200_000, 300.0


@dataclass(frozen=True)
class Depth:
    """What a chain does: y[n, p, i, ..] = x[n, channels[p], block * i + places[p], ..].

    Attributes:
        block: block of each spatial axis.
        channels: the channel of the input for each channel of the output.
        places: the place in the block for each channel of the output.
    """

    block: tuple[int, ...]
    channels: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]

    @property
    def is_permutation(self) -> bool:
        """Whether each element of the input is exactly one of the output."""
        count = len(set(zip(self.channels, self.places, strict=True)))
        inputs = max(self.channels, default=-1) + 1
        return count == len(self.channels) == inputs * math.prod(self.block)


@dataclass(frozen=True)
class DepthChain:
    """A chain in front of a convolution.

    Attributes:
        place: the graph that holds it.
        source: name of the image.
        nodes: the nodes of the chain, in order.
        conv: the convolution, which alone reads the result.
        depth: what the chain does.
        input_shape, output_shape: of the chain, as far as they are known.
    """

    place: traversal.Place
    source: str
    nodes: tuple[onnx.NodeProto, ...]
    conv: onnx.NodeProto
    depth: Depth
    input_shape: tuple[Dim, ...] | None = None
    output_shape: tuple[Dim, ...] | None = None


def find_depth_chains(
    proto: onnx.ModelProto,
    infos: Sequence[analysis.OperatorInfo] = (),
    folder: FilePath | None = None,
) -> list[DepthChain]:
    """Return the chains of a model, in the order of its graphs.

    Args:
        proto: the model; it is not changed.
        infos: its named spatial operators.
        folder: where external data lies.
    """
    local = {(f.domain, f.name) for f in proto.functions}
    graphs = list(traversal.graphs(proto))
    candidates = [_candidates(graph, local) for _, graph in graphs]
    if not any(candidates):
        return []
    places = [place for (place, _), each in zip(graphs, candidates, strict=True) if each]
    scopes = graph_scopes(proto, infos, folder, places)
    budget, found = Budget(_MODEL_STEPS, _SECONDS), list[DepthChain]()
    for (place, _), known, each in zip(graphs, scopes, candidates, strict=True):
        for path, conv in each:
            for start in range(len(path.nodes)):
                case = Case(budget=Budget(_PART_STEPS, within=budget))
                depth = _depth(case, known, path, start)
                if depth is not None:
                    steps = path.nodes[start:]
                    nodes = tuple(node for step in steps for node in reversed(step))
                    source = path.values[start]
                    shapes = known.dims(source), known.dims(path.values[-1])
                    found.append(DepthChain(place, source, nodes, conv, depth, *shapes))
                    break
    return found


def _candidates(
    graph: traversal.GraphLike, local: set[tuple[str, str]]
) -> list[tuple[Path, onnx.NodeProto]]:
    """Return the paths that only a convolution reads, which might be such chains."""
    convs = {}
    for node in graph.node:
        standard = op_traits.is_standard(node) and (node.domain, node.op_type) not in local
        if standard and node.op_type == "Conv" and node.input and node.output and node.output[0]:
            convs[node.input[0]] = node
    every = [path for path in paths(graph, local) if path.values[-1] in convs] if convs else []
    if not every:
        return []
    outputs = {v if isinstance(v, str) else v.name for v in graph.output}
    readers = dict.fromkeys((path.values[-1] for path in every), 0)
    for node in graph.node:
        needs = traversal.needs(node) if node.attribute else {*node.input}
        for name in readers.keys() & needs:
            readers[name] += 1
    alone = {name for name, count in readers.items() if count == 1} - outputs
    return [(path, convs[path.values[-1]]) for path in every if path.values[-1] in alone]


def _depth(case: Case, graph: GraphScope, path: Path, start: int) -> Depth | None:
    """Return what the part of a path from a value on does, if it is that in all cases."""
    try:
        body = partial(_read, case, graph, path, start)
        found = set(case.all(body))
    except (UndecidedError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return found.pop() if len(found) == 1 else None


def _read(case: Case, graph: GraphScope, path: Path, start: int) -> Depth | None:
    mapped = ChainMap(case, graph, path, start, len(path.nodes))
    x, y = mapped.x, mapped.y
    if x.rank != y.rank or x.rank < 3 or y.order is not None or x.dims[0] != y.dims[0]:
        return None
    inputs, count = x.dims[1].constant, y.dims[1].constant
    if not inputs or not count or not inputs < count <= _CHANNELS:
        return None
    index = y.index()
    block = _block(case, x, y)
    if block is None or inputs * math.prod(block) != count:
        return None
    channels, places = list[int](), list[tuple[int, ...]]()
    for number in range(count):
        element = _source(mapped, y, (index[0], Polynomial.of(number), *index[2:]))
        if element is None or element[0] != index[0] or element[1].constant is None:
            return None
        rests = [e - i * b for e, i, b in zip(element[2:], index[2:], block, strict=True)]
        place = [rest.constant for rest in rests]
        if any(p is None or not 0 <= p < b for p, b in zip(place, block, strict=True)):
            return None
        channels.append(element[1].constant)
        places.append(tuple(p for p in place if p is not None))
    depth = Depth(block, tuple(channels), tuple(places))
    return depth if depth.is_permutation else None


def _block(case: Case, x: Tensor, y: Tensor) -> tuple[int, ...] | None:
    """Return how many times as long each spatial axis of the input is as that of the output."""
    block = []
    for long, short in zip(x.dims[2:], y.dims[2:], strict=True):
        sizes = range(1, _BLOCK + 1)
        size = next((b for b in sizes if case.are_equal(short * b, long)), None)
        if size is None:
            return None
        block.append(size)
    return tuple(block)


def _source(mapped: ChainMap, y: Tensor, index: Index) -> Index | None:
    """Return the index in the input of an element of the output; None if it is none."""
    atom = y.at(index).lone_atom
    key = atom.key if atom is not None else None
    if not isinstance(key, OperationKey) or key.operator != ELEMENT:
        return None
    return tuple(key.operands) if key.details == (mapped.source,) else None
