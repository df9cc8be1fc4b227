"""Broadcast the maps of tensors."""

from __future__ import annotations

from collections.abc import Sequence

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
        # A size that may be 1 is only right beside equal ones: they are required to be equal.
        for size in others[1:]:
            if legal and not case.are_equal(size, others[0]):
                for each in (size, others[0]):
                    if each.constant is None and case.is_zero(each - ONE):
                        assume_equal(case, each, ONE)
                assume_equal(case, size, others[0])
            case.require_equal(size, others[0], "broadcasting: dims may differ")
        dims.append(others[0] if others else ONE)
    return tuple(dims)


def broadcast_at(x: Tensor, index: Index) -> Polynomial:
    """Return the element of a tensor at the index of a broadcast result."""
    tail = index[len(index) - x.rank :]
    return x.at(tuple(ZERO if d == ONE else i for i, d in zip(tail, x.dims, strict=True)))
