"""Reuse the memory of results: fresh memory costs more than the operators that write it.

Large blocks go back to the system when they are freed, and the system clears every page of a new one.
onnxruntime-extensions reads a result once, right after its operator; then its memory is free for the
next result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Sizes of results, in bytes, whose memory is reused.
SIZES = range(1 << 14, (1 << 26) + 1)
#: Largest total size of free blocks in the process.
MOST_KEPT = 1 << 26

_free: list[Array] = []


class _Lease:
    """Holds a block as long as an array uses it, then frees it for the next."""

    def __init__(self, memory: Array) -> None:
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if sum(block.nbytes for block in _free) + self._memory.nbytes <= MOST_KEPT:
            _free.append(self._memory)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return `np.empty(shape, dtype)`, perhaps in memory that was used before."""
    size = math.prod(shape) * dtype.itemsize
    if size not in SIZES or dtype.hasobject:
        return np.empty(shape, dtype)
    leased = np.asarray(_Lease(_block(size)))
    return leased[:size].view(dtype).reshape(shape)


def _block(size: int) -> Array:
    """Return a free block that is large enough but not far too large, or a new one."""
    unsuitable: list[Array] = []
    suitable = None
    while _free and suitable is None:
        try:
            block = _free.pop()  # atomic: other threads do the same
        except IndexError:
            break
        if size <= block.nbytes <= 4 * size:
            suitable = block
        else:
            unsuitable.append(block)
    room = MOST_KEPT - size
    for block in unsuitable:
        room -= block.nbytes
        if room >= 0:
            _free.append(block)
    return np.empty(size, np.uint8) if suitable is None else suitable
