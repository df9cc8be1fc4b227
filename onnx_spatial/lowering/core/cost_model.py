"""Estimate the time of onnxruntime's CPU kernels, so that lowerings can be compared without a run.

The geometry of a node picks a regime of its kernel; in a regime the time is a sum of features, each
with a price in nanoseconds that `benchmarks/fit_prices.py` measures and fits into `prices.json`, for
one thread and for two. Features:

    call    one for the node
    part    inputs of a Concat, outputs of a Split
    loop    repetitions of a kernel, each of which is a task of the thread pool
    run     contiguous pieces that are copied (single elements where nothing longer stays together)
    byte    bytes written
    far     bytes beyond the first MiB: they come from another cache than the core's own
    deep    bytes beyond the first 6 MiB: they come from memory
    lost    runs among these: a whole line of the cache is fetched for each
    wide, tall, square    elements of a [few, many], [many, few] or [many, many] Transpose
    aliased  those of a [many, many] Transpose whose rows or columns compete for cache lines

The price is the mean of one thread and two: a model does not say how many it will run with, and a
form that is good with one and terrible with the other is a bad choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

#: Bytes that stay in a cache from one node to the next.
_NEAR = 1 << 20
_SHARED = 6 << 20

#: Sizes are cut off here: a file may declare more than a float holds.
MOST = 1 << 200

#: Bytes that onnxruntime moves as single elements.
_SINGLE = (1, 2, 4, 8)

#: Addresses this far apart compete for the lines of a first-level cache, and how many lines fit.
_ALIAS = 4096
_WAYS = 8

#: Rows and columns up to this count as few.
_FEW = 16

Features = dict[str, float]


@dataclass(frozen=True)
class Work:
    """Work of one node: its regime, a key of `prices.json`, and the amount of each feature."""

    regime: str
    features: Features

    @property
    def nanoseconds(self) -> float:
        """Estimated time, the mean of one thread and two."""
        each = [
            sum(p.get(k, 0.0) * float(min(v, MOST)) for k, v in self.features.items())
            for p in _prices()[self.regime]
        ]
        return sum(each) / len(each)


@cache
def _prices() -> dict[str, list[Features]]:
    """Load regime -> prices of its features with one thread, with two."""
    text = resources.files("onnx_spatial.lowering.core").joinpath("prices.json").read_text("utf-8")
    prices: dict[str, list[Features]] = json.loads(text)["prices"]
    return prices


def _moved(runs: float, size: float) -> Features:
    deep = max(0, size - _SHARED)
    return {
        "call": 1,
        "run": runs,
        "byte": size,
        "far": max(0, size - _NEAR),
        "deep": deep,
        "lost": runs * deep / max(size, 1),
    }


def small() -> Work:
    """Return the work of a Reshape, or of arithmetic on sizes."""
    return Work("small", {"call": 1})


@lru_cache(maxsize=1 << 14)
def transpose(dims: tuple[int, ...], perm: tuple[int, ...], itemsize: int) -> Work:
    """Return the work of a Transpose: one axis moves, blocks stay whole, or neither.

    Args:
        dims: of the input.
        perm: axis of the input for each axis of the output.
        itemsize: bytes of an element.
    """
    dims, perm = merged(dims, perm)
    size = math.prod(dims) * itemsize
    if len(dims) < 2:
        return Work("crop", _moved(1, size))
    last = len(dims) - 1
    block = dims[last] if perm[last] == last else 1
    moving = list(perm[: last + 1 if block == 1 else last])
    run = block * itemsize
    runs = size // max(run, 1)
    lead = 1 if moving[0] == 0 else 0
    if len(moving) - lead == 2 and moving[lead] > moving[lead + 1]:
        loops = dims[0] if lead else 1
        rows, columns = dims[lead], dims[lead + 1]
        if run in _SINGLE:
            shape = "square"
            if rows <= _FEW and columns > rows:
                shape = "wide"
            elif columns <= _FEW:
                shape = "tall"
            features = {**_moved(runs, size), "loop": loops - 1, shape: runs}
            far_apart = (columns * run % _ALIAS == 0 and rows > _WAYS) or (
                rows * run % _ALIAS == 0 and columns > _WAYS
            )
            if far_apart:
                features["aliased"] = runs
            return Work(f"transpose {run}", features)
        return Work("transpose one axis", _moved(runs, size))
    return Work("transpose blocks" if block > 1 else "transpose elements", _moved(runs, size))


def elementwise(elements: float, size: float) -> Work:
    """Return the work of a Transpose element by element: elements and bytes."""
    return Work("transpose elements", _moved(elements, size))


def merged(dims: Sequence[int], perm: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the dims and permutation of the same Transpose with as few axes as possible."""
    groups = axis_groups(perm, [dim == 1 for dim in dims])
    order = sorted(groups)
    return (
        tuple(math.prod(dims[a] for a in group) for group in order),
        tuple(order.index(group) for group in groups),
    )


def axis_groups(perm: Sequence[int], is_one: Sequence[bool]) -> list[list[int]]:
    """Group the axes that stay neighbours in a permutation, in its order, without axes of size 1."""
    groups: list[list[int]] = []
    for axis in perm:
        if is_one[axis]:
            continue
        if groups and axis > groups[-1][-1] and all(is_one[groups[-1][-1] + 1 : axis]):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def gather(rows: float, size: float) -> Work:
    """Return the work of a Gather of whole rows: rows and bytes written."""
    return Work("gather", _moved(rows, size))


def take(runs: float, size: float, *, strided: bool, single: bool) -> Work:
    """Return the work of a Slice.

    Args:
        runs: contiguous pieces, or single elements where the step is along the last axis.
        size: bytes written.
        strided: whether a step is more than 1.
        single: whether the pieces are single elements.
    """
    return Work("slice elements" if single else "slice" if strided else "crop", _moved(runs, size))


def concat(parts: int, runs: float, size: float, *, single: bool) -> Work:
    """Return the work of a Concat: inputs, contiguous pieces, bytes; `single`: of one element each."""
    return Work("concat elements" if single else "concat", {**_moved(runs, size), "part": parts})


def split(parts: int, runs: float, size: float, *, single: bool) -> Work:
    """Return the work of a Split: outputs, contiguous pieces, bytes; `single`: of one element each."""
    return Work("split elements" if single else "split", {**_moved(runs, size), "part": parts})


def pad(runs: float, size: float) -> Work:
    """Return the work of a Pad: contiguous pieces of data, bytes written."""
    return Work("pad", _moved(runs, size))


def depth(elements: float, size: float, inner: float, *, to_depth: bool) -> Work:
    """Return the work of a SpaceToDepth or DepthToSpace: elements, bytes, length of the inner loop.

    The inner loop runs over the blocks in a row for SpaceToDepth, over a block for DepthToSpace.
    """
    features = {**_moved(elements, size), "loop": elements // max(inner, 1)}
    return Work("space to depth" if to_depth else "depth to space", features)
