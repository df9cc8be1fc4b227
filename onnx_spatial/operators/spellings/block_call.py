"""Describe a SpaceToBatch or BatchToSpace node, whose parameters may be inputs."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators import Arithmetic, BatchToSpace, Dim, SpaceToBatch
from onnx_spatial.operators.operator import USUAL_SAMPLES, Size
from onnx_spatial.operators.shapes import DIMS
from onnx_spatial.operators.spellings.call import (
    TYPICAL_BATCH,
    FixedCall,
    InputFacts,
    NodeFacts,
    Parameter,
    Vector,
)

Array = npt.NDArray[np.generic]

#: The most entries of a block shape; no runtime, nor numpy, has tensors of so many dims.
MAX_BLOCKED = 1000

#: The operators by name, and the name of their table of amounts.
BLOCKS: dict[str, tuple[type[SpaceToBatch] | type[BatchToSpace], str]] = {
    "SpaceToBatch": (SpaceToBatch, "paddings"),
    "BatchToSpace": (BatchToSpace, "crops"),
}

#: An unknown block in estimates.
TYPICAL_BLOCK = 2

#: Unknown blocks of even axes and of odd ones, for the samples after the usual ones.
_BLOCKS = ((1, 1), (4, 1), (2, 2), (3, 4), (5, 2))

#: The most blocks in unknown pads and crops, for the samples in turn.
_BLOCKS_OF_PADDING = (1, 1, 0, 3)


@dataclass(frozen=True)
class BlockCall:
    """The operator of a SpaceToBatch or BatchToSpace node.

    Attributes:
        kind: the operator.
        block, begins, ends: M entries each; begins and ends are the pads or the crops.
        rank: the input's rank if the spelling fixes it, else None.
        dialect: name of the spelling.
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
            Parameter(self.block, 1, TYPICAL_BLOCK),
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
            return TYPICAL_BATCH
        return TYPICAL_BATCH * math.prod(self.block.values or (TYPICAL_BLOCK,) * self.blocked)

    @property
    def family(self) -> tuple[object, ...]:
        """Key that is equal for calls that one function could serve."""
        return (self.kind, self.blocked)

    def check(self) -> None:
        """Check the known parameters.

        Raises:
            OperatorError: one breaks a rule.
        """
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
        none = (0,) * self.blocked
        amounts = zip(self.begins.values or none, self.ends.values or none, strict=True)
        return self.kind(self.block.values or (1,) * self.blocked, tuple(amounts))

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

    def sample_rank(self, number: int = 0) -> int:
        """Return the rank of shape sample `number`: with one, two or no axes behind the blocked ones."""
        return self.rank or self.blocked + 1 + (number + 1) % 3

    def sample_parameters(
        self, dims: Sequence[Dim], facts: NodeFacts, rng: np.random.Generator, number: int
    ) -> tuple[SpaceToBatch | BatchToSpace, dict[int, Array]] | None:
        """Draw legal values of unknown parameters: blocks that divide the known sizes, pads or crops.

        Args:
            dims: of the data.
            facts: about the node.
            rng: random generator.
            number: of the sample; samples with other numbers differ.

        Returns:
            The operator, and the values of inputs by their numbers; None if no values fit.
        """
        block, begins, ends = [], [], []
        for axis in range(self.blocked):
            size = dims[axis + 1]
            low, high = (
                None if v.values is None else v.values[axis] for v in (self.begins, self.ends)
            )
            if self.block.values is not None:
                b = self.block.values[axis]
            elif self.kind is BatchToSpace:
                b = _draw_block(dims[0], rng, number, axis)
            else:
                known = isinstance(size, int) and low is not None and high is not None
                padded = size + low + high if known else None  # type: ignore[operator]
                b = _draw_block(padded, rng, number, axis)
            pair = _draw_pads if self.kind is SpaceToBatch else _draw_crops
            most = b * _BLOCKS_OF_PADDING[number % len(_BLOCKS_OF_PADDING)]
            if b == 1 and number < USUAL_SAMPLES:
                most = 0  # most likely the channels, whose number later nodes depend on
            low, high = pair(size if isinstance(size, int) else None, b, (low, high), most, rng)
            block.append(b)
            begins.append(low)
            ends.append(high)
        parameters: dict[int, Array] = {}
        try:
            _fill_parameter(parameters, facts, self.block, block, 1)
            _fill_parameter(parameters, facts, self.begins, begins, 0)
            _fill_parameter(parameters, facts, self.ends, ends, 0)
            operator = self.kind(tuple(block), tuple(zip(begins, ends, strict=True)))
        except (OperatorError, OverflowError):  # the latter: more than the input's integers hold
            return None
        return operator, parameters


#: The operator of a node, with parameters that may be unknown until run time.
Call = FixedCall | BlockCall


def _draw_block(size: Dim, rng: np.random.Generator, number: int, axis: int) -> int:
    """Draw a block that divides a size if it is known."""
    if not isinstance(size, int) or size == 0:
        if number < USUAL_SAMPLES:
            return int(rng.integers(2, 4))
        return _BLOCKS[number % len(_BLOCKS)][axis % 2]
    return int(rng.choice([d for d in range(1, min(size, 8) + 1) if size % d == 0]))


#: Amounts at the begin and at the end of an axis; None for an unknown one.
_Pair = tuple[int | None, int | None]


def _draw_pads(
    size: int | None, block: int, pair: _Pair, most: int, rng: np.random.Generator
) -> tuple[int, int]:
    low, high = pair
    if low is None and high is not None and size is not None:
        return (-size - high) % block, high
    if low is None:
        low = int(rng.integers(0, most + 1))
    if high is None and size is not None:
        return low, (-size - low) % block + (block * int(rng.integers(0, 2)) if most else 0)
    return low, int(rng.integers(0, most + 1)) if high is None else high


def _draw_crops(
    size: int | None, block: int, pair: _Pair, most: int, rng: np.random.Generator
) -> tuple[int, int]:
    low, high = pair
    room = most if size is None else min(most, max(0, (size * block - 1) // 2))
    if low is None:
        low = int(rng.integers(0, room + 1))
    return low, int(rng.integers(0, room + 1)) if high is None else high


def _fill_parameter(
    parameters: dict[int, Array],
    facts: NodeFacts,
    vector: Vector,
    values: Sequence[int],
    neutral: int,
) -> None:
    """Set the entries of an unknown vector in the value of its input."""
    index = vector.input
    if vector.values is not None or index is None:
        return
    if index not in parameters:
        fact = facts.inputs[index] or InputFacts()
        # OpenVINO's vectors hold a neutral entry for the batch; tables have a row for each axis.
        shape = (vector.rows,) if vector.step == 1 else (vector.rows, vector.step)
        parameters[index] = np.full(shape, neutral, fact.dtype or "int64")
    flat = parameters[index].reshape(-1)
    flat[vector.start :: vector.step][: vector.length] = values
