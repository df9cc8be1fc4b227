"""Choose the cells that lowerings are timed on: all of them, or a quick subset.

A cell is an operator with a shape. All combinations of the values below would take days. So per
operator and layout a cell is used only if it has a pair of values (channels and block, size and pads,
...) that no cell before it has. Cells are ordered by a checksum of their names: the same on every
machine, and unrelated to size.
"""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from onnx_spatial import operators

CHANNELS = (1, 3, 16, 64, 256)
SIZES = (32, 65, 224, 512)
BLOCKS = ((2, 2), (3, 3), (4, 4), (8, 8), (2, 4))
#: Pads (or crops) in front of each axis; behind it are as many, and those that fill the last block.
AMOUNTS = {"none": 0, "small": 1, "odd": 3}
#: Values of the cells that are timed with unknown sizes, too.
UNKNOWN_CHANNELS = (1, 3, 64)
UNKNOWN_SIZES = (
    (1024,),
    (65536,),
    (33, 33),
    (65, 65),
    (224, 224),
    (512, 512),
    (8, 16, 16),
    (16, 64, 64),
)
UNKNOWN_BLOCKS = (2, 4, 8, 32)
UNKNOWN_WINDOWS = ((2, 2, 1), (3, 1, 1), (3, 1, 2), (3, 2, 1), (5, 3, 2), (7, 1, 1), (16, 16, 1))
DTYPES = ("float32", "float16", "uint8")
#: Kernel, stride, rate.
WINDOWS = ((2, 2, 1), (3, 1, 1), (3, 1, 2), (3, 2, 1), (7, 1, 1), (16, 16, 1), (5, 3, 2))
LAYOUTS = ("NHWC", "NCHW")
OPERATORS = ("SpaceToBatch", "BatchToSpace", "ExtractPatches")

#: Largest number of elements of input or output: 32 MiB of float32; some extra cells are twice as large.
LARGEST = 1 << 23
QUICK_LARGEST = 1 << 21
#: The same for cells that are timed with unknown sizes, too.
UNKNOWN_LARGEST = 1 << 22
QUICK_PER_GROUP = 3
#: Least number of elements that a random cell writes.
RANDOM_LEAST = 512


