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
    line    lines of the cache that are written, again for each input
    wide, tall, square    elements of a [few, many], [many, few] or [many, many] Transpose
    row edge, column edge    those in rows or columns that fill no tile of its kernel
    read apart, write apart    those of a Transpose whose rows, or columns, compete for cache lines
    shared    lines of the cache that two threads of a Transpose write parts of: the threads share the
            rows of its input, and wait for each other where their parts of an output row meet

The time of a node is the geometric mean of those with one thread and with two: a model does
not say how many it will run with, and a form that is good with one and terrible with the other is a bad
choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib import resources
from itertools import pairwise

#: Bytes that stay in a cache from one node to the next.
_CACHED_BYTES = 1 << 20
_SHARED_CACHE_BYTES = 6 << 20

#: Sizes are cut off here: a file may declare more than a float holds.
MAX_SIZE = 1 << 200

#: Bytes that onnxruntime moves as single elements.
_SINGLE = (1, 2, 4, 8)

#: Rows and columns of the tiles in which the kernels transpose elements, by their size.
_TILES = {1: 8, 2: 4, 4: 4, 8: 1}

#: Bytes of a line of the cache.
_CACHE_LINE_BYTES = 64

#: Addresses this far apart compete for the lines of a first-level cache, and how many lines fit.
_ALIAS_BYTES = 4096
_ALIAS_LINES = 12

#: The least multiple of bytes between rows that matters: below it they share most of the cache.
_MIN_ALIAS_BYTES = 512

#: Nanoseconds that a dim of 1 must save: a Reshape may be needed behind it.
_MIN_GAIN_NS = 1000

#: Rows and columns up to this count as few.
_FEW_ROWS = 16

Features = dict[str, float]


@dataclass(frozen=True)
class Work:
    """Work of one node: its regime, a key of `prices.json`, and the amount of each feature."""

    regime: str
    features: Features

    @cached_property
    def nanoseconds(self) -> float:
        """Estimated time: the geometric mean of those with one thread and with two."""
        amounts = [(name, float(min(amount, MAX_SIZE))) for name, amount in self.features.items()]
        one, two = (
            sum([prices.get(name, 0.0) * amount for name, amount in amounts])
            for prices in _load_prices()[self.regime]
        )
        # An estimated size may be negative: of an axis of 0 elements without estimated crops.
        return math.sqrt(max(0.0, one) * max(0.0, two))


def add_work(works: Sequence[Work]) -> list[Work]:
    """Return the work of nodes that run one after the other.

    What does not fit into the shared cache together comes from memory, however small each is.
    """
    size = sum(work.features.get("byte", 0.0) for work in works)
    share = max(0.0, 1 - 2 * _SHARED_CACHE_BYTES / max(size, 1.0))
    result = []
    for work in works:
        deep = work.features.get("byte", 0.0) * share
        if deep > work.features.get("deep", 0.0):
            work = replace(work, features={**work.features, "deep": deep})
        result.append(work)
    return result


def total_time(works: Sequence[Work]) -> float:
    """Return the estimated nanoseconds of nodes that run one after the other."""
    return sum(work.nanoseconds for work in add_work(works))


@cache
def _load_prices() -> dict[str, list[Features]]:
    """Load regime -> prices of its features with one thread, with two."""
    text = resources.files("onnx_spatial.lowering").joinpath("prices.json").read_text("utf-8")
    prices: dict[str, list[Features]] = json.loads(text)["prices"]
    return prices


def _moved(runs: float, size: float) -> Features:
    """Return the features of a copy of `size` bytes in contiguous runs."""
    deep = max(0, size - _SHARED_CACHE_BYTES)
    return {
        "call": 1,
        "run": runs,
        "byte": size,
        "far": max(0, size - _CACHED_BYTES),
        "deep": deep,
        "lost": runs * deep / max(size, 1),
    }


