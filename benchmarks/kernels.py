"""Draw single nodes of random geometry and element size, whose kernels `fit_prices` measures."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.cost_model import Work


@dataclass(frozen=True)
class Case:
    """A node and its features.

    Attributes:
        op_type, attributes, constants: the node; constants are its inputs behind the data.
        inputs: shapes of its data inputs.
        itemsize: bytes of an element.
        work: regime and features.
        outputs: number of outputs.
    """

    op_type: str
    attributes: dict[str, int | list[int] | str]
    constants: list[np.ndarray]
    inputs: list[tuple[int, ...]]
    itemsize: int
    work: Work
    outputs: int = 1


def draw(rng: random.Random, least: int) -> Case:
    """Draw a node with at least about so many elements."""
    itemsize = rng.choice([1, 2, 4, 4, 4, 8])
    count = _log_uniform(rng, least, 1 << 23)
    return rng.choice(_KINDS)(rng, itemsize, count)


def _log_uniform(rng: random.Random, low: int, high: int) -> int:
    return round(2 ** rng.uniform(np.log2(low), np.log2(high)))


def _swap(rng: random.Random, itemsize: int, count: int) -> Case:
    run = rng.choice([1, 1, 1, 2, 3, 4, 8, 16, 24, 32, 64, 256])
    rows = rng.choice([2, 2, 3, 4, 4, 6, 8, 16, 49, 64, _log_uniform(rng, 2, 4096)])
    loops = rng.choice([1, 1, 1, 2, 16, 256, _log_uniform(rng, 1, 4096)])
    if rng.random() < 0.5:  # powers of two are common in models, and bad for caches
        rows, count = 2 ** rng.randint(1, 12), 2 ** rng.randint(11, 22)
    columns = max(2, count // (loops * rows * run))
    if rng.random() < 0.5:
        rows, columns = columns, rows
    dims, perm = (loops, rows, columns, run), (0, 2, 1, 3)
    if rng.random() < 0.5:  # the kernel for an axis that moves towards the end
        dims, perm = (loops, rows, 1, columns, run), (0, 2, 3, 1, 4)
    work = cost_model.transpose(dims, perm, itemsize)
    return Case("Transpose", {"perm": list(perm)}, [], [dims], itemsize, work)


def _blocks(rng: random.Random, itemsize: int, count: int) -> Case:
    run = rng.choice([1, 1, 2, 3, 4, 8, 16, 64, 256])
    b, c = rng.choice([2, 3, 4, 8]), rng.choice([2, 3, 4, 8])
    channels = rng.choice([1, 3, 16, 64])
    side = max(2, int((count / (run * channels * b * c)) ** 0.5))
    if rng.random() < 0.5:
        dims, perm = (channels * side, b, side, c, run), (1, 3, 0, 2, 4)
    else:
        dims, perm = (b, c, channels * side, side, run), (2, 0, 3, 1, 4)
    work = cost_model.transpose(dims, perm, itemsize)
    return Case("Transpose", {"perm": list(perm)}, [], [dims], itemsize, work)


def _gather(rng: random.Random, itemsize: int, count: int) -> Case:
    run = rng.choice([1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 1024, 4096])
    times, b = rng.choice([1, 1, 1, 3, 9]), rng.choice([2, 4])
    rows = max(1, count // (run * times * b)) * b
    index = np.tile(np.arange(rows).reshape(-1, b).T.reshape(-1), times).astype(np.int32)
    work = cost_model.gather(rows * times, rows * times * run * itemsize)
    return Case("Gather", {"axis": 0}, [index], [(rows, run)], itemsize, work)


def _gather_elements(rng: random.Random, itemsize: int, count: int) -> Case:
    rows, run = rng.choice([1, 2, 4, 8, 64, 512]), rng.choice([1, 1, 3, 16, 256])
    columns = max(1, count // (rows * run))
    order = np.arange(rows * columns * run).reshape(rows, columns, run).swapaxes(0, 1)
    index = order.reshape(-1).astype(np.int32)
    work = cost_model.gather_elements(index.size, index.size * itemsize)
    return Case("GatherElements", {"axis": 0}, [index], [(index.size,)], itemsize, work)


def _strided(rng: random.Random, itemsize: int, count: int) -> Case:
    run = rng.choice([1, 1, 2, 3, 4, 8, 16, 64, 256])
    step, lead = rng.choice([2, 2, 3, 4, 8]), rng.choice([1, _log_uniform(rng, 1, 1024)])
    kept = max(1, count // (lead * run * step))
    ends = _ints([rng.choice([0, 1])], [1 << 40], [1], [step])
    work = cost_model.take(lead * kept, lead * kept * run * itemsize, strided=True, single=run == 1)
    return Case("Slice", {}, ends, [(lead, kept * step, run)], itemsize, work)


def _crop(rng: random.Random, itemsize: int, count: int) -> Case:
    size, run = _log_uniform(rng, 3, 512), rng.choice([1, 2, 3, 8, 16, 64])
    lead, less = max(1, count // (size * run)), rng.choice([0, 1])
    bounds = _ints([1], [size - less], [1])
    kept = (size - 1 - less) * run
    work = cost_model.take(lead, lead * kept * itemsize, strided=False, single=False)
    return Case("Slice", {}, bounds, [(lead, size, run)], itemsize, work)


def _concat(rng: random.Random, itemsize: int, count: int) -> Case:
    parts = rng.choice([2, 3, 4, 7, 8, 9, 16, 25, 49])
    run = rng.choice([1, 1, 2, 3, 4, 8, 16, 64, 256, 4096])
    rows = max(1, count // (parts * run))
    work = cost_model.concat(parts, parts * rows, parts * rows * run * itemsize, single=run == 1)
    return Case("Concat", {"axis": 1}, [], [(rows, run)] * parts, itemsize, work)


def _split(rng: random.Random, itemsize: int, count: int) -> Case:
    parts, run = rng.choice([2, 3, 4, 8]), rng.choice([1, 1, 2, 3, 4, 8, 16, 64, 256, 4096])
    rows = max(1, count // (parts * run))
    work = cost_model.split(parts, parts * rows, parts * rows * run * itemsize, single=run == 1)
    return Case("Split", {"axis": 1}, [], [(rows, parts * run)], itemsize, work, parts)


def _pad(rng: random.Random, itemsize: int, count: int) -> Case:
    itemsize = itemsize if itemsize != 2 else 4  # Pad runs 16-bit floats through a Cast
    size, run = _log_uniform(rng, 4, 512), rng.choice([1, 1, 2, 3, 8, 16, 64])
    rows = rng.choice([1, _log_uniform(rng, 2, 256)])
    lead, more = max(1, count // (size * run * rows)), rng.choice([1, 1, 2, 8])
    above = rng.choice([0, more])
    pads = _ints([0, above, more, 0, 0, above, more, 0])
    size_out = lead * (rows + 2 * above) * (size + 2 * more) * run * itemsize
    work = cost_model.pad(lead * rows, size_out)
    return Case("Pad", {}, pads, [(lead, rows, size, run)], itemsize, work)


def _depth(rng: random.Random, itemsize: int, count: int) -> Case:
    itemsize = 4
    b, channels = rng.choice([2, 3, 4, 8, 16]), rng.choice([1, 3, 16, 64])
    side = max(1, int((count / (channels * b * b)) ** 0.5))
    total = channels * b * b * side * side
    inward = rng.random() < 0.5
    work = cost_model.depth(total, total * itemsize, side if inward else b, to_depth=inward)
    if inward:
        shape = (1, channels, side * b, side * b)
        return Case("SpaceToDepth", {"blocksize": b}, [], [shape], itemsize, work)
    shape = (1, channels * b * b, side, side)
    return Case("DepthToSpace", {"blocksize": b}, [], [shape], itemsize, work)


def _ints(*vectors: list[int]) -> list[np.ndarray]:
    return [np.array(vector, np.int64) for vector in vectors]


_KINDS: tuple[Callable[[random.Random, int, int], Case], ...] = (
    *(_swap, _swap, _swap, _blocks, _gather),
    *(_strided, _crop, _concat, _split, _pad, _depth),
    _gather_elements,
)
