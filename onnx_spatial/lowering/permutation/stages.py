"""Write a rearrangement as the stages that `stage_plan` finds.

Strategies that differ only in the kinds of stages that they use share this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor, same
from onnx_spatial.lowering.core.gather_indices import (
    Numbers,
    check_length,
    constant_index,
    outer_sum,
)
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.permutation import stage_plan
from onnx_spatial.lowering.permutation.factored_axes import Order, Rearrangement, stop
from onnx_spatial.lowering.permutation.stage_plan import Kind, Problem, Stage

_ANY_RANK = 64

#: Factors that are one axis of an index, in order, with what is cut off its begin and end.
Cuts = dict[Order, tuple[Size, Size]]


def lowered(
    request: Request, emit: Emitter, kinds: Iterable[Kind], needed: Iterable[Kind] = ()
) -> ir.Value:
    """Write a request with stages of these kinds.

    Args:
        request: the operator.
        emit: where the nodes go.
        kinds: what may be used.
        needed: kinds of which one must be used.

    Raises:
        ConversionError: there are no such stages.
    """
    r = Rearrangement.of(request, emit)
    plan = plan_of(r, emit, frozenset(kinds), frozenset(needed))
    if plan is None:
        raise ConversionError("no sequence of such steps is needed or fits")
    x, done = moved(emit, r, r.padded(emit), plan)
    return r.finished(emit, x, done)


def plan_of(
    r: Rearrangement, emit: Emitter, kinds: frozenset[Kind], needed: frozenset[Kind]
) -> tuple[Stage, ...] | None:
    """The stages in terms of the factors themselves."""
    if TensorProto.STRING in r.element_types:  # onnxruntime's Gather is wrong for strings
        if needed == {"gather"}:
            return None
        kinds -= {"gather"}
    bundles = _bundles(r)
    number = {bundle: i for i, bundle in enumerate(bundles)}
    by_first = {bundle[0]: bundle for bundle in bundles}
    after = tuple(number[by_first[f]] for f in r.after if f in by_first)
    sizes = tuple(emit.elements_in(r.sizes[f] for f in bundle) for bundle in bundles)
    found = stage_plan.stages(
        Problem(
            sizes,
            tuple(range(len(bundles))),
            after,
            r.x.itemsize,
            frozenset(
                i
                for i, bundle in enumerate(bundles)
                if not all(isinstance(r.sizes[f], int) for f in bundle)
            ),
            kinds,
            needed,
            emit.rank_limit or _ANY_RANK,
        )
    )
    if found is None:
        return None

    def spelled(order: Order) -> Order:
        return tuple(factor for i in order for factor in bundles[i])

    return tuple(Stage(s.kind, spelled(s.before), spelled(s.after)) for s in found)


def _bundles(r: Rearrangement) -> list[Order]:
    """Factors that are neighbours before and after, without those of size 1."""
    follower = dict(pairwise(r.after))
    bundles: list[Order] = []
    for factor in r.before:
        if bundles and follower.get(bundles[-1][-1]) == factor:
            bundles[-1] = (*bundles[-1], factor)
        else:
            bundles.append((factor,))
    return bundles


class _Moving:
    """A tensor on its way: which factors lie behind each other, and how large they are."""

    def __init__(self, emit: Emitter, r: Rearrangement, x: Tensor) -> None:
        self.emit = emit
        self.r = r
        self.x = x
        #: Factors that became one axis when it was cropped, with its size.
        self.glued: dict[Order, Size] = {}
        self.done: set[int] = set()
        self.proven = not r.unproven

    def size(self, factors: Sequence[int]) -> Size:
        """Of factors that lie behind each other."""
        sizes = [self.r.sizes[f] for f in factors if not self._is_glued(f)]
        glued = [size for group, size in self.glued.items() if group[0] in factors]
        return self.emit.product([*sizes, *glued])

    def _is_glued(self, factor: int) -> bool:
        return any(factor in group for group in self.glued)

    def transpose(self, stage: Stage) -> None:
        """One Transpose of the fewest axes."""
        groups = stage_plan.groups(stage.before, stage.after)
        inner = sorted(groups, key=lambda group: stage.before.index(group[0]))
        x = self.emit.reshape(self.x, [self.size(group) for group in inner])
        self.x = self.emit.transpose(x, [inner.index(group) for group in groups])

    def gather(self, stage: Stage, rest: Sequence[Stage]) -> None:
        """One Gather of rows along the middle."""
        front, back = stage.kept
        x, axis = self._as_rows(stage, front, back)
        moving = stage.after[front : len(stage.after) - back]
        crops = self._crops(moving, rest)
        index, dims = self._index(stage, moving, crops)
        self._glue(crops)
        self.x = self.emit.gather(x, index, dims, axis)

    def gather_and_interleave(self, stage: Stage, follower: Stage, rest: Sequence[Stage]) -> None:
        """One Gather for each part, and a Concat that interleaves them."""
        front, back = stage.kept
        assert front == 0
        count = follower.before.index(follower.after[0])
        x, axis = self._as_rows(stage, 0, back)
        moving = stage.after[: len(stage.after) - back]
        part_factors, others = moving[:count], moving[count:]
        crops = self._crops(others, [follower, *rest])
        parts = self.size(part_factors)
        assert isinstance(parts, int)
        numbers = [self._part(stage, part_factors, others, crops, i) for i in range(parts)]
        self._glue(crops)
        inner = follower.kept[1]
        tail = self.size(follower.after[len(follower.after) - inner :]) if inner else 1
        length = self.size(follower.before[count : len(follower.before) - inner])
        each = []
        for index, dims in numbers:
            part = self.emit.gather(x, index, dims, axis)
            each.append(self.emit.reshape(part, [length, tail]))
        self.x = self.emit.concat(each, 1)

    def join(self, stage: Stage) -> None:
        """Split into parts and put them together along another axis."""
        front, back = stage.kept
        count = len(stage.before) - back
        middle = stage.before[front:count]
        cut = middle.index(stage.after[front])
        left, right = middle[:cut], middle[cut:]
        lead, tail = self.size(stage.before[:front]), self.size(stage.before[count:])
        few, many = (left, right) if stage.kind == "interleave" else (right, left)
        parts, length = self.size(few), self.size(many)
        if not isinstance(parts, int):  # a Gather has cropped them by what only the run knows
            raise ConversionError("the parts to interleave are not known before the run")
        emit = self.emit
        rows = emit.product([lead, length])
        if stage.kind == "interleave":
            x = emit.reshape(self.x, [lead, emit.product([parts, length, tail])])
            split = emit.split(x, 1, parts)
            self.x = emit.concat([emit.reshape(part, [rows, tail]) for part in split], 1)
        else:
            x = emit.reshape(self.x, [rows, emit.product([parts, tail])])
            split = emit.split(x, 1, parts)
            flat = [lead, emit.product([length, tail])]
            self.x = emit.concat([emit.reshape(part, flat) for part in split], 1)

    def _as_rows(self, stage: Stage, front: int, back: int) -> tuple[Tensor, int]:
        """(the tensor as [lead,] rows, row; axis of the rows)"""
        n = len(stage.before)
        row = self.size(stage.before[n - back :])
        rows = self.size(stage.before[front : n - back])
        dims = [rows, row] if front == 0 else [self.size(stage.before[:front]), rows, row]
        # A Gather would leave out what blocks that do not divide leave over.
        rows_of = self.emit.reshape(self.x, dims, exact=not self.proven)
        self.proven = True
        return rows_of, len(dims) - 2

    def _crops(self, moving: Order, rest: Sequence[Stage]) -> dict[int, Order]:
        """Axes of the output that can be cropped in the index, with their factors."""
        found = {}
        for axis, factors in enumerate(self.r.outputs):
            group = tuple(f for f in factors if not same(self.r.sizes[f], 1))
            if not self.r.cropped(axis) or axis in self.done or not group:
                continue
            later = [order for stage in rest for order in (stage.before, stage.after)]
            if all(_together(group, order) for order in (moving, *later)):
                found[axis] = group
        return found

    def _glue(self, crops: dict[int, Order]) -> None:
        for axis, group in crops.items():
            begin, end = self.r.crops[axis]
            whole = self.r.merged(self.emit, axis)
            self.glued[group] = self.emit.sub(self.emit.sub(whole, begin), end)
            self.done.add(axis)

    def _index(
        self, stage: Stage, moving: Order, crops: dict[int, Order]
    ) -> tuple[ir.Value, list[Size]]:
        """(row numbers, their dims)"""
        front, back = stage.kept
        source = stage.before[front : len(stage.before) - back]
        cuts = self._cuts(moving, crops)
        axes = self._axes(source, cuts)
        if axes is not None:
            return constant_index(self.emit, axes)
        lengths = [self._length(group, cut) for group, cut in cuts.items()]
        return self._at_run_time(source, moving, cuts, lengths), lengths

    def _part(
        self, stage: Stage, few: Order, others: Order, crops: dict[int, Order], number: int
    ) -> tuple[ir.Value, list[Size]]:
        """The same for one entry of the leading factors."""
        back = stage.kept[1]
        source = stage.before[: len(stage.before) - back]
        axes = self._axes(source, self._cuts((*few, *others), crops))
        if axes is None:
            raise ConversionError("the parts to interleave are not known before the run")
        leading = axes[: len(few)]  # no crop joins factors that are taken apart
        start = int(outer_sum(leading)[number])
        return constant_index(self.emit, axes[len(few) :], start)

    def _cuts(self, moving: Order, crops: dict[int, Order]) -> Cuts:
        """The factors that are one axis of the index each, in order, with what is cut off."""
        cropped = {group[0]: (axis, group) for axis, group in crops.items()}
        cuts: Cuts = {}
        rest = list(moving)
        while rest:
            axis, group = cropped.get(rest[0], (None, (rest[0],)))
            cuts[group] = (0, 0) if axis is None else self.r.crops[axis]
            del rest[: len(group)]
        return cuts

    def _axes(self, source: Order, cuts: Cuts) -> list[Numbers] | None:
        """What each axis of the index adds to the row number; None if that is not known."""
        strides: dict[int, int] = {}
        stride = 1
        for factor in reversed(source):
            size = self.r.sizes[factor]
            if self._is_glued(factor) or not isinstance(size, int):
                return None
            strides[factor] = stride
            stride *= size
        axes = []
        for group, (begin, end) in cuts.items():
            if not isinstance(begin, int) or not isinstance(end, int):
                return None
            counts = [n for f in group if isinstance(n := self.r.sizes[f], int)]
            check_length(math.prod(counts))
            offsets = outer_sum(
                np.arange(n) * strides[f] for n, f in zip(counts, group, strict=True)
            )
            axes.append(offsets[begin : len(offsets) - end])
        return axes

    def _length(self, group: Order, cut: tuple[Size, Size]) -> Size:
        emit = self.emit
        return emit.sub(emit.sub(self.size(group), cut[0]), cut[1])

    def _at_run_time(
        self, source: Order, moving: Order, cuts: Cuts, lengths: Sequence[Size]
    ) -> ir.Value:
        """Number the rows, and move the numbers."""
        emit = self.emit
        count = self.size(source)
        numbers = emit.tensor(emit.range(count), [count])
        runs = stage_plan.groups(source, moving)
        inner = sorted(runs, key=lambda group: source.index(group[0]))
        numbers = emit.reshape(numbers, [self.size(group) for group in inner])
        numbers = emit.transpose(numbers, [inner.index(group) for group in runs])
        numbers = emit.reshape(numbers, [self.size(group) for group in cuts])
        axes = [i for i, pair in enumerate(cuts.values()) if _padded(pair)]
        if not axes:
            return numbers.value
        begins, ends = zip(*(list(cuts.values())[i] for i in axes), strict=True)
        stops = [stop(emit, numbers.dims[i], end) for i, end in zip(axes, ends, strict=True)]
        return emit.slice(numbers, axes, begins, stops, lengths).value


def moved(
    emit: Emitter, r: Rearrangement, x: Tensor, plan: Sequence[Stage]
) -> tuple[Tensor, set[int]]:
    """(the tensor after all stages, axes of the output that are cropped by then)"""
    _count_risks(emit, r, x, plan)
    moving = _Moving(emit, r, x)
    rest = list(plan)
    while rest:
        stage = rest.pop(0)
        if stage.kind == "transpose":
            moving.transpose(stage)
        elif stage.kind == "gather" and rest and _fuses(r, stage, rest[0]):
            moving.gather_and_interleave(stage, rest[0], rest[1:])
            rest.pop(0)
        elif stage.kind == "gather":
            moving.gather(stage, rest)
        else:
            moving.join(stage)
    return moving.x, moving.done


def _count_risks(emit: Emitter, r: Rearrangement, x: Tensor, plan: Sequence[Stage]) -> None:
    """Where a Transpose outside meets one of ours, onnxruntime makes one of them that is mostly slow.

    It looks through a Reshape of known sizes between them if that only splits axes.
    """
    if not plan or not all(isinstance(size, int) and size for size in r.sizes):
        return
    size = emit.elements_in(x.dims)
    merged = cost_model.elementwise(size, size * x.itemsize)
    first, last = plan[0], plan[-1]
    before = [set(axis) for axis in r.inputs]
    split = all(_inside(group, before) for group in stage_plan.groups(first.after, first.before))
    meets = first.kind == "transpose" and split and not any(map(_padded, r.pads))
    if r.near[0] and meets:
        emit.risk(merged)
    behind = [set(group) for group in stage_plan.groups(last.before, last.after)]
    axes = (tuple(f for f in axis if f in last.after) for axis in r.outputs)
    split = all(_inside(axis, behind) for axis in axes)
    meets = last.kind == "transpose" and split and not any(map(_padded, r.crops))
    if r.near[1] and meets:
        emit.risk(merged)


def _padded(pair: tuple[Size, Size]) -> bool:
    return not (same(pair[0], 0) and same(pair[1], 0))


def _inside(factors: Order, groups: Iterable[set[int]]) -> bool:
    return not factors or any(group.issuperset(factors) for group in groups)


def _fuses(r: Rearrangement, stage: Stage, follower: Stage) -> bool:
    known = all(isinstance(size, int) for size in r.sizes)
    crops = all(isinstance(amount, int) for pair in r.crops for amount in pair)
    return known and crops and stage.kept[0] == 0 and stage_plan.fusable(follower)


def _together(group: Order, order: Order) -> bool:
    """Whether the factors lie behind each other in this order."""
    if group[0] not in order:
        return False
    at = order.index(group[0])
    return order[at : at + len(group)] == group
