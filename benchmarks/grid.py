"""Choose the cells that lowerings are timed on.

A cell is an operator with a shape. All combinations of the values below would take days. So per
operator and layout a cell is used only if it has a pair of values (channels and block, size and pads,
...) that no cell before it has. Cells are ordered by a checksum of their names: the same on every
machine, and unrelated to size.
"""

import itertools
import math
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from onnx_spatial import operators

CHANNELS = (1, 3, 16, 64, 256)
SIZES = (32, 65, 224, 512)
BLOCKS = ((2, 2), (3, 3), (4, 4), (8, 8), (2, 4))
#: Pads (or crops) in front of each axis; behind it are as many, and those that fill the last block.
AMOUNTS = {"none": 0, "small": 1, "odd": 3}
#: Kernel, stride, rate.
WINDOWS = ((2, 2, 1), (3, 1, 1), (3, 1, 2), (3, 2, 1), (7, 1, 1), (16, 16, 1), (5, 3, 2))
LAYOUTS = ("NHWC", "NCHW")
OPERATORS = ("SpaceToBatch", "BatchToSpace", "ExtractPatches")

#: Largest number of elements of input or output: 32 MiB of float32; some named cells are twice as large.
MAX_ELEMENTS = 1 << 23
#: Largest and least number of elements of a quick cell, and cells for each operator and layout.
QUICK_ELEMENTS, QUICK_CELLS = (1 << 16, 1 << 21), 4
#: Least number of elements that a random cell writes.
MIN_RANDOM_ELEMENTS = 512


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
    """Return all cells: those that cover the pairs of values, and those with names."""
    groups = itertools.product(OPERATORS, LAYOUTS)
    cells = [cell for group in groups for cell in _covering(*group)]
    return list(dict.fromkeys([*cells, *_named()]))


def quick() -> list[Cell]:
    """Return a few small cells of every operator and layout."""
    least, most = QUICK_ELEMENTS
    chosen = []
    for group in itertools.product(OPERATORS, LAYOUTS):
        fitting = (cell for cell in _covering(*group) if least <= cell.elements <= most)
        chosen += itertools.islice(fitting, QUICK_CELLS)
    return chosen


def _covering(operator: str, layout: str) -> Iterator[Cell]:
    """Yield cells until one has each pair of values that fits the size limit."""
    seen: set[frozenset[tuple[str, object]]] = set()
    for cell in sorted(_product(operator, layout), key=lambda c: zlib.crc32(c.name.encode())):
        values = [
            (name, getattr(cell, name))
            for name in ("size", "channels", "block", "amounts", "window")
        ]
        pairs = {frozenset(pair) for pair in itertools.combinations(values, 2)}
        if cell.elements <= MAX_ELEMENTS and not pairs <= seen:
            seen |= pairs
            yield cell


def _product(operator: str, layout: str) -> Iterator[Cell]:
    for channels, side in itertools.product(CHANNELS, SIZES):
        known = (operator, layout, (side, side), channels)
        if operator == "ExtractPatches":
            for window, padding in itertools.product(WINDOWS, ("VALID", "SAME")):
                yield Cell(*known, padding, window=window)
        else:
            for block, amounts in itertools.product(BLOCKS, AMOUNTS):
                yield Cell(*known, amounts, block)


def random_cell(rng: random.Random) -> Cell:
    """Return a cell of random geometry that has at most `MAX_ELEMENTS` elements."""
    while True:
        cell = _random_cell(rng)
        fits = math.prod(cell.output_shape) >= MIN_RANDOM_ELEMENTS
        if fits and cell.elements <= MAX_ELEMENTS:
            return cell