def small() -> Work:
    """Return the work of a Reshape, or of arithmetic on sizes."""
    return Work("small", {"call": 1})


@lru_cache(maxsize=1 << 14)
def transpose(dims: tuple[int, ...], perm: tuple[int, ...], itemsize: int) -> Work:
    """Return the work of a Transpose: one axis moves, blocks stay whole, or neither.

    onnxruntime has a kernel for one axis that moves towards the front, which several threads share,
    and a faster one, a loop of copies, for one that moves towards the end. Axes of size 1 count
    when it chooses between them.

    Args:
        dims: of the input.
        perm: axis of the input for each axis of the output.
        itemsize: bytes of an element.
    """
    inwards = _moves_inwards(perm)
    dims, perm = merged(dims, perm)
    size = math.prod(dims) * itemsize
    if len(dims) < 2:
        return Work("crop", _moved(1, size))
    last = len(dims) - 1
    block = dims[last] if perm[last] == last else 1
    outer_perm = perm[: last + 1 if block == 1 else last]
    run = block * itemsize
    runs = size // max(run, 1)
    lead = 1 if outer_perm[0] == 0 else 0  # an axis in front that stays
    if len(outer_perm) - lead == 2 and outer_perm[lead] > outer_perm[lead + 1]:
        loops = dims[0] if lead else 1
        rows, columns = dims[lead], dims[lead + 1]
        if run in _SINGLE:
            shape = "square"
            if rows <= _FEW_ROWS and columns > rows:
                shape = "wide"
            elif columns <= _FEW_ROWS:
                shape = "tall"
            features = {**_moved(runs, size), "loop": loops - 1, shape: runs}
            features |= _tiling_work(rows, columns, run, runs)
            return Work(f"transpose {run}", features)
        return Work(
            "transpose inwards" if inwards else "transpose one axis",
            {**_moved(runs, size), "loop": loops - 1},
        )
    return Work("transpose blocks" if block > 1 else "transpose elements", _moved(runs, size))


def _tiling_work(rows: int, columns: int, run: int, runs: float) -> Features:
    """Return what tiles, the lines of the cache and threads that share them cost."""
    tile = _TILES[run]
    features: Features = {}
    if rows > tile // 2 > 0 and rows * run % (2 * _CACHE_LINE_BYTES):
        features["shared"] = min(runs / rows, runs * run / _CACHE_LINE_BYTES)
    if rows % tile:
        features["row edge"] = runs * (rows % tile) / rows
    if columns % tile:
        features["column edge"] = runs * (columns % tile) / columns
    for name, count, length in (("read", rows, columns), ("write", columns, rows)):
        apart = math.gcd(length * run, _ALIAS_BYTES)
        # Those that need a line, for each that there is.
        crowd = count * apart / (_ALIAS_LINES * _ALIAS_BYTES)
        if apart >= _MIN_ALIAS_BYTES and crowd > 1:
            features[f"{name} apart"] = runs * min(4.0, 1 + math.log2(crowd))
    return features


def _moves_inwards(perm: Sequence[int]) -> bool:
    """Tell whether a permutation moves one axis towards the end, and none towards the front."""
    moved = [axis for axis, place in enumerate(perm) if axis != place]
    if len(moved) < 3:  # two neighbours that change places count as a move towards the front
        return False
    first, last = moved[0], moved[-1]
    return list(perm[first : last + 1]) == [*range(first + 1, last + 1), first]


def swap_inwards(
    dims: tuple[int, ...], perm: tuple[int, ...], itemsize: int, rank_limit: float
) -> tuple[int, tuple[int, ...]] | None:
    """Return where a dim of 1 turns a swap of two neighbours into a faster move towards the end.

    Returns:
        The place of the new axis and the permutation with it; None if `perm` is no such swap, or is
        about as fast.
    """
    moved = [axis for axis, place in enumerate(perm) if axis != place]
    if len(moved) != 2 or moved[1] != moved[0] + 1 or len(dims) >= rank_limit:
        return None
    first, place = moved[0], moved[1]
    order = (*range(first), place, place + 1, first, *range(place + 2, len(perm) + 1))
    turned = transpose((*dims[:place], 1, *dims[place:]), order, itemsize)
    plain = transpose(dims, perm, itemsize)
    is_faster = turned.nanoseconds + _MIN_GAIN_NS < plain.nanoseconds
    return (place, order) if is_faster else None


