"""Lower operators to one Gather of rows, whose index is the operator's result on row numbers.

    row-gather        Reshape [rows, rest] -> Concat with one row of zeros -> Gather -> Reshape
    element-gather    the same with GatherElements on rows of one element, which is faster there

The row numbers are padded with -1, which Gather reads as the last row: the zeros. So this works for
every element type, padding and crops included. A short index is a constant, made by the numpy kernel. A
long one is stored as a table for each axis, which runtimes add when they load; an entry in the padding
is so far below zero that the sum is negative too, and Max with -1 gives the row. With unknown sizes, row
numbers are padded and transposed at run time, on int64; for patches with channels last they are sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import LARGEST, LONGEST, Term, index
from onnx_spatial.lowering.core.nodes import NewerOpsetError
from onnx_spatial.lowering.core.padding import filled
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.patches import separable_gather, windows
from onnx_spatial.lowering.patches.windows import Windows
from onnx_spatial.lowering.permutation import stages
from onnx_spatial.lowering.permutation.factored_axes import Rearrangement
from onnx_spatial.operators import BatchToSpace, ExtractPatches, Operator, SpaceToBatch
from onnx_spatial.operators.shapes import is_countable

#: Entries of an index that is stored as one constant where tables do not serve (int32: 4 MiB).
_LARGEST_CONSTANT = 1 << 20

#: The opset that brought GatherND, and negative indices of Gather.
_GATHER_ND = 11

_GATHER_ELEMENTS = 11

#: The most elements of a result that are gathered one by one: each has an entry in a table.
_MOST_ELEMENTS = 1 << 20

#: The most spatial axes of patches whose rows are added up in the run: more take too long to prove. One
#: more is admitted without padding of computed amounts.
_MOST_AXES = 2

_ZERO_ROW = np.array(-1, np.int64)
_INT64 = frozenset({int(TensorProto.INT64)})

#: For each axis of the input: the axes of the index that it becomes, and its summands of the row.
Tables = list[tuple[tuple[int, ...], npt.NDArray[np.int64]]]


class RowGather(Strategy):
    """One Gather; a row holds all axes behind those that the operator changes."""

    name = "row-gather"
    accepts = (SpaceToBatch, BatchToSpace, ExtractPatches)
    _single = False

    def refuse(self, request: Request) -> str | None:
        """Refuse an unknown rank, several element types, and strings without GatherND."""
        if request.shape is None:
            return "the rank of the input is unknown"
        if len(request.element_types) > 1:
            return "the function is called with several element types"
        if request.opset < _GATHER_ND and TensorProto.STRING in request.element_types:
            return f"strings need GatherND, opset {_GATHER_ND}"
        return None

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        x = request.data(emit)
        lead = _lead(request)
        operator = request.call.operator
        known = all(isinstance(d, int) for d in x.dims[:lead])
        if _takes_runs(operator) and not known and _adds_up(operator):
            return self._windows(request, emit)
        rest = x.dims[lead:]
        row = self._row(emit, rest)
        rows = emit.reshape(x, [emit.product(x.dims[:lead]), *row])
        places, out = _index(request, emit, x.dims[:lead])
        if request.call.may_pad:
            zero = filled(emit, [1, *row], min(request.element_types, default=1))
            rows = emit.concat([rows, emit.tensor(zero, [1, *row], x.itemsize)], 0)
        moved = _gathered(request, emit, rows, places)
        if request.call.kind is ExtractPatches and rest:
            out[-1] = emit.product([out[-1], *rest])  # patch position major, channel minor
        else:
            out += rest
        return emit.reshape(moved, out).value

    def _windows(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit patches of images of unknown size: padded first, so that rows are sums of terms."""
        op = windows.patches(request)
        w = Windows.of(request, emit, channels_last=True)
        batch = w.x.dims[0]
        outside, inside, image = w.row_terms(emit, op, 1, len(op.kernel))
        # Gather takes the rows of each image by itself; GatherND and GatherElements do not.
        strings = TensorProto.STRING in request.element_types
        apart = not (isinstance(batch, int) or strings or self._single)
        images = [] if apart else [Term(batch, image)]
        places = index(emit, [*images, *outside, *inside])
        if apart:
            rows = emit.reshape(w.x, [batch, image, w.channels])
            moved = emit.gather(rows, places, 1)
        else:
            row = self._row(emit, [w.channels])
            rows = emit.reshape(w.x, [emit.product(w.x.dims[:-1]), *row])
            moved = _gathered(request, emit, rows, places)
        return emit.reshape(moved, [batch, *w.counts, emit.product([*op.kernel, w.channels])]).value

    def _row(self, emit: Emitter, rest: Sequence[Size]) -> list[Size]:
        """Return the dims of a row, which holds the axes `rest`; none if it is a single element."""
        return [] if self._single else [emit.product(rest)]


