"""Find the parts of a path that are SpaceToBatch or BatchToSpace, between Transposes if need be.

    y[(r1, r2, n); o1; o2; c] = x[n; 2*o1 + r1 - 1; 2*o2 + r2 - 1; c]     SpaceToBatch, block 2, pads 1

1. What an operator is: parameters, and the index map that a proof compares.
2. Reading: the digits of the batch are the places in the block and the image. BatchToSpace is the same
   with the sides swapped. Axes may be in another order on both sides.
3. The search starts from the smallest parts that may be an operator, from one node that regroups axes
   to another, and takes the longest part around each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter

from onnx_spatial.chains.chain_map import (
    ChainMap,
    GraphScope,
    UnnamedError,
    compute_size,
    name_sizes,
)
from onnx_spatial.chains.paths import (
    MOVING,
    REGROUPING,
    REORDERING,
    SELECTING,
    DataGraph,
    Path,
    Step,
)
from onnx_spatial.chains.reading import IN, OUT, Access, Digit, Division, Readings, stack_digits
from onnx_spatial.maps import operators, polynomial
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.facts import Budget
from onnx_spatial.maps.polynomial import ONE, ZERO, Polynomial, show
from onnx_spatial.maps.rules_reshape import transposed
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.operators import BatchToSpace, SpaceToBatch


@dataclass(frozen=True)
class Blocks:
    """A SpaceToBatch or BatchToSpace between Transposes.

    Attributes:
        kind: the operator.
        block: block of each axis behind the batch, up to the last that is blocked, padded or cropped.
        begins, ends: the pads or crops of these axes, of the dims of values (`chain_map.ValueDim`).
        before: permutation of the axes in front of the operator.
        behind: permutation of the axes behind it.
    """

    kind: type[SpaceToBatch] | type[BatchToSpace]
    block: tuple[int, ...]
    begins: tuple[Polynomial, ...]
    ends: tuple[Polynomial, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]

    @property
    def transposes(self) -> int:
        """Number of Transposes that are not the identity."""
        return sum(list(perm) != sorted(perm) for perm in (self.before, self.behind))

    def expected(self, case: Case, chain: ChainMap) -> Tensor | None:
        """Return the map of the operator on the data of a chain; None where the chain does not run."""
        block, begins, ends = self._parameters(case, chain)
        for amount in (*begins, *ends):
            case.require(amount, "a pad or crop may be negative")
        x = transposed(case, chain.x, self.before)
        if self.kind is BatchToSpace:
            count = polynomial.product(block)
            case.divide(x.dims[0], count, f"{show(x.dims[0])} is divisible by {show(count)}")
            if not chain.may_run():
                return None
            for axis, (b, begin, end) in enumerate(zip(block, begins, ends, strict=True), 1):
                left = x.dims[axis] * b - begin - end
                _check_crop(case, left, chain.y.dims[self.behind.index(axis)])
        y = operators.apply(case, self.kind, None, x, block, begins, ends)
        return transposed(case, y, self.behind) if chain.may_run() else None

    def divisions(self, case: Case, chain: ChainMap) -> list[Division] | None:
        """Return the padded sizes of a SpaceToBatch and their blocks; None for BatchToSpace.

        BatchToSpace only fuses with the SpaceToBatch that has made the batch a multiple of the blocks.
        """
        if self.kind is BatchToSpace:
            return None
        _, begins, ends = self._parameters(case, chain)
        sizes = [chain.x.dims[axis] for axis in self.before[1:]]
        each = zip(sizes, begins, ends, self.block, strict=False)
        return [(size + begin + end, block) for size, begin, end, block in each if block > 1]

    def _parameters(
        self, case: Case, chain: ChainMap
    ) -> tuple[list[Polynomial], list[Polynomial], list[Polynomial]]:
        sizes = operators.CaseArithmetic(case)
        begins, ends = (
            [sizes.polynomial(compute_size(amount, sizes, chain.size)) for amount in amounts]
            for amounts in (self.begins, self.ends)
        )
        return [Polynomial.of(b) for b in self.block], begins, ends


def _check_crop(case: Case, left: Polynomial, size: Polynomial) -> None:
    """Require that crops leave what the chain gives: where they leave nothing, an empty tensor."""
    if case.decide(left - 1):
        case.require_equal(left, size, "a crop may differ")
    else:
        case.require(-size, "the operator gives nothing, but the chain does")
        case.assume(left - 1)


# Reading


def read_blocks(chain: ChainMap, access: Access) -> Iterator[Blocks]:
    """Yield the operators that a form may be, with pads by the dims of the chain's values."""
    rank, inverse, seen = len(access.dims[OUT]), access.swapped(), set[Blocks]()
    if rank != len(access.dims[IN]):
        return
    for batch, images in itertools.product(range(rank), repeat=2):
        for found in (
            _read_kind(SpaceToBatch, access, images, batch),
            _read_kind(BatchToSpace, inverse, batch, images),
        ):
            if found is None or max(found.block, default=1) == 1:
                continue
            try:
                begins, ends = (
                    tuple(name_sizes(p, chain.dims) for p in amounts)
                    for amounts in (found.begins, found.ends)
                )
            except UnnamedError:
                continue
            named = replace(found, begins=begins, ends=ends)
            if named not in seen and all((p.constant or 0) >= 0 for p in (*begins, *ends)):
                seen.add(named)
                yield named


@dataclass(frozen=True)
class _Axis:
    """An axis apart from the batch: that of the cells (None: any of size 1), and that of the sizes."""

    cells: int | None
    size: int
    block: int
    begin: Polynomial