def _random_cell(rng: random.Random) -> Cell:
    operator, layout = rng.choice(OPERATORS), rng.choice(LAYOUTS)
    patches = (
        operator == "ExtractPatches"
    )  # there are some of two axes, and of three with channels last
    axes = rng.choice([2, 2, 2, 2, 3 if layout == "NHWC" else 2] if patches else [1, 2, 2, 2, 2, 3])
    batch = rng.choice([1, 1, 1, 2, 4, 8])
    channels = rng.choice([1, 1, 2, 3, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512])
    dtype = rng.choice(["float32", "float32", "float32", "float16", "uint8"])
    side = (2 ** rng.uniform(11, 22.6) / channels / batch) ** (1 / axes)
    size = tuple(max(2, round(side * rng.choice([0.7, 1, 1, 1, 1.4]))) for _ in range(axes))
    if rng.random() < 0.4:  # powers of two are common in models, and bad for caches
        size = tuple(2 ** round(math.log2(s)) for s in size)
    if patches:
        kernel = rng.choice([2, 2, 3, 3, 3, 4, 5, 7, 8, 16])
        rate = rng.choice([1, 1, 1, 2]) if axes == 2 else 1
        window = (kernel, rng.choice([1, 1, 2, 3, kernel, kernel]), rate)
        fits = (kernel - 1) * window[2] < min(size)
        amounts = rng.choice(["SAME", "VALID"]) if fits else "SAME"
        cell = Cell(operator, layout, size, channels, amounts, window=window, batch=batch)
    else:
        block = rng.choice([*((b,) * axes for b in (2, 2, 3, 4, 5, 8, 16)), (2, 4, 2)[:axes]])
        amounts = rng.choice(["none", "none", "small", "odd"])
        cell = Cell(operator, layout, size, channels, amounts, block, batch=batch)
    return replace(cell, dtype=dtype)


def _named() -> Iterator[Cell]:
    """Yield cells of real models, and those in which lowerings are far apart: one and three spatial
    axes, large blocks, batches, short elements, one channel.
    """
    s2b, b2s, patches = OPERATORS
    for operator in (s2b, b2s):
        yield from (
            Cell(operator, "NHWC", (16384,), 64, "none", (4,)),
            Cell(operator, "NCHW", (16384,), 64, "none", (4,)),
            Cell(operator, "NHWC", (4096,), 16, "odd", (32,)),
            Cell(operator, "NHWC", (16, 64, 64), 16, "none", (2, 2, 2)),
            Cell(operator, "NCHW", (16, 64, 64), 16, "small", (2, 2, 2)),
            Cell(operator, "NCHW", (64, 64), 256, "none", (2, 2), batch=4),
            Cell(operator, "NHWC", (33, 33), 960, "odd", (12, 12)),
            Cell(operator, "NHWC", (512, 512), 64, "none", (2, 2)),
            Cell(operator, "NHWC", (256, 256), 16, "none", (32, 32)),
            Cell(operator, "NCHW", (256, 256), 16, "none", (32, 32)),
        )
        for dtype, layout in itertools.product(("uint8", "float16"), LAYOUTS):
            yield Cell(operator, layout, (224, 224), 16, "small", (2, 2), dtype=dtype)
            yield Cell(operator, layout, (512, 512), 3, "none", (4, 4), dtype=dtype)
    for layout in LAYOUTS:
        yield Cell(patches, layout, (128, 128), 16, "SAME", window=(4, 2, 1), batch=4)
        for size, window in ((512, (3, 1, 1)), (512, (5, 3, 2)), (224, (5, 1, 1))):
            yield Cell(patches, layout, (size, size), 1, "SAME", window=window)
        for dtype in ("uint8", "float16"):
            yield Cell(patches, layout, (65, 65), 16, "SAME", window=(3, 1, 1), dtype=dtype)
    yield Cell(patches, "NHWC", (26, 26), 64, "VALID", window=(2, 2, 1))
    yield Cell(patches, "NHWC", (16, 32, 32), 16, "SAME", window=(3, 1, 1))
    yield Cell(patches, "NHWC", (16, 32, 32), 16, "VALID", window=(2, 2, 1))
