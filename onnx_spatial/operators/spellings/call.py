"""Define the input and the result of reading a spelling: `NodeFacts`, and `FixedCall` or `BlockCall`.

    SpaceToBatchND(x, [2, 2], pads)      BlockCall: block 2x2, pads in input 2 at run time

A spelling never touches a graph. It reads a `NodeFacts`, the facts known before a run or all facts in a
run, and returns the call: the operator of the node, each parameter either known or the location in the
node's inputs where it is read at run time. `FixedCall` serves all operators whose parameters are
attributes; others need a class of their own with the same members, as `BlockCall`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators import Arithmetic, BatchToSpace, FixedOperator, SpaceToBatch
from onnx_spatial.operators.operator import DIMS, Dim, Size, show

#: An unknown number of images, or block, in estimates. Not 1: onnxruntime's kernels skip axes of 1.
TYPICAL_FACTOR = 2


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


class UnreadAttribute:
    """An attribute of a type that no spelling has, such as a tensor or a graph."""


AttributeValue = (
    int | float | str | tuple[int, ...] | tuple[float, ...] | Conflict | UnreadAttribute
)


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
        return tuple(map(int, value))

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
        return TYPICAL_FACTOR * self.operator.multiple(0)

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


Array = npt.NDArray[np.generic]

#: The most entries of a block shape; no runtime, nor numpy, has tensors of so many dims.
MAX_BLOCKED = 1000

#: The operators by name, and the name of their table of amounts.
BLOCKS: dict[str, tuple[type[SpaceToBatch] | type[BatchToSpace], str]] = {
    "SpaceToBatch": (SpaceToBatch, "paddings"),
    "BatchToSpace": (BatchToSpace, "crops"),
}


@dataclass(frozen=True)
class BlockCall:
    """The operator of a SpaceToBatch or BatchToSpace node.

    Attributes:
        kind: the operator.
        block, begins, ends: M entries each; begins and ends are the pads or the crops.
        rank: the input's rank if the spelling fixes it, else None.
        dialect: name of the spelling.

    Raises:
        OperatorError: a known parameter breaks a rule.
    """

    kind: type[SpaceToBatch] | type[BatchToSpace]
    block: Vector
    begins: Vector
    ends: Vector
    dialect: str
    rank: int | None = None

    referable = frozenset(
        "block_size block_shape paddings crops pads_begin pads_end crops_begin crops_end".split()
    )

    @property
    def blocked(self) -> int:
        """Number of blocked axes, M."""
        return self.block.length

    @cached_property
    def operator(self) -> SpaceToBatch | BatchToSpace | None:
        """The operator if all parameters are known, else None."""
        if any(v.values is None for v in (self.block, self.begins, self.ends)):
            return None
        return self.bind(())

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The block and the pads or crops."""
        return (
            Parameter(self.block, 1, TYPICAL_FACTOR),
            Parameter(self.begins, 0),
            Parameter(self.ends, 0),
        )

    @property
    def axes(self) -> int:
        """Number of the batch axis and the blocked axes."""
        return self.blocked + 1

    @property
    def may_pad(self) -> bool:
        """Whether there are pads, or may be."""
        amounts = (self.begins.values, self.ends.values)
        return self.kind is SpaceToBatch and any(a is None or any(a) for a in amounts)

    @property
    def typical_batch(self) -> int:
        """A legal size for an unknown batch in estimates."""
        if self.kind is SpaceToBatch:
            return TYPICAL_FACTOR
        return TYPICAL_FACTOR * math.prod(self.block.values or (TYPICAL_FACTOR,) * self.blocked)

    @property
    def family(self) -> tuple[object, ...]:
        """Key that is equal for calls that one function could serve."""
        return (self.kind, self.blocked)

    def __post_init__(self) -> None:
        if self.operator is not None:
            return
        if self.blocked > MAX_BLOCKED:  # the declared length of a computed parameter
            raise OperatorError(
                f"block_shape has {self.blocked} entries; no tensor has so many dims",
                code=Code.RANK,
            )
        self._neutral_operator()

    def _neutral_operator(self) -> SpaceToBatch | BatchToSpace:
        """Return the operator with blocks of 1 and amounts of 0 where they are unknown."""
        zeros, ones = (0,) * self.blocked, (1,) * self.blocked
        amounts = zip(self.begins.values or zeros, self.ends.values or zeros, strict=True)
        return self.kind(self.block.values or ones, tuple(amounts))

    def bind(self, inputs: Sequence[npt.NDArray[np.generic] | None]) -> SpaceToBatch | BatchToSpace:
        """Return the operator of one run, its parameters read from the node's inputs."""
        pairs = tuple(zip(self.begins.read(inputs), self.ends.read(inputs), strict=True))
        return self.kind(self.block.read(inputs), pairs)

    def output_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the output's shape; dims that depend on run-time values are None."""
        if self.operator is not None:
            return self.operator.output_shape(shape)
        self._neutral_operator().check_batch(shape)
        unknown = (None,) * self.blocked
        vectors = (v.values or unknown for v in (self.block, self.begins, self.ends))
        return tuple(self.kind.output_dims(DIMS, shape, *vectors))

    def output_dims(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Compute `output_shape` for dims and parameters that may be unknown."""
        return self.kind.output_dims(sizes, dims, *parameters)

    def constraints(
        self, sizes: Arithmetic, dims: Sequence[Size], *parameters: Sequence[Size]
    ) -> list[Size]:
        """Return sizes that are negative if a block does not divide a size, or crops exceed it."""
        return self.kind.constraints(sizes, dims, *parameters)

    def input_names(self, attributes: Container[str]) -> list[str]:
        """Return the names of the data and the parameters that are no attributes."""
        crops = self.kind is BatchToSpace
        if self.dialect == "openvino":
            amounts = "crops" if crops else "pads"
            return ["data", "block_shape", f"{amounts}_begin", f"{amounts}_end"]
        names = ["block_shape"] if "block_size" not in attributes else []
        names.append("crops" if crops else "paddings")
        return ["x", *(name for name in names if name not in attributes)]

    def with_reference(self, name: str, index: int) -> BlockCall:
        """Return the call with attribute `name` replaced by input number `index`."""
        count = self.blocked
        if name in ("paddings", "crops"):
            begins, ends = Vector(count, None, index, 0, 2), Vector(count, None, index, 1, 2)
            return replace(self, begins=begins, ends=ends)
        # OpenVINO's vectors have an entry for the batch in front.
        vector = Vector(count, None, index, 1 if self.dialect == "openvino" else 0)
        if name.startswith("block"):
            return replace(self, block=vector)
        if name.endswith("begin"):
            return replace(self, begins=vector)
        return replace(self, ends=vector)


#: The operator of a node, with parameters that may be unknown until run time.
Call = FixedCall | BlockCall


TF_TYPES = ("int32", "int64")
ANY_INTEGER = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def vector(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], length: int | None = None
) -> Vector:
    """Read the 1-D parameter `name` from input number `index`, or an INTS attribute of that name.

    Raises:
        OperatorError: it is missing, has another type or rank, or its length is unknown.
    """
    values, shape = _value_and_shape(node, name, index, types)
    if values is not None:
        if values.ndim != 1:
            raise OperatorError(
                f"{name} must be 1-D, not of shape {show(values.shape)}", code=Code.PARAMETER
            )
        return Vector(len(values), tuple(int(v) for v in values))
    if shape is not None and len(shape) != 1:
        raise OperatorError(f"{name} must be 1-D, not of shape {show(shape)}", code=Code.PARAMETER)
    size = shape[0] if shape is not None and isinstance(shape[0], int) else length
    if size is None:
        raise OperatorError(
            f"{name} is computed at run time and its length is unknown; the number of blocked "
            "axes must be known: declare its shape, with --static NAME=N where the dim has a name",
            code=Code.PARAMETER,
        )
    return Vector(size, None, index)


def pairs(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], length: int
) -> tuple[Vector, Vector]:
    """Read the [length, 2] parameter `name` as two columns, from an input or a flat attribute."""
    values, shape = _value_and_shape(node, name, index, types, columns=2)
    if values is not None:
        shape = values.shape
    if shape is not None and not _fits_shape(shape, (length, 2)):
        raise OperatorError(
            f"{name} must have shape [{length}, 2], not {show(shape)}", code=Code.PARAMETER
        )
    if values is None:
        return Vector(length, None, index, 0, 2), Vector(length, None, index, 1, 2)
    begins, ends = (tuple(int(v) for v in values[:, column]) for column in (0, 1))
    return Vector(length, begins), Vector(length, ends)


def length_of_pairs(node: NodeFacts, index: int) -> int | None:
    """Return M if input number `index` has the known shape [M, 2], else None."""
    fact = node.inputs[index] if index < len(node.inputs) else None
    if fact is None or fact.shape is None or len(fact.shape) != 2:
        return None
    return fact.shape[0] if isinstance(fact.shape[0], int) else None


def without_batch(name: str, entries: Vector, neutral: int) -> Vector:
    """Return a parameter with one entry for each axis without that of the batch.

    Raises:
        OperatorError: the entry of the batch is not `neutral`.
    """
    if not entries.length:
        raise OperatorError(
            f"{name} is empty; its first entry is that of the batch axis", code=Code.PARAMETER
        )
    if entries.values is None:
        start = entries.start + entries.step
        return replace(entries, length=entries.length - 1, start=start)
    if entries.values[0] != neutral:
        raise OperatorError(
            f"{name}[0] is {entries.values[0]}; the entry of the batch axis must be {neutral}",
            code=Code.OUT_OF_RANGE,
        )
    return Vector(entries.length - 1, entries.values[1:])


def _fits_shape(shape: tuple[Dim, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(
        not isinstance(d, int) or d == e for d, e in zip(shape, expected, strict=True)
    )


def _value_and_shape(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], columns: int = 0
) -> tuple[np.ndarray | None, tuple[Dim, ...] | None]:
    """Return the value if it is known, and the shape if it is known."""
    fact = node.inputs[index] if index < len(node.inputs) else None
    if fact is None:
        if name not in node.attributes:
            raise OperatorError(
                f"{name} is missing: neither input {index} nor an attribute", code=Code.PARAMETER
            )
        flat = np.asarray(node.integers(name), np.int64)
        if columns and flat.size % columns:
            raise OperatorError(
                f"attribute {name} must hold {columns} entries per blocked axis, row by row, "
                f"not {flat.size} entries",
                code=Code.ATTRIBUTE,
            )
        return (flat.reshape(-1, columns) if columns else flat), None
    if fact.dtype is not None and fact.dtype not in types:
        allowed = "an integer type" if types == ANY_INTEGER else " or ".join(types)
        raise OperatorError(f"{name} must be {allowed}, not {fact.dtype}", code=Code.PARAMETER)
    return fact.value, fact.shape
