"""What a dialect sees of a node, and what it answers.

A dialect never touches a graph: it reads a `NodeFacts` (whatever is known of the node before it
runs, or everything when it runs) and answers with a `Call`: the operator that the node asks for,
with each parameter either known or said where in the node's inputs it is found at run time.
"""

from __future__ import annotations

import reprlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import Arithmetic, Dim, FixedOperator, Operator
from onnx_spatial.operators.operator import Size

#: What an unknown number of images is taken to be in estimates. Two: an axis that turns out to be 1 is
#: one all the same for onnxruntime's kernels.
TYPICAL_BATCH = 2


@dataclass(frozen=True)
class InputFacts:
    """What is known of one input.

    Attributes:
        dtype: element type (numpy name, "string").
        shape: as far as it is known.
        value: if it is known.
        ranked: whether it has the rank of `shape` in every run; if not, it has to have it only for
            the sake of what reads the output, and a run in which it has another has to fail.
    """

    dtype: str | None = None
    shape: tuple[Dim, ...] | None = None
    value: npt.NDArray[np.generic] | None = None
    ranked: bool = True

    @classmethod
    def of(cls, array: npt.NDArray[np.generic]) -> InputFacts:
        """Everything is known of an array."""
        dtype = "string" if array.dtype.kind in "OUST" else array.dtype.name
        return cls(dtype, tuple(array.shape), array)


_SHORT = reprlib.Repr()
_SHORT.maxstring, _SHORT.maxlist, _SHORT.maxlong = 60, 8, 60


class Conflict:
    """The value of an attribute that differs between the calls of the function it stands in."""


AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | Conflict | object


