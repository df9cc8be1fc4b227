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
from onnx_spatial.operators.operator import Size
from onnx_spatial.operators.shapes import DIMS
from onnx_spatial.operators.spellings.call import (
    TYPICAL_BATCH,
    FixedCall,
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


#: The operator of a node, with parameters that may be unknown until run time.
Call = FixedCall | BlockCall
