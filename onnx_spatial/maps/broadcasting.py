"""Broadcast the maps of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.expressions import ONE, ZERO, Index
from onnx_spatial.maps.node import assume_equal
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.tensor import Dims, Tensor


def broadcast(case: Case, shapes: Sequence[Dims], *, legal: bool = False) -> Dims:
    """Return the dims of several shapes after broadcasting.

    Args:
        case: the case.
        shapes: the shapes.
        legal: whether they are known to fit: a size that is unknown may be 1.

    Raises:
        UndecidedError: they may not fit.
    """
    rank = max(map(len, shapes))
    dims = []
    for axis in range(rank):
        sizes = [s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0]
        others = [size for size in sizes if size != ONE]
        numbers = [size for size in others if size.constant is not None]
        if numbers and not case.splits:
            dims.append(numbers[0])  # the others are equal to it, or 1
        else:
            dims.append(case.size(partial(_common, case, others, legal=legal)) if others else ONE)
    return tuple(dims)


def _common(case: Case, sizes: Sequence[Polynomial], *, legal: bool) -> Polynomial:
    """Return the size that all sizes have; one that may be 1 is only right beside equal ones."""
    for size in sizes[1:]:
        if legal and not case.are_equal(size, sizes[0]):
            for each in (size, sizes[0]):
                if each.constant is None and case.is_zero(each - ONE):
                    assume_equal(case, each, ONE)
            assume_equal(case, size, sizes[0])
        case.require_equal(size, sizes[0], "broadcasting: dims may differ")
    return sizes[0]


def broadcast_at(x: Tensor, index: Index) -> Polynomial:
    """Return the element of a tensor at the index of a broadcast result."""
    tail = index[len(index) - x.rank :]
    return x.at(tuple(ZERO if d == ONE else i for i, d in zip(tail, x.dims, strict=True)))
