"""What the kernels of onnxruntime's CPU provider cost, so that lowerings can be compared unbuilt.

Each kernel falls into a regime by its geometry; in a regime the time is a sum of features, each with
a price in nanoseconds that `benchmarks/fit_prices.py` measures and fits into `prices.json`, for one
thread and for two. Features:

    call    one for the node
    part    inputs of a Concat, outputs of a Split
    loop    repetitions of a kernel that hands each of them to the thread pool on its own
    run     contiguous pieces that are copied (single elements where nothing longer stays together)
    byte    bytes written
    far     bytes beyond the first MiB: they come from another cache than the core's own
    deep    bytes beyond the first 6 MiB: they come from memory
    lost    pieces among these: a line of a cache is fetched for each, whether all of it is wanted or not
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

#: Sizes that a file claims may be more than a float holds.
MOST = 1 << 200

#: Bytes that onnxruntime moves as single elements.
_SINGLE = (1, 2, 4, 8)

#: Addresses this far apart compete for the same lines of a first-level cache, which has so many ways.
_ALIAS = 4096
_WAYS = 8

#: Rows and columns up to this count as few.
_FEW = 16

Features = dict[str, float]


@dataclass(frozen=True)
class Work:
    """What one node does.

    Attributes:
        regime: which way through the kernel, a key of `prices.json`.
        features: how much of what.
    """

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
    """regime -> prices of its features with one thread, with two."""
    text = resources.files("onnx_spatial.lowering.core").joinpath("prices.json").read_text("utf-8")
    found: dict[str, list[Features]] = json.loads(text)["prices"]
    return found


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
    """A Reshape, or arithmetic on sizes."""
    return Work("small", {"call": 1})


@lru_cache(maxsize=1 << 14)
def transpose(dims: tuple[int, ...], perm: tuple[int, ...], itemsize: int) -> Work:
    """A Transpose. onnxruntime has three ways: a single axis moves, blocks stay whole, or neither.

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
    """A Transpose that keeps nothing together: elements and bytes."""
    return Work("transpose elements", _moved(elements, size))


def merged(dims: Sequence[int], perm: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same movement with as few axes as it can be told with."""
    kept = [p for p in perm if dims[p] != 1]
    groups: list[list[int]] = []
    for axis in kept:
        previous = groups[-1][-1] if groups else None
        between = range((previous if previous is not None else axis) + 1, axis)
        if previous is not None and axis > previous and all(dims[a] == 1 for a in between):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    order = sorted(groups)
    return (
        tuple(math.prod(dims[a] for a in group) for group in order),
        tuple(order.index(group) for group in groups),
    )


def gather(rows: float, size: float) -> Work:
    """A Gather of whole rows: rows and bytes that it writes."""
    return Work("gather", _moved(rows, size))


def take(runs: float, size: float, *, strided: bool, single: bool) -> Work:
    """A Slice.

    Args:
        runs: contiguous pieces, or single elements where the step is along the last axis.
        size: bytes that it writes.
        strided: whether a step is more than 1.
        single: whether the pieces are single elements.
    """
    return Work("slice elements" if single else "slice" if strided else "crop", _moved(runs, size))


def concat(parts: int, runs: float, size: float, *, single: bool) -> Work:
    """A Concat: its inputs, contiguous pieces (of one element each?), bytes written."""
    return Work("concat elements" if single else "concat", {**_moved(runs, size), "part": parts})


def split(parts: int, runs: float, size: float, *, single: bool) -> Work:
    """A Split: its outputs, contiguous pieces (of one element each?), bytes written."""
    return Work("split elements" if single else "split", {**_moved(runs, size), "part": parts})


def pad(runs: float, size: float) -> Work:
    """A Pad: contiguous pieces of data, bytes written."""
    return Work("pad", _moved(runs, size))


def depth(elements: float, size: float, inner: float, *, to_depth: bool) -> Work:
    """A SpaceToDepth or DepthToSpace: elements, bytes, length of the innermost axis of the result.

    That is the blocks in a row for SpaceToDepth, the block size for DepthToSpace.
    """
    features = {**_moved(elements, size), "loop": elements // max(inner, 1)}
    return Work("space to depth" if to_depth else "depth to space", features)
