"""Define the interface of operators: dims that may be unknown, rules, sizes, kernel, and test sizes.

The rest of the package calls this interface instead of testing for types. A lowering or a
fusion rule names the operators that it accepts; no other is offered to it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.strided_copies import Copies

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


def check_entries(name: str, values: Iterable[int], least: int, *, start: int = 0) -> None:
    """Check that the entries of a parameter, numbered from `start`, are at least 1 or at least 0.

    Raises:
        OperatorError: one is less.
    """
    for index, value in enumerate(values, start):
        if value < least:
            rule = "be at least 1" if least else "not be negative"
            raise OperatorError(
                f"{name}[{index}] is {value}; it must {rule}", code=Code.OUT_OF_RANGE
            )


#: An integer, or the representation of an unknown size in an `Arithmetic`.
Size = Any


class Arithmetic(Protocol):
    """Integer arithmetic on sizes, some of which are unknown until run time."""

    def add(self, a: Size, b: Size, /) -> Size:
        """Return a + b."""

    def sub(self, a: Size, b: Size, /) -> Size:
        """Return a - b."""

    def mul(self, a: Size, b: Size, /) -> Size:
        """Return a * b."""

    def div(self, a: Size, b: Size, /) -> Size:
        """Return a // b."""

    def max(self, a: Size, b: Size, /) -> Size:
        """Return the larger of two sizes."""

    def product(self, sizes: Sequence[Size], /) -> Size:
        """Return the product of sizes."""


@dataclass(frozen=True)
class Operator(ABC):
    """A spatial operator with known parameters.

    Subclasses are frozen dataclasses whose fields are integers, tuples of integers, strings and bools;
    `__post_init__` checks them.
    """

    #: Its name in messages and prepared models.
    name: ClassVar[str]
    #: Its kind in one word, for messages.
    noun: ClassVar[str]
    #: The noun for what holds the `positions`, for messages.
    positions_of: ClassVar[str]

    @property
    @abstractmethod
    def positions(self) -> tuple[int, ...]:
        """Number of positions in a block or window along each axis that has such."""

    @property
    @abstractmethod
    def is_identity(self) -> bool:
        """Whether the output is the input, whatever the sizes."""

    @abstractmethod
    def check(self, shape: Sequence[Dim]) -> None:
        """Check the shape of an input, whose dims may be unknown.

        Raises:
            OperatorError: the rank or a known dim breaks a rule.
        """

    @abstractmethod
    def known_dims(self, shape: Sequence[Dim]) -> list[Dim]:
        """Return the shape of the output for an input that `check` accepts."""

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the shape of the output; dims that depend on unknown ones are None.

        Raises:
            OperatorError: the rank or a known dim breaks a rule, or the output is too large for int64.
        """
        self.check(shape)
        dims = self.known_dims(shape)
        check_element_count(self.name, dims)
        return tuple(dims)

    def output_sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the output for an input whose dims are all known; see `output_shape`."""
        return tuple(int(dim) for dim in self.output_shape(shape))  # type: ignore[arg-type]

    @abstractmethod
    def plan(self, shape: tuple[int, ...]) -> Copies:
        """Return the copies that make the output for an input of that shape.

        Raises:
            OperatorError: a dim breaks a rule.
        """

    def __call__(
        self, x: npt.NDArray[np.generic], pad_value: object = None
    ) -> npt.NDArray[np.generic]:
        """Run on an array of any element type; every element is written once.

        Args:
            x: the data.
            pad_value: value of the padding; the default is the element type's 0, False or "".

        Raises:
            OperatorError: the shape breaks a rule.
        """
        return _plan_of(self, x.shape).run(x, pad_value)


@lru_cache(maxsize=256)
def _plan_of(operator: Operator, shape: tuple[int, ...]) -> Copies:
    """Return the copies of an operator for an input shape, made once."""
    return operator.plan(shape)


@dataclass(frozen=True)
class FixedOperator(Operator):
    """An operator all of whose parameters are attributes, so that only sizes may be unknown."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Rank of the input."""

    @property
    def may_pad(self) -> bool:
        """Whether the output may hold elements that are not in the input."""
        return False

    def multiple(self, axis: int) -> int:
        """Return a number that divides the size of an axis of the input."""
        return 1

    def known_dims(self, shape: Sequence[Dim]) -> list[Dim]:
        """Return the shape of the output for an input that `check` accepts."""
        return self.output_dims(DIMS, shape)

    @abstractmethod
    def output_dims(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Compute `output_shape` for dims that may be unknown, with the arithmetic `sizes`."""

    @abstractmethod
    def constraints(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Return sizes that are negative where dims break a rule that only a run can check."""