def _read_kind(
    kind: type[SpaceToBatch] | type[BatchToSpace], form: Access, blocked: int, alone: int
) -> Blocks | None:
    """Read the operator whose blocks and images are along one axis, and images `alone` along another."""
    row = stack_digits(form.digits_along(OUT, blocked), OUT)
    image = form.digits_along(IN, alone)
    if row is None or form.rests[OUT][blocked] != ZERO or form.rests[IN][alone] != ZERO:
        return None
    if row[: len(image)] != stack_digits(image, IN) or (not image and form.dims[IN][alone] != ONE):
        return None
    places_in_block = row[len(image) :]
    axes: list[_Axis] = []
    first_place: dict[int, int] = {}  # of each axis in the block
    for axis in range(len(form.dims[IN])):
        if axis == alone:
            continue
        digits = form.digits_along(IN, axis)
        inner = [digit for digit in digits if digit in places_in_block]
        outer = [digit for digit in digits if digit not in places_in_block]
        split_axis = _read_axis(form, axis, inner, outer)
        if split_axis is None or split_axis.cells == blocked:
            return None
        if inner:
            positions = sorted(places_in_block.index(digit) for digit in inner)
            first_place[axis] = positions[0]
            if positions != list(range(positions[0], positions[-1] + 1)):
                return None
        axes.append(split_axis)
    order = sorted(first_place, key=lambda axis: first_place[axis], reverse=True)
    return _assemble_operator(kind, form, blocked, alone, axes, order)


def _read_axis(
    form: Access, axis: int, inner: Sequence[Digit], outer: Sequence[Digit]
) -> _Axis | None:
    """Read an axis: cell * block + place - begin."""
    row = stack_digits(inner, IN)
    block = None if row is None else polynomial.product([digit.extent for digit in row]).constant
    cell_axes = {digit.axes[OUT] for digit in outer}
    if block is None or len(cell_axes) > 1:
        return None
    cells = min(cell_axes, default=None)
    begin = -form.rests[IN][axis]
    if cells is not None:
        if form.digits_along(OUT, cells) != list(outer):
            return None
        if any(digit.factors[IN] != digit.factors[OUT] * block for digit in outer):
            return None
        begin = begin + form.rests[OUT][cells] * block
    return _Axis(cells, axis, block, begin)


def _assemble_operator(
    kind: type[SpaceToBatch] | type[BatchToSpace],
    form: Access,
    blocked: int,
    alone: int,
    axes: Sequence[_Axis],
    order: Sequence[int],
) -> Blocks | None:
    """Return the operator with the batch first, and the blocked axes in the order of their places."""
    rank, used = len(form.dims[OUT]), [axis.cells for axis in axes if axis.cells is not None]
    if len(set(used)) != len(used):
        return None
    free = [axis for axis in range(rank) if axis != blocked and axis not in used]
    #: (axis in front, axis behind), block, begin and end of each axis.
    rows: dict[int, tuple[tuple[int, int], int, Polynomial, Polynomial]] = {}
    for axis in axes:
        cells = free.pop(0) if axis.cells is None else axis.cells
        end = form.dims[OUT][cells] * axis.block - axis.begin - form.dims[IN][axis.size]
        pair = (axis.size, cells) if kind is SpaceToBatch else (cells, axis.size)
        rows[axis.size] = (pair, axis.block, axis.begin, end)
    sorted_rows = [rows.pop(size) for size in order]
    batch, images = (alone, blocked) if kind is SpaceToBatch else (blocked, alone)
    in_order = sorted_rows == sorted(sorted_rows, key=itemgetter(0))
    sorted_rows += sorted(rows.values(), key=itemgetter(0))
    if batch == 0 and in_order:
        sorted_rows.sort(key=itemgetter(0))
    before = (batch, *(pair[0] for pair, *_ in sorted_rows))
    outputs = [images, *(pair[1] for pair, *_ in sorted_rows)]
    amounts = [row[1:] for row in sorted_rows]
    count = max((i + 1 for i, row in enumerate(amounts) if row != (1, ZERO, ZERO)), default=0)
    block, begins, ends = zip(*amounts[:count], strict=True) if count else ((), (), ())
    return Blocks(kind, block, begins, ends, before, tuple(map(outputs.index, range(rank))))


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


def find_blocks(graph: GraphScope, path: Path, budget: Budget) -> Iterator[tuple[Path, Blocks]]:
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
        self._read: dict[_Span, Iterator[Blocks]] = {}

    def find_parts(self) -> Iterator[tuple[Path, Blocks]]:
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

    def _longest_operator(self, spans: Iterable[_Span]) -> tuple[_Span, Blocks] | None:
        """Return the longest of some parts that is an operator, and the operator."""
        for span in sorted(spans, key=lambda span: (span[0] - span[1], span)):
            for found in self._read_candidates(span):
                # Fewer nodes than before, and images stay images on one side at least.
                better = span[1] - span[0] > found.transposes
                better = better and 0 in (found.before[0], found.behind[0])
                if better and self._readings.is_operator(self._path.part(*span), found):
                    return span, found
        return None

    def _read_candidates(self, span: _Span) -> Iterator[Blocks]:
        """Yield what a part of the path may be, read in several cases; each is read once."""
        first, last = self._ranks[span[0]], self._ranks[span[1]]
        if first is None or last not in (None, first) or self._budget.is_exhausted:
            return iter(())
        read = self._read.get(span) or self._readings.read_path(self._path.part(*span), read_blocks)
        self._read[span], again = itertools.tee(read)
        return again
