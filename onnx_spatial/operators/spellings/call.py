"""What a dialect sees of a node, and what it answers.

A dialect never touches a graph: it reads a `NodeFacts` (whatever is known of the node before it
runs, or everything when it runs) and answers with a `Call`: the operator that the node asks for,
with each parameter either known or said where in the node's inputs it is found at run time.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import BatchToSpace, Dim, ExtractPatches, SpaceToBatch


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
class BlockCall:
    """A node that asks for SpaceToBatch or BatchToSpace.

    Attributes:
        kind: the operator.
        block, begins, ends: M entries each; begins and ends are the pads or the crops.
        rank: the input's rank where the spelling fixes it, else None.
        dialect: which spelling it was.
    """

    kind: type[SpaceToBatch] | type[BatchToSpace]
    block: Vector
    begins: Vector
    ends: Vector
    dialect: str
    rank: int | None = None

    @property
    def blocked(self) -> int:
        """Number of blocked axes, M."""
        return self.block.length

    @cached_property
    def operator(self) -> SpaceToBatch | BatchToSpace | None:
        """The operator, if nothing of it is left to the run."""
        if any(v.values is None for v in (self.block, self.begins, self.ends)):
            return None
        return self.bind(())

    def bind(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> SpaceToBatch | BatchToSpace:
        """The operator of one run, its parameters read from the node's inputs."""
        pairs = tuple(zip(self.begins.read(inputs), self.ends.read(inputs), strict=True))
        return self.kind(self.block.read(inputs), pairs)

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Output shape from what is known; dims that depend on run-time values are None."""
        if self.operator is not None:
            return self.operator.output_shape(shape)
        if len(shape) <= self.blocked:
            neutral = ((0, 0),) * self.blocked
            return self.kind((1,) * self.blocked, neutral).output_shape(shape)  # raises
        factor = None if self.block.values is None else math.prod(self.block.values)
        batch: Dim = None
        if isinstance(shape[0], int) and factor is not None:
            if self.kind is SpaceToBatch:
                batch = shape[0] * factor
            elif shape[0] % factor:
                raise OperatorError(
                    f"{self.kind.name}: batch {shape[0]} is not divisible by {factor}, "
                    f"the product of block_shape"
                )
            else:
                batch = shape[0] // factor
        return (batch, *(None,) * self.blocked, *shape[1 + self.blocked :])


@dataclass(frozen=True)
class PatchCall:
    """A node that asks for ExtractPatches; all of its parameters are attributes."""

    operator: ExtractPatches
    dialect: str

    @property
    def rank(self) -> int:
        """The input's rank, which the spelling fixes."""
        return self.operator.rank

    def bind(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> ExtractPatches:
        """The operator of one run."""
        return self.operator

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Output shape from what is known."""
        return self.operator.output_shape(shape)


Call = BlockCall | PatchCall
