"""What a strategy is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import dtype_name
from onnx_spatial.lowering.core.builder import TYPICAL_DIM, Emitter, Size, Tensor
from onnx_spatial.lowering.core.padding import numpy_dtype
from onnx_spatial.operators import Dim, Operator
from onnx_spatial.operators.spellings import Call, NodeFacts, Vector


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
        before: permutation of a Transpose that the data went through to become the operator's;
            `inputs[0]` is what went into it, `shape` what came out.
        after: permutation of a Transpose that the operator's output goes through; what is asked for
            is what comes out of it.
        parameter_shapes: declared of each input, None where it is not known in full.
        proven: inputs of which it is known that they break no rule, whatever they hold.
        ranked: whether the data is known to have as many dims as `shape`.
        checked: whether the run has to find every rule broken that is left to it, also where what
            comes out would hold no elements.
        near: whether a Transpose that stays stands in front, and whether one stands behind, maybe
            beyond a Reshape: onnxruntime's optimizer may merge one of ours with it.
    """

    call: Call
    inputs: tuple[ir.Value | None, ...]
    shape: tuple[Dim, ...] | None
    element_types: frozenset[int]
    parameter_types: tuple[int | None, ...]
    opset: int
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None
    near: tuple[bool, bool] = (False, False)
    parameter_shapes: tuple[tuple[int, ...] | None, ...] = ()
    proven: frozenset[int] = frozenset()
    ranked: bool = True
    checked: bool = False

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
        ranked = data is not None and shape is not None and data.ranked
        if shape is None and call.rank is not None:
            shape = (None,) * call.rank
        types = tuple(_element_type(i.dtype if i is not None else None) for i in facts.inputs)
        shapes = tuple(_known(i.shape if i is not None else None) for i in facts.inputs)
        return cls(
            *(call, tuple(inputs), shape, element_types, types, opset),
            parameter_shapes=shapes,
            ranked=ranked,
        )

    def apart(self) -> Request:
        """The same on inputs of its own, in no graph: what is written for it touches no model."""
        inputs = [
            None if value is None else ir.Value(name=f"input_{index}")
            for index, value in enumerate(self.inputs)
        ]
        return replace(self, inputs=tuple(inputs))

    @property
    def itemsize(self) -> int:
        """Bytes of an element, for estimates of time."""
        return max(map(_itemsize, self.element_types), default=4)

    def data(self, emit: Emitter) -> Tensor:
        """The data of the operator; unknown dims are read from its run-time shape. The rank is known."""
        x = self.operand(emit)
        if self.before is None:
            return x
        back = [self.before.index(axis) for axis in range(x.rank)]
        given = emit.tensor(x.value, [x.dims[axis] for axis in back], x.itemsize)
        return emit.transpose(given, self.before)

    def operand(self, emit: Emitter) -> Tensor:
        """The input with the dims of the operator's data, in the order of the operator's axes."""
        value = self.inputs[0]
        assert value is not None and self.shape is not None
        if not self.ranked:
            value = self.of_its_rank(emit)
        dims: list[Size] = []
        for axis, dim in enumerate(self.shape):
            if isinstance(dim, int):
                dims.append(dim)
                continue
            place = axis if self.before is None else self.before[axis]
            (size,) = emit.elements(emit.shape_of(value), [place])
            dims.append(emit.guessed(size, self.typical(axis)))
        return emit.tensor(value, dims, self.itemsize)

    def of_its_rank(self, emit: Emitter) -> ir.Value:
        """The input where the run finds that it has as many dims as the spelling wants.

        A dim of 1 too many would go through every Reshape.
        """
        value = self.inputs[0]
        assert value is not None and self.shape is not None
        rank = emit.ints([len(self.shape)], "rank")
        shape = emit.op("Reshape", emit.shape_of(value), rank)
        extra: dict[str, Any] = {"allowzero": 1} if self.opset >= 14 else {}
        return emit.op("Reshape", value, shape, **extra)

    def typical(self, axis: int) -> int:
        """What an unknown dim of the operator's data may be, in estimates."""
        return TYPICAL_DIM if axis else self.call.typical_batch

    def parameters(self, emit: Emitter) -> list[list[Size]]:
        """The parameters of `Call.parameters` as sizes, read at run time where they are not known."""
        return [self.sizes(emit, p.vector, p.least, p.typical) for p in self.call.parameters]

    def sizes(self, emit: Emitter, vector: Vector, least: int, guess: int = 1) -> list[Size]:
        """A parameter of the operator, one size per entry; a run in which one is too small fails.

        Args:
            emit: where the nodes go.
            vector: the parameter.
            least: what an entry may be at least; that of the batch, where there is one, exactly.
            guess: stands for an entry in estimates.
        """
        if vector.values is not None:
            return list(vector.values)
        places = range(vector.start, vector.start + vector.length * vector.step, vector.step)
        if not places:
            return []
        value = self._flat(emit, vector, least)
        count = vector.step * vector.rows
        if vector.input not in self.proven:
            # Where an entry breaks the rule, its index is none, which Gather refuses.
            broken = self._broken(emit, vector, value, least)
            none, own = emit.ints([count], "no_index"), emit.ints(range(count), "index")
            value = emit.op("Gather", value, emit.where(broken, none, own), axis=0)
        if count == 1:
            return [emit.guessed(value, guess)]
        return [emit.guessed(element, guess) for element in emit.elements(value, places)]

    def _flat(self, emit: Emitter, vector: Vector, least: int) -> ir.Value:
        """All entries of the input that a parameter is read from, row by row."""
        assert vector.input is not None
        value = self.inputs[vector.input]
        assert value is not None
        rows, columns = vector.rows, vector.step
        count = rows * columns
        declared = self.parameter_shapes[vector.input] if self.parameter_shapes else ()
        if declared is not None and columns > 1:  # a table of pairs
            value = emit.op("Reshape", value, emit.ints([count], "flat"))
        if self.parameter_types[vector.input] != TensorProto.INT64:
            value = emit.op("Cast", value, to=int(TensorProto.INT64))
        if declared is None:  # another row tells its rank, a Reshape how many rows it has
            row = np.full((1, columns) if columns > 1 else 1, least, np.int64)
            value = emit.op("Concat", value, emit.constant(row, "row"), axis=0)
            value = emit.op("Reshape", value, emit.ints([count + columns], "flat"))
            longer = emit.tensor(value, [count + columns])
            value = emit.slice(longer, [0], [0], [count], [count]).value
        return value

    def _broken(self, emit: Emitter, vector: Vector, value: ir.Value, least: int) -> ir.Value:
        """Which entries break a rule."""
        if not (vector.start and vector.step == 1):
            return emit.less(value, emit.ints([least], "least"))
        # One entry is that of the batch: all are to be this near to something.
        radius = _MOST // 2
        middles = [least, *[least + radius] * vector.length]
        radii = [0, *[radius] * vector.length]
        distance = emit.op("Abs", emit.op("Sub", value, emit.ints(middles, "middle")))
        return emit.less(emit.ints(radii, "radius"), distance)


#: No size is larger than that.
_MOST = 1 << 62

#: Bytes that stand for a string, a pointer and a short text.
_STRING_SIZE = 40


def _itemsize(element_type: int) -> int:
    dtype = numpy_dtype(element_type)
    return _STRING_SIZE if dtype is None else dtype.itemsize


def _known(shape: Sequence[Dim] | None) -> tuple[int, ...] | None:
    """A shape of which every dim is known."""
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return tuple(dim for dim in shape if isinstance(dim, int))


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
        return cls(*request.parameters(emit))


class Strategy(Protocol):
    """One way to write an operator in standard operators.

    A strategy is one module of this package: a class with these members, listed in `select`.
    It must be exact, bit for bit, for every request that it does not refuse.
    """

    #: What `inspect` shows and `convert(strategy=...)` forces.
    name: str

    @property
    def accepts(self) -> tuple[type[Operator], ...]:
        """The operators that it knows; no other is offered to it."""

    def absorbs(self, request: Request) -> bool:
        """Whether `build` sees to `Request.before` and `after`; if not, they are written out."""

    def refuse(self, request: Request) -> str | None:
        """Why not; None if `build` can do it."""

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write the nodes; the result is the operator's output."""
