"""Define SpaceToBatch and BatchToSpace: move blocks of the spatial axes to the batch axis and back.

For block b[M] and pads p[M, 2] on x[N, D1..DM, rest], 0 <= M < rank:

    SpaceToBatch  pad dims 1..M with zeros      [N, D1', .., DM', rest]
                  split each                    [N, D1'/b1, b1, .., DM'/bM, bM, rest]
                  block offsets to the front    [b1, .., bM, N, D1'/b1, .., DM'/bM, rest]
                  merge the leading M+1 axes    [b1*..*bM*N, D1'/b1, .., DM'/bM, rest]
    BatchToSpace  the exact inverse, then crop

so the output batch index is (block offset, row-major) * N + n: the block offset is the major index.
Checked against TensorFlow 2.21 and OpenVINO 2026.4.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.operator import (
    DIMS,
    INT64_MAX,
    Arithmetic,
    Dim,
    Operator,
    Size,
    check_entries,
    integers,
    show,
)
from onnx_spatial.operators.strided_copies import Move, Plan, View, gaps, kept

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Blocks(Operator):
    """Parameters and rules that SpaceToBatch and BatchToSpace share."""

    block_shape: tuple[int, ...]

    noun = "block"
    positions_of = "blocks"
    #: The field of pads or crops, and its name in messages.
    _amounts: ClassVar[tuple[str, str]]

    @property
    def amounts(self) -> Pairs:
        """(begin, end) of the pads or crops of each blocked axis."""
        pairs: Pairs = getattr(self, self._amounts[0])
        return pairs

    def __post_init__(self) -> None:
        block = integers(f"{self.name}: block_shape", self.block_shape)
        field, what = self._amounts
        array = np.asarray(self.amounts)
        if array.shape != (len(block), 2) and not (array.size == 0 and not block):
            raise OperatorError(
                f"{self.name}: {what} must have shape [{len(block)}, 2] to go with {len(block)} "
                f"entries of block_shape, not {show(array.shape)}",
                code=Code.PARAMETER,
            )
        check_entries(f"{self.name}: block_shape", block, 1)
        if math.prod(block) > INT64_MAX:
            raise OperatorError(
                f"{self.name}: the product of block_shape {list(block)} overflows int64",
                code=Code.OVERFLOW,
            )
        amounts = integers(f"{self.name}: {what}", array.reshape(-1))
        pairs = tuple(zip(amounts[::2], amounts[1::2], strict=True))
        for axis, pair in enumerate(pairs):
            check_entries(f"{self.name}: {what}[{axis}]", pair, 0)
        object.__setattr__(self, "block_shape", block)
        object.__setattr__(self, field, pairs)

    @property
    def positions(self) -> tuple[int, ...]:
        """Offsets inside a block along each axis."""
        return self.block_shape

    @property
    def is_identity(self) -> bool:
        """Whether all blocks are 1 and nothing is padded or cropped."""
        return set(self.block_shape) <= {1} and not any(map(any, self.amounts))

    def check(self, shape: Sequence[Dim]) -> None:
        """Check that the rank is at least M+1, and what each known dim must fulfil."""
        self.check_batch(shape)
        for axis, size in enumerate(shape[1 : 1 + len(self.block_shape)], start=1):
            if isinstance(size, int):
                self._check_size(axis, size, self.block_shape[axis - 1], *self.amounts[axis - 1])

    def check_batch(self, shape: Sequence[Dim]) -> None:
        """Check the rank, and the batch if it is known."""
        blocked = len(self.block_shape)
        if len(shape) < blocked + 1:
            raise OperatorError(
                f"{self.name}: {blocked} blocked dims need an input of rank {blocked + 1} or more, "
                f"not {show(shape)}",
                code=Code.RANK,
            )

    @abstractmethod
    def _check_size(self, axis: int, size: int, block: int, begin: int, end: int) -> None:
        """Check the size of a blocked axis."""

    @staticmethod
    @abstractmethod
    def output_dims(
        sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Compute `output_shape` for computed dims and parameters: block, begins, ends."""

    def known_dims(self, shape: Sequence[Dim]) -> list[Dim]:
        """Return the shape of the output for an input that `check` accepts."""
        begins, ends = zip(*self.amounts, strict=True) if self.amounts else ((), ())
        return self.output_dims(DIMS, shape, self.block_shape, begins, ends)

    def _offset_windows(
        self, offsets: tuple[int, ...], sizes: Sequence[int]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return for one block offset the cells along each axis that hold an element, and the elements.

        Cell q at offset o is padded position q*b + o, that is element q*b + o - begin; `sizes` are those
        of the elements.
        """
        cells, elements = [], []
        begins = (begin for begin, _ in self.amounts)
        for offset, b, begin, size in zip(offsets, self.block_shape, begins, sizes, strict=True):
            first = max(0, -((offset - begin) // b))  # smallest q with q*b + offset - begin >= 0
            start = first * b + offset - begin
            count = max(0, -((start - size) // b))  # how many q until the elements run out
            cells.append(slice(first, first + count))
            elements.append(slice(start, start + count * b, b))
        return tuple(cells), tuple(elements)


def _minus_remainder(sizes: Arithmetic, size: Size, block: Size) -> Size:
    """Return minus the remainder of a size by its block."""
    if isinstance(block, int) and block == 1:
        return 0
    return sizes.sub(sizes.mul(sizes.div(size, block), block), size)


@dataclass(frozen=True)
class SpaceToBatch(_Blocks):
    """Zero-pad axes 1..M, cut them into blocks and move the offsets inside a block to the batch.

    [N, D1.., rest] -> [prod(b)*N, (D1+pads)/b1.., rest]

    Attributes:
        block_shape: M integers >= 1.
        pads: M pairs (begin, end) of integers >= 0, in elements. A padded size must be divisible by
            its block.

    Raises:
        OperatorError: a value breaks one of these rules.
    """

    pads: Pairs

    name = "SpaceToBatch"
    _amounts = ("pads", "paddings")

    def _check_size(self, axis: int, size: int, block: int, begin: int, end: int) -> None:
        if (padded := size + begin + end) % block:
            raise OperatorError(
                f"{self.name}: axis {axis}: size {size} + paddings {begin} + {end} = "
                f"{padded} is not divisible by its block, {block}",
                code=Code.NOT_DIVISIBLE,
            )

    @staticmethod
    def output_dims(
        sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Compute `output_shape`, see the base class."""
        block, begins, ends = parameters
        out = [sizes.mul(dims[0], sizes.product(block))]
        for d, b, begin, end in zip(dims[1:], block, begins, ends, strict=False):
            out.append(sizes.div(sizes.add(sizes.add(d, begin), end), b))
        return [*out, *dims[len(out) :]]

    @staticmethod
    def constraints(
        sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Return sizes that are negative if a block does not divide its padded axis."""
        block, begins, ends = parameters
        axes = zip(dims[1:], block, begins, ends, strict=False)
        return [
            _minus_remainder(sizes, sizes.add(sizes.add(d, begin), end), b)
            for d, b, begin, end in axes
        ]

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """Return the copies for an input [N, D1.., rest]."""
        out = self.output_sizes(shape)
        blocked, block = len(self.block_shape), self.block_shape
        tail = len(shape) - 1 - blocked
        target = View((*block, shape[0], *out[1:]))
        if any(map(any, self.pads)):
            moves = kept(math.prod(block), partial(self._list_moves, shape))
            return Plan(out, View(shape), target, moves, tail)
        axes = zip(out[1:], block, strict=False)
        parts = [size for axis in axes for size in axis]
        cells = range(1, 2 * blocked, 2)
        rest = range(1 + 2 * blocked, 1 + 2 * blocked + tail)
        order = (*(cell + 1 for cell in cells), 0, *cells, *rest)
        return Plan(out, View((shape[0], *parts, *shape[1 + blocked :]), order), target, None, tail)

    def _list_moves(self, shape: tuple[int, ...]) -> Iterator[Move]:
        """Yield the moves from an input of that shape to [b1, .., bM, N, D1', .., DM', rest]."""
        blocked = slice(1, 1 + len(self.block_shape))
        sizes = self.output_sizes(shape)[blocked]
        for offsets in itertools.product(*map(range, self.block_shape)):
            cells, elements = self._offset_windows(offsets, shape[blocked])
            outside = gaps(1, cells, sizes)
            yield Move(offsets, (slice(None), *cells), (slice(None), *elements), outside)


@dataclass(frozen=True)
class BatchToSpace(_Blocks):
    """Invert SpaceToBatch, then crop.

    [N, D1.., rest] -> [N/prod(b), D1*b1 - crops.., rest]

    Attributes:
        block_shape: M integers >= 1, whose product divides the batch.
        crops: M pairs (begin, end) of integers >= 0, in elements. begin + end may equal the size
            (the output is then empty) but not exceed it.

    Raises:
        OperatorError: a value breaks one of these rules.
    """

    crops: Pairs

    name = "BatchToSpace"
    _amounts = ("crops", "crops")

    def check_batch(self, shape: Sequence[Dim]) -> None:
        """Check the rank, and the batch if it is known."""
        super().check_batch(shape)
        batch, factor = shape[0], math.prod(self.block_shape)
        if isinstance(batch, int) and batch % factor:
            raise OperatorError(
                f"{self.name}: batch {batch} is not divisible by {factor}, "
                f"the product of block_shape {list(self.block_shape)}",
                code=Code.NOT_DIVISIBLE,
            )

    def _check_size(self, axis: int, size: int, block: int, begin: int, end: int) -> None:
        if begin + end > size * block:
            raise OperatorError(
                f"{self.name}: axis {axis}: crops {begin} + {end} exceed the size "
                f"{size} * {block} = {size * block}",
                code=Code.CROPS_EXCEED,
            )

    @staticmethod
    def output_dims(
        sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Compute `output_shape`, see the base class."""
        block, begins, ends = parameters
        out = [sizes.div(dims[0], sizes.product(block))]
        for d, b, begin, end in zip(dims[1:], block, begins, ends, strict=False):
            out.append(sizes.sub(sizes.sub(sizes.mul(d, b), begin), end))
        return [*out, *dims[len(out) :]]

    @staticmethod
    def constraints(
        sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Return sizes that are negative if block does not divide the batch, or crops exceed a size."""
        block, begins, ends = parameters
        constraints = [_minus_remainder(sizes, dims[0], sizes.product(block))]
        for d, b, begin, end in zip(dims[1:], block, begins, ends, strict=False):
            if (begin, end) != (0, 0):
                constraints.append(sizes.sub(sizes.sub(sizes.mul(d, b), begin), end))
        return constraints

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """Return the copies for an input [N, D1.., rest]; nothing is padded."""
        out = self.output_sizes(shape)
        blocked, block = len(self.block_shape), self.block_shape
        tail = len(shape) - 1 - blocked
        split = (*block, out[0], *shape[1:])
        if any(map(any, self.crops)):
            moves = kept(math.prod(block), partial(self._list_moves, shape))
            return Plan(out, View(split), View(out), moves, tail)
        cells = range(blocked + 1, 2 * blocked + 1)
        axes = (axis for offset, cell in enumerate(cells) for axis in (cell, offset))
        order = (blocked, *axes, *range(2 * blocked + 1, len(split)))
        return Plan(out, View(split, order), View(tuple(split[a] for a in order)), None, tail)

    def _list_moves(self, shape: tuple[int, ...]) -> Iterator[Move]:
        """Yield the moves from an input of that shape, split to [b1, .., bM, N, D1, .., DM, rest]."""
        sizes = self.output_sizes(shape)[1 : 1 + len(self.block_shape)]
        for offsets in itertools.product(*map(range, self.block_shape)):
            cells, elements = self._offset_windows(offsets, sizes)
            yield Move((), (slice(None), *elements), (*offsets, slice(None), *cells))
