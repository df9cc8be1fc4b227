"""Define the input and the result of reading a spelling: `NodeFacts`, and `FixedCall` or `BlockCall`.

A spelling never touches a graph. It reads a `NodeFacts`, the facts known before a run or all facts in a
run, and returns the call: the operator of the node, each parameter either known or the location in the
node's inputs where it is read at run time. `FixedCall` serves all operators whose parameters are
attributes; others need a class of their own with the same members, as `BlockCall`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators import Arithmetic, Dim, FixedOperator
from onnx_spatial.operators.operator import Size

#: An unknown number of images in estimates. Not 1: onnxruntime's kernels skip axes of 1.
TYPICAL_BATCH = 2


@dataclass(frozen=True)
class InputFacts:
    """Known facts about one input; None for an unknown one.

    Attributes:
        dtype: element type (numpy name, "string").
        shape: its shape, None for an unknown dim.
        value: its value.
    """

    dtype: str | None = None
    shape: tuple[Dim, ...] | None = None
    value: npt.NDArray[np.generic] | None = None

    @classmethod
    def of(cls, array: npt.NDArray[np.generic]) -> InputFacts:
        """Return the facts about an array."""
        return cls(_dtype_name(array.dtype), tuple(array.shape), array)


@cache  # numpy puts a name together at each call
def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    return "string" if dtype.kind in "OUST" else dtype.name


_SHORT = reprlib.Repr()
_SHORT.maxstring, _SHORT.maxlist, _SHORT.maxlong = 60, 8, 60


class Conflict:
    """An attribute whose value differs between the calls of the function that holds the node."""


AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | Conflict | object


@dataclass(frozen=True)
class NodeFacts:
    """Known facts about a node. A missing optional input is None."""

    op_type: str
    domain: str = ""
    inputs: tuple[InputFacts | None, ...] = ()
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def integer(self, name: str) -> int:
        """Return a required INT attribute."""
        value = self._required_attribute(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise OperatorError(
                f"attribute {name} must be an integer, not {_describe_value(value)}",
                code=Code.ATTRIBUTE,
            )
        return value

    def integers(self, name: str, *lengths: int) -> tuple[int, ...]:
        """Return a required INTS attribute, of one of `lengths` if any is given."""
        value = self._required_attribute(name)
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            raise OperatorError(
                f"attribute {name} must be a list of integers, not {_describe_value(value)}",
                code=Code.ATTRIBUTE,
            )
        if lengths and len(value) not in lengths:
            allowed = " or ".join(map(str, lengths))
            raise OperatorError(
                f"attribute {name} must have {allowed} entries, not {len(value)}",
                code=Code.ATTRIBUTE,
            )
        return value

    def string(self, name: str) -> str:
        """Return a required STRING attribute."""
        value = self._required_attribute(name)
        if not isinstance(value, str):
            raise OperatorError(
                f"attribute {name} must be a string, not {_describe_value(value)}",
                code=Code.ATTRIBUTE,
            )
        return value

    def _required_attribute(self, name: str) -> AttributeValue:
        if name not in self.attributes:
            raise OperatorError(f"attribute {name} is missing", code=Code.ATTRIBUTE)
        value = self.attributes[name]
        if isinstance(value, Conflict):
            raise OperatorError(
                f"attribute {name} has no common value in the calls of the function that holds it; "
                "inline the function first (onnx.inliner.inline_local_functions)",
                code=Code.ATTRIBUTE,
            )
        return value


def quoted(value: object) -> str:
    """Format a value for messages, shortened if it is long."""
    return _SHORT.repr(value)


def _describe_value(value: object) -> str:
    if isinstance(value, tuple):
        return f"the list {quoted(list(value))}"
    if isinstance(value, int | float | str):
        return f"{type(value).__name__} {quoted(value)}"
    return "that"


@dataclass(frozen=True)
class Vector:
    """`length` integers of an operator: known values, or elements of an input.

    Unknown ones are elements start, start + step, ... of input number `input`, flattened.
    """

    length: int
    values: tuple[int, ...] | None = None
    input: int | None = None
    start: int = 0
    step: int = 1

    @property
    def rows(self) -> int:
        """Rows of the input, of `step` elements each, from its beginning to the last entry."""
        return self.start // self.step + self.length

    def read(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> tuple[int, ...]:
        """Return the values, taken from the inputs of a run if they are unknown."""
        if self.values is not None:
            return self.values
        assert self.input is not None
        array = inputs[self.input]
        assert array is not None
        flat = array.reshape(-1)[self.start :: self.step][: self.length]
        return tuple(int(v) for v in flat)


@dataclass(frozen=True)
class Parameter:
    """Integers of an operator that may be unknown until run time.

    Attributes:
        vector: the integers.
        least: smallest legal value.
        typical: value of an unknown one in estimates.
    """

    vector: Vector
    least: int
    typical: int = 1


@dataclass(frozen=True)
class FixedCall:
    """A node that asks for an operator all of whose parameters are attributes.

    Attributes:
        operator: the operator.
        dialect: name of the spelling.
        parameters: those that may be unknown until run time.
        referable: attributes that a function may read by reference, see `with_reference`.
    """

    operator: FixedOperator
    dialect: str

    parameters = ()
    referable = frozenset[str]()

    @property
    def kind(self) -> type[FixedOperator]:
        """The operator's class."""
        return type(self.operator)

    @property
    def rank(self) -> int:
        """Rank of the input."""
        return self.operator.rank

    @property
    def typical_batch(self) -> int:
        """A legal size for an unknown batch in estimates."""
        return TYPICAL_BATCH * self.operator.multiple(0)

    @property
    def axes(self) -> int:
        """Number of leading axes that the operator treats specially: all."""
        return self.operator.rank

    @property
    def may_pad(self) -> bool:
        """Whether the output may hold elements that are not in the input."""
        return self.operator.may_pad

    @property
    def family(self) -> tuple[object, ...]:
        """Key that is equal for calls that one function could serve: the operator."""
        return (self.operator,)

    def check(self) -> None:
        """Check nothing: the operator has checked itself."""

    def bind(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> FixedOperator:
        """Return the operator."""
        return self.operator

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the output's shape."""
        return self.operator.output_shape(shape)

    def output_dims(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Compute `output_shape` for dims that may be unknown, with the arithmetic `sizes`."""
        return self.operator.output_dims(sizes, dims)

    def constraints(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Return sizes that are negative where a rule is broken that only a run can check."""
        return self.operator.constraints(sizes, dims)

    def input_names(self, attributes: Container[str]) -> list[str]:
        """Return the name of the data."""
        return ["data" if self.dialect == "openvino" else "x"]

    def with_reference(self, name: str, index: int) -> FixedCall:
        """Refuse: no attribute is referable."""
        raise ValueError(f"{self.operator.name} reads no attribute by reference")