class ElementGather(RowGather):
    """One GatherElements, for rows of a single element."""

    name = "element-gather"
    _single = True

    def refuse(self, request: Request) -> str | None:
        """Refuse longer rows, strings, and opsets without GatherElements."""
        reason = super().refuse(request)
        if reason is not None or request.shape is None:
            return reason
        if any(dim != 1 for dim in request.shape[_lead(request) :]):
            return "its rows may hold more than one element"
        sizes = [dim for dim in request.call.output_shape(request.shape) if isinstance(dim, int)]
        if math.prod(sizes) > _MOST_ELEMENTS:
            return f"its table would have more than {_MOST_ELEMENTS:,} entries"
        if TensorProto.STRING in request.element_types:
            return "the elements are strings"
        if request.opset < _GATHER_ELEMENTS:
            return f"GatherElements needs opset {_GATHER_ELEMENTS}"
        return None


def _adds_up(op: ExtractPatches) -> bool:
    """Tell whether rows are added up for images of unknown size."""
    return len(op.kernel) <= _MOST_AXES + (not windows.computes_padding(op))


def _gathered(request: Request, emit: Emitter, rows: Tensor, places: Tensor) -> Tensor:
    """Emit the Gather of rows, or of single elements if `rows` is 1-D."""
    if rows.rank == 1:
        count = emit.product(places.dims)
        return emit.gather_elements(rows, emit.reshape(places, [count]).value, count)
    if TensorProto.STRING not in request.element_types:
        return emit.gather(rows, places, 0)
    # onnxruntime's Gather takes only the first string of each row; GatherND takes all.
    count = emit.product(places.dims)
    value = emit.op("GatherND", rows.value, emit.reshape(places, (count, 1)).value)
    return emit.tensor(value, (count, rows.dims[1]), rows.itemsize)


def _index(request: Request, emit: Emitter, lead: tuple[Size, ...]) -> tuple[Tensor, list[Size]]:
    """Return the input row of each output row, 1-D if it is known; and the dims of the output rows."""
    call = request.call
    operator = call.operator
    # Patches put their positions on a channel axis.
    dims = (*lead, 1) if _takes_runs(operator) else lead
    known = [d for d in dims if isinstance(d, int)]
    strings = TensorProto.STRING in request.element_types  # GatherND has int64 only
    if operator is not None and len(known) == len(dims):
        shape = tuple(d for d in operator.output_shape(known) if isinstance(d, int))
        size = math.prod(shape)
        tables = _tables(operator, known) if LONGEST < size <= LARGEST else None
        if tables is not None and _fits(emit, tables):
            return _summed(emit, tables, size, wide=strings), [*shape]
        if max(size, math.prod(known)) <= _LARGEST_CONSTANT and is_countable(known):
            numbers = np.arange(math.prod(known), dtype=np.int32).reshape(known)
            # Gather counts from the end since opset 11.
            zero_row = -1 if request.opset >= _GATHER_ND else len(numbers.reshape(-1))
            places = operator(numbers, pad_value=zero_row)
            places = places.astype(np.int64 if strings else np.int32)
            return emit.tensor(emit.constant(places.reshape(-1), "rows"), [size]), [*shape]
    if request.opset < _GATHER_ND and call.may_pad:
        raise NewerOpsetError("rows of zeros", _GATHER_ND)  # whose Gather counts from the end
    count = emit.product(dims)
    rows = emit.reshape(emit.tensor(emit.range(count), (count,)), dims)
    if isinstance(operator, ExtractPatches):
        moved = separable_gather.extract(operator, emit, rows, _INT64, _ZERO_ROW)
    else:
        moved = _rearranged(request, emit, rows)
    return moved, [*moved.dims]


def _rearranged(request: Request, emit: Emitter, rows: Tensor) -> Tensor:
    """Emit a block operator on row numbers."""
    assert request.shape is not None
    plain = replace(
        request,
        inputs=(rows.value, *request.inputs[1:]),
        shape=request.shape[: rows.rank],
        element_types=_INT64,
        before=None,
        after=None,
    )
    r = Rearrangement.of(plain, emit, rows)
    x, cropped = stages.emit_transpose(emit, r, r.padded(emit, _ZERO_ROW), r.before, r.after)
    return emit.tensor(r.finished(emit, x, cropped), r.final(emit))


