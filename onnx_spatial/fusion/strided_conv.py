"""Fuse ExtractPatches with the 1x1 Conv, MatMul or Gemm behind it into one strided Conv.

    x -> ExtractImagePatches k, s, r -> Transpose -> Conv 1x1 -> y
    x -> Transpose -> Conv k, strides s, dilations r -> y

    x -> ExtractImagePatches k, s, r -> Reshape -> MatMul -> y
    x -> Transpose -> Conv k, strides s, dilations r -> Transpose -> Reshape -> y

A patch holds the C channels of each place in the window, one place after the other: its channel number
place * C + c is multiplied with the kernel's weight at that place for channel c. So the kernel is the
weight, reshaped and transposed; runtimes compute that once, when they load, and the weight stays where
it is. Zeros around the image are zeros in either form. The same products are summed up in another
order, so results agree within rounding.

Costs decide. Overlapping patches are many, and a convolution does without them. Patches side by side are
a cheap permutation; a matrix of many rows is then faster by itself, because onnxruntime packs the second
input of MatMul when it loads, and the kernel of Conv in every run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.channel_sum import Contraction, Order, find
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Reason, Rewrite, Rule, blame
from onnx_spatial.lowering import Emitter, Lowered, transpose_cost
from onnx_spatial.operators import Dim, ExtractPatches

#: Name of the rule.
STRIDED = "strided convolution"

#: What onnxruntime's Conv takes.
_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})

#: Cost of an element of the kernel in each run, in microseconds. Fitted to 430 nets with patches in
#: onnxruntime 1.31: the chosen form takes 1 % longer than the better one in the mean.
_UNPACKED = 3e-5


@dataclass(frozen=True)
class _Transposes:
    """Transposes on one side of the new Conv, and the one that replaces them.

    Attributes:
        value: input of the first in front, output of the last behind.
        nodes: those that go.
        before: the orders of the axes that they lead through, from the first to the last.
        after: the same for the one that is written: two orders; one order if none is written.
    """

    value: ir.Value
    nodes: tuple[ir.Node, ...]
    before: tuple[Order, ...]
    after: tuple[Order, ...]


@dataclass(frozen=True)
class _Match:
    """Patches, the node that sums up their channels, and the Transposes around the two.

    Attributes:
        subject: the operator in the graph.
        operator: its meaning.
        reader: the Conv, MatMul or Gemm behind it.
        pads: of the new Conv.
        front, behind: Transposes that become part of it.
    """

    subject: MatchedOp
    operator: ExtractPatches
    reader: Contraction
    pads: Sequence[int]
    front: _Transposes
    behind: _Transposes


def _match(subject: MatchedOp, matcher: Matcher) -> _Match | Reason | None:
    operator, shape = subject.request.call.operator, subject.request.shape
    if not isinstance(operator, ExtractPatches) or shape is None:
        return None
    reader = find(subject.node.outputs[0], _order(operator), matcher)
    if not isinstance(reader, Contraction):
        return reader
    pads = _pads(operator, shape, empty=not reader.is_convolution)
    if isinstance(pads, str):
        return f"{blame(reader.node)} {pads}"
    if reason := _mismatch(subject, reader, operator):
        return f"{blame(reader.node)} {reason}"
    sides = _front(subject, operator, matcher), _behind(reader, matcher)
    return _Match(subject, operator, reader, pads, *sides)


def _order(operator: ExtractPatches) -> Order:
    """Return the order of the axes, of the image as of the patches."""
    axes = tuple(range(operator.rank))
    return axes if operator.layout == "channels_first" else (0, *axes[2:], 1)


def _pads(operator: ExtractPatches, shape: Sequence[Dim], *, empty: bool) -> list[int] | str:
    """Compute the pads of the convolution of an image, or say why there are none.

    `empty` says that an image without any window is legal: MatMul of no patches is empty, and a
    convolution fails, with a 1x1 kernel as with any other.
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
    """Say why the weight does not fit the patches."""
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


def _front(subject: MatchedOp, operator: ExtractPatches, matcher: Matcher) -> _Transposes:
    """Lead from the image, or from the input of a Transpose in front of it, to [N, C, spatial..]."""
    data = subject.node.inputs[0]
    assert data is not None
    order = _order(operator)
    first = tuple(range(operator.rank))
    node = data.producer()
    perm = matcher.perm(node, operator.rank)
    if order == first or node is None or perm is None or node.graph is not subject.node.graph:
        return _Transposes(data, (), (order,), _steps(order, first))
    source = node.inputs[0]
    assert source is not None
    start = tuple(order[perm.index(axis)] for axis in first)
    if matcher.is_named(data) or matcher.readers(data) != [(subject.node, 0)]:
        return _Transposes(source, (), (start,), _steps(start, first))
    return _Transposes(source, (node,), (start, order), _steps(start, first))


