"""Define dimensions that may be unknown, and the checks that all operators share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnx_spatial.errors import Code, OperatorError

#: A dimension: its size, the name that a model gives it (the same name is the same size), or None.
Dim = int | str | None

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

#: The most dims in a message; a hostile file may have 100,000 of them.
_MAX_SHOWN_DIMS = 16


def show(shape: Sequence[Dim]) -> str:
    """Format a shape for messages: [2, H, ?, 3]."""
    more = f", ... {len(shape)} dims" if len(shape) > _MAX_SHOWN_DIMS else ""
    return (
        "[" + ", ".join("?" if d is None else str(d) for d in shape[:_MAX_SHOWN_DIMS]) + more + "]"
    )


class DimArithmetic:
    """Arithmetic on dims: what depends on one that is not a number is unknown, unless it is neutral."""

    def add(self, a: Dim, b: Dim) -> Dim:
        """Return a + b."""
        return a + b if isinstance(a, int) and isinstance(b, int) else a if b == 0 else None

    def sub(self, a: Dim, b: Dim) -> Dim:
        """Return a - b."""
        return a - b if isinstance(a, int) and isinstance(b, int) else a if b == 0 else None

    def mul(self, a: Dim, b: Dim) -> Dim:
        """Return a * b."""
        return self.product((a, b))

    def div(self, a: Dim, b: Dim) -> Dim:
        """Return a // b."""
        return a // b if isinstance(a, int) and isinstance(b, int) else a if b == 1 else None

    def max(self, a: Dim, b: Dim) -> Dim:
        """Return the larger of two dims."""
        return max(a, b) if isinstance(a, int) and isinstance(b, int) else None

    def product(self, dims: Sequence[Dim]) -> Dim:
        """Return the product of dims."""
        factors = [dim for dim in dims if dim != 1]
        numbers = [dim for dim in factors if isinstance(dim, int)]
        if len(numbers) == len(factors):
            return math.prod(numbers)
        return factors[0] if len(factors) == 1 else None


DIMS = DimArithmetic()


def is_countable(shape: Sequence[int]) -> bool:
    """Tell whether numpy can make an array of this shape; it multiplies the dims that are not 0."""
    return math.prod(max(dim, 1) for dim in shape) < 2**58


def check_element_count(name: str, shape: Sequence[Dim]) -> None:
    """Refuse a shape that no runtime can hold, before anything is allocated.

    Raises:
        OperatorError: a dim or the number of elements overflows int64.
    """
    known = [d for d in shape if isinstance(d, int)]
    if any(d > INT64_MAX for d in known):
        raise OperatorError(
            f"{name}: a dim of the output {show(shape)} overflows int64", code=Code.OVERFLOW
        )
    if len(known) == len(shape) and math.prod(known) > INT64_MAX:
        raise OperatorError(
            f"{name}: the element count of {show(shape)} overflows int64", code=Code.OVERFLOW
        )


def integers(name: str, values: object) -> tuple[int, ...]:
    """Return `values` as Python integers.

    Raises:
        OperatorError: they are no list of integers.
    """
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise OperatorError(
            f"{name} must be a list of integers, not {values!r}", code=Code.PARAMETER
        )
    return tuple(int(v) for v in array)
