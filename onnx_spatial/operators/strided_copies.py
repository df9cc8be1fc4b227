"""Copy strided windows from one array to another: the kernels of the operators.

    target[...] = source                                 every element of the output is in the input
    target[region][cells] = source[elements],            window by window,
    target[region][gap] = pad value                      and padding around them

`source` is a view of the input and `target` one of the output. Both depend on the operator and the
shape alone, so that a `Plan` of them is made once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Index = tuple[slice | int, ...]
Shape = tuple[int, ...]

#: The most moves of an operator that are kept.
_MAX_KEPT = 1024

#: Bytes of neighbouring elements that are copied as one: numpy copies each row of an inner axis by a
#: call of its own, which costs more than a few bytes. Only in arrays of at least so many elements, as
#: it takes four more calls.
_MAX_JOINED, _FEWEST_ELEMENTS = 128, 512


@dataclass(frozen=True)
class Move:
    """One copy, and the gaps: the rest of its region, which is padding."""

    region: Index
    cells: Index
    elements: Index
    gaps: tuple[Index, ...] = ()


class Copies(Protocol):
    """The copies that make the output of an operator for inputs of one shape."""

    def run(self, x: Array, pad_value: object = None) -> Array:
        """Return the output, see `Operator.__call__`."""


@dataclass(frozen=True)
class View:
    """A view of an array: reshaped to `dims`, then with its axes in an order (None: as they are)."""

    dims: Shape
    order: Shape | None = None

    def of(self, array: Array) -> Array:
        """Return the view of an array."""
        array = array.reshape(self.dims)
        return array if self.order is None else array.transpose(self.order)

    def joined(self, array: Array, tail: int, dtype: np.dtype[np.void]) -> Array:
        """Return the view of a contiguous array whose last `tail` axes are one element of a type."""
        array = array.reshape(-1).view(dtype).reshape(self.dims[:-tail])
        return array if self.order is None else array.transpose(self.order[:-tail])


@dataclass(frozen=True)
class Plan:
    """Copies from a view of the input to a view of the output.

    Attributes:
        shape: that of the output.
        source: view of the input.
        target: view of the output.
        moves: returns copies between the views; None: every element of the source is copied.
        tail: number of axes at the end of both views that are the same axes, and that no move cuts.
    """

    shape: Shape
    source: View
    target: View
    moves: Callable[[], Iterable[Move]] | None = None
    tail: int = 0

    def run(self, x: Array, pad_value: object = None) -> Array:
        """Return the output, see `Operator.__call__`."""
        out: Array = np.empty(self.shape, x.dtype)
        if out.size == 0:
            return out
        joined = self._joined_type(x)
        if joined is None:
            source, target = self.source.of(x), self.target.of(out)
        else:
            source = self.source.joined(x, self.tail, joined)
            target = self.target.joined(out, self.tail, joined)
        if self.moves is None:
            target[...] = source
            return out
        padded = target if joined is None else self.target.of(out)
        value: Any = pad_value
        if value is None:
            value = "" if out.dtype.kind == "O" else out.dtype.type(0)
        for move in self.moves():
            target[move.region][move.cells] = source[move.elements]
            for gap in move.gaps:
                padded[move.region][gap] = value
        return out

    def _joined_type(self, x: Array) -> np.dtype[np.void] | None:
        """Return the type of the elements of the last axes as one; None if they stay apart."""
        if not self.tail or x.size < _FEWEST_ELEMENTS or x.dtype.hasobject:
            return None
        count = math.prod(self.source.dims[-self.tail :])
        size = count * x.dtype.itemsize
        if count == 1 or size > _MAX_JOINED or not x.flags.c_contiguous:
            return None
        return np.dtype((np.void, size))


def kept(count: int, moves: Callable[[], Iterable[Move]]) -> Callable[[], Iterable[Move]]:
    """Return a function that returns the moves, which are kept if they are few.

    Args:
        count: number of moves.
        moves: generates them.
    """
    if count > _MAX_KEPT:
        return moves
    few = tuple(moves())
    return lambda: few


def gaps(lead: int, windows: Sequence[slice], sizes: Sequence[int]) -> tuple[Index, ...]:
    """Return the rest of a region around a window, in disjoint parts.

    Args:
        lead: number of axes in front of the windowed ones.
        windows: per axis; start <= stop.
        sizes: of these axes.
    """
    parts: list[Index] = []
    # Part by part: what is inside the windows of the axes so far, and outside that of the next.
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
