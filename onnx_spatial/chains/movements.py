"""Find chains of nodes that only move data, and say which of them are better written again.

    y[h, w, (r, s, c)] = x[2*h + r, 2*w + s, c]        sizes [h, 2, w, 2, c], order [0, 2, 1, 3, 4]

1. A chain is read as one Rearrange: along each axis of both sides of its form the digits count one after
   another. A constant rest is a part of an axis.
2. The price of its lowering is compared with that of the nodes that go with the chain (`pricing`). It is
   listed if it pays, or if a tensor of it exceeds the rank limit, and is proven to be the Rearrange for
   all sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import (
    ChainMap,
    DividedSizes,
    GraphScope,
    NodeChain,
    graph_scopes,
)
from onnx_spatial.chains.paths import MOVING, REORDERING, SELECTING, DataGraph, Path, Step
from onnx_spatial.chains.pricing import (
    SMALL,
    TYPICAL,
    Prices,
    dims_for_sizes,
    estimate_dims,
    is_worthwhile,
)
from onnx_spatial.chains.reading import (
    IN,
    MODEL_SECONDS,
    OUT,
    Access,
    Digit,
    Division,
    Readings,
    limit_of,
    parts_in_order,
    stack_digits,
)
from onnx_spatial.errors import OperatorError
from onnx_spatial.maps import operators
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.facts import Budget
from onnx_spatial.maps.polynomial import ZERO, Index, Polynomial, product
from onnx_spatial.maps.tensor import Tensor, moved
from onnx_spatial.model import traversal
from onnx_spatial.operators import Rearrange


@dataclass(frozen=True)
class Selection:
    """A part of an axis: `size` elements from `start` on."""

    axis: int
    start: int
    size: int


@dataclass(frozen=True)
class SlicedRearrange:
    """A Rearrange of parts of axes."""

    operator: Rearrange
    selections: tuple[Selection, ...] = ()

    def expected(self, case: Case, chain: ChainMap) -> Tensor:
        """Return the map of the operator on the data of a chain."""
        x = _select_parts(case, chain.x, self.selections)
        return operators.apply(case, Rearrange, self.operator, x)

    def divisions(self, case: Case, chain: ChainMap) -> list[Division]:
        """Return the sizes that a Rearrange splits by known factors, and these."""
        del case
        pairs = [(dim, self.operator.multiple(axis)) for axis, dim in enumerate(chain.x.dims)]
        return [(dim, factor) for dim, factor in pairs if dim.constant is None and factor > 1]


def _select_parts(case: Case, x: Tensor, selections: Sequence[Selection]) -> Tensor:
    starts, dims = dict[int, int](), list(x.dims)
    for each in selections:
        if not (each.start >= 0 and each.size >= 1):
            raise UndecidedError("a part begins in front of its axis")
        case.require(dims[each.axis] - each.start - each.size, "a part exceeds its axis")
        starts[each.axis], dims[each.axis] = each.start, Polynomial.of(each.size)

    def at(index: Index) -> Polynomial:
        return x.at(tuple(place + starts.get(axis, 0) for axis, place in enumerate(index)))

    return moved(x, case, dims, at) if selections else x


def read_rearrange(access: Access) -> Iterator[SlicedRearrange]:
    """Yield the Rearrange that a form may be."""
    inputs, selections = list[list[Digit]](), list[Selection]()
    if any(rest != ZERO for rest in access.rests[OUT]) or not access.dims[IN]:
        return
    for axis, (dim, rest) in enumerate(zip(access.dims[IN], access.rests[IN], strict=True)):
        row = stack_digits(access.digits_along(IN, axis), IN)
        if row is None:
            return
        count = product([d.extent for d in row])
        if count != dim or rest != ZERO:
            start, size = rest.constant, count.constant
            if start is None or size is None or dim.constant is None:
                return
            selections.append(Selection(axis, start, size))
        inputs.append(row[::-1])
    outputs = [access.digits_along(OUT, axis) for axis in range(len(access.dims[OUT]))]
    operator = _assemble_rearrange(inputs, outputs)
    if operator is not None:
        yield SlicedRearrange(operator, tuple(selections))


def _assemble_rearrange(inputs: list[list[Digit]], outputs: list[list[Digit]]) -> Rearrange | None:
    """Return the operator with neighbouring factors merged; None if a size does not follow."""
    sizes, splits, number = list[int](), list[int](), dict[Digit, int]()
    for axis in inputs:
        merged = parts_in_order(outputs, axis)
        for group in merged:
            size = 1
            for digit in group:
                known = digit.extent.constant
                size = -1 if known is None or size < 0 else size * known
                number[digit] = len(sizes)
            sizes.append(size)
        splits.append(len(merged))
    rows = [list(dict.fromkeys(number[digit] for digit in axis)) for axis in outputs]
    order, joins = tuple(f for row in rows for f in row), tuple(map(len, rows))
    try:
        return Rearrange(tuple(sizes), tuple(splits), order, joins)
    except OperatorError:
        return None


#: Steps (`Budget`) for all chains of a model, and of looking at a part.
_MODEL_STEPS, _LOOK_STEPS = 400_000, 20

_SHARED_REASON = "other nodes read what functions in it compute"

#: The most parts of a chain that are tried.
_MAX_PARTS = 12


@dataclass(frozen=True)
class Movement(NodeChain):
    """A chain of standard nodes that only moves data.

    Attributes:
        operator: the Rearrange that it is, behind which the functions of the chain stand; None if it
            stays.
        selections: the parts of axes of the data that the operator reads.
        before_us: estimated time of the nodes that nobody needs without the chain.
        after_us: the same of the nodes in their place.
        freed: number of the nodes that nobody needs without the chain.
        required: whether a tensor of the chain exceeds the rank limit.
        reason: why it stays.
    """

    operator: Rearrange | None = None
    selections: tuple[Selection, ...] = ()
    before_us: float | None = None
    after_us: float | None = None
    freed: int = 0
    required: bool = False
    reason: str | None = None

    op_type = Rearrange.name

    @property
    def functions(self) -> tuple[onnx.NodeProto, ...]:
        """The nodes of the chain that change elements."""
        return tuple(node for node in self.nodes if node.op_type not in MOVING)

    @property
    def labels(self) -> list[str]:
        """Labels of the nodes that move elements."""
        return [traversal.label(node) for node in self.nodes if node.op_type in MOVING]

    @property
    def vanishes(self) -> bool:
        """Whether only its functions are left."""
        identity = self.operator is not None and self.operator.is_identity
        return identity and not self.selections and bool(self.functions)

    def pays(self, after: float, nodes: int) -> bool:
        """Return whether nodes of this price and number are better, or needed."""
        return self.required or is_worthwhile(self.before_us or 0, after, self.freed, nodes)


def find_movements(
    proto: onnx.ModelProto,
    operators: analysis.Analysis | None = None,
    folder: FilePath | None = None,
    *,
    max_rank: int | None = None,
    taken: Mapping[traversal.Place, Collection[str]] | None = None,
    notes: list[str] | None = None,
) -> list[Movement]:
    """Return the chains of a model that pay, and with a rank limit those that exceed it.

    Args:
        proto: the model; it is not changed.
        operators: its named spatial operators; None: it has none.
        folder: where external data lies.
        max_rank: the largest rank of a tensor.
        taken: values whose nodes belong to other chains, by graph.
        notes: gets a line of text if the search was stopped before its end.
    """
    local = {(f.domain, f.name) for f in proto.functions}
    taken = taken or {}
    graphs = []
    for place, graph in traversal.graphs(proto):
        moves = DataGraph(graph, local)
        admits = partial(_admits_step, moves, frozenset(taken.get(place, ())), max_rank is not None)
        every = filter(None, map(_trim_functions, moves.longest_paths(admits)))
        graphs.append((moves, list({path.values[-1]: path for path in every}.values())))
    if not any(_may_pay(path, max_rank) for _, paths in graphs for path in paths):
        return []
    scopes = graph_scopes(proto, operators, folder)
    budget = Budget(_MODEL_STEPS, MODEL_SECONDS)
    movements: list[Movement] = []
    for (moves, paths), scope in zip(graphs, scopes, strict=True):
        search = _Search(moves, scope, max_rank, budget)
        found = (search.best_part(path) for path in paths if _may_pay(path, max_rank))
        # Paths that part behind a chain have it in common.
        movements += search.without_shared({m.output: m for m in found if m is not None})
    if budget.is_exhausted and notes is not None:
        limit = limit_of(budget, _MODEL_STEPS)
        notes.append(f"the search for chains that only move data stopped after {limit}")
    return movements


def _admits_step(graph: DataGraph, taken: Set[str], selects: bool, step: Step) -> bool:
    """Return whether a step may be one of a chain."""
    last = step.last
    if not (step.changes or last.op_type in MOVING) or not taken.isdisjoint(last.output):
        return False
    if any(attribute.ref_attr_name for node in step.nodes for attribute in node.attribute):
        return False
    if last.op_type != "Split" and [name for name in last.output if name] != [last.output[0]]:
        return False
    if last.op_type in ("Gather", "Slice") and not graph.numbers.issuperset(last.input[1:]):
        return False  # a part of one axis only
    return selects or last.op_type not in SELECTING


def _trim_functions(path: Path) -> Path | None:
    """Return a path without the functions at its ends; None if nothing is left."""
    firsts = [i for i, kind in enumerate(path.kinds) if kind in MOVING - SELECTING]
    lasts = [i for i, kind in enumerate(path.kinds) if kind in MOVING and kind != "Split"]
    return path.part(firsts[0], lasts[-1] + 1) if firsts else None


@dataclass(frozen=True)
class _PricedReading:
    """The Rearrange that a chain may be, and dims of its values: typical ones, and small ones."""

    rearrange: SlicedRearrange
    typical: Mapping[str, list[int]]
    small: Mapping[str, list[int]]


def _may_pay(path: Path, max_rank: int | None) -> bool:
    """Return whether a path holds more than a single node that regroups axes."""
    moving = [kind for kind in path.kinds if kind in MOVING]
    return len(moving) > 1 or moving[0] in REORDERING or max_rank is not None


class _Search:
    """The search for movements in one graph, within a budget."""

    def __init__(
        self,
        moves: DataGraph,
        graph: GraphScope,
        max_rank: int | None,
        budget: Budget,
    ) -> None:
        self._moves, self._graph = moves, graph
        self._max_rank, self._budget = max_rank, budget
        self._readings = Readings(graph, budget)
        self._unpaid = set[tuple[object, ...]]()

    def best_part(self, path: Path) -> Movement | None:
        """Return the longest part of a path that pays; with limits also why none is within them."""
        beyond = self._beyond_rank(path)
        ends = [i for i in beyond if i in (0, len(path.values) - 1)]
        if ends or not beyond:
            parts = (self._price_once(part) for part in self._list_parts(path))
            best = next((part for part in parts if part is not None), None)
            return best or (self._bounded_path(path, ends[0]) if ends else None)
        listed = Movement.of(self._graph, path, required=True)
        reasons: list[str] = []
        for part in self._list_parts(path):
            if set(part.values[1:-1]) >= {path.values[i] for i in beyond}:
                movement = self._rewrite_part(part, required=True)
                if movement.reason is None:
                    return movement
                reasons.append(movement.reason)
        return replace(listed, reason=reasons[0] if reasons else _SHARED_REASON)

    def without_shared(self, movements: Mapping[str, Movement]) -> Iterator[Movement]:
        """Yield movements, without those that leave what exceeds a limit to other readers."""
        ready = {name: m for name, m in movements.items() if m.operator is not None}
        left = dict[str, str]()
        while True:
            gone = {
                id(n) for n in self._moves.dead_nodes(ready, {m.source for m in ready.values()})
            }
            for name, movement in ready.items():
                kept = [n for n in movement.nodes if self._exceeds_rank(n) and id(n) not in gone]
                if movement.required and kept:
                    left[name] = f"other nodes read {kept[0].output[0]!r} too"
            if ready.keys().isdisjoint(left):
                break
            ready = {name: m for name, m in ready.items() if name not in left}
        for name, movement in movements.items():
            reason = left.get(name)
            yield movement if reason is None else replace(movement, operator=None, reason=reason)

    def _exceeds_rank(self, node: onnx.NodeProto) -> bool:
        """Return whether a limit does not admit a node of a chain."""
        ranks = [self._rank_of(name) or 0 for name in node.output]
        return self._max_rank is not None and max(ranks) > self._max_rank

    def _bounded_path(self, path: Path, end: int) -> Movement:
        """Return a path that stays because its first or last value exceeds the rank limit."""
        name = path.values[end]
        reason = f"its {'output' if end else 'input'} {name!r} has rank {self._rank_of(name)}"
        return Movement.of(self._graph, path, required=True, reason=reason)

    def _beyond_rank(self, path: Path) -> list[int]:
        """Return the positions of the values of a path that exceed the rank limit."""
        if self._max_rank is None:
            return []
        ranks = [self._rank_of(name) for name in path.values]
        return [i for i, rank in enumerate(ranks) if rank is not None and rank > self._max_rank]

    def _rank_of(self, name: str) -> int | None:
        dims = self._graph.dims(name)
        return None if dims is None else len(dims)

    def _list_parts(self, path: Path) -> Iterator[Path]:
        """Yield a path, and parts of it, the longest first."""
        n = len(path.steps)
        spans = [(0, n), *((fork, n) for fork in self._moves.forks_of(path))]
        spans += [(start, n - (cut - start)) for cut in range(1, n) for start in range(cut + 1)]
        seen = set[tuple[str, str]]()
        for start, end in spans:
            part = _trim_functions(path.part(start, end))
            if part is None or (part.values[0], part.values[-1]) in seen:
                continue
            gone = {id(node) for node in self._moves.freed_nodes(part)}
            if any(n.op_type not in MOVING and id(n) not in gone for n in part.nodes):
                continue  # a function that stays for others would be computed twice
            seen.add((part.values[0], part.values[-1]))
            self._budget.spend(_LOOK_STEPS)
            if len(seen) > _MAX_PARTS or self._budget.is_exhausted:
                return
            yield part

    # Prices

    def _price_once(self, path: Path) -> Movement | None:
        """Return a part as a Movement if it pays; the same nodes on the same shapes are tried once."""
        key = self._path_signature(path)
        if key in self._unpaid or not _may_pay(path, None):
            return None
        movement = self._rewrite_part(path, required=False)
        if movement.reason is None:
            return movement
        self._unpaid.add(key)
        return None

    def _path_signature(self, path: Path) -> tuple[object, ...]:
        """Return what tells the nodes of a path, its shapes and types, but not its names."""
        inner, gone = set(path.values), {id(node) for node in self._moves.freed_nodes(path)}
        nodes = []
        for node in path.nodes:
            attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
            read = tuple(self._parameter_content(name) for name in node.input if name not in inner)
            nodes.append((node.op_type, attributes, read, id(node) in gone))
        dims = tuple(self._graph.dims(name) for name in path.values)
        return (tuple(nodes), dims, self._graph.element_type(path.values[0]))

    def _parameter_content(self, name: str) -> object:
        """Return a parameter that is known and small; else its name."""
        value = self._graph.value(name) if name else None
        return name if value is None or value.size > 64 else (value.dtype.str, value.tobytes())

    def _rewrite_part(self, path: Path, *, required: bool) -> Movement:
        """Return a part as a Rearrange, or with the reason why it stays.

        Args:
            path: the part.
            required: whether it exceeds the rank limit: then it need not pay, and may select.
        """
        listed = Movement.of(self._graph, path, required=required)
        if listed.input_shape is None:
            return replace(listed, reason=f"the rank of its input {listed.source!r} is unknown")
        if not listed.element_type:
            return replace(listed, reason="its element type is unknown")
        reading = self._read_rearrange(path)
        if reading is None or (reading.rearrange.selections and not required):
            return replace(listed, reason="it permutes no factors of its axes that are known")
        operator, selections = reading.rearrange.operator, reading.rearrange.selections
        prices = Prices(listed.element_type, self._graph.scope.opset, self._max_rank)
        gone = self._moves.freed_nodes(path)
        before, freed = prices.price_removed(path, gone, reading.typical)
        listed = replace(listed, before_us=before, freed=freed)
        if operator.is_identity and not selections:
            after, pays = 0.0, freed > 1 or any(node.op_type in REORDERING for node in gone)
        else:
            shape = list(listed.input_shape or ())
            for each in selections:
                shape[each.axis] = each.size
            lowering = prices.lower_rearrange(operator, shape)
            if isinstance(lowering, str):
                return replace(listed, reason=lowering)
            after, pays = lowering.cost, is_worthwhile(before, lowering.cost, freed, lowering.nodes)
            if pays and not required and reading.small != reading.typical:
                least, _ = prices.price_removed(path, gone, reading.small)
                ends = (reading.typical[listed.source], reading.small[listed.source])
                resized = prices.price_resized(operator, lowering, *ends)
                pays = is_worthwhile(least, resized, freed, lowering.nodes)
        if not (pays or required):
            return replace(listed, reason="nothing is gained")
        if not self._readings.is_operator(path, reading.rearrange):
            return replace(listed, reason="it is not proven for all sizes")
        return replace(listed, operator=operator, selections=selections, after_us=after)

    def _read_rearrange(self, path: Path) -> _PricedReading | None:
        """Return the Rearrange that a path may be."""
        dims = self._graph.dims(path.values[0]) or ()

        def read(chain: ChainMap, form: Access) -> Iterator[_PricedReading]:
            for found in read_rearrange(form):
                sizes = (estimate_dims(dims, scale, found.operator) for scale in (TYPICAL, SMALL))
                each = (
                    dims_for_sizes(chain, path, row, scale[1])
                    for row, scale in zip(sizes, (TYPICAL, SMALL), strict=True)
                )
                if all(chain.dims_of(name) for name in path.values):
                    yield _PricedReading(found, *each)

        return next(self._readings.read_path(path, read, DividedSizes.all_as_multiples), None)