@dataclass(frozen=True)
class NodeFacts:
    """A node as far as it is known. A missing optional input is None."""

    op_type: str
    domain: str = ""
    inputs: tuple[InputFacts | None, ...] = ()
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def integer(self, name: str) -> int:
        """A required INT attribute."""
        value = self._attribute(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise OperatorError(f"attribute {name} must be an integer, not {_kind(value)}")
        return value

    def integers(self, name: str, *lengths: int) -> tuple[int, ...]:
        """A required INTS attribute, of one of `lengths` if any is given."""
        value = self._attribute(name)
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            raise OperatorError(f"attribute {name} must be a list of integers, not {_kind(value)}")
        if lengths and len(value) not in lengths:
            wanted = " or ".join(map(str, lengths))
            raise OperatorError(f"attribute {name} must have {wanted} entries, not {len(value)}")
        return value

    def string(self, name: str) -> str:
        """A required STRING attribute."""
        value = self._attribute(name)
        if not isinstance(value, str):
            raise OperatorError(f"attribute {name} must be a string, not {_kind(value)}")
        return value

    def _attribute(self, name: str) -> AttributeValue:
        if name not in self.attributes:
            raise OperatorError(f"attribute {name} is missing")
        value = self.attributes[name]
        if isinstance(value, Conflict):
            raise OperatorError(
                f"attribute {name} is left to the callers of the function that holds the node, "
                "who do not agree; inline the function first (onnx.inliner.inline_local_functions)"
            )
        return value


def quoted(value: object) -> str:
    """A value in messages, shortened if it is long."""
    return _SHORT.repr(value)


def _kind(value: object) -> str:
    if isinstance(value, tuple):
        return f"the list {quoted(list(value))}"
    if isinstance(value, int | float | str):
        return f"{type(value).__name__} {quoted(value)}"
    return "that"


@dataclass(frozen=True)
class Vector:
    """`length` integers of an operator: known, or read from an input at run time.

    At run time they are elements start, start + step, ... of input number `input`, flattened.
    """

    length: int
    values: tuple[int, ...] | None = None
    input: int | None = None
    start: int = 0
    step: int = 1

    @property
    def rows(self) -> int:
        """Rows of the input, of `step` elements each: those of the entries, and what is in front."""
        return self.start // self.step + self.length

    def read(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> tuple[int, ...]:
        """The values, taken from the inputs of a run if they are not known before."""
        if self.values is not None:
            return self.values
        assert self.input is not None
        array = inputs[self.input]
        assert array is not None
        flat = array.reshape(-1)[self.start :: self.step][: self.length]
        return tuple(int(v) for v in flat)


@dataclass(frozen=True)
class Parameter:
    """Integers of an operator that may be left to the run.

    Attributes:
        vector: where they are.
        least: what each of them may be at least.
        typical: what an unknown one is taken to be in estimates.
    """

    vector: Vector
    least: int
    typical: int = 1


class Call(Protocol):
    """What a node asks for, whichever the operator.

    `FixedCall` serves every operator whose parameters are all attributes; one whose parameters may be
    inputs needs a class of its own, as `BlockCall`.
    """

    @property
    def kind(self) -> type[Operator]:
        """The operator's class."""

    @property
    def dialect(self) -> str:
        """Which spelling it was."""

    @property
    def rank(self) -> int | None:
        """The input's rank where the spelling or the operator fixes it."""

    @property
    def operator(self) -> Operator | None:
        """The operator, if nothing of it is left to the run."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that may be left to the run."""

    @property
    def axes(self) -> int:
        """Number of leading axes that the operator looks at."""

    @property
    def may_pad(self) -> bool:
        """Whether the output may hold elements that are not in the input."""

    @property
    def typical_batch(self) -> int:
        """What an unknown batch is taken to be in estimates; it breaks no rule."""

    @property
    def family(self) -> tuple[object, ...]:
        """Calls that one function could serve have the same."""

    @property
    def referable(self) -> frozenset[str]:
        """Attributes that a function may read by reference, see `with_reference`."""

    @property
    def test_draws(self) -> int:
        """How many draws meet all sizes and parameters that the operator treats differently."""

    def check(self) -> None:
        """Check what holds whatever the run-time parameters turn out to be.

        Raises:
            OperatorError: a rule is broken.
        """

    def bind(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> Operator:
        """The operator of one run, its parameters read from the node's inputs."""

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Output shape from what is known; dims that depend on run-time values are None."""

    def output_dims(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """`output_shape` for dims and `parameters` that are computed, in the terms of `sizes`."""

    def constraints(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Sizes that are negative where a rule is broken that only a run can break."""

    def input_names(self, attributes: Container[str]) -> list[str]:
        """What the inputs of the node are called, in the words of its spelling."""

    def with_reference(self, name: str, index: int) -> Call:
        """The call with what attribute `name` holds read from input number `index`."""

    def test_rank(self, number: int = 0) -> int:
        """A rank for draw `number` where nothing says which."""

    def draw(
        self, dims: Sequence[Dim], facts: NodeFacts, rng: np.random.Generator, number: int
    ) -> tuple[Operator, dict[int, npt.NDArray[np.generic]]] | None:
        """Draw legal values for what is left to the run: the operator, and inputs by their number.

        Args:
            dims: of the data.
            facts: of the node.
            rng: to draw with.
            number: draws with another number differ.
        """


@dataclass(frozen=True)
class FixedCall:
    """A node that asks for an operator all of whose parameters are attributes."""

    operator: FixedOperator
    dialect: str

    parameters = ()
    typical_batch = TYPICAL_BATCH
    referable = frozenset[str]()

    @property
    def kind(self) -> type[FixedOperator]:
        """The operator's class."""
        return type(self.operator)

    @property
    def rank(self) -> int:
        """The input's rank, which the operator fixes."""
        return self.operator.rank

    @property
    def axes(self) -> int:
        """All of them."""
        return self.operator.rank

    @property
    def may_pad(self) -> bool:
        """What the operator says."""
        return self.operator.may_pad

    @property
    def family(self) -> tuple[object, ...]:
        """The operator with its parameters."""
        return (self.operator,)

    @property
    def test_draws(self) -> int:
        """What the operator says."""
        return self.operator.test_draws

    def check(self) -> None:
        """Nothing: the operator has checked itself."""

    def bind(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> FixedOperator:
        """The operator of one run."""
        return self.operator

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Output shape from what is known."""
        return self.operator.output_shape(shape)

    def output_dims(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Output shape from computed dims."""
        return self.operator.output_dims(sizes, dims)

    def constraints(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Negative where a rule is broken."""
        return self.operator.constraints(sizes, dims)

    def input_names(self, attributes: Container[str]) -> list[str]:
        """The data alone."""
        return ["data" if self.dialect == "openvino" else "x"]

    def with_reference(self, name: str, index: int) -> FixedCall:
        """Refuse: no attribute is referable."""
        raise ValueError(f"{self.operator.name} reads no attribute by reference")

    def test_rank(self, number: int = 0) -> int:
        """The operator's."""
        return self.operator.rank

    def draw(
        self, dims: Sequence[Dim], facts: NodeFacts, rng: np.random.Generator, number: int
    ) -> tuple[Operator, dict[int, npt.NDArray[np.generic]]]:
        """The operator; nothing is left to draw."""
        return self.operator, {}
