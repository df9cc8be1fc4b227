"""Fuse ExtractPatches with the product behind it into one strided Conv.

    x -> ExtractImagePatches k, s, r -> Transpose -> Conv 1x1 -> y
    x -> Transpose -> Conv k, strides s, dilations r -> y

    x -> ExtractImagePatches k, s, r -> MatMul -> y
    x -> Transpose -> Conv k, strides s, dilations r -> Transpose -> y

A patch holds the C channels of each place in the window, one place after the other: its channel number
place * C + c (c * places + place where the channels come first) is multiplied with the kernel's weight
at that place for channel c. So the kernel is the weight, reshaped and transposed; runtimes compute that
once, when they load, and the weight stays where it is. Zeros around the image are zeros in either form.
The same products are summed up in another order, so results agree within rounding.

Costs decide. Overlapping patches are many, and a convolution does without them. Patches side by side are
a cheap permutation; a matrix of many rows is then faster by itself, because onnxruntime packs the second
input of MatMul when it loads, and the kernel of Conv in every run.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Reason, Rewrite, Rule, blame
from onnx_spatial.fusion.strided_conv import product
from onnx_spatial.fusion.strided_conv.product import CHANNELS, Order, Path, Product
from onnx_spatial.fusion.strided_conv.window_border import Border
from onnx_spatial.lowering import Emitter, Lowered, are_open, transpose_cost
from onnx_spatial.operators import Dim, ExtractPatches

#: Name of the rule.
STRIDED = "strided convolution"

#: What onnxruntime's Conv takes.
_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})

#: Cost of an element of the kernel in each run, in microseconds. Fitted to 430 nets with patches in
#: onnxruntime 1.31: the chosen form takes 1 % longer than the better one in the mean.
_UNPACKED = 2e-5


@dataclass(frozen=True)
class _Front:
    """What the convolution reads.

    Attributes:
        value: the image, or the input of a Transpose in front of the operator.
        nodes: that Transpose, if it goes.
        orders: the orders of the axes that lead from there to the operator.
    """

    value: ir.Value
    nodes: tuple[ir.Node, ...]
    orders: tuple[Order, ...]


@dataclass(frozen=True)
class _Match:
    """Patches, the node that sums up their channels, and the Transposes around the two.

    Attributes:
        subject: the operator in the graph.
        patches: its meaning.
        product: what sums up.
        border: of the new Conv.
        front: what is in front.
        behind: the Transposes behind.
        is_fed: whether the weight is an input of the model.
    """

    subject: MatchedOp
    patches: ExtractPatches
    product: Product
    border: Border
    front: _Front
    behind: Path
    is_fed: bool

    @property
    def removed(self) -> tuple[ir.Node, ...]:
        """The nodes that go with the operator."""
        node = self.product.node
        return (*self.front.nodes, *self.product.path.nodes, node, *self.behind.nodes)

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The shape of the result, as far as it is known."""
        known = self.subject.info.output_shape
        if known is None:
            return None
        dim_of = dict(zip(_order(self.patches), known, strict=True))
        dim_of[CHANNELS] = self.product.channels
        return tuple(dim_of[axis] for axis in self.behind.order)


def _order(patches: ExtractPatches) -> Order:
    """Return the order of the axes of [N, C, spatial..], in the image as in the patches."""
    axes = tuple(range(patches.rank))
    return axes if patches.layout == "channels_first" else (0, *axes[2:], 1)


def _match(subject: MatchedOp, matcher: Matcher) -> _Match | Reason | None:
    patches, shape = subject.request.call.operator, subject.request.shape
    if not isinstance(patches, ExtractPatches) or shape is None:
        return None
    found = product.find(subject.node.outputs[0], _order(patches), matcher)
    if not isinstance(found, Product):
        return found
    # A Conv without a window fails in the original, too.
    runs = found.path.order[2:] if found.node.op_type == "Conv" else ()
    may_be_empty = [n for n in range(len(patches.kernel)) if n + 2 not in runs]
    border = Border.of(patches, shape, may_be_empty, subject.request.opset)
    reason = border if isinstance(border, str) else _mismatch(subject, found, patches, matcher)
    if isinstance(border, str) or reason is not None:
        return f"{blame(found.node)} {reason}"
    if any(border.more) and subject.request.checked and are_open(subject.request):
        return f"{blame(found.node)} its sizes are checked at run time, which needs the operator"
    front = _front(subject, patches, matcher)
    behind = product.through_transposes(found.node.outputs[0], found.path.order, matcher)
    found, behind = product.with_bias(found, behind, matcher)
    weight, is_main = found.weight, subject.info.place.function is None
    is_fed = is_main and weight.producer() is None and weight.const_value is None
    return _Match(subject, patches, found, border, front, behind, is_fed)


def _mismatch(
    subject: MatchedOp, found: Product, patches: ExtractPatches, matcher: Matcher
) -> Reason | None:
    """Say why the weight does not fit the patches."""
    tensor, shape = matcher.stored(found.weight), subject.request.shape
    kinds = subject.info.element_types | ({tensor.data_type} if tensor is not None else set())
    if len(kinds) != 1 or not kinds <= _TYPES:
        names = (TensorProto.DataType.Name(kind).lower() for kind in sorted(kinds - _TYPES))
        return f"onnxruntime has no convolution of {' and '.join(names) or 'several types'}"
    assert shape is not None
    channels, places = shape[patches.channel_axis], math.prod(patches.kernel)
    fits = not isinstance(channels, int) or channels * places == found.rows
    if not fits or found.rows % places or min(found.rows, found.channels) < 1:
        return "its weight does not fit the channels of the patches"
    return None


