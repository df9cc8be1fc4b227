"""Find the cheapest stages of a slow permutation, each of which keeps long runs together.

A Transpose that moves more than one axis walks element by element unless the last axis stays. Two or
three cheap steps are often many times faster. A step is one of

    transpose     any permutation
    gather        the leading factors in any order, the trailing ones as whole rows: one Gather
    interleave    [b, X, S] -> [X, b, S] as a Concat of b parts along the middle
    deinterleave  [X, b, S] -> [b, X, S] as a Split into b parts

The search tries every single step, and every swap of two neighbouring groups of factors before it,
behind it, and both; prices come from `cost_model`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal

from onnx_spatial.lowering.core import cost_model

Order = tuple[int, ...]
Kind = Literal["transpose", "gather", "interleave", "deinterleave"]

#: The most parts of a Split or Concat.
MAX_PARTS = 16

#: Permutations of more factors than this (five blocked axes) are not searched for three stages.
_MOST_FACTORS = 9

#: In a plan of three stages, the first and the last are among this many of the cheapest swaps.
_MOST_SWAPS = 16

#: Nodes for each axis of an index that is computed at run time, and nanoseconds for each entry.
_INDEX_NODES, _INDEX_ENTRY = 3, 0.5


@dataclass(frozen=True)
class Stage:
    """One step from an order of factors to another."""

    kind: Kind
    before: Order
    after: Order

    @property
    def kept(self) -> tuple[int, int]:
        """Number of factors that stay in front, and at the end."""
        return _kept(self.before, self.after)


@dataclass(frozen=True)
class Problem:
    """A permutation to find stages for.

    Attributes:
        cases: sizes of the factors; several cases of estimates, if some are unknown, count for their
            share of elements.
        before, after: orders of the factors.
        itemsize: bytes of an element.
        unknown: factors of unknown size; if there are any, indices are computed at run time.
        kinds: kinds that may be used.
        needed: kinds of which one must be used.
        rank_limit: largest rank of a tensor.
        pricing: see `cost_model.pricing`.
    """

    cases: tuple[tuple[int, ...], ...]
    before: Order
    after: Order
    itemsize: int
    unknown: frozenset[int]
    kinds: frozenset[Kind]
    needed: frozenset[Kind]
    rank_limit: int
    pricing: int = 0


@lru_cache(maxsize=4096)
def stages(problem: Problem) -> tuple[Stage, ...] | None:
    """Return the cheapest stages; None if there are none of the given kinds."""
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
        self.p = problem
        self.sizes = problem.cases[0]
        self.totals = [
            min(cost_model.MOST, math.prod(max(1, s) for s in sizes)) for sizes in problem.cases
        ]
        self.total = self.totals[0]
        self.small = cost_model.small().nanoseconds
        self.cost = math.inf
        self.plan: tuple[Stage, ...] | None = None
        self._gathers: dict[tuple[Order, Order], float] = {}

    def best(self) -> tuple[Stage, ...] | None:
        before, after = self.p.before, self.p.after
        if before == after:
            return None if self.p.needed else ()
        self._try(0.0, (), before, after, ())
        if len(before) > _MOST_FACTORS:
            return self.plan
        firsts = self._cheapest((before, order) for order in swaps(before))
        lasts = self._cheapest((order, after) for order in swaps(after))
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

    def _cheapest(self, changes: Iterable[tuple[Order, Order]]) -> list[tuple[float, Stage]]:
        """Return the possible changes with their costs, the cheapest first."""
        swaps = [s for change in changes if (s := self._swap(*change)) is not None]
        return sorted(swaps, key=lambda pair: pair[0])

    def _swap(self, before: Order, after: Order) -> tuple[float, Stage] | None:
        """Return the cheapest step without Gather that swaps two groups."""
        options = [*self._transpose(before, after), *self._joined(before, after)]
        return min(options, key=lambda pair: pair[0], default=None)

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
        if before == after:
            if not any(merged(one, two) for one, two in pairwise((*head, *tail))):
                self._offer(cost, (*head, *tail))
            return
        for more, stage in (*self._transpose(before, after), *self._gather(before, after)):
            saved = self._fused(stage, tail[0]) if tail else 0.0
            whole, plan = cost + more - saved, (*head, stage, *tail)
            if whole < self.cost and not any(merged(one, two) for one, two in pairwise(plan)):
                self._offer(whole, plan)
        if not head and not tail:
            for more, stage in self._joined(before, after):
                self._offer(more, (stage,))

    def _offer(self, cost: float, plan: tuple[Stage, ...]) -> None:
        if cost >= self.cost:
            return
        if self.p.needed and not any(stage.kind in self.p.needed for stage in plan):
            return
        self.cost, self.plan = cost, plan

    def _mean(self, price: Callable[[], float]) -> float:
        """Return the mean of a price over all cases, by elements."""
        prices = []
        for sizes, total in zip(self.p.cases, self.totals, strict=True):
            self.sizes, self.total = sizes, total
            prices.append(price())
        self.sizes, self.total = self.p.cases[0], self.totals[0]
        return self._mean_of(prices)

    def _mean_of(self, prices: Iterable[float]) -> float:
        """Return the mean of the prices in all cases, by elements."""
        first = self.totals[0]
        weighted = [p * (first / total) for p, total in zip(prices, self.totals, strict=True)]
        return sum(weighted) / len(weighted)

    def _size(self, factors: Order) -> int:
        return min(cost_model.MOST, math.prod(self.sizes[f] for f in factors))

    def _transpose(self, before: Order, after: Order) -> Iterator[tuple[float, Stage]]:
        if "transpose" not in self.p.kinds:
            return
        p, perm = self.p, tuple(before.index(f) for f in after)
        works = [
            _transpose(tuple(sizes[f] for f in before), perm, p.itemsize, p.rank_limit, p.pricing)
            for sizes in p.cases
        ]
        if works[0][0] <= p.rank_limit:
            price = self._mean_of(nanoseconds + self.small for _, nanoseconds in works)
            yield price, Stage("transpose", before, after)

    def _gather(self, before: Order, after: Order) -> Iterator[tuple[float, Stage]]:
        if "gather" not in self.p.kinds:
            return
        front, back = _kept(before, after)
        axes = len(before) - back - front
        if self.p.unknown and bool(front) + axes + 1 > self.p.rank_limit:
            return

        def price() -> float:
            row = self._size(before[len(before) - back :])
            rows = self.total // max(row, 1)
            work = cost_model.gather(rows, self.total * self.p.itemsize)
            cost = work.nanoseconds + 2 * self.small
            if self.p.unknown:
                entries = rows // max(1, self._size(before[:front]))
                cost += _INDEX_NODES * axes * self.small + entries * _INDEX_ENTRY
            return cost

        key = before[:front], before[len(before) - back :]
        if key not in self._gathers:  # the price depends on what stays alone
            self._gathers[key] = self._mean(price)
        yield self._gathers[key], Stage("gather", before, after)

    def _joined(self, before: Order, after: Order) -> Iterator[tuple[float, Stage]]:
        """Yield a Split and a Concat, if one group has few entries."""
        front, back = _kept(before, after)
        middle = before[front : len(before) - back]
        first = after[front]
        cut = middle.index(first)
        left, right = middle[:cut], middle[cut:]
        if after[front : len(after) - back] != (*right, *left):
            return
        for kind, group in (("interleave", left), ("deinterleave", right)):
            parts = self._size(group)
            if kind not in self.p.kinds or not 2 <= parts <= MAX_PARTS:
                continue
            if self.p.unknown.intersection(group):
                continue
            around = (before[:front], before[len(before) - back :])
            if self.total >= parts * math.prod(max(1, self._size(each)) for each in around):
                cost = self._mean(partial(self._joining, kind, parts, *around))
                yield cost, Stage(kind, before, after)

    def _joining(self, kind: Kind, parts: int, front: Order, back: Order) -> float:
        """Return the price of a Split and a Concat of parts between factors that stay."""
        lead, tail = self._size(front), self._size(back)
        size, single = self.total * self.p.itemsize, tail == 1
        apart, together = parts * lead, self.total // max(1, tail)
        if kind == "deinterleave":
            apart, together = together, apart
        split = cost_model.split(parts, apart, size, single=single and kind == "deinterleave")
        concat = cost_model.concat(parts, together, size, single=single and kind == "interleave")
        return split.nanoseconds + concat.nanoseconds + 2 * self.small

    def _fused(self, stage: Stage, follower: Stage) -> float:
        """Return the time saved if a Gather fetches the parts of an interleave behind it."""
        if stage.kind != "gather" or not fusable(follower):
            return 0.0
        parts = self._size(follower.before[: follower.before.index(follower.after[0])])
        gathers = (parts - 1) * cost_model.gather(0, 0).nanoseconds

        def saved() -> float:
            size = self.total * self.p.itemsize
            return cost_model.split(parts, parts, size, single=False).nanoseconds - gathers

        return self._mean(saved)


@lru_cache(maxsize=1 << 14)
def _transpose(
    dims: tuple[int, ...], perm: Order, itemsize: int, rank_limit: int, pricing: int
) -> tuple[int, float]:
    """Return the rank and the nanoseconds of a Transpose with as few axes as possible.

    Cached: the searches for stages of several kinds price the same ones. `pricing` is part of the key.
    """
    dims, perm = cost_model.merged(dims, perm)
    return len(dims), cost_model.best_transpose(dims, perm, itemsize, rank_limit).nanoseconds


def merged(first: Stage, second: Stage) -> bool:
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


def fusable(stage: Stage) -> bool:
    """Tell whether a Gather can fetch each part of an interleave: the parts are contiguous."""
    return stage.kind == "interleave" and stage.kept[0] == 0


def _kept(before: Order, after: Order) -> tuple[int, int]:
    n = len(before)
    front = next((i for i in range(n) if before[i] != after[i]), n)
    back = next((i for i in range(n) if before[n - 1 - i] != after[n - 1 - i]), n)
    return front, back
