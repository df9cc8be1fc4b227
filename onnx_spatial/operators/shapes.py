"""Dimensions that may be unknown, and the checks that every operator shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnx_spatial.errors import OperatorError

#: A dimension: its size, the name that a model gives it (the same name is the same size), or None.
Dim = int | str | None

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

#: Dims that a message shows; a hostile file may have 100,000 of them.
_SHOWN = 16


def show(shape: Sequence[Dim]) -> str:
    """Shapes in messages: [2, H, ?, 3]."""
    more = f", ... {len(shape)} dims" if len(shape) > _SHOWN else ""
    return "[" + ", ".join("?" if d is None else str(d) for d in shape[:_SHOWN]) + more + "]"


def is_countable(shape: Sequence[int]) -> bool:
    """Whether numpy can make such an array. It multiplies the dims without those that are 0."""
    return math.prod(max(dim, 1) for dim in shape) < 2**58


def check_element_count(name: str, shape: Sequence[Dim]) -> None:
    """Refuse by arithmetic what no runtime could hold, before anything is allocated."""
    known = [d for d in shape if isinstance(d, int)]
    if any(d > INT64_MAX for d in known):
        raise OperatorError(f"{name}: a dim of the output {show(shape)} overflows int64")
    if len(known) == len(shape) and math.prod(known) > INT64_MAX:
        raise OperatorError(f"{name}: the element count of {show(shape)} overflows int64")


def integers(name: str, values: object) -> tuple[int, ...]:
    """`values` as Python integers; anything that is not a whole number is refused."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise OperatorError(f"{name} must be a list of integers, not {values!r}")
    return tuple(int(v) for v in array)
