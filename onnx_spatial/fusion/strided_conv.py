"""Turn a product of patches with a matrix into one strided convolution.

    x -> ExtractImagePatches k, s, r -> Transpose -> Conv 1x1 -> y
    x -> Transpose -> Conv k, strides s, dilations r -> y

    x -> ExtractImagePatches k, s, r -> MatMul -> y
    x -> Transpose -> Conv k, strides s, dilations r -> Transpose -> y

A patch holds the C channels of each place in the window, one place after the other: its channel number
place * C + c (c * places + place where the channels come first) is multiplied with the kernel's weight
at that place for channel c. So the kernel is the weight, reshaped and transposed; runtimes compute that
once, when they load, and the weight stays where it is. Zeros around the image are zeros in either form.
The same products are summed up in another order, so results agree within rounding.

1. The *product* sums up the channels of the patches, behind Transposes of which nobody else reads one.
   An `Order` lists the axes of [N, C, spatial..] in the order of the axes of a value.
2. The *border* of the image:

    VALID                        no pads
    SAME, known pads             pads: sizes are known, or the stride is 1
    SAME, other pads             auto_pad, which onnxruntime does not have for dilated convolutions

   Patches of an image without a window are an empty tensor, and a convolution without a window fails.
   Where that may be, zeros behind the image make room for more windows, and a Slice drops as many.
3. Costs decide. Overlapping patches are many, and a convolution does without them. Patches side by side
   are a cheap permutation; a matrix of many rows is then faster by itself, because onnxruntime packs the
   second input of MatMul when it loads, and the kernel of Conv in every run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.rules import Lower, Reason, Rewrite, blame
from onnx_spatial.fusion.views import MatchedOp, Matcher
from onnx_spatial.lowering import Emitter, Lowered, are_open, cost_model, transpose_cost
from onnx_spatial.lowering.emitter import AxisPart, Size, pad
from onnx_spatial.operators import Dim, ExtractPatches

#: Name of the fusion.
_NAME = "strided convolution"

#: The axis of [N, C, spatial..] for each axis of a value.
Order = tuple[int, ...]

#: The axis of the channels in [N, C, spatial..].
_CHANNEL_AXIS = 1

#: What onnxruntime's Conv takes.
_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})

#: Cost of an element of the kernel in each run, in microseconds. Fitted to 430 nets with patches in
#: onnxruntime 1.31: the chosen form takes 1 % longer than the better one in the mean.
_UNPACKED_US = 2e-5


@dataclass(frozen=True)
class Route:
    """Transposes behind a value, one behind the other.

    Attributes:
        value: the value behind the last.
        orders: the orders of the axes: at the start, and behind each Transpose.
        nodes: the Transposes that go.
    """

    value: ir.Value
    orders: tuple[Order, ...]
    nodes: tuple[ir.Node, ...] = ()

    @property
    def order(self) -> Order:
        """The order of the axes at the end."""
        return self.orders[-1]


@dataclass(frozen=True)
class Product:
    """A node that multiplies the channels of a value with a matrix.

    Attributes:
        node: the node.
        route: the Transposes in front of it.
        weight: the matrix, [rows, channels] or [channels, rows], and axes of size 1.
        rows: number of input channels.
        channels: number of output channels.
        rows_first: whether the axis of the input channels is the first of the two.
        bias: one number for each output channel; None if there is none.
    """

    node: ir.Node
    route: Route
    weight: ir.Value
    rows: int
    channels: int
    rows_first: bool
    bias: ir.Value | None = None


@dataclass(frozen=True)
class Padding:
    """The border of the windows of a convolution of [N, C, spatial..].

    Attributes:
        pads: zeros at the beginning of each spatial axis, then at the end; None for auto_pad.
        room: zeros behind each spatial axis in front of a convolution with auto_pad.
        more: windows behind the last one, to be dropped, per spatial axis.
    """

    pads: tuple[int, ...] | None
    room: tuple[int, ...]
    more: tuple[int, ...]


@dataclass(frozen=True)
class _Sums:
    """Patches, the node that sums up their channels, and the Transposes around the two.

    Attributes:
        subject: the operator in the graph.
        patches: its meaning.
        product: what sums up.
        border: of the new Conv.
        front: what the convolution reads: the image, or the input of a Transpose in front.
        behind: the Transposes behind.
        is_fed: whether the weight is an input of the model.
    """

    subject: MatchedOp
    patches: ExtractPatches
    product: Product
    border: Padding
    front: Route
    behind: Route
    is_fed: bool

    @property
    def removed(self) -> tuple[ir.Node, ...]:
        """The nodes that go with the operator."""
        node = self.product.node
        return (*self.front.nodes, *self.product.route.nodes, node, *self.behind.nodes)

    @property
    def sizes(self) -> tuple[list[int], list[int], list[int]]:
        """The dims [N, C, spatial..] of image, patches and result; unknown ones are guessed."""
        patches, product, sizes = self.patches, self.product, self.subject.sizes
        image = [sizes[axis] for axis in patches.spatial_axes]
        windows = [
            max(1, patches.output_size(number, max(size, patches.extent(number))))
            for number, size in enumerate(image)
        ]
        channels = product.rows // math.prod(patches.kernel)
        return (
            [sizes[0], channels, *image],
            [sizes[0], product.rows, *windows],
            [sizes[0], product.channels, *windows],
        )

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The shape of the result, as far as it is known."""
        known = self.subject.info.output_shape
        if known is None:
            return None
        dim_of = dict(zip(_order_of_axes(self.patches), known, strict=True))
        dim_of[_CHANNEL_AXIS] = self.product.channels
        return tuple(dim_of[axis] for axis in self.behind.order)


