"""Lower a permutation of factors by Transposes, or by Transposes and one Gather of rows.

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

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import Term, index
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.factored_axes import Order, Rearrangement

Kind = Literal["transpose", "gather"]

_MAX_ANY_RANK = 64

#: Permutations of more factors than this (five blocked axes) are not searched for three stages.
_MOST_FACTORS = 9

#: In a plan of three stages, the first and the last are among this many of the cheapest swaps.
_MOST_SWAPS = 16

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
        x = (_gather_stage if stage.kind == "gather" else _transpose_stage)(emit, r, x, stage)
    return r.finished(emit, x)


def _plan_stages(r: Rearrangement, emit: Emitter, *, gathers: bool) -> tuple[Stage, ...] | None:
    """Return the cheapest stages, in terms of the factors; None if there are none."""
    # Factors that are neighbours before and after count as one.
    bundles = groups(r.after, r.before)
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
        emit.rank_limit or _MAX_ANY_RANK,
    )
    plan = cheapest_plan(problem)

    def factors(order: Order) -> Order:
        return tuple(factor for i in order for factor in bundles[i])

    return plan and tuple(Stage(s.kind, factors(s.before), factors(s.after)) for s in plan)


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
    joined = groups(stage.before, stage.after)
    if sum(not isinstance(r.size(emit, group), int) for group in joined) < 2:
        return joined
    apart = [axis for group in joined for axis in _runs_of_factors(r, group)]
    inner = sorted(joined, key=lambda group: stage.before.index(group[0]))
    moved = [group for group, other in zip(joined, inner, strict=True) if group != other]
    # onnxruntime has other kernels for two axes that change places.
    generic = len(moved) != 2 or all(len(_runs_of_factors(r, group)) == 1 for group in moved)
    fits = len(apart) <= (emit.rank_limit or _MAX_ANY_RANK)
    return apart if generic and fits else joined


def _runs_of_factors(r: Rearrangement, group: Order) -> list[Order]:
    """Return the factors of an axis in runs, each with one unknown size at most."""
    runs: list[Order] = []
    free = False
    for factor in group:
        known = isinstance(r.sizes[factor], int)
        if runs and (known or free):
            runs[-1] = (*runs[-1], factor)
        else:
            runs.append((factor,))
            free = True
        free = free and known
    return runs


def _gather_stage(emit: Emitter, r: Rearrangement, x: Tensor, stage: Stage) -> Tensor:
    """Emit one Gather of rows along the middle."""
    front, back = stage.kept
    end = len(stage.before) - back
    # Rows from one entry of each factor to the next.
    strides: dict[int, Size] = {}
    stride: Size = 1
    for factor in reversed(stage.before[front:end]):
        strides[factor] = stride
        stride = emit.mul(stride, r.sizes[factor])
    runs = groups(stage.before[front:end], stage.after[front:end])
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
        return _kept_factors(self.before, self.after)


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
    rank_limit: int


@lru_cache(maxsize=4096)
def cheapest_plan(problem: Problem) -> tuple[Stage, ...] | None:
    """Return the cheapest stages; None if there are none."""
    return _Search(problem).best()


def swaps(order: Order) -> Iterator[Order]:
    """Yield every order with two neighbouring groups of factors swapped."""
    n = len(order)
    for i in range(n - 1):
        for j in range(i + 1, n):
            for k in range(j + 1, n + 1):
                yield order[:i] + order[j:k] + order[i:j] + order[k:]


class _Search:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.totals = [
            min(cost_model.MAX_SIZE, math.prod(max(1, s) for s in sizes)) for sizes in problem.cases
        ]
        self.small = cost_model.small().nanoseconds
        self.cost = math.inf
        self.plan: tuple[Stage, ...] | None = None
        self._gathers: dict[tuple[Order, Order], float] = {}

    def best(self) -> tuple[Stage, ...] | None:
        before, after = self.problem.before, self.problem.after
        if before == after:
            return None if self.problem.gathers else ()
        self._try(0.0, (), before, after, ())
        if len(before) > _MOST_FACTORS:
            return self.plan
        firsts = self._cheapest_changes((before, order) for order in swaps(before))
        lasts = self._cheapest_changes((order, after) for order in swaps(after))
        for cost, stage in firsts:
            self._try(cost, (stage,), stage.after, after, ())
        for cost, stage in lasts:
            self._try(cost, (), before, stage.before, (stage,))
        for first_cost, first in firsts[:_MOST_SWAPS]:
            for last_cost, last in lasts[:_MOST_SWAPS]:
                if first_cost + last_cost >= self.cost:
                    break
                if first.after != last.before:
                    self._try(first_cost + last_cost, (first,), first.after, last.before, (last,))
        return self.plan

    def _cheapest_changes(
        self, changes: Iterable[tuple[Order, Order]]
    ) -> list[tuple[float, Stage]]:
        """Return the possible Transposes with their costs, the cheapest first."""
        priced = (
            (self._price_transpose(*change), Stage("transpose", *change)) for change in changes
        )
        return sorted((p for p in priced if p[0] < math.inf), key=lambda pair: pair[0])

    def _try(
        self,
        cost: float,
        head: tuple[Stage, ...],
        before: Order,
        after: Order,
        tail: tuple[Stage, ...],
    ) -> None:
        """Complete a plan of this cost by one stage between `before` and `after`, or none."""
        if cost >= self.cost:
            return
        middle: tuple[Stage, ...] = ()
        if self.problem.gathers:
            middle = (Stage("gather", before, after),)
            cost += self._price_gather(before, after) if before != after else math.inf
        elif before != after:
            middle = (Stage("transpose", before, after),)
            cost += self._price_transpose(before, after)
        plan = (*head, *middle, *tail)
        if cost < self.cost and not any(are_merged(one, two) for one, two in pairwise(plan)):
            self.cost, self.plan = cost, plan

    def _mean_price(self, prices: Iterable[float]) -> float:
        """Return the mean of the prices in all cases, by elements."""
        first = self.totals[0]
        weighted = [p * (first / total) for p, total in zip(prices, self.totals, strict=True)]
        return sum(weighted) / len(weighted)

    def _price_transpose(self, before: Order, after: Order) -> float:
        """Return the price of a Transpose, infinite if its rank exceeds the limit."""
        p, perm = self.problem, tuple(before.index(f) for f in after)
        works = [
            _price_transpose(tuple(sizes[f] for f in before), perm, p.itemsize, p.rank_limit)
            for sizes in p.cases
        ]
        if works[0][0] > p.rank_limit:
            return math.inf
        return self._mean_price(nanoseconds + self.small for _, nanoseconds in works)

    def _price_gather(self, before: Order, after: Order) -> float:
        """Return the price of a Gather, infinite if its index would exceed the rank limit."""
        p, (front, back) = self.problem, _kept_factors(before, after)
        axes = len(before) - back - front
        computed = not p.unknown.isdisjoint(before[front : front + axes])
        if computed and bool(front) + axes + bool(back) > p.rank_limit:
            return math.inf

        def price(sizes: tuple[int, ...], total: int) -> float:
            row, lead = (
                min(cost_model.MAX_SIZE, math.prod(sizes[f] for f in factors))
                for factors in (before[len(before) - back :], before[:front])
            )
            rows = total // max(row, 1)
            cost = (
                cost_model.copies("gather", rows, total * p.itemsize).nanoseconds + 2 * self.small
            )
            if computed:
                cost += _INDEX_NODES * axes * self.small + rows // max(1, lead) * _INDEX_ENTRY
            return cost

        key = before[:front], before[len(before) - back :]
        if key not in self._gathers:  # the price depends on what stays alone
            self._gathers[key] = self._mean_price(map(price, p.cases, self.totals))
        return self._gathers[key]


@lru_cache(maxsize=1 << 14)
def _price_transpose(
    dims: tuple[int, ...], perm: Order, itemsize: int, rank_limit: int
) -> tuple[int, float]:
    """Return the rank and the nanoseconds of a Transpose with as few axes as possible.

    Cached: the searches with and without a Gather price the same ones.
    """
    dims, perm = cost_model.merged(dims, perm)
    return len(dims), cost_model.best_transpose(dims, perm, itemsize, rank_limit).nanoseconds


def are_merged(first: Stage, second: Stage) -> bool:
    """Tell whether onnxruntime's optimizer merges two Transposes, which may be slower.

    It does if the Reshape between them only splits axes, and so could come first.
    """
    if (first.kind, second.kind) != ("transpose", "transpose"):
        return False
    axes = [set(group) for group in groups(first.before, first.after)]
    return all(
        any(axis.issuperset(group) for axis in axes)
        for group in groups(second.before, second.after)
    )


def groups(before: Order, after: Order) -> list[Order]:
    """Group the factors that are neighbours in both orders, in the order `after`."""
    follower = dict(pairwise(before))
    grouped: list[Order] = []
    for factor in after:
        if grouped and follower.get(grouped[-1][-1]) == factor:
            grouped[-1] = (*grouped[-1], factor)
        else:
            grouped.append((factor,))
    return grouped


def _kept_factors(before: Order, after: Order) -> tuple[int, int]:
    n = len(before)
    front = next((i for i in range(n) if before[i] != after[i]), n)
    back = next((i for i in range(n) if before[n - 1 - i] != after[n - 1 - i]), n)
    return front, back
