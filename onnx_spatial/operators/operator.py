"""What every operator brings: its rules, its sizes, its kernel, and how it is tested.

The rest of the package asks an operator instead of looking at its type. A lowering strategy or a fusion
rule names the operators that it knows; no other is offered to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from onnx_spatial.operators.shapes import Dim
from onnx_spatial.operators.strided_copies import Allocate

#: An integer, or what an `Arithmetic` computes sizes as that only the run knows.
Size = Any

#: Sizes of a batch and of channels in tests, the first ones most often.
BATCHES, CHANNELS = (2, 3, 1, 4), (3, 2, 5, 4)

#: How many sizes one axis gets in tests, over as many draws.
MOST_SIZES = 14

#: Draws of sizes that meet what most operators treat differently.
USUAL_DRAWS = 3


class Arithmetic(Protocol):
    """Integer arithmetic on sizes, some of which only the run knows."""

    def add(self, a: Size, b: Size, /) -> Size:
        """a + b"""

    def sub(self, a: Size, b: Size, /) -> Size:
        """a - b"""

    def mul(self, a: Size, b: Size, /) -> Size:
        """a * b"""

    def div(self, a: Size, b: Size, /) -> Size:
        """a // b"""

    def max(self, a: Size, b: Size, /) -> Size:
        """The larger of the two."""

    def product(self, sizes: Sequence[Size], /) -> Size:
        """The product of all."""


@dataclass(frozen=True)
class Operator(ABC):
    """A spatial operator with known parameters. Subclasses are frozen dataclasses of them.

    Their fields are integers, tuples of integers, strings and bools, and `__post_init__` checks them.
    """

    #: What messages and prepared models call it.
    name: ClassVar[str]
    #: What sort of operator it is, in one word, for messages.
    noun: ClassVar[str]
    #: What `positions` are places in, for messages.
    positions_of: ClassVar[str]

    @property
    @abstractmethod
    def positions(self) -> tuple[int, ...]:
        """Places inside a block or window along each axis that is split into such."""

    @property
    @abstractmethod
    def is_identity(self) -> bool:
        """Whether the output is the input, whatever the sizes."""

    @abstractmethod
    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Shape of the output; dims that depend on unknown ones are None.

        Raises:
            OperatorError: what is known of the shape breaks a rule.
        """

    @abstractmethod
    def __call__(
        self,
        x: npt.NDArray[np.generic],
        pad_value: object = None,
        empty: Allocate = np.empty,
    ) -> npt.NDArray[np.generic]:
        """Run on an array of any element type; every element is written once.

        Args:
            x: the data.
            pad_value: what to pad with; the default is the element type's 0, False or "".
            empty: makes the result.
        """

    @abstractmethod
    def typical_sizes(self, axis: int) -> list[int]:
        """Legal sizes of one axis for tests, the most informative first.

        Neighbours in the list should differ in what they show, so that swapped axes are noticed.
        """


@dataclass(frozen=True)
class FixedOperator(Operator):
    """An operator all of whose parameters are attributes: nothing but sizes is left to the run."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Rank of the input."""

    @property
    def may_pad(self) -> bool:
        """Whether the output may hold elements that are not in the input."""
        return False

    @property
    def test_draws(self) -> int:
        """How many draws of sizes meet all that the operator treats differently."""
        return USUAL_DRAWS

    @abstractmethod
    def output_dims(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """`output_shape` for dims that are computed, in the terms of `sizes`."""

    @abstractmethod
    def constraints(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Sizes that are negative where the dims break a rule that only a run can break."""
