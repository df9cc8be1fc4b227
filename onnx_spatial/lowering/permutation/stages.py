"""Find the cheapest stages of a rearrangement with `stage_plan`, and emit them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby

import numpy as np
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor, same
from onnx_spatial.lowering.core.gather_indices import (
    Numbers,
    Term,
    check_length,
    computed_index,
    constant_index,
    outer_sum,
)
from onnx_spatial.lowering.core.padding import is_zero
from onnx_spatial.lowering.permutation import stage_plan
from onnx_spatial.lowering.permutation.factored_axes import Order, Rearrangement, stop
from onnx_spatial.lowering.permutation.stage_plan import Kind, Problem, Stage

_ANY_RANK = 64

#: Factors of each axis of an index, in order, with the crops of the axis.
Cuts = dict[Order, tuple[Size, Size]]


def cheapest(
    r: Rearrangement, emit: Emitter, kinds: frozenset[Kind], needed: frozenset[Kind]
) -> tuple[Stage, ...] | None:
    """Return the cheapest stages, in terms of the factors; None if there are none of these kinds.

    Args:
        r: the rearrangement.
        emit: knows estimates of its sizes.
        kinds: kinds that may be used.
        needed: kinds of which one must be used.
    """
    if TensorProto.STRING in r.element_types:  # onnxruntime's Gather is wrong for strings
        if needed == {"gather"}:
            return None
        kinds -= {"gather"}
    # Factors that are neighbours before and after count as one.
    bundles = stage_plan.groups(r.after, r.before)
    number = {bundle: i for i, bundle in enumerate(bundles)}
    by_first = {bundle[0]: bundle for bundle in bundles}
    after = tuple(number[by_first[f]] for f in r.after if f in by_first)
    cases = emit.in_each_case(
        lambda: tuple(emit.elements_in(r.sizes[f] for f in bundle) for bundle in bundles)
    )
    plan = stage_plan.stages(
        Problem(
            tuple(cases),
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
    if plan is None:
        return None

    def factors(order: Order) -> Order:
        return tuple(factor for i in order for factor in bundles[i])

    return tuple(Stage(s.kind, factors(s.before), factors(s.after)) for s in plan)


class _Moving:
    """A tensor between two stages, with the sizes of its factors."""

    def __init__(self, emit: Emitter, r: Rearrangement, x: Tensor) -> None:
        self.emit = emit
        self.r = r
        self.x = x
        #: Factors that became one cropped axis, with its size.
        self.joined: dict[Order, Size] = {}
        #: Axes of the output that are cropped already.
        self.cropped: set[int] = set()
        self.checks_division = r.checks_division

    def size(self, factors: Sequence[int]) -> Size:
        """Return the size of neighbouring factors together."""
        sizes = [self.r.sizes[f] for f in factors if not self._is_joined(f)]
        joined = [size for group, size in self.joined.items() if group[0] in factors]
        return self.emit.product([*sizes, *joined])

    def _is_joined(self, factor: int) -> bool:
        return any(factor in group for group in self.joined)

    def transpose(self, stage: Stage) -> None:
        """Emit one Transpose of the fewest axes."""
        groups = self._groups(stage)
        inner = sorted(groups, key=lambda group: stage.before.index(group[0]))
        dims = [self.size(group) for group in inner]
        self.x = self.emit.transpose_as(self.x, dims, [inner.index(group) for group in groups])

    def _groups(self, stage: Stage) -> Sequence[Order]:
        """Return the axes of a Transpose: the fewest, or without products of unknown sizes.

        A shape that holds single sizes takes fewer nodes than one that holds products.
        """
        groups = stage_plan.groups(stage.before, stage.after)
        if sum(not isinstance(self.size(group), int) for group in groups) < 2 or self.joined:
            return groups
        apart = [axis for group in groups for axis in self._runs(group)]
        inner = sorted(groups, key=lambda group: stage.before.index(group[0]))
        moved = [group for group, other in zip(groups, inner, strict=True) if group != other]
        # onnxruntime has other kernels for two axes that change places.
        generic = len(moved) != 2 or all(len(self._runs(group)) == 1 for group in moved)
        fits = len(apart) <= (self.emit.rank_limit or _ANY_RANK)
        return apart if generic and fits else groups

    def _runs(self, group: Order) -> list[Order]:
        """Return the factors of an axis in runs, each with one unknown size at most."""
        runs: list[Order] = []
        free = False
        for factor in group:
            known = isinstance(self.r.sizes[factor], int)
            if runs and (known or free):
                runs[-1] = (*runs[-1], factor)
            else:
                runs.append((factor,))
                free = True
            free = free and known
        return runs

    def gather(self, stage: Stage, rest: Sequence[Stage]) -> None:
        """Emit one Gather of rows along the middle."""
        front, back = stage.kept
        x, axis = self._as_rows(stage, front, back)
        moving = stage.after[front : len(stage.after) - back]
        crops = self._crops(moving, rest)
        index = self._index(stage, moving, crops)
        self._join_cropped(crops)
        self.x = self.emit.gather(x, index, axis)

    def gather_and_interleave(self, stage: Stage, follower: Stage, rest: Sequence[Stage]) -> None:
        """Emit one Gather for each part, and a Concat that interleaves them."""
        front, back = stage.kept
        assert front == 0
        count = follower.before.index(follower.after[0])
        x, axis = self._as_rows(stage, 0, back)
        moving = stage.after[: len(stage.after) - back]
        part_factors, others = moving[:count], moving[count:]
        crops = self._crops(others, [follower, *rest])
        parts = self.size(part_factors)
        if not isinstance(parts, int) or any(map(self._is_joined, part_factors)):
            raise ConversionError("the parts to interleave are not known before the run")
        numbers = [self._part(stage, part_factors, others, crops, i) for i in range(parts)]
        self._join_cropped(crops)
        inner = follower.kept[1]
        tail = self.size(follower.after[len(follower.after) - inner :]) if inner else 1
        length = self.size(follower.before[count : len(follower.before) - inner])
        each = []
        for index in numbers:
            part = self.emit.gather(x, index, axis)
            each.append(self.emit.reshape(part, [length, tail]))
        self.x = self.emit.concat(each, 1)

    def join(self, stage: Stage) -> None:
        """Emit a Split into parts and a Concat of them along another axis."""
        front, back = stage.kept
        count = len(stage.before) - back
        middle = stage.before[front:count]
        cut = middle.index(stage.after[front])
        left, right = middle[:cut], middle[cut:]
        lead, tail = self.size(stage.before[:front]), self.size(stage.before[count:])
        interleaves = stage.kind == "interleave"
        few, many = (left, right) if interleaves else (right, left)
        parts, length = self.size(few), self.size(many)
        if not isinstance(parts, int):  # a Gather has cropped them by computed amounts
            raise ConversionError("the parts to interleave are not known before the run")
        emit = self.emit
        rows = emit.product([lead, length])
        if interleaves:
            x = emit.reshape(self.x, [lead, emit.product([parts, length, tail])])
        else:
            x = emit.reshape(self.x, [rows, emit.product([parts, tail])])
        split = emit.split(x, 1, parts)
        flat = [rows, tail] if interleaves else [lead, emit.product([length, tail])]
        self.x = emit.concat([emit.reshape(part, flat) for part in split], 1)

    def _as_rows(self, stage: Stage, front: int, back: int) -> tuple[Tensor, int]:
        """Return the tensor as [lead,] rows, row; and the axis of the rows."""
        n = len(stage.before)
        row = self.size(stage.before[n - back :])
        rows = self.size(stage.before[front : n - back])
        dims = [rows, row] if front == 0 else [self.size(stage.before[:front]), rows, row]
        # A Gather would ignore the remainder of a size that a block does not divide.
        x, exact = self.x, self.checks_division
        split = stage_plan.groups(stage.after, stage.before)
        fits = len(split) <= (self.emit.rank_limit or len(split))
        if exact and fits and any(len(axis) > 1 for axis in self.r.inputs[1:]):
            # The sizes of these factors are computed in any case, for the index.
            x, exact = (
                self.emit.reshape(x, [self.size(group) for group in split], exact=True),
                False,
            )
        x = self.emit.reshape(x, dims, exact=exact)
        self.checks_division = False
        return x, len(dims) - 2

    def _crops(self, moving: Order, rest: Sequence[Stage]) -> dict[int, Order]:
        """Return the axes of the output that the index can crop, with their factors."""
        crops = {}
        for axis, factors in enumerate(self.r.outputs):
            group = tuple(f for f in factors if not same(self.r.sizes[f], 1))
            if not self.r.cropped(axis) or axis in self.cropped or not group:
                continue
            later = [order for stage in rest for order in (stage.before, stage.after)]
            if all(_are_neighbours(group, order) for order in (moving, *later)):
                crops[axis] = group
        return crops

    def _join_cropped(self, crops: dict[int, Order]) -> None:
        for axis, group in crops.items():
            begin, end = self.r.crops[axis]
            whole = self.r.merged(self.emit, axis)
            self.joined[group] = self.emit.sub(self.emit.sub(whole, begin), end)
            self.cropped.add(axis)

    def _index(self, stage: Stage, moving: Order, crops: dict[int, Order]) -> Tensor:
        """Return the row numbers."""
        front, back = stage.kept
        source = stage.before[front : len(stage.before) - back]
        cuts = self._cuts(moving, crops)
        axes = self._axes(source, cuts)
        if axes is not None:
            return constant_index(self.emit, axes)
        return self._at_run_time(source, cuts)

    def _part(
        self, stage: Stage, few: Order, others: Order, crops: dict[int, Order], number: int
    ) -> Tensor:
        """Return the row numbers for one entry of the leading factors."""
        back = stage.kept[1]
        source = stage.before[: len(stage.before) - back]
        axes = self._axes(source, self._cuts((*few, *others), crops))
        if axes is not None:
            leading = axes[: len(few)]  # no crop joins factors that are taken apart
            start = int(outer_sum(leading)[number])
            return constant_index(self.emit, axes[len(few) :], start)
        index = self._at_run_time(source, self._cuts(others, crops))
        strides = self._strides(source)
        for factor in reversed(few):
            count = self.r.sizes[factor]
            assert isinstance(count, int)
            number, place = divmod(number, count)
            if place:
                rows = self.emit.size(self.emit.mul(strides[factor], place))
                index = replace(index, value=self.emit.op("Add", index.value, rows))
        return index

    def _cuts(self, moving: Order, crops: dict[int, Order]) -> Cuts:
        """Return the factors of each axis of the index, in order, with its crops."""
        cropped = {group[0]: (axis, group) for axis, group in crops.items()}
        cuts: Cuts = {}
        rest = list(moving)
        while rest:
            axis, group = cropped.get(rest[0], (None, (rest[0],)))
            cuts[group] = (0, 0) if axis is None else self.r.crops[axis]
            del rest[: len(group)]
        return cuts

    def _axes(self, source: Order, cuts: Cuts) -> list[Numbers] | None:
        """Return the summands of the row number for each axis of the index; None if unknown."""
        strides: dict[int, int] = {}
        stride = 1
        for factor in reversed(source):
            size = self.r.sizes[factor]
            if self._is_joined(factor) or not isinstance(size, int):
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

    def _strides(self, source: Order) -> dict[int, Size]:
        """Return the rows from one entry of each factor to the next."""
        strides: dict[int, Size] = {}
        stride: Size = 1
        for factor in reversed(source):
            strides[factor] = stride
            stride = self.emit.mul(stride, self.size([factor]))
        return strides

    def _at_run_time(self, source: Order, cuts: Cuts) -> Tensor:
        """Emit nodes that add up the row numbers, and return these."""
        emit, strides = self.emit, self._strides(source)

        def summands(factors: Order) -> list[Term]:
            runs = stage_plan.groups(source, factors)
            return [Term(self.size(run), strides[run[-1]]) for run in runs]

        numbers = computed_index(emit, summands(tuple(chain(*cuts))))
        if all(map(is_zero, cuts.values())):
            return numbers
        # One Slice crops all axes; those between cropped ones are joined.
        joined: Cuts = {}
        for uncropped, groups in groupby(cuts, lambda group: is_zero(cuts[group])):
            for group in [tuple(chain(*groups))] if uncropped else groups:
                joined[group] = cuts.get(group, (0, 0))
        whole = [self.size(group) for group in joined]
        begins, cropped_ends = zip(*joined.values(), strict=True)
        dims = [
            emit.sub(emit.sub(n, b), e) for n, b, e in zip(whole, begins, cropped_ends, strict=True)
        ]
        axes = [axis for axis, crop in enumerate(joined.values()) if not is_zero(crop)]
        ends = [stop(emit, whole[axis], cropped_ends[axis]) for axis in axes]
        starts = [begins[axis] for axis in axes]
        return emit.slice(emit.reshape(numbers, whole), axes, starts, ends, dims)


def emit_transpose(
    emit: Emitter, r: Rearrangement, x: Tensor, before: Order, after: Order
) -> tuple[Tensor, set[int]]:
    """Emit a Transpose from one order of factors to another, none if they are equal."""
    plan = [] if before == after else [Stage("transpose", before, after)]
    return emit_stages(emit, r, x, plan)


def emit_stages(
    emit: Emitter, r: Rearrangement, x: Tensor, plan: Sequence[Stage]
) -> tuple[Tensor, set[int]]:
    """Emit the stages; return the tensor, and the axes of the output that are cropped already."""
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
    return moving.x, moving.cropped


def _fuses(r: Rearrangement, stage: Stage, follower: Stage) -> bool:
    return (
        stage.kept[0] == 0
        and stage_plan.fusable(follower)
        and all(
            isinstance(r.sizes[f], int)
            for f in follower.before[: follower.before.index(follower.after[0])]
        )
    )


def _are_neighbours(group: Order, order: Order) -> bool:
    if group[0] not in order:
        return False
    at = order.index(group[0])
    return order[at : at + len(group)] == group