@dataclass(frozen=True)
class Cell:
    """An operator on a shape.

    Attributes:
        operator: one of `OPERATORS`.
        layout: "NHWC" or "NCHW", for any number of spatial axes.
        size: size of the image per spatial axis; BatchToSpace's output has about that size.
        channels: channels of the image.
        block: block size per spatial axis; empty for patches.
        amounts: name in `AMOUNTS`; for patches "VALID" or "SAME".
        window: kernel, stride and rate, the same on every axis; None for blocks.
        batch: number of images.
        dtype: numpy name of the element type.
    """

    operator: str
    layout: str
    size: tuple[int, ...]
    channels: int
    amounts: str
    block: tuple[int, ...] = ()
    window: tuple[int, int, int] | None = None
    batch: int = 1
    dtype: str = "float32"

    @property
    def name(self) -> str:
        """Name such as "SpaceToBatch NHWC 1x65x65x16 b2x2 none", with the shape of the image."""
        image = "x".join(map(str, self.image))
        parts = [self.operator, self.layout, image]
        if self.window:
            parts.append("k{} s{} r{}".format(*self.window))
        else:
            parts.append("b" + "x".join(map(str, self.block)))
        parts.append(self.amounts)
        if self.dtype != "float32":
            parts.append(self.dtype)
        return " ".join(parts)

    @property
    def group(self) -> str:
        """Operator and layout: the group of a geometric mean."""
        return f"{self.operator} {self.layout}"

    @property
    def image(self) -> tuple[int, ...]:
        """Shape of the image, [batch, ...]."""
        if self.layout == "NHWC":
            return (self.batch, *self.size, self.channels)
        return (self.batch, self.channels, *self.size)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pads or crops of each spatial axis, which fill the last block."""
        begin = AMOUNTS[self.amounts]
        return tuple(
            (begin, begin + -(size + 2 * begin) % b)
            for size, b in zip(self.size, self.block, strict=True)
        )

    @property
    def padded(self) -> tuple[int, ...]:
        """Size per spatial axis with pads, a multiple of the block."""
        return tuple(s + sum(pair) for s, pair in zip(self.size, self.pairs, strict=True))

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The operator's block_shape, with a 1 for the channels if they come first."""
        return self.block if self.layout == "NHWC" else (1, *self.block)

    @property
    def all_pairs(self) -> tuple[tuple[int, int], ...]:
        """The operator's pads or crops, which belong to `block_shape`."""
        return self.pairs if self.layout == "NHWC" else ((0, 0), *self.pairs)

    @property
    def kernel(self) -> operators.SpaceToBatch | operators.BatchToSpace | operators.ExtractPatches:
        """The operator."""
        if self.operator == "SpaceToBatch":
            return operators.SpaceToBatch(self.block_shape, self.all_pairs)
        if self.operator == "BatchToSpace":
            return operators.BatchToSpace(self.block_shape, self.all_pairs)
        assert self.window is not None
        kernel, stride, rate = ((value,) * len(self.size) for value in self.window)
        return operators.ExtractPatches(
            kernel,
            stride,
            rate,
            "valid" if self.amounts == "VALID" else "same_upper",
            "channels_last" if self.layout == "NHWC" else "channels_first",
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the operator's input."""
        if self.operator != "BatchToSpace":
            return self.image
        cells = tuple(s // b for s, b in zip(self.padded, self.block, strict=True))
        small = replace(self, size=cells, batch=self.batch * math.prod(self.block))
        return small.image

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the operator's output."""
        shape = self.kernel.output_shape(self.input_shape)
        return tuple(d for d in shape if isinstance(d, int))

    @property
    def elements(self) -> int:
        """Number of elements of the input or output, whichever is larger."""
        return max(math.prod(self.input_shape), math.prod(self.output_shape))

    def data(self) -> np.ndarray:
        """Return an input of small whole numbers, which every element type can hold."""
        values = np.random.default_rng(0).integers(0, 200, self.input_shape, np.uint8)
        return values.astype(self.dtype)


def full() -> list[Cell]:
    """Return all cells."""
    cells: list[Cell] = []
    for operator, layout in itertools.product(OPERATORS, LAYOUTS):
        cells += _covering(_product(operator, layout), LARGEST)
    return [*cells, *(c for c in _extra() if c not in cells)]


def quick() -> list[Cell]:
    """Return a few small cells of every group, with different numbers of channels, and the hard ones."""
    chosen = [
        cell for cell in _hard() if QUICK_LARGEST // 16 <= cell.elements <= QUICK_LARGEST // 2
    ]
    for operator, layout in itertools.product(OPERATORS, LAYOUTS):
        cells = _covering(_product(operator, layout), QUICK_LARGEST)
        seen: set[int] = set()
        for cell in cells:
            if cell.elements < QUICK_LARGEST // 32 or cell.channels in seen:
                continue
            if len(seen) < QUICK_PER_GROUP:
                seen.add(cell.channels)
                chosen.append(cell)
    return chosen


def unknown() -> list[Cell]:
    """Return cells that are timed with known sizes and with unknown ones."""
    cells: list[Cell] = []
    for operator, layout in itertools.product(OPERATORS, LAYOUTS):
        cells += _covering(_unknown_product(operator, layout), UNKNOWN_LARGEST)
    s2b, b2s, patches = OPERATORS
    named = [
        Cell(patches, "NHWC", (128, 128), 64, "SAME", window=(3, 2, 1)),
        Cell(patches, "NHWC", (64, 64), 64, "SAME", window=(3, 1, 1)),
        Cell(patches, "NHWC", (128, 128), 64, "VALID", window=(2, 2, 1)),
        Cell(s2b, "NHWC", (65, 65), 64, "small", (4, 4)),
        Cell(b2s, "NHWC", (512, 512), 3, "none", (2, 2)),
        Cell(s2b, "NCHW", (224, 224), 3, "odd", (2, 4)),
    ]
    return [*cells, *(cell for cell in named if cell not in cells)]


def random_cell(rng: random.Random) -> Cell:
    """Return a cell of random geometry that has at most `LARGEST` elements and is not in `full`."""
    while True:
        cell = _random_cell(rng)
        fits = math.prod(cell.output_shape) >= RANDOM_LEAST and cell.elements <= LARGEST
        if fits and cell.name not in _names_of_full():
            return cell


@cache
def _names_of_full() -> frozenset[str]:
    return frozenset(cell.name for cell in full())


def _random_cell(rng: random.Random) -> Cell:
    operator, layout = rng.choice(OPERATORS), rng.choice(LAYOUTS)
    axes, batch = rng.choice([1, 2, 2, 2, 2, 2, 3]), rng.choice([1, 1, 1, 2, 4, 8])
    channels = rng.choice([1, 1, 2, 3, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512])
    dtype = rng.choice(["float32", "float32", "float32", "float16", "uint8"])
    side = (2 ** rng.uniform(11, 22.6) / channels / batch) ** (1 / axes)
    size = tuple(max(2, round(side * rng.choice([0.7, 1, 1, 1, 1.4]))) for _ in range(axes))
    if rng.random() < 0.4:  # powers of two are common in models, and bad for caches
        size = tuple(2 ** round(math.log2(s)) for s in size)
    if operator == "ExtractPatches":
        kernel = rng.choice([2, 2, 3, 3, 3, 4, 5, 7, 8, 16])
        window = (kernel, rng.choice([1, 1, 2, 3, kernel, kernel]), rng.choice([1, 1, 1, 2]))
        fits = (kernel - 1) * window[2] < min(size)
        amounts = rng.choice(["SAME", "VALID"]) if fits else "SAME"
        cell = Cell(operator, layout, size, channels, amounts, window=window, batch=batch)
    else:
        block = rng.choice([*((b,) * axes for b in (2, 2, 3, 4, 5, 8, 16)), (2, 4, 2)[:axes]])
        amounts = rng.choice(["none", "none", "small", "odd"])
        cell = Cell(operator, layout, size, channels, amounts, block, batch=batch)
    return replace(cell, dtype=dtype)


def _unknown_product(operator: str, layout: str) -> Iterable[Cell]:
    patches = operator == "ExtractPatches"
    shapes = itertools.product(UNKNOWN_SIZES, UNKNOWN_CHANNELS, DTYPES)
    for (size, c, dtype), amounts in itertools.product(
        shapes, ("VALID", "SAME") if patches else AMOUNTS
    ):
        if patches:
            for window in UNKNOWN_WINDOWS:
                yield Cell(operator, layout, size, c, amounts, window=window, dtype=dtype)
            continue
        for b in UNKNOWN_BLOCKS:
            if b < min(size) and b ** len(size) <= max(UNKNOWN_BLOCKS) ** 2:
                block = (b,) * len(size)
                yield Cell(operator, layout, size, c, amounts, block, dtype=dtype)


def _product(operator: str, layout: str) -> Iterable[Cell]:
    if operator == "ExtractPatches":
        for c, s, window, padding in itertools.product(CHANNELS, SIZES, WINDOWS, ("VALID", "SAME")):
            yield Cell(operator, layout, (s, s), c, padding, window=window)
        return
    for c, s, block, amounts in itertools.product(CHANNELS, SIZES, BLOCKS, AMOUNTS):
        yield Cell(operator, layout, (s, s), c, amounts, block)


def _covering(product: Iterable[Cell], largest: int) -> list[Cell]:
    """Choose cells until one has each pair of values that fits the size limit."""
    seen: set[frozenset[tuple[str, object]]] = set()
    chosen = []
    for cell in sorted(product, key=lambda c: zlib.crc32(c.name.encode())):
        if cell.elements > largest:
            continue
        values = [(field, getattr(cell, field)) for field in _VARIED]
        pairs = {frozenset(pair) for pair in itertools.combinations(values, 2)}
        if not pairs <= seen:
            seen |= pairs
            chosen.append(cell)
    return chosen


_VARIED = ("size", "channels", "block", "amounts", "window", "dtype")


def _extra() -> list[Cell]:
    """Return cells of one and three spatial axes, larger batches, other types, and real models."""
    s2b, b2s, patches = OPERATORS
    cells = []
    for operator in (s2b, b2s):
        cells += [
            Cell(operator, "NHWC", (16384,), 64, "none", (4,)),
            Cell(operator, "NHWC", (16001,), 32, "small", (8,)),
            Cell(operator, "NCHW", (16384,), 64, "none", (4,)),
            Cell(operator, "NHWC", (16, 64, 64), 16, "none", (2, 2, 2)),
            Cell(operator, "NCHW", (16, 64, 64), 16, "small", (2, 2, 2)),
            Cell(operator, "NCHW", (64, 64), 256, "none", (2, 2), batch=4),
            Cell(operator, "NHWC", (128, 128), 32, "none", (2, 2), batch=8),
            Cell(operator, "NHWC", (65, 65), 256, "none", (12, 12)),
            Cell(operator, "NHWC", (33, 33), 960, "odd", (12, 12)),
            Cell(operator, "NHWC", (512, 512), 64, "none", (2, 2)),
            Cell(operator, "NCHW", (512, 512), 64, "none", (2, 2)),
        ]
        for dtype, layout in itertools.product(("uint8", "float16"), LAYOUTS):
            cells.append(Cell(operator, layout, (224, 224), 16, "small", (2, 2), dtype=dtype))
            cells.append(Cell(operator, layout, (512, 512), 3, "none", (4, 4), dtype=dtype))
    cells += [
        Cell(patches, "NHWC", (224, 224), 3, "VALID", window=(16, 16, 1)),
        Cell(patches, "NHWC", (26, 26), 64, "VALID", window=(2, 2, 1)),
        Cell(patches, "NHWC", (512, 512), 64, "VALID", window=(2, 2, 1)),
        Cell(patches, "NHWC", (128, 128), 16, "SAME", window=(4, 2, 1), batch=4),
        Cell(patches, "NCHW", (128, 128), 16, "SAME", window=(4, 2, 1), batch=4),
        Cell(patches, "NHWC", (16, 32, 32), 16, "SAME", window=(3, 1, 1)),
        Cell(patches, "NHWC", (16, 32, 32), 16, "VALID", window=(2, 2, 1)),
    ]
    for dtype, layout in itertools.product(("uint8", "float16"), LAYOUTS):
        cells.append(Cell(patches, layout, (65, 65), 16, "SAME", window=(3, 1, 1), dtype=dtype))
    return [*cells, *_hard()]


def _hard() -> list[Cell]:
    """Return cells in which forms are far apart: one axis, large blocks, short elements, one channel."""
    s2b, b2s, patches = OPERATORS
    cells = []
    for operator in (s2b, b2s):
        cells += [
            Cell(operator, "NHWC", (4096,), 128, "none", (8,)),
            Cell(operator, "NHWC", (4096,), 16, "none", (32,)),
            Cell(operator, "NHWC", (4096,), 16, "odd", (32,)),
            Cell(operator, "NCHW", (4096,), 64, "none", (8,)),
            Cell(operator, "NHWC", (224, 224), 16, "none", (2, 4)),
            Cell(operator, "NHWC", (224, 224), 16, "odd", (2, 4)),
            Cell(operator, "NHWC", (32, 32), 64, "none", (8, 8)),
            Cell(operator, "NHWC", (32, 32), 256, "none", (8, 8)),
            Cell(operator, "NCHW", (32, 32), 64, "none", (2, 4)),
            Cell(operator, "NHWC", (256, 256), 16, "none", (32, 32)),
            Cell(operator, "NCHW", (256, 256), 16, "none", (32, 32)),
        ]
        for dtype in ("uint8", "float16"):
            cells += [
                Cell(operator, "NHWC", (65, 65), 64, "small", (4, 4), dtype=dtype),
                Cell(operator, "NHWC", (4096,), 16, "none", (8,), dtype=dtype),
                Cell(operator, "NCHW", (64, 64), 64, "none", (2, 2), dtype=dtype),
            ]
    for size, window in ((512, (3, 1, 1)), (512, (3, 2, 1)), (512, (5, 3, 2)), (224, (5, 1, 1))):
        cells += [
            Cell(patches, layout, (size, size), 1, "SAME", window=window) for layout in LAYOUTS
        ]
    return [
        *cells,
        Cell(patches, "NHWC", (512, 512), 1, "VALID", window=(3, 1, 1)),
        Cell(patches, "NHWC", (224, 224), 1, "VALID", window=(3, 2, 1)),
        Cell(patches, "NCHW", (512, 512), 3, "SAME", window=(3, 1, 1)),
        Cell(patches, "NHWC", (224, 224), 16, "SAME", window=(3, 1, 2)),
    ]