def _behind(reader: Contraction, matcher: Matcher) -> _Transposes:
    """Lead from [N, C, spatial..] to the result, or to the output of Transposes behind it."""
    orders, value = [reader.path.order], reader.node.outputs[0]
    nodes: list[ir.Node] = []
    transposed = not reader.is_convolution and reader.path.shape is None
    while transposed and not matcher.is_named(value):
        readers = matcher.readers(value)
        perm = matcher.perm(readers[0][0], len(orders[0])) if len(readers) == 1 else None
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
    """Return the permutation from one order to another."""
    return [start.index(axis) for axis in end]


def _saved(match: _Match, lower: Lower) -> float:
    """Estimate the microseconds that the convolution saves."""
    operator, reader, request = match.operator, match.reader, match.subject.request
    try:
        saved = lower(request).cost
    except ConversionError:  # nothing else can be written
        return math.inf
    sizes = match.subject.sizes
    windows = [
        max(1, operator.output_size(number, max(sizes[axis], operator.extent(number))))
        for number, axis in enumerate(operator.spatial_axes)
    ]
    image = [sizes[0], reader.rows // math.prod(operator.kernel)]
    image += [sizes[axis] for axis in operator.spatial_axes]
    patches, result = ([sizes[0], count, *windows] for count in (reader.rows, reader.channels))
    for dims, orders, sign in (
        (image, match.front.before, 1),
        (patches, reader.path.orders, 1),
        (result, match.behind.before, 1),
        (image, match.front.after, -1),
        (result, match.behind.after, -1),
    ):
        for start, end in itertools.pairwise(orders):
            shape = [dims[axis] for axis in start]
            saved += sign * transpose_cost(shape, _perm(start, end), request.itemsize)
    return saved - _UNPACKED * reader.rows * reader.channels


def _rewrite(match: _Match, lower: Lower) -> Rewrite | Reason:
    subject, operator, reader = match.subject, match.operator, match.reader
    if _saved(match, lower) <= 0:
        return f"{blame(reader.node)} one strided convolution would not be faster"
    emit = Emitter(subject.request.opset)
    image = _transposed(match.front.value, match.front.after, emit)
    value = emit.op(
        "Conv",
        *(image, _kernel(reader, operator, emit)),
        *(() if reader.bias is None else (reader.bias,)),
        kernel_shape=operator.kernel,
        strides=operator.strides,
        dilations=operator.rates,
        pads=match.pads,
    )
    emit.nodes[-1].name = reader.node.name or None
    value = _transposed(value, match.behind.after, emit)
    if reader.path.shape is not None:
        shape = (*reader.path.shape[:-1], reader.channels)
        value = emit.op("Reshape", value, emit.ints(shape, "shape"))
    if reader.added is not None:
        value = emit.op("Add", value, reader.added)
    return Rewrite(
        Lowered(STRIDED, emit, value),
        (subject,),
        (*match.front.nodes, *reader.path.nodes, reader.node, *match.behind.nodes),
        (match.behind.value,),
        _output_shape(match),
        reader.node,
    )


def _transposed(value: ir.Value, orders: Sequence[Order], emit: Emitter) -> ir.Value:
    if len(orders) == 1:
        return value
    return emit.op("Transpose", value, perm=_perm(*orders))


def _kernel(reader: Contraction, operator: ExtractPatches, emit: Emitter) -> ir.Value:
    """Write the weight as [output channels, C, places in the window..]."""
    axes, channels = len(operator.kernel), reader.rows // math.prod(operator.kernel)
    if reader.rows_first:
        shape = (*operator.kernel, channels, reader.channels)
        perm = [axes + 1, axes, *range(axes)]
    else:
        shape = (reader.channels, *operator.kernel, channels)
        perm = [0, axes + 1, *range(1, axes + 1)]
    weight = emit.op("Reshape", reader.weight, emit.ints(shape, "shape"))
    return emit.op("Transpose", weight, perm=perm)


def _output_shape(match: _Match) -> tuple[Dim, ...]:
    operator, reader, order = match.operator, match.reader, match.behind.before[-1]
    assert match.subject.request.shape is not None
    windows = operator.output_shape(match.subject.request.shape)
    first = [windows[0], reader.channels, *(windows[axis] for axis in operator.spatial_axes)]
    dims = [first[axis] for axis in order]
    if reader.path.shape is None:
        return tuple(dims)
    known = [dims[axis] if dim == 0 else dim for axis, dim in enumerate(reader.path.shape[:-1])]
    return (*(None if dim == -1 else dim for dim in known), reader.channels)


#: ExtractPatches and a sum over its channels become one Conv.
RULE = Rule(STRIDED, _match, _rewrite)