def _tables(operator: Operator, dims: Sequence[int]) -> Tables | None:
    """Return the index as one table for each axis of the input, whose dims are `dims`, or None."""
    if isinstance(operator, ExtractPatches):
        return _tables_of_windows(operator, dims)
    assert isinstance(operator, SpaceToBatch | BatchToSpace)
    blocked = len(operator.block_shape)
    strides = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
    if isinstance(operator, SpaceToBatch):
        tables: Tables = [((blocked,), np.arange(dims[0]) * strides[0])]
        for axis, (b, (begin, end)) in enumerate(
            zip(operator.block_shape, operator.pads, strict=True), start=1
        ):
            place = np.arange(begin + dims[axis] + end) - begin
            rows = _rows_inside(place, dims, axis).reshape(-1, b).T
            tables.append(((axis - 1, blocked + axis), rows))
        return tables
    images = dims[0] // math.prod(operator.block_shape)
    tables = [((0,), np.arange(images) * strides[0])]
    ahead = images
    for axis in reversed(range(1, blocked + 1)):
        b, (begin, end) = operator.block_shape[axis - 1], operator.crops[axis - 1]
        place = np.arange(begin, dims[axis] * b - end)
        tables.append(((axis,), place // b * strides[axis] + place % b * ahead * strides[0]))
        ahead *= b
    return tables


def _tables_of_windows(op: ExtractPatches, dims: Sequence[int]) -> Tables:
    """Return the tables for the index of patches.

    channels last     [batch, windows of each axis, positions of each axis]
    channels first    [batch, positions of each axis, channel, windows of each axis]
    """
    spatial, last = len(op.kernel), op.layout == "channels_last"
    tables: Tables = [((0,), np.arange(dims[0]) * math.prod(dims[1:]))]
    if not last:
        tables.append(((1 + spatial,), np.arange(dims[1]) * math.prod(dims[2:])))
    for number, axis in enumerate(op.spatial_axes):
        begin, _ = op.padding(number, dims[axis])
        starts = np.arange(op.output_size(number, dims[axis])) * op.strides[number] - begin
        place = starts[:, None] + np.arange(op.kernel[number]) * op.rates[number]
        rows = _rows_inside(place, dims, axis)
        if last:
            tables.append(((axis, axis + spatial), rows))
        else:
            tables.append(((1 + number, 2 + spatial + number), rows.T))
    return tables


def _rows_inside(
    place: npt.NDArray[np.int64], dims: Sequence[int], axis: int
) -> npt.NDArray[np.int64]:
    """Return the summands of places along an axis; below all rows for a place in the padding."""
    inside = (place >= 0) & (place < dims[axis])
    return np.where(inside, place * math.prod(dims[axis + 1 :]), -math.prod(dims) - 1)


def _rank(tables: Tables) -> int:
    return 1 + max(place for places, _ in tables for place in places)


def _fits(emit: Emitter, tables: Tables) -> bool:
    """Tell whether the tables may be used: Max takes integers since opset 12."""
    return emit.opset >= 12 and _rank(tables) <= (emit.rank_limit or _rank(tables))


def _summed(emit: Emitter, tables: Tables, size: int, *, wide: bool) -> Tensor:
    """Emit the sum of the tables, which runtimes compute when they load."""
    rank = _rank(tables)
    lowest = sum(int(rows.min(initial=0)) for _, rows in tables)
    dtype = np.int64 if wide or lowest <= -(2**31) else np.int32
    others = [[a for a in range(rank) if a not in places] for places, _ in tables]
    total = emit.sum(
        emit.constant(np.expand_dims(rows, axes).astype(dtype), "rows")
        for axes, (_, rows) in zip(others, tables, strict=True)
    )
    if any(rows.min(initial=0) < 0 for _, rows in tables):
        total = emit.op("Max", total, emit.constant(np.full([1] * rank, -1, dtype), "zero_row"))
    emit.max_rank = max(emit.max_rank, rank)
    return emit.tensor(emit.op("Reshape", total, emit.ints([size], "shape")), [size])


def _lead(request: Request) -> int:
    """Return the number of leading axes that the operator changes."""
    return request.call.axes - int(_takes_runs(request.call.operator))


def _takes_runs(operator: Operator | None) -> TypeGuard[ExtractPatches]:
    """Tell whether the operator moves whole runs of channels, its last axis."""
    return isinstance(operator, ExtractPatches) and operator.layout == "channels_last"
