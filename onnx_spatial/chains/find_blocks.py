"""Find the parts of a path of data that are SpaceToBatch or BatchToSpace, between Transposes if need be.

The search starts from the smallest parts that may be an operator, and takes the longest part around
each. The operator is read in one case of sizes (`reading`, `probing`), and then proven in all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.divided_sizes import DividedSizes, SizeKey
from onnx_spatial.chains.formulas import Formula, UnnamedError, formula
from onnx_spatial.chains.paths import REGROUPING, Path, may_hold_operator
from onnx_spatial.chains.probing import probe
from onnx_spatial.chains.proof import is_operator
from onnx_spatial.chains.reading import Blocks, read
from onnx_spatial.maps.budget import Budget
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.tensor import Tensor

#: The most cases in which an operator is read.
_CASES = 24

#: Steps (`Budget`) for reading an operator, and for a proof.
_READ_STEPS, _PROOF_STEPS = 40_000, 40_000

#: Reads operators from a map, in one case.
Reader = Callable[[Case, str, Tensor, Tensor], Iterator[Blocks[Polynomial]]]

#: Operators behind which the digits of an index are lost.
_LOSING = frozenset({"Concat", "Gather", "GatherND", "Split"})

#: Operators that may be left out of a chain where Transposes take their place.
_PERMUTING = frozenset({"Identity", "Transpose"})


@dataclass(frozen=True)
class BlocksPart:
    """A part of a path that may be a block operator.

    Attributes:
        start, end: positions of its first and its last value.
        blocks: the operator read from its map.
    """

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


def find_blocks(graph: GraphScope, path: Path, budget: Budget) -> list[BlocksPart]:
    """Return the parts of a path that are block operators, in order.

    Args:
        graph: the graph.
        path: the path.
        budget: of the search.
    """
    return _Search(graph, path, budget).parts()


class _Search:
    """The search for operators along one path, within a budget."""

    def __init__(self, graph: GraphScope, path: Path, budget: Budget) -> None:
        self._graph, self._path, self._budget = graph, path, budget
        self._read_before: dict[tuple[int, int], tuple[list[BlocksPart], Iterator[BlocksPart]]] = {}
        self._ranks = [self._rank(name) for name in path.values]

    def _case(self, steps: int) -> Case:
        return Case(Budget(steps, within=self._budget))

    def _rank(self, name: str) -> int | None:
        dims = self._graph.dims(name)
        return None if dims is None else len(dims)

    def parts(self) -> list[BlocksPart]:
        """Return the parts of the path that are operators, in order."""
        cores, parts, first = self._cores(), list[BlocksPart](), 0
        while cores:
            kinds = [core.blocks.kind for core in cores]
            same = next((i for i, kind in enumerate(kinds) if kind is not kinds[0]), len(kinds))
            # Several in a row may be one operator, written axis by axis.
            for count in range(same, 0, -1):
                last = cores[count].start if count < len(cores) else len(self._path.nodes)
                found = self._around(first, cores[:count], last)
                if found is not None:
                    first = found.end
                    parts.append(found)
                    break
            del cores[:count]
        return parts

    def _cores(self) -> list[BlocksPart]:
        """Return the smallest parts of the path that may be operators, from regrouping to regrouping."""
        kinds = [{node.op_type for node in step} for step in self._path.nodes]
        ends = [i for i, each in enumerate(kinds) if not REGROUPING.isdisjoint(each)]
        # Shapes may be computed from the sizes in front of a Pad.
        starts = sorted({*ends, *(i for i, each in enumerate(kinds) if "Pad" in each)})
        parts = [(end + 1 - start, start) for start in starts for end in ends if start <= end]
        cores: list[BlocksPart] = []
        for length, start in sorted(parts):
            end = start + length
            if any(core.start < end and start < core.end for core in cores):
                continue
            if self._budget.is_exhausted:
                break
            if may_hold_operator(self._path.nodes[start:end]) and self._may_be_one(start, end):
                cores += islice(self._candidates(start, end), 1)
        return sorted(cores, key=lambda core: core.start)

    def _around(self, first: int, row: Sequence[BlocksPart], last: int) -> BlocksPart | None:
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

    def _proven(self, start: int, end: int) -> BlocksPart | None:
        """Return the operator that a part of the path is, or a better part of it."""
        for candidate in self._general_first(self._candidates(start, end)):
            for each in sorted(self._trimmed(candidate), key=lambda c: c.worth, reverse=True):
                if each.is_worth_it and self._is_operator(each):
                    return each
        return None

    @staticmethod
    def _general_first(candidates: Iterator[BlocksPart]) -> Iterator[BlocksPart]:
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

    def _trimmed(self, candidate: BlocksPart) -> Iterator[BlocksPart]:
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

    def _candidates(self, start: int, end: int) -> Iterator[BlocksPart]:
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

    def _read_anew(self, start: int, end: int) -> Iterator[BlocksPart]:
        seen: list[Blocks[Formula]] = []
        for blocks in self._readings(start, end):
            if blocks not in seen:
                seen.append(blocks)
                yield BlocksPart(start, end, blocks)

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

    def _is_operator(self, candidate: BlocksPart) -> bool:
        start, end = candidate.start, candidate.end

        def chain(case: Case) -> ChainMap:
            return ChainMap(case, self._graph, self._path, start, end)

        return is_operator(candidate.blocks, chain, lambda: self._case(_PROOF_STEPS))
