"""Define the request for the lowering of one operator, and the interface of lowerings.

request.data(emit)          [N, h, w, C]     its data; h, w: sizes that the run reads
request.parameters(emit)    [[2, 2], [0, p], [0, q]]
Windows.of(request, emit)   padded data, and the number of windows along each axis

row of the sample at place i of window o along axis a = (o * stride + i * rate) * (rows of a step)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import element_type_named
from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.emitter import (
    TYPICAL_DIM,
    AxisPart,
    Emitter,
    Size,
    Tensor,
    Term,
    numpy_dtype,
    pad,
)
from onnx_spatial.lowering.nodes import SINCE
from onnx_spatial.lowering.sizes import typical_sides
from onnx_spatial.operators import (
    BatchToSpace,
    Dim,
    ExtractPatches,
    FixedOperator,
    Layout,
    Operator,
    Rearrange,
    SpaceToBatch,
)
from onnx_spatial.operators.spellings import Call, NodeFacts, Vector

#: Cells or windows along an axis in estimates, at least.
_MIN_CELLS = 9
#: The largest size of a dim.
_MAX_DIM = 1 << 62
#: Bytes that stand for a string, a pointer and a short text.
_STRING_SIZE = 40


@dataclass(frozen=True)
class Request:
    """One operator to lower.

    Attributes:
        call: the operator, its parameters known or inputs of the node.
        inputs: the node's inputs; the first is the data.
        shape: the data's shape, None for each unknown dim; None if the rank is unknown.
        element_types: ONNX element types that the data may have; empty if unknown.
        parameter_types: ONNX element type of each input, None if unknown.
        opset: version of the default domain.
        before: permutation of a Transpose in front of the operator that is lowered with it:
            `inputs[0]` is its input, `shape` the shape of its output. None if there is none.
        after: permutation of a Transpose behind the operator that is lowered with it.
        parameter_shapes: declared shape of each input, None unless it is fully known.
        legal: inputs whose values are known to break no rule.
        ranked: whether the data is known to have as many dims as `shape`.
        checked: whether a run that breaks a rule must fail even if its output is empty.
    """

    call: Call
    inputs: tuple[ir.Value | None, ...]
    shape: tuple[Dim, ...] | None
    element_types: frozenset[int]
    parameter_types: tuple[int | None, ...]
    opset: int
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None
    parameter_shapes: tuple[tuple[int, ...] | None, ...] = ()
    legal: frozenset[int] = frozenset()
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
        """Return the request of a node."""
        data = facts.inputs[0]
        shape = data.shape if data is not None else None
        ranked = shape is not None
        if not ranked and call.rank is not None:
            shape = (None,) * call.rank
        types = tuple(
            None if i is None or i.dtype is None else element_type_named(i.dtype)
            for i in facts.inputs
        )
        shapes = tuple(_known_shape(i.shape if i is not None else None) for i in facts.inputs)
        request = cls(call, tuple(inputs), shape, element_types, types, opset)
        return replace(request, parameter_shapes=shapes, ranked=ranked)

    def refuse_strings(self) -> None:
        """Refuse data that a Gather of whole rows would not move.

        Raises:
            ConversionError: it may be strings, of which onnxruntime's Gather takes one of each row.
        """
        if TensorProto.STRING in self.element_types:
            raise ConversionError("onnxruntime's Gather is wrong for strings")

    def with_inputs(self, present: Iterable[bool]) -> Request:
        """Return the request with new inputs, `present` of which are there, that are in no graph."""
        inputs = (ir.Value(name=f"input_{i}") if there else None for i, there in enumerate(present))
        return replace(self, inputs=tuple(inputs))

    @property
    def itemsize(self) -> int:
        """Bytes of an element, for estimates of time."""
        return max(map(itemsize_of, self.element_types), default=4)

    def data(self, emit: Emitter) -> Tensor:
        """Return the operator's data, whose rank is known; unknown dims are read at run time."""
        x = self.operand(emit)
        if self.before is None:
            return x
        back = [self.before.index(axis) for axis in range(x.rank)]
        source = emit.tensor(x.value, [x.dims[axis] for axis in back], x.itemsize)
        return emit.transpose(source, self.before)

    def operand(self, emit: Emitter) -> Tensor:
        """Return `inputs[0]`, in front of `before`, with dims in the order of the operator's axes.

        Raises:
            ConversionError: its rank is unknown.
        """
        value = self.inputs[0]
        if self.shape is None:
            raise ConversionError("the rank of the input is unknown")
        assert value is not None
        if not self.ranked:
            value = self.of_its_rank(emit)
        dims: list[Size] = []
        for axis, dim in enumerate(self.shape):
            if isinstance(dim, int):
                dims.append(dim)
                continue
            place = axis if self.before is None else self.before[axis]
            dims.append(emit.note_guesses(emit.length(value, place), self.typical(axis)))
        if not all(isinstance(dim, int) for dim in dims):
            emit.weigh_estimates(dims)
        return emit.tensor(value, dims, self.itemsize)

    def of_its_rank(self, emit: Emitter) -> ir.Value:
        """Return the input behind a check of its rank at run time.

        A superfluous dim of 1 would pass every Reshape.
        """
        value = self.inputs[0]
        assert value is not None and self.shape is not None
        rank = emit.ints([len(self.shape)], "rank")
        return _reshape(emit, value, emit.op("Reshape", emit.op("Shape", value), rank))

    def typical(self, axis: int) -> tuple[int, ...]:
        """Return estimates of an unknown dim of the operator's data, one for each case."""
        if not axis:
            return (self.call.typical_batch,)
        assert self.shape is not None
        return tuple(self._multiple_of_sides(axis, side) for side in typical_sides(self.shape))

    def _multiple_of_sides(self, axis: int, side: int) -> int:
        """Return an estimate of a dim of images with sides of this length."""
        operator = self.call.operator
        cell = 1  # elements of a block, or from one window to the next
        if isinstance(operator, Rearrange):  # as the chains that it replaces
            cell = operator.multiple(axis)
            return cell * max(1, TYPICAL_DIM // cell)
        if isinstance(operator, SpaceToBatch | BatchToSpace):
            blocks = operator.block_shape
            cell = blocks[axis - 1] if axis <= len(blocks) else 1
        elif isinstance(operator, ExtractPatches) and axis in operator.spatial_axes:
            cell = operator.strides[axis - operator.spatial_axes.start]
        elif isinstance(operator, FixedOperator):
            cell = operator.multiple(axis)
        cells = max(_MIN_CELLS, side // cell) if cell > 1 else side
        return cells if isinstance(operator, BatchToSpace) else cells * cell

    def parameters(self, emit: Emitter) -> list[list[Size]]:
        """Return the entries of each of `Call.parameters`, read at run time where they are unknown."""
        return [self.sizes(emit, p.vector, p.least, p.typical) for p in self.call.parameters]

    def sizes(self, emit: Emitter, vector: Vector, least: int, guess: int = 1) -> list[Size]:
        """Return the entries of a parameter as sizes; a run in which one is too small fails.

        Args:
            emit: collects the nodes.
            vector: the parameter.
            least: smallest legal entry; an entry for the batch must equal it.
            guess: an entry in estimates.
        """
        if vector.values is not None:
            return list(vector.values)
        places = range(vector.start, vector.start + vector.length * vector.step, vector.step)
        if not places:
            return []
        value = self._flat_input(emit, vector, least)
        count = vector.step * vector.rows
        if vector.input not in self.legal:
            # An entry that breaks the rule gets an index out of range, which Gather refuses.
            broken = self._broken_entries(emit, vector, value, least)
            no_index, own_index = emit.ints([count], "no_index"), emit.ints(range(count), "index")
            value = emit.op("Gather", value, emit.where(broken, no_index, own_index), axis=0)
        entries = emit.elements(value, places, count)
        return [emit.note_guesses(entry, (guess,)) for entry in entries]

    def _flat_input(self, emit: Emitter, vector: Vector, least: int) -> ir.Value:
        """Return the input that holds a parameter as 1-D int64 value, row by row."""
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
        if declared is None:  # Concat with a row checks the rank, Reshape the number of rows
            row = np.full((1, columns) if columns > 1 else 1, least, np.int64)
            value = emit.op("Concat", value, emit.constant(row, "row"), axis=0)
            value = emit.op("Reshape", value, emit.ints([count + columns], "flat"))
            longer = emit.tensor(value, [count + columns])
            value = emit.slice(longer, {0: AxisPart(0, count)}).value
        return value

    def _broken_entries(
        self, emit: Emitter, vector: Vector, value: ir.Value, least: int
    ) -> ir.Value:
        """Return for each entry whether it breaks the rule."""
        if not (vector.start and vector.step == 1):
            return emit.less(value, emit.ints([least], "least"))
        # The entry of the batch must be exact: |value - middle| <= radius, with radius 0 for it.
        radius = _MAX_DIM // 2
        middles = [least, *[least + radius] * vector.length]
        radii = [0, *[radius] * vector.length]
        distance = emit.op("Abs", emit.op("Sub", value, emit.ints(middles, "middle")))
        return emit.less(emit.ints(radii, "radius"), distance)


def itemsize_of(element_type: int) -> int:
    """Return the bytes of an element of an ONNX type, for estimates of time."""
    dtype = numpy_dtype(element_type)
    return _STRING_SIZE if dtype is None else dtype.itemsize


def _known_shape(shape: Sequence[Dim] | None) -> tuple[int, ...] | None:
    """Return a shape all of whose dims are known, else None."""
    known = tuple(dim for dim in shape or () if isinstance(dim, int))
    return known if shape is not None and len(known) == len(shape) else None


@dataclass(frozen=True)
class Lowering:
    """One way to lower operators.

    Attributes:
        name: shown by `inspect`, forced by `convert(prefer=...)`. Those with one name are forms of one.
        accepts: operators that it can lower; no other is offered to it.
        build: emits the nodes, which are exact, bit for bit, and returns the operator's output; raises a
            ConversionError that says why it cannot lower the request. A run in which a block
            does not divide a size must fail: the Reshape of `Rearrangement.finished` does if all the
            elements reach it; what leaves some out by a Gather or Slice checks that itself.
        absorbs: whether `build` includes the Transposes `Request.before` and `after`; if not, they
            become nodes of their own. `Rearrangement.of` includes them.
    """

    name: str
    accepts: tuple[type[Operator], ...]
    build: Callable[[Request, Emitter], ir.Value]
    absorbs: Callable[[Request], bool] = lambda request: False


# A run that breaks a rule of the operator must fail. Most rules cost nothing: a Reshape to exact sizes
# fails where a block does not divide, and parameters are checked where they are read (`Request.sizes`).
# The rest are sizes at which a tensor without elements would come out instead of an error;
# `guard_request` refuses those too.


def are_open(request: Request, *, of_batch: bool = True) -> bool:
    """Tell whether a run can break a rule; without `of_batch`, the rules of the batch do not count."""
    call = request.call
    if call.operator is None:
        return True
    if not of_batch and request.shape is not None:
        request = replace(request, shape=(call.typical_batch, *request.shape[1:]))
    trial = request.with_inputs(value is not None for value in request.inputs)
    return not request.ranked or bool(_open_constraints(trial, Emitter(request.opset)))


def guard_request(request: Request, emit: Emitter) -> Request:
    """Return the request with its data behind a check of all rules."""
    constraints = _open_constraints(request, emit)
    if not constraints:
        return request
    data = request.inputs[0]
    assert data is not None
    sizes = emit.op("Add", emit.op("Shape", data), zero_if_legal(emit, constraints))
    return replace(request, inputs=(_reshape(emit, data, sizes), *request.inputs[1:]))


def _reshape(emit: Emitter, value: ir.Value, sizes: ir.Value) -> ir.Value:
    """Reshape to the value's own sizes: where allowzero is missing, a 0 copies the same 0."""
    extra: dict[str, Any] = {"allowzero": 1} if emit.opset >= SINCE["allowzero"] else {}
    return emit.op("Reshape", value, sizes, **extra)


def checked_zero(request: Request, emit: Emitter) -> Size:
    """Return a 0 whose computation fails where a rule is broken."""
    constraints = _open_constraints(request, emit)
    if not constraints:
        return 0
    return emit.elements(zero_if_legal(emit, constraints), [0], 1)[0]


def zero_if_legal(emit: Emitter, constraints: Sequence[Size]) -> ir.Value:
    """Return a 0 whose computation fails where one of the sizes is negative."""
    below = emit.less(emit.vector(constraints, "constraints"), emit.ints([0], "zero"))
    broken = emit.op("ReduceMax", emit.op("Cast", below, to=int(ir.DataType.INT32)), keepdims=1)
    return emit.op("Gather", emit.ints([0], "zero"), broken, axis=0)


def _open_constraints(request: Request, emit: Emitter) -> list[Size]:
    """Return the `Call.constraints` that only a run can check."""
    if request.shape is not None:
        dims: Sequence[Size] = request.operand(emit).dims
    else:
        data = request.inputs[0]
        assert data is not None
        dims = [emit.length(data, axis) for axis in range(request.call.axes)]
    constraints = request.call.constraints(emit, dims, *request.parameters(emit))
    return [size for size in constraints if not isinstance(size, int)]


# The windows of patches.


def patches(request: Request) -> ExtractPatches:
    """Return the operator of a request for patches."""
    operator = request.call.operator
    assert isinstance(operator, ExtractPatches)
    return operator


def windows_and_pads(
    emit: Emitter, op: ExtractPatches, x: Tensor
) -> tuple[list[Size], list[tuple[Size, Size]]]:
    """Return the number of windows along each spatial axis, and the zeros around each axis of `x`.

    Negative amounts of zeros cut elements off.
    """
    counts: list[Size] = []
    pads: list[tuple[Size, Size]] = [(0, 0)] * x.rank
    for number, axis in enumerate(op.spatial_axes):
        count, begin, end = op.windows(emit, number, x.dims[axis])
        counts.append(count)
        pads[axis] = (begin, end)
    return counts, pads


def computes_padding(op: ExtractPatches) -> bool:
    """Tell whether the padding depends on the size of the image: such lowerings are hard to prove."""
    return op.auto_pad != "valid" and max(op.strides) > 1


def axes_of(op: ExtractPatches, layout: Layout) -> list[int]:
    """Return the operator's axes in the order of a layout."""
    if layout == "channels_last":
        return [0, *op.spatial_axes, op.channel_axis]
    return [0, op.channel_axis, *op.spatial_axes]


@dataclass(frozen=True)
class Windows:
    """The padded data of a patch operator.

    Attributes:
        op: the operator.
        x: [N, spatial.., C] or [N, C, spatial..], padded.
        counts: windows along each spatial axis.
        layout: which of the two layouts.
    """

    op: ExtractPatches
    x: Tensor
    counts: tuple[Size, ...]
    layout: Layout

    @classmethod
    def of(cls, request: Request, emit: Emitter) -> Windows:
        """Pad the data of a request without Transposes around it."""
        op, x = patches(request), request.data(emit)
        counts, pads = windows_and_pads(emit, op, x)
        x = pad(emit, x, pads, request.element_types, signed=op.signed_pads)
        return cls(op, x, tuple(counts), op.layout)

    def size(self, number: int) -> Size:
        """Return the size of spatial axis number `number`."""
        return self.x.dims[number + (1 if self.layout == "channels_last" else 2)]

    @property
    def channels(self) -> Size:
        """Number of channels."""
        return self.x.dims[-1 if self.layout == "channels_last" else 1]

    def part(self, number: int, place: int) -> AxisPart:
        """Return one place of all windows along spatial axis number `number`."""
        start = place * self.op.rates[number]
        left = self.op.extent(number) - 1 - start
        return AxisPart(start, self.counts[number], left, self.op.strides[number])

    def row_terms(
        self, emit: Emitter, stride: Size, axes: int
    ) -> tuple[list[Term], list[Term], Size]:
        """Describe the rows of the first spatial axes.

        Args:
            emit: collects the nodes.
            stride: rows from one entry of the innermost of these axes to the next.
            axes: number of these axes.

        Returns:
            A term for the windows along each axis, one for the positions in the window along each that
            has several, and the number of rows of these axes together.
        """
        outside: list[Term] = []
        inside: list[Term] = []
        for number in reversed(range(axes)):
            outside.insert(0, Term(self.counts[number], stride, self.op.strides[number]))
            if self.op.kernel[number] > 1:
                inside.insert(0, Term(self.op.kernel[number], stride, self.op.rates[number]))
            stride = emit.mul(stride, self.size(number))
        return outside, inside, stride
