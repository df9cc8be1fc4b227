"""Find the parts of a path of data that are SpaceToBatch or BatchToSpace, between Transposes if need be.

The search starts from the smallest parts that may be an operator, from one node that regroups axes to
another, and takes the longest part around each. The operator is read in one case of sizes, and then
proven in all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from itertools import islice

from onnx_spatial.chains import blocks
from onnx_spatial.chains.blocks import Blocks
from onnx_spatial.chains.chain_map import GraphScope
from onnx_spatial.chains.formulas import Formula
from onnx_spatial.chains.paths import (
    MOVING,
    REGROUPING,
    REORDERING,
    SELECTING,
    DataGraph,
    Path,
    Step,
)
from onnx_spatial.chains.reading import Readings
from onnx_spatial.maps.facts import Budget

#: Positions of the first and the last value of a part of a path.
_Span = tuple[int, int]

_DEPTH = REGROUPING & REORDERING


def paths_of_blocks(data: DataGraph) -> list[Path]:
    """Return the paths of a graph that may hold block operators."""
    return [path for path in data.longest_paths(_admits_step) if _may_be_one(path)]


def _admits_step(step: Step) -> bool:
    """Return whether a step moves all elements, pads or crops."""
    return step.last.op_type in MOVING - SELECTING | {"Pad", "Slice"}


def _may_be_one(path: Path) -> bool:
    """Return whether nodes may be an operator: those that split axes, reorder them, and join them."""
    kinds = path.kinds
    if not _DEPTH.isdisjoint(kinds):
        return True
    places = [i for i, kind in enumerate(kinds) if kind in REGROUPING]
    return bool(places) and "Transpose" in kinds[places[0] : places[-1]]


def find_blocks(
    graph: GraphScope, path: Path, budget: Budget
) -> Iterator[tuple[Path, Blocks[Formula]]]:
    """Yield the parts of a path that are block operators, in order.

    Args:
        graph: the graph.
        path: the path.
        budget: of the search.
    """
    yield from _Search(graph, path, budget).find_parts()


class _Search:
    """The search for operators along one path, within a budget."""

    def __init__(self, graph: GraphScope, path: Path, budget: Budget) -> None:
        self._path, self._budget, self._readings = path, budget, Readings(graph, budget)
        self._ranks = [None if (d := graph.dims(v)) is None else len(d) for v in path.values]
        self._read: dict[_Span, Iterator[Blocks[Formula]]] = {}

    def find_parts(self) -> Iterator[tuple[Path, Blocks[Formula]]]:
        """Yield the parts of the path that are operators, in order."""
        cores, first = self._find_cores(), 0
        while cores:
            # Several in a row may be one operator, written axis by axis.
            same = len(list(itertools.takewhile(lambda c: c[1] is cores[0][1], cores)))
            for count in range(same, 0, -1):
                last = cores[count][0][0] if count < len(cores) else len(self._path.steps)
                starts = range(first, cores[0][0][0] + 1)
                ends = range(cores[count - 1][0][1], last + 1)
                longest = self._longest_operator(itertools.product(starts, ends))
                if longest is not None:
                    (start, first), found = longest
                    yield self._path.part(start, first), found
                    break
            del cores[:count]

    def _find_cores(self) -> list[tuple[_Span, type]]:
        """Return the smallest parts that may be operators, and which operators."""
        kinds = self._path.kinds
        # Shapes may be computed from the sizes in front of a Pad.
        starts = [i for i, kind in enumerate(kinds) if kind in REGROUPING or kind == "Pad"]
        ends = [i + 1 for i, kind in enumerate(kinds) if kind in REGROUPING]
        spans = [span for span in itertools.product(starts, ends) if span[0] < span[1]]
        cores: dict[_Span, type] = {}
        for start, end in sorted(spans, key=lambda span: (span[1] - span[0], span)):
            apart = all(end <= first or last <= start for first, last in cores)
            if apart and _may_be_one(self._path.part(start, end)):
                for found in islice(self._read_candidates((start, end)), 1):
                    cores[start, end] = found.kind
        return sorted(cores.items())

    def _longest_operator(self, spans: Iterable[_Span]) -> tuple[_Span, Blocks[Formula]] | None:
        """Return the longest of some parts that is an operator, and the operator."""
        for span in sorted(spans, key=lambda span: (span[0] - span[1], span)):
            for found in self._read_candidates(span):
                # Fewer nodes than before, and images stay images on one side at least.
                better = span[1] - span[0] > found.transposes
                better = better and 0 in (found.before[0], found.behind[0])
                if better and self._readings.is_operator(self._path.part(*span), blocks, found):
                    return span, found
        return None

    def _read_candidates(self, span: _Span) -> Iterator[Blocks[Formula]]:
        """Yield what a part of the path may be, read in several cases; each is read once."""
        first, last = self._ranks[span[0]], self._ranks[span[1]]
        if first is None or last not in (None, first) or self._budget.is_exhausted:
            return iter(())
        read = self._read.get(span) or self._readings.read_path(self._path.part(*span), blocks.read)
        self._read[span], again = itertools.tee(read)
        return again
