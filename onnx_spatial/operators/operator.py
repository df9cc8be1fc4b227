"""Define the interface of operators: rules, sizes, kernel, and test sizes.

The rest of the package calls this interface instead of testing for types. A lowering strategy or a
fusion rule names the operators that it accepts; no other is offered to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from onnx_spatial.operators.shapes import DIMS, Dim, check_element_count
from onnx_spatial.operators.strided_copies import Copies, plan_of

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
        return plan_of(self, x.shape).run(x, pad_value)


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