def _front(subject: MatchedOp, patches: ExtractPatches, matcher: Matcher) -> _Front:
    """Find what the convolution reads: the image, or the input of a Transpose in front of it."""
    data = subject.node.inputs[0]
    assert data is not None
    order, first = _order(patches), tuple(range(patches.rank))
    node = data.producer()
    perm = matcher.perm(node, patches.rank)
    if order == first or node is None or perm is None or node.graph is not subject.node.graph:
        return _Front(data, (), (order,))
    source = node.inputs[0]
    assert source is not None
    start = tuple(order[perm.index(axis)] for axis in first)
    if matcher.is_named(data) or matcher.readers(data) != [(subject.node, 0)]:
        return _Front(source, (), (start,))
    return _Front(source, (node,), (start, order))


def _saved(match: _Match, lower: Lower) -> float:
    """Estimate the microseconds that the convolution saves."""
    patches, found, request = match.patches, match.product, match.subject.request
    try:
        saved = lower(request).cost
    except ConversionError:  # nothing else can be written
        return math.inf
    sizes = match.subject.sizes
    windows = [
        max(1, patches.output_size(number, max(sizes[axis], patches.extent(number))))
        for number, axis in enumerate(patches.spatial_axes)
    ]
    image = [sizes[0], found.rows // math.prod(patches.kernel)]
    image += [sizes[axis] for axis in patches.spatial_axes]
    blocks, result = ([sizes[0], count, *windows] for count in (found.rows, found.channels))
    first = tuple(range(patches.rank))
    for dims, orders, sign in (
        (image, match.front.orders, 1),
        (blocks, found.path.orders, 1),
        (result, match.behind.orders, 1),
        (image, (match.front.orders[0], first), -1),
        (result, (first, match.behind.order), -1),
    ):
        for start, end in itertools.pairwise(orders):
            if start != end:
                shape = [dims[axis] for axis in start]
                saved += sign * transpose_cost(shape, _perm(start, end), request.itemsize)
    saved -= match.border.cost(image, result, request.itemsize)
    if match.is_fed:  # then the kernel is written in each run
        shape, perm = _kernel_order(found, patches)
        saved -= transpose_cost(shape, perm, request.itemsize)
    return saved - _UNPACKED * found.rows * found.channels


def _rewrite(match: _Match, lower: Lower) -> Rewrite | Reason:
    subject, patches, found = match.subject, match.patches, match.product
    if _saved(match, lower) <= 0:
        return f"{blame(found.node)} one strided convolution would not be faster"
    emit = Emitter(subject.request.opset)
    first = tuple(range(patches.rank))
    image = _transposed(match.front.value, match.front.orders[0], first, emit)
    value = emit.op(
        "Conv",
        *(match.border.padded(image, emit), _kernel(found, patches, emit)),
        *(() if found.bias is None else (found.bias,)),
        kernel_shape=patches.kernel,
        strides=patches.strides,
        dilations=patches.rates,
        work=None,
        **match.border.attributes,
    )
    emit.nodes[-1].name = found.node.name or None
    value = _transposed(match.border.cut(value, emit), first, match.behind.order, emit)
    emit.prune(value)
    return Rewrite(
        Lowered(STRIDED, emit, value),
        (subject,),
        match.removed,
        (match.behind.value,),
        match.shape,
        found.node,
    )


def _perm(start: Order, end: Order) -> list[int]:
    """Return the permutation from one order to another."""
    return [start.index(axis) for axis in end]


def _transposed(value: ir.Value, start: Order, end: Order, emit: Emitter) -> ir.Value:
    return value if start == end else emit.op("Transpose", value, perm=_perm(start, end))


def _kernel_order(found: Product, patches: ExtractPatches) -> tuple[list[int], list[int]]:
    """Return the weight's shape with an axis for each place, and the order of the axes in the kernel."""
    axes, channels = len(patches.kernel), found.rows // math.prod(patches.kernel)
    places = list(range(axes))
    rows = [*patches.kernel, channels]
    order = [axes, *places]
    if patches.major == "channel":
        rows, order = [channels, *patches.kernel], [0, *(place + 1 for place in places)]
    if found.rows_first:
        shape, perm = [*rows, found.channels], [axes + 1, *order]
    else:
        shape, perm = [found.channels, *rows], [0, *(place + 1 for place in order)]
    return shape, perm


def _kernel(found: Product, patches: ExtractPatches, emit: Emitter) -> ir.Value:
    """Write the weight as [output channels, C, places in the window..]."""
    shape, perm = _kernel_order(found, patches)
    weight = emit.op("Reshape", found.weight, emit.ints(shape, "shape"))
    return weight if perm == sorted(perm) else emit.op("Transpose", weight, perm=perm)


#: ExtractPatches and a product of its channels become one Conv.
RULE = Rule(STRIDED, _match, _rewrite)
