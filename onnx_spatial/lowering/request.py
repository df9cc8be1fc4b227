"""What a strategy is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.dialects import BlockCall, Call, NodeFacts, Vector
from onnx_spatial.facts import dtype_name
from onnx_spatial.lowering.emit import Emitter, Size, Tensor
from onnx_spatial.ops import Dim


@dataclass(frozen=True)
class Request:
    """One operator to lower.

    Attributes:
        call: the operator, its parameters known or to be read at run time.
        inputs: the node's inputs; the first is the data.
        shape: the data's shape as far as it is known; None if not even the rank is.
        element_types: ONNX element types that the data may have; empty if unknown.
        parameter_types: ONNX element type of each input, None if unknown.
        opset: version of the default domain.
    """

    call: Call
    inputs: tuple[ir.Value | None, ...]
    shape: tuple[Dim, ...] | None
    element_types: frozenset[int]
    parameter_types: tuple[int | None, ...]
    opset: int

    @classmethod
    def of(
        cls,
        call: Call,
        facts: NodeFacts,
        inputs: Sequence[ir.Value | None],
        element_types: frozenset[int],
        opset: int,
    ) -> Request:
        """The request of a node, from all that is known of it."""
        data = facts.inputs[0]
        shape = data.shape if data is not None else None
        if shape is None and call.rank is not None:
            shape = (None,) * call.rank
        types = tuple(_element_type(i.dtype if i is not None else None) for i in facts.inputs)
        return cls(call, tuple(inputs), shape, element_types, types, opset)

    def data(self, emit: Emitter) -> Tensor:
        """The data input; its unknown dims are read from its run-time shape. The rank is known."""
        value = self.inputs[0]
        assert value is not None and self.shape is not None
        dims: list[Size] = []
        for axis, dim in enumerate(self.shape):
            if isinstance(dim, int):
                dims.append(dim)
            else:
                dims += emit.elements(emit.shape_of(value), [axis])
        return emit.tensor(value, dims)

    def sizes(self, emit: Emitter, vector: Vector) -> list[Size]:
        """A parameter of the operator, one size per entry."""
        if vector.values is not None:
            return list(vector.values)
        assert vector.input is not None
        value = self.inputs[vector.input]
        assert value is not None
        if vector.step != 1:  # a [M, 2] table, read row by row
            value = emit.op("Reshape", value, emit.ints([2 * vector.length], "flat"))
        if self.parameter_types[vector.input] != TensorProto.INT64:
            value = emit.op("Cast", value, to=int(TensorProto.INT64))
        places = range(vector.start, vector.start + vector.length * vector.step, vector.step)
        if len(places) == 1 and vector.start == 0 and vector.step == 1:
            return [value]
        return list(emit.elements(value, places))


def _element_type(dtype: str | None) -> int | None:
    """numpy name -> ONNX element type."""
    if dtype is None:
        return None
    return next((t for t in TensorProto.DataType.values() if t and dtype_name(t) == dtype), None)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a SpaceToBatch or BatchToSpace as sizes, M of each."""

    block: Sequence[Size]
    begins: Sequence[Size]
    ends: Sequence[Size]

    @classmethod
    def of(cls, request: Request, emit: Emitter) -> Parameters:
        """Read from the request, at run time where they are not known."""
        call = request.call
        assert isinstance(call, BlockCall)
        return cls(
            request.sizes(emit, call.block),
            request.sizes(emit, call.begins),
            request.sizes(emit, call.ends),
        )


class Strategy(Protocol):
    """One way to write an operator in standard operators.

    A strategy is one module of this package: a class with these members, listed in `choose`.
    It must be exact, bit for bit, for every request that it does not refuse.
    """

    #: What `inspect` shows and `convert(strategy=...)` forces.
    name: str

    def refuse(self, request: Request) -> str | None:
        """Why not; None if `build` can do it."""

    def cost(self, request: Request) -> float:
        """Estimated passes over the larger of input and output; the cheapest strategy is taken."""

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write the nodes; the result is the operator's output."""