def _order_of_axes(patches: ExtractPatches) -> Order:
    """Return the order of the axes of [N, C, spatial..], in the image as in the patches."""
    axes = tuple(range(patches.rank))
    return axes if patches.layout == "channels_first" else (0, *axes[2:], 1)


def _match_product(subject: MatchedOp, matcher: Matcher) -> _Sums | Reason | None:
    """Return patches and the product behind them, or why they are no convolution; None for others."""
    patches, shape = subject.request.call.operator, subject.request.shape
    if not isinstance(patches, ExtractPatches) or shape is None:
        return None
    route = _through_transposes(subject.node.outputs[0], _order_of_axes(patches), matcher)
    readers = matcher.readers(route.value)
    products = (use for use in readers if matcher.is_of_file(use[0], "Conv", "MatMul"))
    node, index = next(products, (None, 0))
    if node is None or any(reader.graph is not subject.node.graph for reader, _ in readers):
        return None
    if len(readers) > 1 or matcher.is_named(route.value):
        return f"{blame(node)} other nodes read its input too"
    product = _find_product(node, index, route, matcher)
    if isinstance(product, str):
        return f"{blame(node)} {product}"
    # A Conv without a window fails in the original, too.
    never_empty = route.order[2:] if node.op_type == "Conv" else ()
    may_be_empty = [n for n in range(len(patches.kernel)) if n + 2 not in never_empty]
    border = _find_border(patches, shape, may_be_empty)
    reason = border if isinstance(border, str) else _weight_mismatch(subject, product, patches)
    if isinstance(border, str) or reason is not None:
        return f"{blame(node)} {reason}"
    if any(border.more) and subject.request.checked and are_open(subject.request):
        return f"{blame(node)} its sizes are checked at run time, which needs the operator"
    front = _find_front(subject, patches, matcher)
    behind = _through_transposes(node.outputs[0], route.order, matcher)
    product, behind = _with_bias(product, behind, matcher)
    weight, is_main = product.weight, subject.info.place.function is None
    is_fed = is_main and weight.producer() is None and weight.const_value is None
    return _Sums(subject, patches, product, border, front, behind, is_fed)


# 1. The product


def _through_transposes(value: ir.Value, order: Order, matcher: Matcher) -> Route:
    """Follow a value through the Transposes that alone read it."""
    route = Route(value, (order,))
    while not matcher.is_named(route.value) and len(readers := matcher.readers(route.value)) == 1:
        ((node, _),) = readers
        perm = matcher.perm(node, len(order))
        if perm is None:
            break
        moved = tuple(route.order[axis] for axis in perm)
        route = Route(node.outputs[0], (*route.orders, moved), (*route.nodes, node))
    return route


def _with_bias(product: Product, route: Route, matcher: Matcher) -> tuple[Product, Route]:
    """Take in an Add behind the route whose operand is one number for each channel, not computed."""
    readers = matcher.readers(route.value)
    if product.bias is not None or matcher.is_named(route.value) or len(readers) != 1:
        return product, route
    ((add, index),) = readers
    if not matcher.is_of_file(add, "Add") or matcher.attributes(add):
        return product, route
    operand = add.inputs[1 - index]
    if operand is None or operand.producer() is not None:
        return product, route
    dims = _known_dims(add, 1 - index, matcher)
    if dims != (product.channels,) or route.order[-1] != _CHANNEL_AXIS:
        return product, route
    longer = Route(add.outputs[0], route.orders, (*route.nodes, add))
    return replace(product, bias=operand), longer


