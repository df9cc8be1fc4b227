"""Copy strided windows from one array to another: the kernels of the operators.

    target[region][cells] = source[elements],    target[region][gap] = pad value

The windows depend on the operator and the shape alone, so they are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Index = tuple[slice | int, ...]
Shape = tuple[int, ...]
#: Allocates an array of a shape and type, as np.empty.
Allocate = Callable[[Shape, np.dtype[np.generic]], npt.NDArray[np.generic]]

#: The most moves of an operator that are cached.
_MOST_CACHED = 1024


@dataclass(frozen=True)
class Move:
    """One copy, and the gaps: the rest of its region, which is padding."""

    region: Index
    cells: Index
    elements: Index
    gaps: tuple[Index, ...] = ()


class Kernel(Protocol):
    """An operator whose kernel consists of moves."""

    def __hash__(self) -> int: ...

    def count(self) -> int:
        """Return the number of moves."""

    def moves(self, shape: Shape) -> Iterable[Move]:
        """Yield the moves for an input of that shape."""


def moves_of(kernel: Kernel, shape: Shape) -> Iterable[Move]:
    """Return the moves of an operator for an input shape, cached if they are few."""
    return _cached(kernel, shape) if kernel.count() <= _MOST_CACHED else kernel.moves(shape)


@lru_cache(maxsize=256)
def _cached(kernel: Kernel, shape: Shape) -> tuple[Move, ...]:
    return tuple(kernel.moves(shape))


def gaps(lead: int, windows: Sequence[slice], sizes: Sequence[int]) -> tuple[Index, ...]:
    """Return the rest of a region around a window, in disjoint parts.

    Args:
        lead: number of axes in front of the windowed ones.
        windows: per axis; start <= stop.
        sizes: of these axes.
    """
    parts: list[Index] = []
    inside: list[slice] = [slice(None)] * lead
    for window, size in zip(windows, sizes, strict=True):
        start, stop = min(window.start, size), min(window.stop, size)
        if start:
            parts.append((*inside, slice(0, start)))
        if stop < size:
            parts.append((*inside, slice(stop, size)))
        if start == stop:
            break
        inside.append(window)
    return tuple(parts)


def carry_out(
    moves: Iterable[Move],
    source: npt.NDArray[np.generic],
    target: npt.NDArray[np.generic],
    pad_value: object = None,
) -> None:
    """Copy `source` into `target`, of the same element type, and fill the gaps with `pad_value`."""
    value: Any = pad_value
    if value is None:
        value = "" if target.dtype.kind == "O" else target.dtype.type(0)
    for move in moves:
        region = target[move.region]
        region[move.cells] = source[move.elements]
        for gap in move.gaps:
            region[gap] = value
