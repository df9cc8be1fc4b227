"""Lower a permutation of factors by Transposes, or by Transposes and one Gather of rows.

transpose     Pad -> Reshape [N, D1/b1, b1, .., rest] -> Transpose -> Reshape -> Slice
              the textbook form, of rank 2M + 2 at most; fast where the last axis stays, otherwise
              onnxruntime walks element by element
    in stages Reshape [N*C*Hb, bh, W] -> T[1,0,2] -> Reshape [.., bw] -> T[1,0] -> Reshape
              two or three Transposes of rank 3 that each move one axis past another
gather        SpaceToBatch  Reshape [.., bw] -> T[1,0] -> Reshape [rows, Wb] -> Gather -> Reshape
              BatchToSpace  Reshape [rows, Wb] -> Gather -> Reshape [bw, ..] -> T[1,0] -> Reshape
              one Gather orders the rows in one parallel pass; its index leaves out cropped rows

`stage_plan` finds the cheapest stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering import stage_plan
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
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.factored_axes import OPERATORS, Order, Rearrangement, refusal, stop
from onnx_spatial.lowering.stage_plan import Problem, Stage
from onnx_spatial.operators import ReorgYolo

_ANY_RANK = 64

#: Factors of each axis of an index, in order, with the crops of the axis.
Cuts = dict[Order, tuple[Size, Size]]


class FactorPermutation(Strategy):
    """A strategy for operators that permute the factors of their axes."""

    accepts = OPERATORS

    def absorbs(self, request: Request) -> bool:
        """Include the Transposes in the permutation."""
        return request.call.kind is not ReorgYolo

    def refuse(self, request: Request) -> str | None:
        """Refuse everything that is no permutation of factors."""
        return refusal(request)


class SingleTranspose(FactorPermutation):
    """One Transpose, at any price."""

    name = "transpose"

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        r = Rearrangement.of(request, emit)
        return r.finished(emit, *emit_transpose(emit, r, r.padded(emit), r.before, r.after))


@dataclass(frozen=True)
class Stages(FactorPermutation):
    """The cheapest stages.

    Attributes:
        name: of the strategy.
        gathers: whether one of them is a Gather; if not, all are Transposes.
    """

    name: str
    gathers: bool

    def refuse(self, request: Request) -> str | None:
        """Refuse strings in a Gather, too."""
        if self.gathers and TensorProto.STRING in request.element_types:
            return "onnxruntime's Gather is wrong for strings"  # it takes one string of each row
        return super().refuse(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output.

        Raises:
            ConversionError: there are no such stages.
        """
        r = Rearrangement.of(request, emit)
        plan = _cheapest(r, emit, gathers=self.gathers)
        if not plan:
            raise ConversionError("no sequence of such steps is needed or fits")
        return r.finished(emit, *_emit_stages(emit, r, r.padded(emit), plan))


def _cheapest(r: Rearrangement, emit: Emitter, *, gathers: bool) -> tuple[Stage, ...] | None:
    """Return the cheapest stages, in terms of the factors; None if there are none."""
    # Factors that are neighbours before and after count as one.
    bundles = stage_plan.groups(r.after, r.before)
    number = {bundle: i for i, bundle in enumerate(bundles)}
    by_first = {bundle[0]: bundle for bundle in bundles}
    after = tuple(number[by_first[f]] for f in r.after if f in by_first)
    cases = emit.in_each_case(
        lambda: tuple(emit.elements_in(r.sizes[f] for f in bundle) for bundle in bundles)
    )
    known = [all(isinstance(r.sizes[f], int) for f in bundle) for bundle in bundles]
    problem = Problem(
        tuple(cases),
        tuple(range(len(bundles))),
        after,
        r.x.itemsize,
        frozenset(i for i, is_known in enumerate(known) if not is_known),
        gathers,
        emit.rank_limit or _ANY_RANK,
    )
    plan = stage_plan.stages(problem)

    def factors(order: Order) -> Order:
        return tuple(factor for i in order for factor in bundles[i])

    return plan and tuple(Stage(s.kind, factors(s.before), factors(s.after)) for s in plan)


def emit_transpose(
    emit: Emitter, r: Rearrangement, x: Tensor, before: Order, after: Order
) -> tuple[Tensor, set[int]]:
    """Emit a Transpose from one order of factors to another, none if they are equal."""
    plan = [] if before == after else [Stage("transpose", before, after)]
    return _emit_stages(emit, r, x, plan)