def _find_product(node: ir.Node, index: int, route: Route, matcher: Matcher) -> Product | Reason:
    """Return a Conv or MatMul that reads the patches as its input `index`, or why it is no product."""
    if index > (node.op_type == "MatMul"):
        return "the patches are its weight"
    weight, dims = node.inputs[1 - index], _known_dims(node, 1 - index, matcher)
    if weight is None or dims is None:
        return "the shape of its weight is not known"
    rank = len(route.order)
    at = 1 if node.op_type == "Conv" else rank - 1 - index
    if route.order[at] != _CHANNEL_AXIS:
        return "it sums up along another axis than the channels"
    if node.op_type == "Conv":
        if len(dims) != rank:
            return "its weight is of another rank"
        if reason := _not_plain(matcher.attributes(node), dims):
            return reason
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        return Product(node, route, weight, dims[1], dims[0], rows_first=False, bias=bias)
    if len(dims) < 2 or len(dims) > rank or set(dims[:-2]) - {1}:
        return f"its {'first' if index else 'second'} input is no matrix"
    rows, channels = dims[-2:] if index == 0 else reversed(dims[-2:])
    return Product(node, route, weight, rows, channels, rows_first=index == 0)


def _not_plain(known: Mapping[str, object], dims: Sequence[int]) -> Reason | None:
    """Say why a convolution is more than the product of the channels with a matrix."""
    if known.get("group", 1) != 1:
        return f"it has group {known['group']}"
    kernel = known.get("kernel_shape", ())
    if any(d != 1 for d in (*dims[2:], *(kernel if isinstance(kernel, tuple) else (None,)))):
        return f"its kernel is {'x'.join(map(str, dims[2:]))}, not 1x1"
    for name, neutral in (("strides", 1), ("pads", 0)):
        values = known.get(name, ())
        if not isinstance(values, tuple) or any(v != neutral for v in values):
            return f"it has {name} of its own"
    return None


def _known_dims(node: ir.Node, index: int, matcher: Matcher) -> tuple[int, ...] | None:
    """Return the dims of an input of a node; None if one is unknown."""
    dims = matcher.look_at(node).dims(index)
    known = [None] if dims is None else [dim.constant for dim in dims]
    return None if None in known else tuple(dim for dim in known if dim is not None)


def _weight_mismatch(
    subject: MatchedOp, product: Product, patches: ExtractPatches
) -> Reason | None:
    """Say why the weight does not fit the patches."""
    kinds, shape = subject.info.element_types, subject.request.shape
    if len(kinds) != 1 or not kinds <= _TYPES:
        names = (TensorProto.DataType.Name(kind).lower() for kind in sorted(kinds - _TYPES))
        return f"onnxruntime has no convolution of {' and '.join(names) or 'several types'}"
    assert shape is not None
    channels, places = shape[patches.channel_axis], math.prod(patches.kernel)
    fits = not isinstance(channels, int) or channels * places == product.rows
    if not fits or product.rows % places or min(product.rows, product.channels) < 1:
        return "its weight does not fit the channels of the patches"
    return None


def _find_front(subject: MatchedOp, patches: ExtractPatches, matcher: Matcher) -> Route:
    """Find what the convolution reads, and the orders that lead from there to the operator."""
    data = subject.node.inputs[0]
    assert data is not None
    order, node = _order_of_axes(patches), data.producer()
    perm = matcher.perm(node, patches.rank)
    is_wanted = order == tuple(range(patches.rank))  # the order of a convolution
    if is_wanted or node is None or perm is None or node.graph is not subject.node.graph:
        return Route(data, (order,))
    source, start = node.inputs[0], tuple(order[perm.index(axis)] for axis in range(patches.rank))
    assert source is not None
    if matcher.is_named(data) or matcher.readers(data) != [(subject.node, 0)]:
        return Route(source, (start,))
    return Route(source, (start, order), (node,))


# 2. The border


