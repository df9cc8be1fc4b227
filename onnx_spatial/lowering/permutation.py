"""Lower an operator as a permutation of the factors of its axes: pad, split, permute, merge, crop.

    SpaceToBatch    [N, D, C]      D + pads = cells * block     -> [block * N, cells, C]
    BatchToSpace    [block * N, cells, C]                       -> [N, cells * block - crops, C]
    patches that tile the image
                    [N, D, C]      D + pads = windows * kernel  -> [N, windows, kernel * C]
    ReorgYolo       [N, q*H, s, W, s] in the order of memory    -> [N, s, s, q*H, W]

Each axis is a tuple of factors; the output has the same factors in another order. Transposes in
front of and behind the operator only reorder the axes, so they cost nothing more.

transpose     Pad -> Reshape [N, D1/b1, b1, .., rest] -> Transpose -> Reshape -> Slice
              the textbook form, of rank 2M + 2 at most; fast where the last axis stays, otherwise
              onnxruntime walks element by element
    in stages Reshape [N*C*Hb, bh, W] -> T[1,0,2] -> Reshape [.., bw] -> T[1,0] -> Reshape
              two or three Transposes of rank 3 that each move one axis past another
gather        SpaceToBatch  Reshape [.., bw] -> T[1,0] -> Reshape [rows, Wb] -> Gather -> Reshape
              BatchToSpace  Reshape [rows, Wb] -> Gather -> Reshape [bw, ..] -> T[1,0] -> Reshape
              one Gather orders the rows in one parallel pass

A stage is a Transpose, or a Gather that puts the leading factors into any order and takes the trailing
ones as whole rows. The search tries every single stage, and every swap of two neighbouring groups of
factors before it, behind it, and both; prices come from `cost_model`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering import cost_model
from onnx_spatial.lowering.cost_model import neighbours
from onnx_spatial.lowering.emitter import (
    AxisPart,
    Emitter,
    Pads,
    Size,
    Tensor,
    Term,
    index,
    pad,
)
from onnx_spatial.lowering.nodes import SINCE
from onnx_spatial.lowering.request import Request, windows_and_pads
from onnx_spatial.operators import (
    BatchToSpace,
    ExtractPatches,
    Operator,
    Rearrange,
    ReorgYolo,
    SpaceToBatch,
)

_T = TypeVar("_T")

Order = tuple[int, ...]


@dataclass(frozen=True)
class Rearrangement:
    """Pad, split into factors, permute, merge, crop.

    Attributes:
        x: the data.
        sizes: of the factors.
        inputs: factors of each axis of the padded data, outermost first.
        outputs: factors of each axis of the output.
        pads: zeros around each axis of `x`, () for none; negative amounts cut off.
        crops: elements cut off each axis of the output in the end, () for none.
        element_types: ONNX element types that the data may have.
        signed: whether computed amounts of `pads` may be negative.
        cuts: length that each axis of `x` is cut to before it is padded, None for no cut.
        tail: last dims of an input of unknown rank, which `x` joins to one axis; None for a known rank.
        shape: dims of the output if these are not `outputs` merged and cropped.
        checks_division: whether the run must check that blocks divide the sizes that they split, by a
            Reshape to exact sizes: for what leaves elements out; a Reshape of all checks it anyway.
    """

    x: Tensor
    sizes: tuple[Size, ...]
    inputs: tuple[Order, ...]
    outputs: tuple[Order, ...]
    pads: Pads = ()
    crops: Pads = ()
    element_types: frozenset[int] = frozenset()
    signed: bool = False
    cuts: tuple[Size | None, ...] = ()
    tail: ir.Value | None = None
    shape: tuple[Size, ...] = ()
    checks_division: bool = False

    @classmethod
    def of(cls, request: Request, emit: Emitter, x: Tensor | None = None) -> Rearrangement:
        """Describe a request; `x` replaces its data.

        Raises:
            ConversionError: it is no permutation of factors.
        """
        tail = None
        if x is None:
            x, tail = _data_of(request, emit)
        r = _DESCRIBE[request.call.kind](request, emit, x)
        r = replace(r, tail=tail, element_types=request.element_types)
        if request.before is not None:
            back = [request.before.index(axis) for axis in range(len(request.before))]
            r = replace(
                r,
                x=replace(r.x, dims=_reordered(r.x.dims, back)),
                inputs=_reordered(r.inputs, back),
                pads=_reordered(r.pads, back),
                cuts=_reordered(r.cuts, back),
            )
        if request.after is not None:
            r = replace(
                r,
                outputs=_reordered(r.outputs, request.after),
                crops=_reordered(r.crops, request.after),
            )
        return r

    @property
    def before(self) -> Order:
        """Factors in the order of the input, without those of size 1."""
        return tuple(f for axis in self.inputs for f in axis if self.sizes[f] != 1)

    @property
    def after(self) -> Order:
        """Factors in the order of the output, without those of size 1."""
        return tuple(f for axis in self.outputs for f in axis if self.sizes[f] != 1)

    def padded(self, emit: Emitter, value: npt.NDArray[np.generic] | None = None) -> Tensor:
        """Emit the cuts and the padding, with zeros or another value."""
        counts = {
            axis: AxisPart(0, count) for axis, count in enumerate(self.cuts) if count is not None
        }
        x = emit.slice(self.x, counts)
        return pad(emit, x, self.pads, self.element_types, value, signed=self.signed)

    def size(self, emit: Emitter, factors: Iterable[int]) -> Size:
        """Return the size of factors together."""
        return emit.product([self.sizes[factor] for factor in factors])

    def finished(self, emit: Emitter, x: Tensor) -> ir.Value:
        """Emit the final Reshape and crop, and return the operator's output.

        Args:
            emit: collects the nodes.
            x: the factors in the order of the output, merged in any way.
        """
        if self.shape:
            return emit.reshape(x, self.shape).value
        whole = [self.size(emit, factors) for factors in self.outputs]
        x = emit.reshape(x, whole)
        crops = zip(whole, self.crops, strict=False)  # there may be none
        parts = [emit.inner_part(dim, *pair, may_exceed=True) for dim, pair in crops]
        x = emit.slice(x, dict(enumerate(parts)))
        if self.tail is None:
            return x.value
        return emit.reshape_exactly(x.value, x.dims[:-1], tail=self.tail)

    def final(self, emit: Emitter) -> list[Size]:
        """Return the dims of the output."""
        whole = [self.size(emit, factors) for factors in self.outputs]
        for axis, (begin, end) in enumerate(self.crops):
            whole[axis] = emit.sub(emit.sub(whole[axis], begin), end)
        return whole


def _reordered(row: Sequence[_T], order: Sequence[int]) -> tuple[_T, ...]:
    """Return a row of all axes in another order; () stays."""
    return tuple(row[axis] for axis in order) if row else ()


def _data_of(request: Request, emit: Emitter) -> tuple[Tensor, ir.Value | None]:
    """Return the data with dims in the operator's order, and the `Rearrangement.tail`."""
    if request.shape is not None or request.before is not None or request.after is not None:
        return request.operand(emit), None
    value = request.inputs[0]
    assert value is not None
    lead = request.call.axes
    shape = emit.op("Shape", value)
    # One dim is assumed, which affects the estimated cost alone.
    tail = emit.slice(emit.tensor(shape, [emit.length(shape, 0)]), {0: AxisPart(lead, 1, 0)}).value
    (rest,) = emit.elements(emit.op("ReduceProd", tail, keepdims=1), [0], 1)
    dims = (*(emit.length(value, axis) for axis in range(lead)), rest)
    target: Sequence[Size] = dims if emit.opset >= SINCE["allowzero"] else [*[0] * lead, rest]
    flat = emit.reshape_exactly(value, target, [*[True] * lead, False])
    return emit.tensor(flat, dims, request.itemsize), tail