def _emit_stages(
    emit: Emitter, r: Rearrangement, x: Tensor, plan: Sequence[Stage]
) -> tuple[Tensor, set[int]]:
    """Emit the stages; return the tensor, and the axes of the output that are cropped already."""
    moving = _Moving(emit, r, x)
    for place, stage in enumerate(plan):
        if stage.kind == "transpose":
            moving.transpose(stage)
        else:
            moving.gather(stage, plan[place + 1 :])
    return moving.x, moving.cropped


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

    def size(self, factors: Sequence[int]) -> Size:
        """Return the size of neighbouring factors together."""
        cropped = set(chain(*self.joined))
        sizes = [self.r.sizes[f] for f in factors if f not in cropped]
        joined = [size for group, size in self.joined.items() if group[0] in factors]
        return self.emit.product([*sizes, *joined])

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
        """Emit one Gather of rows along the middle, whose index crops what it can."""
        front, back = stage.kept
        end = len(stage.before) - back
        x, axis = self._as_rows(stage, front, end)
        moving = stage.after[front:end]
        crops = self._crops(moving, rest)
        index = self._index(stage.before[front:end], moving, crops)
        for number, group in crops.items():
            begin, cut = self.r.crops[number]
            whole = self.r.merged(self.emit, number)
            self.joined[group] = self.emit.sub(self.emit.sub(whole, begin), cut)
            self.cropped.add(number)
        self.x = self.emit.gather(x, index, axis)

    def _as_rows(self, stage: Stage, front: int, end: int) -> tuple[Tensor, int]:
        """Return the tensor as [lead,] rows [, row]; and the axis of the rows."""
        row, rows = self.size(stage.before[end:]), self.size(stage.before[front:end])
        dims = [self.size(stage.before[:front]), rows] if front else [rows]
        axis = len(dims) - 1
        dims += [row] if end < len(stage.before) else []
        # A Gather would ignore the remainder of a size that a block does not divide.
        x, exact = self.x, self.r.checks_division
        split = stage_plan.groups(stage.after, stage.before)
        fits = len(split) <= (self.emit.rank_limit or len(split))
        if exact and fits and any(len(axis) > 1 for axis in self.r.inputs[1:]):
            # The sizes of these factors are computed in any case, for the index.
            x = self.emit.reshape(x, [self.size(group) for group in split], exact=True)
            exact = False
        return self.emit.reshape(x, dims, exact=exact), axis

    def _crops(self, moving: Order, rest: Sequence[Stage]) -> dict[int, Order]:
        """Return the axes of the output that the index can crop, with their factors."""
        orders = [moving, *(order for stage in rest for order in (stage.before, stage.after))]
        crops = {}
        for axis, factors in enumerate(self.r.outputs):
            group = tuple(f for f in factors if not same(self.r.sizes[f], 1))
            if not self.r.cropped(axis) or not group:
                continue
            if all(_are_neighbours(group, order) for order in orders):
                crops[axis] = group
        return crops

    def _index(self, source: Order, moving: Order, crops: dict[int, Order]) -> Tensor:
        """Return the row numbers."""
        cropped = {group[0]: (axis, group) for axis, group in crops.items()}
        cuts: Cuts = {}
        rest = list(moving)
        while rest:
            axis, group = cropped.get(rest[0], (None, (rest[0],)))
            cuts[group] = (0, 0) if axis is None else self.r.crops[axis]
            del rest[: len(group)]
        #: Rows from one entry of each factor to the next.
        strides: dict[int, Size] = {}
        stride: Size = 1
        for factor in reversed(source):
            strides[factor] = stride
            stride = self.emit.mul(stride, self.size([factor]))
        axes = self._axes(strides, cuts)
        if axes is not None:
            return constant_index(self.emit, axes)
        return self._at_run_time(source, strides, cuts)

    def _axes(self, strides: dict[int, Size], cuts: Cuts) -> list[Numbers] | None:
        """Return the summands of the row number for each axis of the index; None if unknown."""
        axes = []
        for group, (begin, end) in cuts.items():
            counts = [self.r.sizes[factor] for factor in group]
            known = [n for n in (begin, end, *counts) if isinstance(n, int)]
            steps = [stride for f in group if isinstance(stride := strides[f], int)]
            if len(known) < 2 + len(group) or len(steps) < len(group):
                return None
            first, cut, *lengths = known
            check_length(math.prod(lengths))
            offsets = outer_sum(np.arange(n) * s for n, s in zip(lengths, steps, strict=True))
            axes.append(offsets[first : len(offsets) - cut])
        return axes

    def _at_run_time(self, source: Order, strides: dict[int, Size], cuts: Cuts) -> Tensor:
        """Emit nodes that add up the row numbers, and return these."""
        emit = self.emit
        runs = stage_plan.groups(source, tuple(chain(*cuts)))
        numbers = computed_index(emit, [Term(self.size(run), strides[run[-1]]) for run in runs])
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


def _are_neighbours(group: Order, order: Order) -> bool:
    if group[0] not in order:
        return False
    at = order.index(group[0])
    return order[at : at + len(group)] == group
