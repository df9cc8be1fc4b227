"""Lower operators to one Gather of rows, whose index is the operator's result on row numbers.

    row-gather        Reshape [rows, rest] -> Concat with one row of zeros -> Gather -> Reshape
    element-gather    the same with GatherElements on rows of one element, which is faster there

A row holds all axes behind those that the operator changes. A short index of known sizes is a constant:
the operator's definition, run on row numbers, with -1 in the padding, which Gather reads as the last
row: the zeros. So this works for every element type, padding and crops included.

The row numbers of a long index, or of one of unknown sizes, are computed by nodes, which runtimes run
when they load if all sizes are known. Those of blocks are padded with -1 and transposed, on int64. Those
of patches are sums of terms, on data that is padded first, and so are those of ReorgYolo:

    row of y[n, c, h, w] = n * q*s*s*H*W + (c % q) * s*s*H*W + (o // s) * s*W + o % s + h * s*s*W + w * s
    for q = C // (s*s), o = c // q
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.emitter import (
    MAX_INDEX_ENTRIES,
    MAX_STORED_ENTRIES,
    Emitter,
    Size,
    Tensor,
    Term,
    computed_index,
    filled,
    index,
)
from onnx_spatial.lowering.nodes import SINCE, NewerOpsetError
from onnx_spatial.lowering.permutation import Rearrangement, transposed
from onnx_spatial.lowering.request import Request, Windows, computes_padding, zero_if_legal
from onnx_spatial.operators import ExtractPatches, ReorgYolo

#: The most elements of a result that are gathered one by one: each has an entry in a table.
_MAX_ELEMENTS = 1 << 20

#: The most spatial axes of patches whose rows are added up in the run; one more is admitted without
#: padding of computed amounts.
_MAX_AXES = 2

#: Windows of so many places have lowerings without an index for each element.
_MAX_PLACES = 64

_ZERO_ROW = np.array(-1, np.int64)


def row_gather(request: Request, emit: Emitter, *, single: bool = False) -> ir.Value:
    """Emit one Gather of rows, which hold all axes behind those that the operator changes.

    Args:
        request: the operator.
        emit: collects the nodes.
        single: whether rows are single elements, for a GatherElements.

    Raises:
        ConversionError: the rank is unknown, or zeros would have several element types, or strings
            lack GatherND.
    """
    x = request.data(emit)
    lead = _lead(request)
    operator = request.call.operator
    if isinstance(operator, ExtractPatches):
        _refuse_long_index(request, operator)
    elif request.call.may_pad and len(request.element_types) > 1:
        raise ConversionError("the function is called with several element types")
    if request.opset < SINCE["GatherND"] and _holds_strings(request):
        raise ConversionError(f"strings need GatherND, opset {SINCE['GatherND']}")
    places = _known_index(request, emit, x.dims[:lead])
    if places is None and isinstance(operator, ExtractPatches):
        return _of_padded_windows(request, emit, single)
    if isinstance(operator, ReorgYolo):
        places = places or _reorg_index(operator, emit, x.dims)
        out = _reorganised_dims(operator, emit, x.dims)
    elif places is not None:
        out = request.call.output_dims(emit, x.dims, *request.parameters(emit))
    else:
        places, ahead = _rearrange_numbers(request, emit, x.dims[:lead])
        out = [*ahead, *x.dims[lead:]]
    row = [] if single or lead == x.rank else [emit.product(x.dims[lead:])]
    rows = emit.reshape(x, [emit.product(x.dims[:lead]), *row])
    if request.call.may_pad:
        zero = filled(emit, [1, *row], min(request.element_types, default=1))
        rows = emit.concat([rows, emit.tensor(zero, [1, *row], x.itemsize)], 0)
    return emit.reshape(_gather_rows(request, emit, rows, places, single), out).value


def element_gather(request: Request, emit: Emitter) -> ir.Value:
    """Emit one GatherElements.

    Raises:
        ConversionError: rows may be longer, the elements are strings, or the opset lacks GatherElements.
    """
    shape = request.shape or ()
    if any(dim != 1 for dim in shape[_lead(request) :]):
        raise ConversionError("its rows may hold more than one element")
    sizes = (
        [dim for dim in request.call.output_shape(shape) if isinstance(dim, int)] if shape else []
    )
    if math.prod(sizes) > _MAX_ELEMENTS:
        raise ConversionError(f"its table would have more than {_MAX_ELEMENTS:,} entries")
    if TensorProto.STRING in request.element_types:
        raise ConversionError("the elements are strings")
    if request.opset < SINCE["GatherElements"]:
        raise ConversionError(f"GatherElements needs opset {SINCE['GatherElements']}")
    return row_gather(request, emit, single=True)


def _of_padded_windows(request: Request, emit: Emitter, single: bool) -> ir.Value:
    """Emit patches of images of unknown size."""
    w = Windows.of(request, emit)
    op, batch, runs = w.op, w.x.dims[0], _takes_runs(request)
    last = op.layout == "channels_last"
    inner: Size = w.channels if last and not runs else 1
    outside, inside, image = w.row_terms(emit, inner, len(op.kernel))
    channel = [] if runs else [Term(w.channels, 1 if last else image)]
    if not runs and not last:
        image = emit.mul(image, w.channels)
    # Gather takes the rows of each image by itself; GatherND and GatherElements do not.
    apart = not (isinstance(batch, int) or single or _holds_strings(request))
    images = [] if apart else [Term(batch, image)]
    depth = [*channel, *inside] if op.major == "channel" else [*inside, *channel]
    order = [*images, *outside, *depth] if last else [*images, *depth, *outside]
    places = index(emit, order, wide=_holds_strings(request))
    row = [w.channels] if runs and not single else []
    if apart:
        rows = emit.reshape(w.x, [batch, image, *row])
        moved = emit.gather(rows, places, 1)
    else:
        rows = emit.reshape(w.x, [emit.product([batch, image]), *row])
        moved = _gather_rows(request, emit, rows, places, single)
    length = emit.product([*op.kernel, w.channels])
    out = [batch, *w.counts, length] if last else [batch, length, *w.counts]
    return emit.reshape(moved, out).value


def _gather_rows(
    request: Request, emit: Emitter, rows: Tensor, places: Tensor, single: bool
) -> Tensor:
    """Emit the Gather of rows, or of single elements if `rows` is 1-D."""
    count = emit.product(places.dims)
    if single:
        return emit.gather_elements(rows, emit.reshape(places, [count]).value, count)
    if rows.rank == 1 or not _holds_strings(request):
        return emit.gather(rows, places, 0)
    value = emit.op("GatherND", rows.value, emit.reshape(places, (count, 1)).value)
    return emit.tensor(value, (count, rows.dims[1]), rows.itemsize)


def _refuse_long_index(request: Request, op: ExtractPatches) -> None:
    """Refuse patches whose index is not worth its computation in each run.

    Windows that are too large for other lowerings have no choice.
    """
    assert request.shape is not None
    known = all(isinstance(dim, int) for dim in request.shape[: _lead(request)])
    if known or math.prod(op.kernel) > _MAX_PLACES:
        return
    if not _takes_runs(request):
        raise ConversionError("each element of the result would have an entry in a computed index")
    if len(op.kernel) > _MAX_AXES + (not computes_padding(op)):
        raise ConversionError(
            f"an index for more than {_MAX_AXES} axes with computed padding is hard to prove"
        )


def _holds_strings(request: Request) -> bool:
    """Tell whether rows hold strings: onnxruntime's Gather takes only the first one of each."""
    assert request.shape is not None
    return TensorProto.STRING in request.element_types and _lead(request) < len(request.shape)