@lru_cache(maxsize=1 << 14)  # the searches with and without a Gather price the same ones
def best_transpose(
    dims: tuple[int, ...], perm: tuple[int, ...], itemsize: int, rank_limit: float
) -> Work | None:
    """Return the work of a Transpose of the fewest axes, with or without the dim of `swap_inwards`.

    None if even these are more than the limit of the rank.
    """
    dims, perm = merged(dims, perm)
    if len(dims) > rank_limit:
        return None
    faster = swap_inwards(dims, perm, itemsize, rank_limit)
    if faster is not None:
        place, perm = faster
        dims = (*dims[:place], 1, *dims[place:])
    return transpose(dims, perm, itemsize)


def merged(dims: Sequence[int], perm: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the dims and permutation of the same Transpose with as few axes as possible."""
    moved = axis_groups(dims, perm)
    order = sorted(moved)
    return (
        tuple(math.prod(dims[axis] for axis in group) for group in order),
        tuple(order.index(group) for group in moved),
    )


def axis_groups(dims: Sequence[object], perm: Sequence[int]) -> list[tuple[int, ...]]:
    """Group the axes that a Transpose leaves together, in its order, without axes of size 1."""
    long_axes = [axis for axis in perm if dims[axis] != 1]
    return neighbours(sorted(long_axes), long_axes)


def neighbours(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, ...]]:
    """Group the entries that are neighbours in both orders, in the order `after`."""
    follower = dict(pairwise(before))
    groups: list[tuple[int, ...]] = []
    for entry in after:
        if groups and follower.get(groups[-1][-1]) == entry:
            groups[-1] = (*groups[-1], entry)
        else:
            groups.append((entry,))
    return groups


def copies(regime: str, runs: float, size: float, parts: int = 0) -> Work:
    """Return the work of a kernel that copies pieces of data.

    Args:
        regime: of the kernel, a key of `prices.json`.
        runs: contiguous pieces, or single elements.
        size: bytes written.
        parts: inputs of a Concat, outputs of a Split.
    """
    return Work(regime, _moved(runs, size) | ({"part": parts} if parts else {}))


def concat_work(parts: int, runs: float, size: float, *, single: bool) -> Work:
    """Return the work of a Concat: inputs, contiguous pieces, bytes; `single`: of one element each."""
    if not single:
        return copies("concat", runs, size, parts)
    # Each input is a pass over the output, which writes to every line of the cache if the rows are long.
    touched = min(1.0, parts * size / max(runs, 1) / _CACHE_LINE_BYTES)
    work = copies("concat elements", runs, size, parts)
    lines = {"line": runs * touched, "lost": work.features["lost"] * touched}
    return replace(work, features=work.features | lines)


def depth(elements: float, size: float, inner: float, *, to_depth: bool) -> Work:
    """Return the work of a SpaceToDepth or DepthToSpace: elements, bytes, length of the inner loop.

    The inner loop runs over the blocks in a row for SpaceToDepth, over a block for DepthToSpace.
    """
    features = {**_moved(elements, size), "loop": elements // max(inner, 1)}
    if not to_depth:  # each element of a block in a row comes from another plane
        apart = math.gcd(int(size // max(inner * inner, 1)), _ALIAS_BYTES)
        if apart >= _MIN_ALIAS_BYTES and inner * apart > _ALIAS_LINES * _ALIAS_BYTES:
            features["read apart"] = elements
    return Work("space to depth" if to_depth else "depth to space", features)