def _describe_blocks(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    """Describe SpaceToBatch, or BatchToSpace, which is the same backwards."""
    block, begins, ends = request.parameters(emit)
    sides, rest = x.dims[1 : len(block) + 1], x.dims[len(block) + 1 :]
    amounts = ((0, 0), *zip(begins, ends, strict=True), *((0, 0) for _ in rest))
    to_batch = request.call.kind is SpaceToBatch
    if to_batch:
        batch = x.dims[0]
        cells = [
            emit.quotient(emit.add(emit.add(d, begin), end), b)
            for d, begin, end, b in zip(sides, begins, ends, block, strict=False)
        ]
        divided = list(zip(cells, block, strict=True))
    else:
        per_image = emit.product(block)
        batch = emit.quotient(x.dims[0], per_image)
        cells = list(sides)
        divided = [(batch, per_image)]
    sizes, space, channels = _number_factors(batch, cells, block, rest)
    in_space = ((0,), *space, *channels)
    in_batch = ((*(b for _, b in space), 0), *((cell,) for cell, _ in space), *channels)
    checks = any(not isinstance(quotient, int) and b != 1 for quotient, b in divided)
    if to_batch:
        return Rearrangement(x, sizes, in_space, in_batch, pads=amounts, checks_division=checks)
    return Rearrangement(x, sizes, in_batch, in_space, crops=amounts, checks_division=checks)


def _describe_tiles(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    op = request.call.operator
    assert isinstance(op, ExtractPatches)
    for k, s, r in zip(op.kernel, op.strides, op.rates, strict=True):
        if k != s or (k > 1 and r > 1):
            raise ConversionError(
                "the windows do not tile the image (stride differs from kernel, or rate > 1)"
            )
    counts, pads = windows_and_pads(emit, op, x)
    cuts: list[Size | None] = [None] * x.rank
    for axis, k, count in zip(op.spatial_axes, op.kernel, counts, strict=True):
        size = emit.mul(count, k)
        if op.auto_pad == "valid" and k > 1 and x.dims[axis] != size:
            cuts[axis] = size
    channel = x.dims[op.channel_axis]
    sizes, space, channels = _number_factors(x.dims[0], counts, op.kernel, [channel])
    windows = tuple((window,) for window, _ in space)
    places = tuple(k for _, k in space)
    depth = (*places, *channels[0]) if op.major == "place" else (*channels[0], *places)
    last = op.layout == "channels_last"
    return Rearrangement(
        x,
        sizes,
        ((0,), *space, *channels) if last else ((0,), *channels, *space),
        ((0,), *windows, depth) if last else ((0,), depth, *windows),
        pads=tuple(pads),
        signed=op.signed_pads,
        cuts=tuple(cuts),
    )


def _describe_rearrange(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    op = request.call.operator
    assert isinstance(op, Rearrange)
    sizes = list[Size](op.sizes)
    divides = False
    for axis, dim in enumerate(x.dims):
        factor, known = op.unknown(axis), op.multiple(axis)
        if factor is not None:
            sizes[factor] = emit.quotient(dim, known)
            divides |= known > 1 and not isinstance(dim, int)
    return Rearrangement(x, tuple(sizes), op.inputs, op.outputs, checks_division=divides)


def _describe_reorg(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    op, (batch, channels, height, width) = request.call.operator, x.dims
    assert isinstance(op, ReorgYolo)
    s = op.stride
    if not isinstance(channels, int) or channels % s**2:
        raise ConversionError("the cells do not divide the channels")
    sizes = (batch, emit.mul(height, channels // (s * s)), s, width, s)
    # If the stride does not divide the sizes of a run, the Reshape to these fails.
    image = [emit.quotient(size, s) for size in (height, width)]
    return Rearrangement(
        x,
        sizes,
        tuple((factor,) for factor in range(5)),
        tuple((factor,) for factor in (0, 2, 4, 1, 3)),
        shape=(batch, channels * s * s, *image),
    )


#: How to describe each operator that is a permutation of factors.
_DESCRIBE: dict[type[Operator], Callable[[Request, Emitter, Tensor], Rearrangement]] = {
    SpaceToBatch: _describe_blocks,
    BatchToSpace: _describe_blocks,
    ExtractPatches: _describe_tiles,
    Rearrange: _describe_rearrange,
    ReorgYolo: _describe_reorg,
}


def _number_factors(
    batch: Size, cells: Sequence[Size], block: Sequence[Size], rest: Sequence[Size]
) -> tuple[tuple[Size, ...], list[Order], list[Order]]:
    """Return all sizes, the two factors of each blocked axis, the factor of each other axis."""
    sizes = [batch]
    space: list[Order] = []
    for cell, b in zip(cells, block, strict=False):
        space.append((len(sizes), len(sizes) + 1))
        sizes += [cell, b]
    channels: list[Order] = [(len(sizes) + i,) for i in range(len(rest))]
    return (*sizes, *rest), space, channels


Kind = Literal["transpose", "gather"]

#: Factors of five blocked axes; the swaps of more, whose number grows by the third power, are not tried.
_MAX_FACTORS = 9

#: In a plan of three stages, the first and the last are among this many of the cheapest swaps.
_MAX_SWAPS = 16

#: Nodes for each axis of an index that is computed at run time, and nanoseconds for each entry.
_INDEX_NODES, _INDEX_ENTRY = 3, 0.5


def in_one(request: Request, emit: Emitter) -> ir.Value:
    """Emit one Transpose, at any price."""
    r = Rearrangement.of(request, emit)
    return r.finished(emit, transposed(emit, r, r.padded(emit), r.before, r.after))


def in_stages(request: Request, emit: Emitter, *, gathers: bool) -> ir.Value:
    """Emit the cheapest stages, with a Gather among them or all of them Transposes.

    Raises:
        ConversionError: there are no such stages.
    """
    if gathers:
        request.refuse_strings()
    r = Rearrangement.of(request, emit)
    plan = _plan_stages(r, emit, gathers=gathers)
    if not plan:
        raise ConversionError("no sequence of such steps is needed or fits")
    x = r.padded(emit)
    for stage in plan:
        emit_stage = _gather_stage if stage.kind == "gather" else _transpose_stage
        x = emit_stage(emit, r, x, stage)
    return r.finished(emit, x)


def _plan_stages(r: Rearrangement, emit: Emitter, *, gathers: bool) -> list[Stage]:
    """Return the cheapest stages, in terms of the factors; none if there are no such stages."""
    # Factors that are neighbours before and after count as one: the search moves bundles.
    bundles = neighbours(r.after, r.before)
    number = {bundle[0]: i for i, bundle in enumerate(bundles)}
    after = tuple(number[f] for f in r.after if f in number)
    cases = emit.in_each_case(
        lambda: tuple(emit.elements_in(r.sizes[f] for f in bundle) for bundle in bundles)
    )
    unknown = frozenset(
        i
        for i, bundle in enumerate(bundles)
        if not all(isinstance(r.sizes[f], int) for f in bundle)
    )
    before = tuple(range(len(bundles)))
    problem = Problem(tuple(cases), before, after, r.x.itemsize, unknown, gathers, emit.rank_limit)

    def factors(order: Order) -> Order:
        return tuple(factor for i in order for factor in bundles[i])

    plan = cheapest_plan(problem) or ()
    return [Stage(s.kind, factors(s.before), factors(s.after)) for s in plan]


def transposed(emit: Emitter, r: Rearrangement, x: Tensor, before: Order, after: Order) -> Tensor:
    """Emit a Transpose from one order of factors to another, none if they are equal."""
    return x if before == after else _transpose_stage(emit, r, x, Stage("transpose", before, after))


def _transpose_stage(emit: Emitter, r: Rearrangement, x: Tensor, stage: Stage) -> Tensor:
    """Emit one Transpose of the fewest axes."""
    axes = _stage_axes(emit, r, stage)
    inner = sorted(axes, key=lambda group: stage.before.index(group[0]))
    dims = [r.size(emit, group) for group in inner]
    return emit.transpose_as(x, dims, [inner.index(group) for group in axes])


def _stage_axes(emit: Emitter, r: Rearrangement, stage: Stage) -> list[Order]:
    """Return the axes of a Transpose: the fewest, or without products of unknown sizes.

    A shape that holds single sizes takes fewer nodes than one that holds products.
    """
    joined = neighbours(stage.before, stage.after)
    if sum(not isinstance(r.size(emit, group), int) for group in joined) < 2:
        return joined
    apart = [axis for group in joined for axis in _runs_of_factors(r, group)]
    inner = sorted(joined, key=lambda group: stage.before.index(group[0]))
    moved = [group for group, other in zip(joined, inner, strict=True) if group != other]
    # onnxruntime has other kernels for two axes that change places.
    generic = len(moved) != 2 or all(len(_runs_of_factors(r, group)) == 1 for group in moved)
    fits = len(apart) <= emit.rank_limit
    return apart if generic and fits else joined


def _runs_of_factors(r: Rearrangement, group: Order) -> list[Order]:
    """Return the factors of an axis in runs, each with one unknown size at most."""
    runs: list[Order] = []
    has_unknown = False  # of the last run
    for factor in group:
        is_unknown = not isinstance(r.sizes[factor], int)
        if not runs or (is_unknown and has_unknown):
            runs.append((factor,))
            has_unknown = is_unknown
        else:
            runs[-1] = (*runs[-1], factor)
            has_unknown |= is_unknown
    return runs


def _gather_stage(emit: Emitter, r: Rearrangement, x: Tensor, stage: Stage) -> Tensor:
    """Emit one Gather of rows along the middle."""
    front, back = stage.kept
    end = len(stage.before) - back
    strides: dict[int, Size] = {}  # rows from one entry of each factor to the next
    stride: Size = 1
    for factor in reversed(stage.before[front:end]):
        strides[factor] = stride
        stride = emit.mul(stride, r.sizes[factor])
    runs = neighbours(stage.before[front:end], stage.after[front:end])
    rows = index(emit, [Term(r.size(emit, run), strides[run[-1]]) for run in runs])
    parts = (stage.before[:front], stage.before[front:end], stage.before[end:])
    # A Gather would ignore the remainder of a size that a block does not divide.
    x = emit.reshape(x, [r.size(emit, part) for part in parts if part], exact=r.checks_division)
    return emit.gather(x, rows, int(front > 0))


# The plan.


@dataclass(frozen=True)
class Stage:
    """One step from an order of factors to another."""

    kind: Kind
    before: Order
    after: Order

    @property
    def kept(self) -> tuple[int, int]:
        """Number of factors that stay in front, and at the end."""
        same = [a == b for a, b in zip(self.before, self.after, strict=True)]
        return (*same, False).index(False), (*same[::-1], False).index(False)


@dataclass(frozen=True)
class Problem:
    """A permutation to find stages for.

    Attributes:
        cases: sizes of the factors; several cases of estimates, if some are unknown, count for their
            share of elements.
        before, after: orders of the factors.
        itemsize: bytes of an element.
        unknown: factors of unknown size; an index of these is computed at run time.
        gathers: whether one stage must be a Gather; if not, all are Transposes.
        rank_limit: largest rank of a tensor.
    """

    cases: tuple[tuple[int, ...], ...]
    before: Order
    after: Order
    itemsize: int
    unknown: frozenset[int]
    gathers: bool
    rank_limit: float

    def price(self, stage: Stage) -> float:
        """Return the nanoseconds of a stage, the mean of all cases; infinite beyond the rank limit."""
        price = self._price_gather if stage.kind == "gather" else self._price_transpose
        elements = [_capped_product(max(1, size) for size in sizes) for sizes in self.cases]
        weighted = [
            price(stage, sizes) * (elements[0] / count)
            for sizes, count in zip(self.cases, elements, strict=True)
        ]
        return sum(weighted) / len(weighted)

    def _price_transpose(self, stage: Stage, sizes: tuple[int, ...]) -> float:
        perm = tuple(map(stage.before.index, stage.after))
        dims = tuple(sizes[f] for f in stage.before)
        work = cost_model.best_transpose(dims, perm, self.itemsize, self.rank_limit)
        if work is None:
            return math.inf
        return work.nanoseconds + cost_model.small().nanoseconds

    def _price_gather(self, stage: Stage, sizes: tuple[int, ...]) -> float:
        front, back = stage.kept
        end = len(stage.before) - back
        axes = end - front
        is_computed = not self.unknown.isdisjoint(stage.before[front:end])
        if is_computed and bool(front) + axes + bool(back) > self.rank_limit:
            return math.inf
        total = _capped_product(max(1, size) for size in sizes)
        lead = max(1, _capped_product(sizes[f] for f in stage.before[:front]))
        rows = total // max(1, _capped_product(sizes[f] for f in stage.before[end:]))
        small = cost_model.small().nanoseconds
        cost = cost_model.copies("gather", rows, total * self.itemsize).nanoseconds + 2 * small
        if is_computed:
            cost += _INDEX_NODES * axes * small + rows // lead * _INDEX_ENTRY
        return cost

    def cheapest_swaps(
        self, changes: Iterable[tuple[Order, Order]]
    ) -> list[tuple[float, tuple[Stage]]]:
        """Return the possible Transposes with their prices, the cheapest first."""
        stages = [Stage("transpose", *change) for change in changes]
        priced = [(self.price(stage), (stage,)) for stage in stages]
        return sorted((p for p in priced if p[0] < math.inf), key=itemgetter(0))


def _capped_product(sizes: Iterable[int]) -> int:
    return min(cost_model.MAX_SIZE, math.prod(sizes))


@lru_cache(maxsize=4096)
def cheapest_plan(problem: Problem) -> tuple[Stage, ...] | None:
    """Return the cheapest stages: a swap or none, any stage, a swap or none; None if there are none."""
    before, after = problem.before, problem.after
    kind: Kind = "gather" if problem.gathers else "transpose"
    if before == after:
        return None if problem.gathers else ()
    no_swap: tuple[float, tuple[Stage, ...]] = (0.0, ())
    around = [(no_swap, no_swap)]  # what may stand in front of the middle stage, and behind it
    if len(before) <= _MAX_FACTORS:
        firsts = problem.cheapest_swaps((before, order) for order in swaps(before))
        lasts = problem.cheapest_swaps((order, after) for order in swaps(after))
        around += [*((first, no_swap) for first in firsts), *((no_swap, last) for last in lasts)]
        around += itertools.product(firsts[:_MAX_SWAPS], lasts[:_MAX_SWAPS])
    least, plan = math.inf, None
    for (head_price, head), (tail_price, tail) in around:
        price = head_price + tail_price
        start = head[-1].after if head else before
        end = tail[0].before if tail else after
        if price >= least or start == end:
            continue
        middle = Stage(kind, start, end)
        price += problem.price(middle)
        stages = (*head, middle, *tail)
        if price < least and not any(are_merged(a, b) for a, b in pairwise(stages)):
            least, plan = price, stages
    return plan


def swaps(order: Order) -> Iterator[Order]:
    """Yield every order with two neighbouring groups of factors swapped."""
    for i, j, k in itertools.combinations(range(len(order) + 1), 3):
        yield order[:i] + order[j:k] + order[i:j] + order[k:]


def are_merged(first: Stage, second: Stage) -> bool:
    """Tell whether onnxruntime's optimizer merges two Transposes, which may be slower.

    It does if the Reshape between them only splits axes, and so could come first.
    """
    if (first.kind, second.kind) != ("transpose", "transpose"):
        return False
    axes = [set(group) for group in neighbours(first.before, first.after)]
    return all(
        any(axis.issuperset(group) for axis in axes)
        for group in neighbours(second.before, second.after)
    )
