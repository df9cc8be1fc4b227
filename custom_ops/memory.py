"""Memory for results, used again: fresh memory costs more than the operators that write it.

What is freed in large pieces goes back to the system, and every page of a new piece is cleared before
it can be written. A result is read only once, by onnxruntime-extensions, right after its operator;
then its memory can take the next.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Results of these sizes, in bytes, are made in memory that is kept.
SIZES = range(1 << 14, (1 << 26) + 1)
#: All that is kept while no operator runs, in the whole process.
MOST_KEPT = 1 << 26

_free: list[Array] = []


class _Lease:
    """A piece of memory as long as an array lies in it; then it is free again."""

    def __init__(self, memory: Array) -> None:
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if sum(piece.nbytes for piece in _free) + self._memory.nbytes <= MOST_KEPT:
            _free.append(self._memory)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """np.empty, in memory that may have been used before."""
    size = math.prod(shape) * dtype.itemsize
    if size not in SIZES or dtype.hasobject:
        return np.empty(shape, dtype)
    leased = np.asarray(_Lease(_piece(size)))
    return leased[:size].view(dtype).reshape(shape)


def _piece(size: int) -> Array:
    """A free piece that is large enough and not far too large, or a new one."""
    unfit: list[Array] = []
    found = None
    while _free and found is None:
        try:
            piece = _free.pop()  # in one step: other threads do the same
        except IndexError:
            break
        if size <= piece.nbytes <= 4 * size:
            found = piece
        else:
            unfit.append(piece)
    room = MOST_KEPT - size
    for piece in unfit:
        room -= piece.nbytes
        if room >= 0:
            _free.append(piece)
    return np.empty(size, np.uint8) if found is None else found
