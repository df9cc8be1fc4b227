"""SpaceToBatch and BatchToSpace: blocks of the spatial axes to the batch axis and back.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators.operator import BATCHES, CHANNELS, Arithmetic, Operator, Size
from onnx_spatial.operators.shapes import (
    INT64_MAX,
    Dim,
    check_element_count,
    integers,
    show,
)
from onnx_spatial.operators.strided_copies import Allocate, Move, carry_out, gaps, moves_of

Pairs = tuple[tuple[int, int], ...]

#: In tests: cells of a blocked axis beyond the fewest possible, for neighbouring axes in turn.
_CELLS = (1, 2, 3, 1, 2, 0)


def _check_parameters(
    name: str, block_shape: object, what: str, pairs: object
) -> tuple[tuple[int, ...], Pairs]:
    block = integers(f"{name}: block_shape", block_shape)
    array = np.asarray(pairs)
    if array.shape != (len(block), 2) and not (array.size == 0 and not block):
        raise OperatorError(
            f"{name}: {what} must have shape [{len(block)}, 2] to go with {len(block)} entries "
            f"of block_shape, not {show(array.shape)}"
        )
    for axis, b in enumerate(block):
        if b < 1:
            raise OperatorError(f"{name}: block_shape[{axis}] is {b}; it must be at least 1")
    if math.prod(block) > INT64_MAX:
        raise OperatorError(f"{name}: the product of block_shape {list(block)} overflows int64")
    amounts = integers(f"{name}: {what}", array.reshape(-1))
    for index, amount in enumerate(amounts):
        if amount < 0:
            raise OperatorError(
                f"{name}: {what}[{index // 2}][{index % 2}] is {amount}; it must not be negative"
            )
    return block, tuple(zip(amounts[::2], amounts[1::2], strict=True))


def _check_rank(name: str, shape: Sequence[Dim], blocked: int) -> None:
    if len(shape) < blocked + 1:
        raise OperatorError(
            f"{name}: {blocked} blocked dims need an input of rank {blocked + 1} or more, "
            f"not {show(shape)}"
        )


def _windows(
    offsets: tuple[int, ...], blocks: tuple[int, ...], before: tuple[int, ...], sizes: Sequence[int]
) -> Iterator[tuple[slice, slice]]:
    """Per axis: which cells hold a source element for one block offset, and which elements.

    Cell q at offset o stands for padded position q*b + o, that is element q*b + o - before.
    """
    for offset, b, pad, size in zip(offsets, blocks, before, sizes, strict=True):
        first = max(0, -((offset - pad) // b))  # smallest q with q*b + offset - pad >= 0
        start = first * b + offset - pad
        count = max(0, -((start - size) // b))  # how many q until the elements run out
        yield slice(first, first + count), slice(start, start + count * b, b)


def _interleave(split: npt.NDArray[np.generic], out: npt.NDArray[np.generic], blocked: int) -> None:
    """[b1, .., bM, N, D1, .., DM, rest] to [N, D1*b1, .., DM*bM, rest]."""
    cells = range(blocked + 1, 2 * blocked + 1)
    perm = [blocked, *(axis for i, cell in enumerate(cells) for axis in (cell, i))]
    moved = split.transpose(*perm, *range(2 * blocked + 1, split.ndim))
    out.reshape(moved.shape)[...] = moved


@dataclass(frozen=True)
class _Blocks(Operator):
    """What the two operators share."""

    block_shape: tuple[int, ...]

    noun = "block"
    positions_of = "blocks"

    @property
    def positions(self) -> tuple[int, ...]:
        """The offsets inside a block."""
        return self.block_shape

    def count(self) -> int:
        """One move for each offset inside a block."""
        return math.prod(self.block_shape)


def _left_over(sizes: Arithmetic, size: Size, block: Size) -> Size:
    """Minus what a block leaves over that does not divide."""
    if isinstance(block, int) and block == 1:
        return 0
    return sizes.sub(sizes.mul(sizes.div(size, block), block), size)


@dataclass(frozen=True)
class SpaceToBatch(_Blocks):
    """Zero-pad axes 1..M, cut them into blocks and move the offsets inside a block to the batch.

    Attributes:
        block_shape: M integers >= 1.
        pads: M pairs (begin, end) of integers >= 0, in elements.

    Raises:
        OperatorError: a value breaks one of these rules.
    """

    pads: Pairs

    name = "SpaceToBatch"

    def __post_init__(self) -> None:
        block, pads = _check_parameters(self.name, self.block_shape, "paddings", self.pads)
        object.__setattr__(self, "block_shape", block)
        object.__setattr__(self, "pads", pads)

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """[N, D1.., rest] -> [prod(b)*N, (D1+pads)/b1.., rest]; unknown dims stay unknown.

        Raises:
            OperatorError: the rank is below M+1, or a known padded dim is not divisible.
        """
        blocked = len(self.block_shape)
        _check_rank(self.name, shape, blocked)
        factor = math.prod(self.block_shape)
        batch = shape[0]
        out: list[Dim] = [
            batch if factor == 1 else batch * factor if isinstance(batch, int) else None
        ]
        for axis, (dim, b, (begin, end)) in enumerate(
            zip(shape[1:], self.block_shape, self.pads, strict=False), start=1
        ):
            if not isinstance(dim, int):
                out.append(dim if b == 1 and begin + end == 0 else None)
                continue
            if (dim + begin + end) % b:
                raise OperatorError(
                    f"{self.name}: axis {axis}: size {dim} + paddings {begin} + {end} = "
                    f"{dim + begin + end} is not divisible by its block, {b}"
                )
            out.append((dim + begin + end) // b)
        out.extend(shape[1 + blocked :])
        check_element_count(self.name, out)
        return tuple(out)

    @property
    def is_identity(self) -> bool:
        """Blocks of 1 without pads."""
        return set(self.block_shape) <= {1} and not any(map(any, self.pads))

    def typical_sizes(self, axis: int) -> list[int]:
        """Sizes that give an axis some cells."""
        if not 1 <= axis <= len(self.block_shape):
            return [*(BATCHES if axis == 0 else CHANNELS)]
        b, pads = self.block_shape[axis - 1], sum(self.pads[axis - 1])
        return [(pads // b + 1 + more) * b - pads for more in _CELLS]

    @staticmethod
    def output_dims(
        sizes: Arithmetic,
        dims: Sequence[Size],
        block: Sequence[Size],
        begins: Sequence[Size],
        ends: Sequence[Size],
    ) -> list[Size]:
        """`output_shape` for parameters and dims that are computed."""
        out = [sizes.mul(dims[0], sizes.product(block))]
        for d, b, begin, end in zip(dims[1:], block, begins, ends, strict=False):
            out.append(sizes.div(sizes.add(sizes.add(d, begin), end), b))
        return [*out, *dims[len(out) :]]

    @staticmethod
    def constraints(
        sizes: Arithmetic,
        dims: Sequence[Size],
        block: Sequence[Size],
        begins: Sequence[Size],
        ends: Sequence[Size],
    ) -> list[Size]:
        """Sizes that are negative where a block does not divide an axis."""
        axes = zip(dims[1:], block, begins, ends, strict=False)
        return [
            _left_over(sizes, sizes.add(sizes.add(d, begin), end), b) for d, b, begin, end in axes
        ]

    def __call__(
        self,
        x: npt.NDArray[np.generic],
        pad_value: object = None,
        empty: Allocate = np.empty,
    ) -> npt.NDArray[np.generic]:
        """Run on an array of any element type; every element is written once.

        Args:
            x: [N, D1.., rest].
            pad_value: what to pad with; the default is the element type's 0, False or "".
            empty: makes the result.
        """
        shape = tuple(int(d) for d in self.output_shape(x.shape))  # type: ignore[arg-type]
        out = empty(shape, x.dtype)
        split = out.reshape(*self.block_shape, x.shape[0], *shape[1:])
        carry_out(moves_of(self, x.shape), x, split, pad_value)
        return out

    def moves(self, shape: tuple[int, ...]) -> Iterator[Move]:
        """To [b1, .., bM, N, D1', .., DM', rest] from an input of that shape."""
        blocked = len(self.block_shape)
        before = tuple(begin for begin, _ in self.pads)
        sizes = self.output_shape(shape)[1 : 1 + blocked]
        for offsets in itertools.product(*map(range, self.block_shape)):
            windows = list(_windows(offsets, self.block_shape, before, shape[1 : 1 + blocked]))
            cells, elements = zip(*windows, strict=True) if windows else ((), ())
            around = gaps(1, cells, sizes)  # type: ignore[arg-type]
            yield Move(offsets, (slice(None), *cells), (slice(None), *elements), around)


@dataclass(frozen=True)
class BatchToSpace(_Blocks):
    """The exact inverse of SpaceToBatch, followed by a crop.

    Attributes:
        block_shape: M integers >= 1.
        crops: M pairs (begin, end) of integers >= 0, in elements. begin + end may equal the size
            (the output is then empty) but not exceed it.

    Raises:
        OperatorError: a value breaks one of these rules.
    """

    crops: Pairs

    name = "BatchToSpace"

    def __post_init__(self) -> None:
        block, crops = _check_parameters(self.name, self.block_shape, "crops", self.crops)
        object.__setattr__(self, "block_shape", block)
        object.__setattr__(self, "crops", crops)

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """[N, D1.., rest] -> [N/prod(b), D1*b1 - crops.., rest]; unknown dims stay unknown.

        Raises:
            OperatorError: the rank is below M+1, prod(b) does not divide a known batch, or the
                crops exceed a known size.
        """
        blocked = len(self.block_shape)
        _check_rank(self.name, shape, blocked)
        factor = math.prod(self.block_shape)
        batch = shape[0]
        if isinstance(batch, int) and batch % factor:
            raise OperatorError(
                f"{self.name}: batch {batch} is not divisible by {factor}, "
                f"the product of block_shape {list(self.block_shape)}"
            )
        out: list[Dim] = [
            batch if factor == 1 else batch // factor if isinstance(batch, int) else None
        ]
        for axis, (dim, b, (begin, end)) in enumerate(
            zip(shape[1:], self.block_shape, self.crops, strict=False), start=1
        ):
            if not isinstance(dim, int):
                out.append(dim if b == 1 and begin + end == 0 else None)
                continue
            if begin + end > dim * b:
                raise OperatorError(
                    f"{self.name}: axis {axis}: crops {begin} + {end} exceed the size "
                    f"{dim} * {b} = {dim * b}"
                )
            out.append(dim * b - begin - end)
        out.extend(shape[1 + blocked :])
        check_element_count(self.name, out)
        return tuple(out)

    @property
    def is_identity(self) -> bool:
        """Blocks of 1 without crops."""
        return set(self.block_shape) <= {1} and not any(map(any, self.crops))

    def typical_sizes(self, axis: int) -> list[int]:
        """Sizes that leave some images and some cells."""
        if axis == 0:
            return [math.prod(self.block_shape) * images for images in BATCHES]
        if axis > len(self.block_shape):
            return [*CHANNELS]
        fewest = sum(self.crops[axis - 1]) // self.block_shape[axis - 1] + 1
        return [fewest + more for more in _CELLS]

    @staticmethod
    def output_dims(
        sizes: Arithmetic,
        dims: Sequence[Size],
        block: Sequence[Size],
        begins: Sequence[Size],
        ends: Sequence[Size],
    ) -> list[Size]:
        """`output_shape` for parameters and dims that are computed."""
        out = [sizes.div(dims[0], sizes.product(block))]
        for d, b, begin, end in zip(dims[1:], block, begins, ends, strict=False):
            out.append(sizes.sub(sizes.sub(sizes.mul(d, b), begin), end))
        return [*out, *dims[len(out) :]]

    @staticmethod
    def constraints(
        sizes: Arithmetic,
        dims: Sequence[Size],
        block: Sequence[Size],
        begins: Sequence[Size],
        ends: Sequence[Size],
    ) -> list[Size]:
        """Sizes that are negative where the block does not divide the batch, or crops exceed a size."""
        factor = sizes.product(block)
        found = [_left_over(sizes, dims[0], factor)]
        for d, b, begin, end in zip(dims[1:], block, begins, ends, strict=False):
            if (begin, end) != (0, 0):
                found.append(sizes.sub(sizes.sub(sizes.mul(d, b), begin), end))
        return found

    def __call__(
        self,
        x: npt.NDArray[np.generic],
        pad_value: object = None,
        empty: Allocate = np.empty,
    ) -> npt.NDArray[np.generic]:
        """Run on an array of any element type; every element is written once.

        Args:
            x: [N, D1.., rest].
            pad_value: accepted so that all operators are called alike; nothing is padded here.
            empty: makes the result.
        """
        shape = tuple(int(d) for d in self.output_shape(x.shape))  # type: ignore[arg-type]
        out = empty(shape, x.dtype)
        if out.size == 0:
            return out
        split = x.reshape(*self.block_shape, shape[0], *x.shape[1:])
        if any(begin or end for begin, end in self.crops):
            carry_out(moves_of(self, x.shape), split, out)
        else:  # in the order of the output, which is twice as fast as offset by offset
            _interleave(split, out, len(self.block_shape))
        return out

    def moves(self, shape: tuple[int, ...]) -> Iterator[Move]:
        """From [b1, .., bM, N, D1, .., DM, rest], an input of that shape split."""
        blocked = len(self.block_shape)
        before = tuple(begin for begin, _ in self.crops)
        sizes = self.output_shape(shape)[1 : 1 + blocked]
        for offsets in itertools.product(*map(range, self.block_shape)):
            windows = list(_windows(offsets, self.block_shape, before, sizes))  # type: ignore[arg-type]
            cells, elements = zip(*windows, strict=True) if windows else ((), ())
            yield Move((), (slice(None), *elements), (*offsets, slice(None), *cells))
