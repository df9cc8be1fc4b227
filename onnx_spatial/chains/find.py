"""Find the chains of standard nodes that are spatial operators, by their index maps.

For each path of data (`paths`) the longest part is sought whose map is that of SpaceToBatch or
BatchToSpace, between Transposes if need be. The operator is read in one case of sizes (`reading`), and
then proven in all of them: a chain is listed only if its map is that of the operator for all sizes that
the original runs with.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path as FilePath

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.divided_sizes import DividedSizes, SizeKey
from onnx_spatial.chains.find_patches import find_patches
from onnx_spatial.chains.formulas import Formula, UnnamedError, formula
from onnx_spatial.chains.one_hot import find_one_hot
from onnx_spatial.chains.patches import Patches
from onnx_spatial.chains.paths import (
    REGROUPING,
    Path,
    all_paths,
    may_hold_operator,
    paths,
)
from onnx_spatial.chains.probing import probe
from onnx_spatial.chains.proof import is_operator
from onnx_spatial.chains.reading import Blocks, read
from onnx_spatial.chains.scopes import graph_scopes
from onnx_spatial.index_map.budget import Budget
from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.tensor import Tensor
from onnx_spatial.model import traversal
from onnx_spatial.model.symbolic.polynomial import Polynomial
from onnx_spatial.operators import Dim

#: The most cases in which an operator is read.
_CASES = 24

#: Steps (`Budget`) for reading an operator, for a proof, for a path, and for a model.
_READ_STEPS, _PROOF_STEPS, _PATH_STEPS, _MODEL_STEPS = 40_000, 40_000, 200_000, 1_000_000

#: Processor seconds for a model: many times of what its steps take.
_SECONDS = 300.0

#: Reads operators from a map, in one case.
Reader = Callable[[Case, str, Tensor, Tensor], Iterator[Blocks[Polynomial]]]

#: Operators behind which the digits of an index are lost.
_LOSING = frozenset({"Concat", "Gather", "GatherND", "Split"})

#: Operators that may be left out of a chain where Transposes take their place.
_PERMUTING = frozenset({"Identity", "Transpose"})


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
    places = [place for (place, _), each in zip(graphs, found, strict=True) if each]
    scopes = graph_scopes(proto, infos, folder, [*places, *copying])
    chains: list[Chain] = []
    budget = Budget(_MODEL_STEPS, _SECONDS)
    for (place, graph), scope, each in zip(graphs, scopes, found, strict=True):
        known = replace(scope, one_hot=copying.get(place, {}))
        of_graph: dict[str, Chain] = {}
        for path in each:
            if budget.is_exhausted:
                break
            part = Budget(_PATH_STEPS, within=budget)
            for chain in _Search(place, known, path, part).chains():
                of_graph.setdefault(chain.output, chain)
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


@dataclass(frozen=True)
class _Candidate:
    """A part of a path from value `start` to value `end`, and the operator read from its map."""

    start: int
    end: int
    blocks: Blocks[Formula]

    @property
    def worth(self) -> tuple[int, int]:
        """Number of steps less that of the Transposes in their place; then rather few Transposes."""
        return self.end - self.start - self.blocks.transposes, -self.blocks.transposes

    @property
    def generality(self) -> int:
        """Number of pads and crops that depend on sizes."""
        amounts = (*self.blocks.begins, *self.blocks.ends)
        return sum(amount.constant is None for amount in amounts)

    @property
    def is_worth_it(self) -> bool:
        """Whether there are fewer nodes then, and images stay images on one side at least."""
        blocks = self.blocks
        return self.worth[0] > 0 and (blocks.before[0] == 0 or blocks.behind[0] == 0)


class _Search:
    """The search for operators along one path, within a budget."""

    def __init__(
        self, place: traversal.Place, graph: GraphScope, path: Path, budget: Budget
    ) -> None:
        self._place, self._graph, self._path = place, graph, path
        self._budget = budget
        self._read_before: dict[tuple[int, int], tuple[list[_Candidate], Iterator[_Candidate]]] = {}
        self._ranks = [self._rank(name) for name in path.values]

    def _case(self, steps: int) -> Case:
        return Case(budget=Budget(steps, within=self._budget))

    def _rank(self, name: str) -> int | None:
        dims = self._graph.dims(name)
        return None if dims is None else len(dims)

    def chains(self) -> list[Chain]:
        """Return the operators of the path, in order."""
        cores, chains, first = self._cores(), list[Chain](), 0
        while cores:
            kinds = [core.blocks.kind for core in cores]
            same = next((i for i, kind in enumerate(kinds) if kind is not kinds[0]), len(kinds))
            # Several in a row may be one operator, written axis by axis.
            for count in range(same, 0, -1):
                last = cores[count].start if count < len(cores) else len(self._path.nodes)
                found = self._around(first, cores[:count], last)
                if found is not None:
                    first = found.end
                    chains.append(self._listed(found))
                    break
            del cores[:count]
        return chains

    def _cores(self) -> list[_Candidate]:
        """Return the smallest parts of the path that may be operators, from regrouping to regrouping."""
        kinds = [{node.op_type for node in step} for step in self._path.nodes]
        ends = [i for i, each in enumerate(kinds) if not REGROUPING.isdisjoint(each)]
        # Shapes may be computed from the sizes in front of a Pad.
        starts = sorted({*ends, *(i for i, each in enumerate(kinds) if "Pad" in each)})
        parts = [(end + 1 - start, start) for start in starts for end in ends if start <= end]
        cores: list[_Candidate] = []
        for length, start in sorted(parts):
            end = start + length
            if any(core.start < end and start < core.end for core in cores):
                continue
            if self._budget.is_exhausted:
                break
            if may_hold_operator(self._path.nodes[start:end]) and self._may_be_one(start, end):
                cores += islice(self._candidates(start, end), 1)
        return sorted(cores, key=lambda core: core.start)

    def _around(self, first: int, row: Sequence[_Candidate], last: int) -> _Candidate | None:
        """Return the operator that the longest part between two values around some cores is."""
        parts = [
            (end - start, start)
            for start in range(first, row[0].start + 1)
            for end in range(row[-1].end, last + 1)
        ]
        for length, start in sorted(parts, key=lambda part: (-part[0], part[1])):
            if self._budget.is_exhausted:
                return None
            if self._may_be_one(start, start + length):
                found = self._proven(start, start + length)
                if found is not None:
                    return found
        return None

    def _kinds(self, start: int, end: int) -> set[str]:
        """Return the operator types of a part of the path."""
        return {node.op_type for step in self._path.nodes[start:end] for node in step}

    def _proven(self, start: int, end: int) -> _Candidate | None:
        """Return the operator that a part of the path is, or a better part of it."""
        for candidate in self._general_first(self._candidates(start, end)):
            for each in sorted(self._trimmed(candidate), key=lambda c: c.worth, reverse=True):
                if each.is_worth_it and self._is_operator(each):
                    return each
        return None

    @staticmethod
    def _general_first(candidates: Iterator[_Candidate]) -> Iterator[_Candidate]:
        """Yield the first one, then the others: pads that depend on sizes are numbers in some cases."""
        yield from islice(candidates, 1)
        yield from sorted(candidates, key=lambda c: c.generality, reverse=True)

    def _may_be_one(self, start: int, end: int) -> bool:
        """Return whether the ranks at both ends are equal, and the last node has one output.

        Gathers by lists of indices alone are none: each axis goes its own way, and blocks mix two.
        """
        ranks = self._ranks[start], self._ranks[end]
        known = ranks[0] is not None and ranks[1] in (None, ranks[0])
        if not known or len(self._path.nodes[end - 1][0].output) != 1:
            return False
        inner = self._ranks[start : end + 1]
        return self._kinds(start, end) & REGROUPING != {"Gather"} or inner.count(inner[0]) < len(
            inner
        )

    def _listed(self, candidate: _Candidate) -> Chain:
        part = _listed(self._place, self._graph, self._path, candidate.start, candidate.end)
        return replace(part, blocks=candidate.blocks)

    def _trimmed(self, candidate: _Candidate) -> Iterator[_Candidate]:
        """Yield a part of the path, and the parts without the Transposes at its ends."""
        yield candidate
        starts, ends = [candidate.start], [candidate.end]
        while self._permutes(starts[-1]):
            starts.append(starts[-1] + 1)
        while self._permutes(ends[-1] - 1):
            ends.append(ends[-1] - 1)
        for start in starts:
            for end in ends:
                if (start, end) != (candidate.start, candidate.end) and start < end:
                    yield from islice(self._candidates(start, end), 1)

    def _permutes(self, step: int) -> bool:
        nodes = self._path.nodes[step] if 0 <= step < len(self._path.nodes) else ()
        return bool(nodes) and all(node.op_type in _PERMUTING for node in nodes)

    def _candidates(self, start: int, end: int) -> Iterator[_Candidate]:
        """Yield what a part of the path may be, read in several cases; each is read once."""
        key = start, end
        if key not in self._read_before:
            self._read_before[key] = [], self._read_anew(start, end)
        known, more = self._read_before[key]
        for number in itertools.count():
            if number == len(known):
                known += islice(more, 1)
            if number == len(known):
                return
            yield known[number]

    def _read_anew(self, start: int, end: int) -> Iterator[_Candidate]:
        seen: list[Blocks[Formula]] = []
        for blocks in self._readings(start, end):
            if blocks not in seen:
                seen.append(blocks)
                yield _Candidate(start, end, blocks)

    def _readings(self, start: int, end: int) -> Iterator[Blocks[Formula]]:
        """Yield what a part may be: of any sizes, else where blocks divide one of them, or all."""
        divided = DividedSizes()
        for multiples in itertools.chain(({},), divided.attempts()):
            nothing = True
            for blocks in self._read_where(start, end, multiples, divided):
                nothing = False
                yield blocks
            if not nothing:
                return

    def _read_where(
        self, start: int, end: int, multiples: Mapping[SizeKey, int], divided: DividedSizes
    ) -> Iterator[Blocks[Formula]]:
        """Yield what a part may be, in cases where sizes are multiples; note what nodes divide."""
        hidden = not _LOSING.isdisjoint(self._kinds(start, end))
        for reader in (probe, read) if hidden else (read,):
            case = self._case(_READ_STEPS)
            body = partial(self._read, case, start, end, multiples, reader, divided)
            try:
                for row in islice(case.all(body), _CASES):
                    yield from row
            except (UndecidedError, ArithmeticError, LookupError, TypeError, ValueError):
                return  # the other reader needs the same index map

    def _read(
        self,
        case: Case,
        start: int,
        end: int,
        multiples: Mapping[SizeKey, int],
        reader: Reader,
        divided: DividedSizes,
    ) -> list[Blocks[Formula]]:
        chain = ChainMap(case, self._graph, self._path, start, end, multiples)
        try:
            y = chain.y
        finally:  # one that has no map shows the sizes that it divides first
            divided.note(case, chain.x.dims)
        result = []
        for blocks in reader(case, chain.source, chain.x, y):
            try:
                begins, ends = (
                    tuple(formula(p, chain.dims) for p in amounts)
                    for amounts in (blocks.begins, blocks.ends)
                )
            except UnnamedError:
                continue
            amounts = [f.constant for f in (*begins, *ends)]
            if all(a is None or a >= 0 for a in amounts):
                result.append(replace(blocks, begins=begins, ends=ends))  # type: ignore[arg-type]
        return result  # type: ignore[return-value]

    def _is_operator(self, candidate: _Candidate) -> bool:
        start, end = candidate.start, candidate.end

        def chain(case: Case) -> ChainMap:
            return ChainMap(case, self._graph, self._path, start, end)

        return is_operator(candidate.blocks, chain, lambda: self._case(_PROOF_STEPS))
