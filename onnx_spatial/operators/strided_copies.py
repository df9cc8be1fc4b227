"""What the kernels of this package consist of: strided windows, copied from one array to another.

    target[region][cells] = source[elements],    target[region][gap] = pad value

The windows follow from the operator and the shape alone, so they are worked out once for both.
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
#: Makes an array of a shape and type, as np.empty.
Allocate = Callable[[Shape, np.dtype[np.generic]], npt.NDArray[np.generic]]

#: Operators with more moves than this are worked out anew each time.
_MOST_KEPT = 1024


@dataclass(frozen=True)
class Move:
    """One copy, and the rest of its region that nothing is copied to."""

    region: Index
    cells: Index
    elements: Index
    gaps: tuple[Index, ...] = ()


class Kernel(Protocol):
    """An operator as far as `moves_of` needs to know it."""

    def __hash__(self) -> int: ...

    def count(self) -> int:
        """How many moves it takes."""

    def moves(self, shape: Shape) -> Iterable[Move]:
        """The moves for an input of that shape."""


def moves_of(kernel: Kernel, shape: Shape) -> Iterable[Move]:
    """The moves of an operator for an input shape, remembered where they are few."""
    return _kept(kernel, shape) if kernel.count() <= _MOST_KEPT else kernel.moves(shape)


@lru_cache(maxsize=256)
def _kept(kernel: Kernel, shape: Shape) -> tuple[Move, ...]:
    return tuple(kernel.moves(shape))


def gaps(lead: int, windows: Sequence[slice], sizes: Sequence[int]) -> tuple[Index, ...]:
    """What lies around a window, in disjoint parts.

    Args:
        lead: number of axes before the first that is windowed.
        windows: per axis; start <= stop.
        sizes: of these axes.
    """
    found: list[Index] = []
    inside: list[slice] = [slice(None)] * lead
    for window, size in zip(windows, sizes, strict=True):
        start, stop = min(window.start, size), min(window.stop, size)
        if start:
            found.append((*inside, slice(0, start)))
        if stop < size:
            found.append((*inside, slice(stop, size)))
        if start == stop:
            break
        inside.append(window)
    return tuple(found)


def carry_out(
    moves: Iterable[Move],
    source: npt.NDArray[np.generic],
    target: npt.NDArray[np.generic],
    pad_value: object = None,
) -> None:
    """Copy `source` into `target`; every element that a move speaks of is written once.

    Args:
        moves: what to copy where.
        source, target: arrays of the same element type.
        pad_value: for the gaps; the default is the element type's 0, False or "".
    """
    value: Any = pad_value
    if value is None:
        value = "" if target.dtype.kind == "O" else target.dtype.type(0)
    for move in moves:
        region = target[move.region]
        region[move.cells] = source[move.elements]
        for gap in move.gaps:
            region[gap] = value