def _find_border(
    operator: ExtractPatches, shape: Sequence[Dim], may_be_empty: Collection[int]
) -> Padding | Reason:
    """Return the border, or say why no convolution has it.

    Args:
        operator: the patches.
        shape: of the image, in the layout of the operator.
        may_be_empty: numbers of the spatial axes that may hold no window.
    """
    pairs, more, is_known = [], [], True
    for number, axis in enumerate(operator.spatial_axes):
        size, stride, extent = shape[axis], operator.strides[number], operator.extent(number)
        extra = 0
        if isinstance(size, int):
            if operator.output_size(number, size) < 1:
                return "there are no patches"
            begin, end = operator.padding(number, size)
        elif operator.auto_pad == "valid":
            least = 0 if operator.clamp_negative else max(0, extent - 2 * stride + 1)
            extra = -(-(extent - least) // stride) if number in may_be_empty else 0
            begin = end = 0
        else:
            begin, end = operator.padding(number, extent)  # with stride 1 any size is padded so
            is_known &= stride == 1
            extra = int(number in may_be_empty)
            if operator.auto_pad == "same_unclamped" and stride > extent + 1:
                return "sampling may start inside the image, which no convolution does"
        if begin < 0 or end < 0:
            return "sampling starts inside the image, which no convolution does"
        pairs.append((begin, end))
        more.append(extra)
    room = tuple(extra * stride for extra, stride in zip(more, operator.strides, strict=True))
    if is_known:
        ends = (end + zeros for (_, end), zeros in zip(pairs, room, strict=True))
        return Padding((*(begin for begin, _ in pairs), *ends), (0,) * len(room), tuple(more))
    if max(operator.rates) > 1:
        return "the padding of dilated windows depends on sizes that are not known"
    return Padding(None, room, tuple(more))


# 3. Costs, and the nodes


def fuse_product(subject: MatchedOp, matcher: Matcher, lower: Lower) -> Rewrite | Reason | None:
    """Write ExtractPatches and a product of its channels as one Conv."""
    match = _match_product(subject, matcher)
    if not isinstance(match, _Sums):
        return match
    node, (emit, value) = match.product.node, _draft_convolution(match)
    if _saved_time(match, emit, lower) <= 0:
        return f"{blame(node)} one strided convolution would not be faster"
    emit.prune(value)
    return Rewrite(
        Lowered(_NAME, emit, value),
        (subject,),
        match.removed,
        (match.behind.value,),
        match.shape,
        node,
        _NAME,
    )


def _draft_convolution(match: _Sums) -> tuple[Emitter, ir.Value]:
    """Draft the Conv, with the Pad, Transposes and Slice that it needs; return the output of all."""
    patches, product, border = match.patches, match.product, match.border
    emit, itemsize = Emitter(match.subject.request.opset), match.subject.request.itemsize
    image, _, result = match.sizes
    x = emit.tensor(match.front.value, [image[a] for a in match.front.orders[0]], itemsize)
    x = emit.transpose(x, _perm_between(match.front.orders[0], range(patches.rank)))
    # For no type in particular: the zeros need not be exact for NaN.
    x = pad(emit, x, [(0, 0), (0, 0), *((0, room) for room in border.room)], frozenset())
    if not match.is_fed:
        emit.note_constant(product.weight)
    shape, perm = _kernel_order(product, patches)
    rows = emit.op("Reshape", product.weight, emit.ints(shape, "shape"))
    kernel = emit.transpose(emit.tensor(rows, shape, itemsize), perm).value
    same = "SAME_LOWER" if patches.auto_pad == "same_lower" else "SAME_UPPER"
    value = emit.op(
        "Conv",
        *(x.value, kernel, *(() if product.bias is None else (product.bias,))),
        kernel_shape=patches.kernel,
        strides=patches.strides,
        dilations=patches.rates,
        **({"auto_pad": same} if border.pads is None else {"pads": border.pads}),
    )
    emit.nodes[-1].name = product.node.name or None
    dims, parts = list[Size](result), dict[int, AxisPart]()
    for axis, more in enumerate(border.more, start=2):
        if more:
            dims[axis] = emit.note_guesses(emit.length(value, axis), (result[axis] + more,))
            parts[axis] = emit.inner_part(dims[axis], 0, more)
    y = emit.slice(emit.tensor(value, dims, itemsize), parts)
    return emit, emit.transpose(y, match.behind.order).value


def _saved_time(match: _Sums, emit: Emitter, lower: Lower) -> float:
    """Estimate the microseconds that the drafted convolution saves."""
    product, request = match.product, match.subject.request
    try:
        saved = lower(request).cost
    except ConversionError:  # nothing else can be written
        return math.inf
    paths = match.front, product.route, match.behind
    for dims, route in zip(match.sizes, paths, strict=True):
        for start, end in itertools.pairwise(route.orders):
            if start != end:
                shape, perm = [dims[axis] for axis in start], _perm_between(start, end)
                saved += transpose_cost(shape, perm, request.itemsize)
    saved += cost_model.small().nanoseconds / 1000 - emit.cost  # of the product, and of the Conv
    return saved - _UNPACKED_US * product.rows * product.channels


def _perm_between(start: Order, end: Sequence[int]) -> list[int]:
    """Return the permutation from one order to another."""
    return [start.index(axis) for axis in end]


def _kernel_order(product: Product, patches: ExtractPatches) -> tuple[list[int], list[int]]:
    """Return the weight's shape with an axis for each place, and the order of the axes in the kernel.

    The kernel is [output channels, C, places in the window..].
    """
    axes, channels = len(patches.kernel), product.rows // math.prod(patches.kernel)
    places = list(range(axes))
    rows = [*patches.kernel, channels]
    order = [axes, *places]
    if patches.major == "channel":
        rows, order = [channels, *patches.kernel], [0, *(place + 1 for place in places)]
    if product.rows_first:
        return [*rows, product.channels], [axes + 1, *order]
    return [product.channels, *rows], [0, *(place + 1 for place in order)]
