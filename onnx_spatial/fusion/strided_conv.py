"""Patches of which one convolution with a 1x1 kernel, or one matrix, makes sums: a strided convolution.

    x -> ExtractImagePatches k, s, r -> Transpose -> Conv 1x1 -> y
    x -> Transpose -> Conv k, strides s, dilations r -> y

    x -> ExtractImagePatches k, s, r -> Reshape -> MatMul -> y
    x -> Transpose -> Conv k, strides s, dilations r -> Transpose -> Reshape -> y

Patches hold the channels of each place in the window one behind the other. So channel number
(place in the window) * C + c is multiplied with what the kernel has at that place for channel c: the
kernel is the weight, reshaped and transposed, which runtimes compute once, when they load; the weight
stays where it is. Zeros around the image are zeros in either form. The same products are summed up in
another order, so results agree within rounding.

It is a matter of cost. Patches that overlap are many, and a convolution does without them. Those that
lie side by side are a cheap movement; a matrix of many rows is then faster by itself, because
onnxruntime packs the second input of MatMul when it loads, and the kernel of Conv in every run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.channel_sum import Contraction, Order, find, named
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Rewrite
from onnx_spatial.lowering import Emitter, Lowered, transpose_cost
from onnx_spatial.operators import Dim, ExtractPatches

#: What `inspect` shows in the place of a strategy.
STRIDED = "strided convolution"

#: What onnxruntime's Conv takes.
_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})

#: What an element of the kernel costs in each run, in microseconds. Fitted to 430 nets with patches in
#: onnxruntime 1.31: what is chosen takes 1 % longer than the better of both forms in the mean.
_UNPACKED = 3e-5


@dataclass(frozen=True)
class _Transposes:
    """Transposes that stand in the way, and the one that is left of them.

    Attributes:
        value: what comes out of those that go, or goes into them.
        nodes: those that go.
        before: the orders of the axes that they lead through, from the first to the last.
        after: the same with what is written: two orders, or one if nothing is.
    """

    value: ir.Value
    nodes: tuple[ir.Node, ...]
    before: tuple[Order, ...]
    after: tuple[Order, ...]


def stride(subject: MatchedOp, around: Matcher, lower: Lower) -> Rewrite | str | None:
    """Write patches, and what makes sums of them, as one convolution."""
    operator, shape = subject.request.call.operator, subject.request.shape
    if not isinstance(operator, ExtractPatches) or shape is None:
        return None
    reader = find(subject.node.outputs[0], _order(operator), around)
    if not isinstance(reader, Contraction):
        return reader
    pads = _pads(operator, shape, empty=not reader.is_convolution)
    if isinstance(pads, str):
        return f"{named(reader.node)} {pads}"
    if reason := _mismatch(subject, reader, operator):
        return f"{named(reader.node)} {reason}"
    front, behind = _front(subject, operator, around), _behind(reader, around)
    if _saved(subject, operator, reader, front, behind, lower) <= 0:
        return f"{named(reader.node)} such a convolution takes no less time than to take the patches out"
    return _rewrite(subject, operator, reader, pads, front, behind)


def _order(operator: ExtractPatches) -> Order:
    """Of the axes of the image, and of the patches."""
    axes = tuple(range(operator.rank))
    return axes if operator.layout == "channels_first" else (0, *axes[2:], 1)


def _pads(operator: ExtractPatches, shape: Sequence[Dim], *, empty: bool) -> list[int] | str:
    """The pads of the convolution, or why there are none.

    Args:
        operator: the patches.
        shape: of the image.
        empty: whether an image without any window is legal: of no patches a matrix makes no sums,
            and a convolution fails, with a 1x1 kernel as with any other.
    """
    pairs = []
    for number, axis in enumerate(operator.spatial_axes):
        size = shape[axis]
        if not isinstance(size, int):
            if empty:
                return f"axis {axis} may turn out to hold no window, which a convolution refuses"
            if operator.auto_pad != "valid" and operator.strides[number] != 1:
                return f"the padding of axis {axis} is only known when the model runs"
            size = operator.extent(number)  # any other is padded like it
        if operator.output_size(number, size) < 1:
            return "there are no patches"
        pairs.append(operator.padding(number, size))
    if min(amount for pair in pairs for amount in pair) < 0:
        return "sampling starts inside the image, which no convolution does"
    return [*(begin for begin, _ in pairs), *(end for _, end in pairs)]


def _mismatch(subject: MatchedOp, reader: Contraction, operator: ExtractPatches) -> str | None:
    """Why the weight does not fit the patches."""
    kind = reader.tensor.data_type
    if kind not in _TYPES or subject.info.element_types - {kind}:
        return f"onnxruntime has no convolution of {TensorProto.DataType.Name(kind).lower()}"
    shape = subject.request.shape
    assert shape is not None
    channels, places = shape[operator.channel_axis], math.prod(operator.kernel)
    counts = {reader.rows}
    if isinstance(channels, int):
        counts.add(channels * places)
    if reader.path.shape is not None:
        counts.add(reader.path.shape[-1])
    if len(counts) > 1 or reader.rows % places or min(reader.rows, reader.channels) < 1:
        return "its weight does not fit the channels of the patches"
    return None


def _front(subject: MatchedOp, operator: ExtractPatches, around: Matcher) -> _Transposes:
    """From the image, or from what is in front of a Transpose that gives it, to [N, C, spatial..]."""
    data = subject.node.inputs[0]
    assert data is not None
    order = _order(operator)
    first = tuple(range(operator.rank))
    node = data.producer()
    perm = around.perm(node, operator.rank)
    if order == first or node is None or perm is None or node.graph is not subject.node.graph:
        return _Transposes(data, (), (order,), _steps(order, first))
    source = node.inputs[0]
    assert source is not None
    given = tuple(order[perm.index(axis)] for axis in first)
    if around.is_named(data) or around.readers(data) != [(subject.node, 0)]:
        return _Transposes(source, (), (given,), _steps(given, first))
    return _Transposes(source, (node,), (given, order), _steps(given, first))


def _behind(reader: Contraction, around: Matcher) -> _Transposes:
    """From [N, C, spatial..] to the result, or to what Transposes behind it make of it."""
    orders, value = [reader.path.order], reader.node.outputs[0]
    nodes: list[ir.Node] = []
    turned = not reader.is_convolution and reader.path.shape is None
    while turned and not around.is_named(value):
        readers = around.readers(value)
        perm = around.perm(readers[0][0], len(orders[0])) if len(readers) == 1 else None
        if perm is None or readers[0][0].graph is not reader.node.graph:
            break
        nodes.append(readers[0][0])
        value = nodes[-1].outputs[0]
        orders.append(tuple(orders[-1][axis] for axis in perm))
    first = tuple(range(len(orders[0])))
    return _Transposes(value, tuple(nodes), tuple(orders), _steps(first, orders[-1]))


def _steps(start: Order, end: Order) -> tuple[Order, ...]:
    return (start,) if start == end else (start, end)


def _perm(start: Order, end: Order) -> list[int]:
    """The permutation that makes one order of another."""
    return [start.index(axis) for axis in end]


def _saved(
    subject: MatchedOp,
    operator: ExtractPatches,
    reader: Contraction,
    front: _Transposes,
    behind: _Transposes,
    lower: Lower,
) -> float:
    """Microseconds that the convolution saves."""
    request = subject.request
    try:
        saved = lower(request).cost
    except ConversionError:  # there is no other way
        return math.inf
    assert request.shape is not None
    sizes = [d if isinstance(d, int) else request.typical(a) for a, d in enumerate(request.shape)]
    windows = [
        max(1, operator.output_size(number, max(sizes[axis], operator.extent(number))))
        for number, axis in enumerate(operator.spatial_axes)
    ]
    image = [sizes[0], reader.rows // math.prod(operator.kernel)]
    image += [sizes[axis] for axis in operator.spatial_axes]
    patches, result = ([sizes[0], count, *windows] for count in (reader.rows, reader.channels))
    for dims, orders, sign in (
        (image, front.before, 1),
        (patches, reader.path.orders, 1),
        (result, behind.before, 1),
        (image, front.after, -1),
        (result, behind.after, -1),
    ):
        for start, end in itertools.pairwise(orders):
            given = [dims[axis] for axis in start]
            saved += sign * transpose_cost(given, _perm(start, end), request.itemsize)
    return saved - _UNPACKED * reader.rows * reader.channels


def _rewrite(
    subject: MatchedOp,
    operator: ExtractPatches,
    reader: Contraction,
    pads: Sequence[int],
    front: _Transposes,
    behind: _Transposes,
) -> Rewrite:
    emit = Emitter(subject.request.opset)
    inputs = [_turned(front.value, front.after, emit), _kernel(reader, operator, emit)]
    value = emit.op(
        "Conv",
        *(inputs if reader.bias is None else [*inputs, reader.bias]),
        kernel_shape=operator.kernel,
        strides=operator.strides,
        dilations=operator.rates,
        pads=pads,
    )
    emit.nodes[-1].name = reader.node.name or None
    value = _turned(value, behind.after, emit)
    if reader.path.shape is not None:
        shape = (*reader.path.shape[:-1], reader.channels)
        value = emit.op("Reshape", value, emit.ints(shape, "shape"))
    if reader.added is not None:
        value = emit.op("Add", value, reader.added)
    return Rewrite(
        Lowered(STRIDED, emit, value),
        (subject,),
        (*front.nodes, *reader.path.nodes, reader.node, *behind.nodes),
        (behind.value,),
        _output_shape(subject, operator, reader, behind.before[-1]),
        STRIDED,
        reader.node,
    )


def _turned(value: ir.Value, orders: Sequence[Order], emit: Emitter) -> ir.Value:
    if len(orders) == 1:
        return value
    return emit.op("Transpose", value, perm=_perm(*orders))


def _kernel(reader: Contraction, operator: ExtractPatches, emit: Emitter) -> ir.Value:
    """The weight as [channels of the result, C, places in the window..]."""
    axes, channels = len(operator.kernel), reader.rows // math.prod(operator.kernel)
    if reader.rows_first:
        shape = (*operator.kernel, channels, reader.channels)
        perm = [axes + 1, axes, *range(axes)]
    else:
        shape = (reader.channels, *operator.kernel, channels)
        perm = [0, axes + 1, *range(1, axes + 1)]
    return emit.op(
        "Transpose", emit.op("Reshape", reader.weight, emit.ints(shape, "shape")), perm=perm
    )


def _output_shape(
    subject: MatchedOp, operator: ExtractPatches, reader: Contraction, order: Order
) -> tuple[Dim, ...]:
    assert subject.request.shape is not None
    windows = operator.output_shape(subject.request.shape)
    first = [windows[0], reader.channels, *(windows[axis] for axis in operator.spatial_axes)]
    dims = [first[axis] for axis in order]
    if reader.path.shape is None:
        return tuple(dims)
    known = [dims[axis] if dim == 0 else dim for axis, dim in enumerate(reader.path.shape[:-1])]
    return (*(None if dim == -1 else dim for dim in known), reader.channels)