def _lead(request: Request) -> int:
    """Return the number of leading axes that the operator changes."""
    return request.call.axes - int(_takes_runs(request))


def _takes_runs(request: Request) -> bool:
    """Tell whether the operator moves whole runs of channels, its last axis."""
    op = request.call.operator
    return isinstance(op, ExtractPatches) and (op.layout, op.major) == ("channels_last", "place")


def _known_index(request: Request, emit: Emitter, lead: Sequence[Size]) -> Tensor | None:
    """Return the row of each row of the output, 1-D, if it is known and short."""
    operator = request.call.operator
    dims = [dim for dim in lead if isinstance(dim, int)]
    if operator is None or len(dims) < len(lead):
        return None
    if request.call.may_pad and len(request.element_types) > 1:
        return None  # a row of zeros has one type
    dims += [1] * (request.call.axes - len(dims))
    rows, out = math.prod(dims), [int(d or 0) for d in operator.output_shape(dims)]
    # Counted before the index is made: a damaged file may ask for any number of rows.
    if (
        max(rows, *dims, *operator.positions, *out) > MAX_INDEX_ENTRIES
        or math.prod(out) > MAX_STORED_ENTRIES
    ):
        return None
    # Gather counts from the end since opset 11.
    zero_row = -1 if emit.opset >= SINCE["negative indices of Gather"] else rows
    numbers = operator(np.arange(rows).reshape(dims), zero_row).reshape(-1)
    wide = _holds_strings(request)  # GatherND has int64 only
    return emit.tensor(
        emit.constant(numbers.astype(np.int64 if wide else np.int32), "rows"), [len(numbers)]
    )


