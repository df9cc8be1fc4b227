"""Define Rearrange: split axes into factors, permute the factors, and merge them to new axes.

    x[(h 2) (w 2) c] -> y[h w (2 2 c)]          einops calls it by that name and writes it so

    sizes   [h, 2, w, 2, c]     the factors in the order of the input, the last one the fastest
    splits  [2, 2, 1]           how many of them make each axis of the input
    order   [0, 2, 1, 3, 4]     the factors in the order of the output
    joins   [1, 1, 3]           how many of them make each axis of the output

Every chain of Reshape, Transpose, Squeeze, Unsqueeze, SpaceToDepth and DepthToSpace that keeps the
elements of its factors together is one Rearrange.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators.operator import (
    DIMS,
    INT64_MAX,
    Arithmetic,
    Dim,
    FixedOperator,
    Size,
    integers,
    show,
)
from onnx_spatial.operators.strided_copies import Plan, View

#: A factor whose size follows from that of its axis.
UNKNOWN_SIZE = -1


@dataclass(frozen=True)
class Rearrange(FixedOperator):
    """Permute the factors of axes; see the module.

    Attributes:
        sizes: sizes of the factors, 1 or more; -1 for one factor of an axis, which follows from the size
            of the axis.
        splits: number of factors of each axis of the input; none for an axis of size 1.
        order: the number of the factor at each place of the output.
        joins: number of factors of each axis of the output.

    Raises:
        OperatorError: a value breaks one of these rules.
    """

    sizes: tuple[int, ...]
    splits: tuple[int, ...]
    order: tuple[int, ...]
    joins: tuple[int, ...]

    name = "Rearrange"
    noun = "rearrangement"
    positions_of = "factors"
    positions = ()

    def __post_init__(self) -> None:
        for field in ("sizes", "splits", "order", "joins"):
            values = integers(f"{self.name}: {field}", getattr(self, field))
            object.__setattr__(self, field, values)
        count = len(self.sizes)
        if not self.splits:
            raise OperatorError(f"{self.name}: splits is empty; the input must have an axis")
        for field, counts in (("splits", self.splits), ("joins", self.joins)):
            if min(counts, default=0) < 0 or sum(counts) != count:
                raise OperatorError(
                    f"{self.name}: {field} {list(counts)} must be numbers of factors, {count} together"
                )
        if sorted(self.order) != list(range(count)):
            raise OperatorError(
                f"{self.name}: order {list(self.order)} is no permutation of {count} factors"
            )
        if any(size < 1 and size != UNKNOWN_SIZE for size in self.sizes):
            raise OperatorError(
                f"{self.name}: sizes {list(self.sizes)} must be at least 1, or -1 where unknown"
            )
        for axis, factors in enumerate(self.inputs):
            if [self.sizes[f] for f in factors].count(UNKNOWN_SIZE) > 1:
                raise OperatorError(f"{self.name}: axis {axis} has two factors of unknown size")
            if self.multiple(axis) > INT64_MAX:
                raise OperatorError(f"{self.name}: the factors of axis {axis} overflow int64")

    @property
    def rank(self) -> int:
        """Rank of the input."""
        return len(self.splits)

    @property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The factors of each axis of the input."""
        return _cut_in_groups(range(len(self.sizes)), self.splits)

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """The factors of each axis of the output."""
        return _cut_in_groups(self.order, self.joins)

    @property
    def is_identity(self) -> bool:
        """Whether the output is the input, whatever the sizes."""
        before, after = (
            [[f for f in axis if self.sizes[f] != 1] for axis in axes]
            for axes in (self.inputs, self.outputs)
        )
        return before == after

    def multiple(self, axis: int) -> int:
        """Return the product of the known sizes of an axis of the input."""
        return math.prod(self.sizes[f] for f in self.inputs[axis] if self.sizes[f] != UNKNOWN_SIZE)

    def unknown(self, axis: int) -> int | None:
        """Return the factor of an axis of the input that follows from its size; None if none does."""
        return next((f for f in self.inputs[axis] if self.sizes[f] == UNKNOWN_SIZE), None)

    def check(self, shape: Sequence[Dim]) -> None:
        """Check the rank, and that each known dim is a product of its factors."""
        if len(shape) != self.rank:
            raise OperatorError(
                f"{self.name}: the input must have rank {self.rank}, not {show(shape)}"
            )
        for axis, dim in enumerate(shape):
            known, factor = self.multiple(axis), self.unknown(axis)
            if isinstance(dim, int) and (dim % known if factor is not None else dim != known):
                rule = "divisible by" if factor is not None else "the product of"
                raise OperatorError(
                    f"{self.name}: axis {axis}: size {dim} is not {rule} its known factors, {known}"
                )

    def factors(self, shape: Sequence[Dim]) -> list[Dim]:
        """Return the sizes of all factors for the shape of an input; None if they are unknown.

        Raises:
            OperatorError: see `check`.
        """
        self.check(shape)
        return self.computed(DIMS, shape)

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """Return the one copy for an input of that shape; nothing is padded."""
        sizes = tuple(int(size) for size in self.factors(shape))  # type: ignore[arg-type]
        out = self.output_sizes(shape)
        moved = tuple(sizes[factor] for factor in self.order)
        ends = zip(reversed(range(len(sizes))), reversed(self.order), strict=True)
        tail = sum(1 for _ in takewhile(lambda end: end[0] == end[1], ends))
        return Plan(out, View(sizes, self.order), View(moved), None, tail)

    def computed(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Compute `factors` for dims that may be unknown."""
        result: list[Size] = list(self.sizes)
        for axis, dim in enumerate(dims):
            if (factor := self.unknown(axis)) is not None:
                known = self.multiple(axis)
                result[factor] = dim if known == 1 else sizes.div(dim, known)
        return result

    def output_dims(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Compute the products of the factors of each axis of the output."""
        factors = self.computed(sizes, dims)
        return [sizes.product([factors[f] for f in axis]) for axis in self.outputs]

    def constraints(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Return sizes that are negative for a dim that is no product of its factors."""
        result: list[Size] = []
        for axis, dim in enumerate(dims):
            known = self.multiple(axis)
            if self.unknown(axis) is None:
                result += [sizes.sub(dim, known), sizes.sub(known, dim)]
            elif known > 1:
                result.append(sizes.sub(sizes.mul(sizes.div(dim, known), known), dim))
        return result


def _cut_in_groups(factors: Sequence[int], counts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Cut a row of factors into groups of these lengths."""
    ends = list(accumulate(counts))
    return tuple(tuple(factors[end - n : end]) for n, end in zip(counts, ends, strict=True))