def _rearrange_numbers(
    request: Request, emit: Emitter, dims: Sequence[Size]
) -> tuple[Tensor, list[Size]]:
    """Emit a block operator on row numbers; return these, in any shape, and the shape of the result."""
    if request.opset < SINCE["negative indices of Gather"] and request.call.may_pad:
        raise NewerOpsetError("rows of zeros", SINCE["negative indices of Gather"])
    assert request.shape is not None
    plain = replace(
        request,
        shape=request.shape[: len(dims)],
        element_types=frozenset({int(TensorProto.INT64)}),
        before=None,
        after=None,
    )
    count = emit.product(dims)
    rows = emit.reshape(emit.tensor(emit.range(count), (count,)), dims)
    r = Rearrangement.of(plain, emit, rows)
    x = transposed(emit, r, r.padded(emit, _ZERO_ROW), r.before, r.after)
    return emit.tensor(r.finished(emit, x), r.final(emit)), r.final(emit)


def _reorg_index(op: ReorgYolo, emit: Emitter, dims: Sequence[Size]) -> Tensor:
    """Emit the index of ReorgYolo; see the module."""
    s, (batch, channels, height, width) = op.stride, dims
    if isinstance(channels, int):
        image_count = channels // (s * s)
        images: Size = image_count
        offsets, image_numbers = np.divmod(np.arange(channels), image_count)
        rows, columns = (emit.constant(part, "offset") for part in np.divmod(offsets, s))
        image = emit.constant(image_numbers, "image")
    else:
        # Too few channels fail here: they would give a divisor of 0.
        zero = zero_if_legal(emit, [emit.sub(channels, s * s)])
        checked = emit.add(channels, *emit.elements(zero, [0], 1))
        images = emit.div(checked, s * s)
        offset, image = _emit_division(emit, emit.range(checked), images)
        rows, columns = _emit_division(emit, offset, s)
    line = emit.mul(width, s)
    plane = emit.product([line, height, s])
    image_rows = emit.op("Mul", image, emit.size(plane))
    line_rows = emit.op("Mul", rows, emit.size(line))
    channel = emit.op("Add", emit.op("Add", image_rows, line_rows), columns)
    terms = [
        Term(batch, emit.mul(plane, images)),
        Term(emit.tensor(channel, [channels]), 1),
        Term(height, emit.mul(line, s)),
        Term(width, s),
    ]
    return computed_index(emit, terms)


def _reorganised_dims(op: ReorgYolo, emit: Emitter, dims: Sequence[Size]) -> list[Size]:
    """Return the dims of the output; a Reshape to them fails where cells do not divide a size."""
    s, (batch, channels, *image) = op.stride, dims
    return [batch, emit.mul(channels, s * s), *(emit.quotient(size, s) for size in image)]


def _emit_division(emit: Emitter, dividend: ir.Value, divisor: Size) -> tuple[ir.Value, ir.Value]:
    """Return quotient and remainder."""
    quotient = emit.op("Div", dividend, emit.size(divisor))
    return quotient, emit.op("Sub", dividend, emit.op("Mul", quotient, emit.size(divisor)))
