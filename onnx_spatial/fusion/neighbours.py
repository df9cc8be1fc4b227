"""Rules for an operator and its direct neighbours: a product of patches, its inverse, and Transposes.

STRIDED    x -> ExtractImagePatches k, s, r -> Transpose -> Conv 1x1 -> y
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

CANCELLED  BatchToSpace crops c -> SpaceToBatch pads p         pads by (p - c) / block

A Pad, a Slice or an Identity is left, written as one of the two operators with blocks of 1. Cropped
elements do not come back, so on one side of an axis only one of the two may do anything, and only by
multiples of the block. SpaceToBatch -> BatchToSpace is a region without nodes (`dilated_conv`).

ABSORBED   x -> Transpose -> operator -> Transpose -> y        x -> permutation -> y

Converters put such pairs around every operator, to change between NHWC and NCHW. A Transpose in front
with other readers stays for them. Behind, all readers must be Transposes of one permutation, and the
operator's output must be unknown elsewhere: then the outputs of these Transposes are one value. Costs
decide which of them are absorbed: the nodes to write, against those and the Transposes that stay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError, OperatorError
from onnx_spatial.fusion.rules import Lower, MatchedOp, Matcher, Reason, Rewrite, Rule, blame
from onnx_spatial.lowering import Emitter, Lowered, Request, are_open, cost_model, transpose_cost
from onnx_spatial.lowering.emitter import TYPICAL_DIM, pad
from onnx_spatial.model import traversal
from onnx_spatial.operators import BatchToSpace, Dim, ExtractPatches, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall, Vector

#: Name of the rule.
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
class Path:
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
        path: the Transposes in front of it.
        weight: the matrix, [rows, channels] or [channels, rows], and axes of size 1.
        rows: number of input channels.
        channels: number of output channels.
        rows_first: whether the axis of the input channels is the first of the two.
        bias: one number for each output channel; None if there is none.
    """

    node: ir.Node
    path: Path
    weight: ir.Value
    rows: int
    channels: int
    rows_first: bool
    bias: ir.Value | None = None


@dataclass(frozen=True)
class Border:
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
    border: Border
    front: Path
    behind: Path
    is_fed: bool

    @property
    def removed(self) -> tuple[ir.Node, ...]:
        """The nodes that go with the operator."""
        node = self.product.node
        return (*self.front.nodes, *self.product.path.nodes, node, *self.behind.nodes)

    @property
    def sizes(self) -> tuple[list[int], list[int], list[int]]:
        """The dims [N, C, spatial..] of image, patches and result; unknown ones are guessed."""
        patches, found, sizes = self.patches, self.product, self.subject.sizes
        image = [sizes[axis] for axis in patches.spatial_axes]
        windows = [
            max(1, patches.output_size(number, max(size, patches.extent(number))))
            for number, size in enumerate(image)
        ]
        channels = found.rows // math.prod(patches.kernel)
        return (
            [sizes[0], channels, *image],
            [sizes[0], found.rows, *windows],
            [sizes[0], found.channels, *windows],
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
    patches, shape = subject.request.call.operator, subject.request.shape
    if not isinstance(patches, ExtractPatches) or shape is None:
        return None
    path = _through_transposes(subject.node.outputs[0], _order_of_axes(patches), matcher)
    readers = matcher.readers(path.value)
    product = next(((n, i) for n, i in readers if _is_product(n, matcher)), None)
    if product is None or any(n.graph is not subject.node.graph for n, _ in readers):
        return None
    node, index = product
    if len(readers) > 1 or matcher.is_named(path.value):
        return f"{blame(node)} other nodes read its input too"
    found = _find_product(node, index, path, matcher)
    if isinstance(found, str):
        return f"{blame(node)} {found}"
    # A Conv without a window fails in the original, too.
    runs = path.order[2:] if node.op_type == "Conv" else ()
    may_be_empty = [n for n in range(len(patches.kernel)) if n + 2 not in runs]
    border = _find_border(patches, shape, may_be_empty)
    reason = border if isinstance(border, str) else _weight_mismatch(subject, found, patches)
    if isinstance(border, str) or reason is not None:
        return f"{blame(node)} {reason}"
    if any(border.more) and subject.request.checked and are_open(subject.request):
        return f"{blame(node)} its sizes are checked at run time, which needs the operator"
    front = _find_front(subject, patches, matcher)
    behind = _through_transposes(node.outputs[0], path.order, matcher)
    found, behind = _with_bias(found, behind, matcher)
    weight, is_main = found.weight, subject.info.place.function is None
    is_fed = is_main and weight.producer() is None and weight.const_value is None
    return _Sums(subject, patches, found, border, front, behind, is_fed)


# 1. The product


def _through_transposes(value: ir.Value, order: Order, matcher: Matcher) -> Path:
    """Follow a value through the Transposes that alone read it."""
    path = Path(value, (order,))
    while not matcher.is_named(path.value) and len(readers := matcher.readers(path.value)) == 1:
        ((node, _),) = readers
        perm, producer = matcher.perm(node, len(order)), path.value.producer()
        if perm is None or producer is None or node.graph is not producer.graph:
            break
        moved = tuple(path.order[axis] for axis in perm)
        path = Path(node.outputs[0], (*path.orders, moved), (*path.nodes, node))
    return path


def _with_bias(product: Product, path: Path, matcher: Matcher) -> tuple[Product, Path]:
    """Take in an Add behind the path whose operand is one number for each channel, not computed."""
    readers = matcher.readers(path.value)
    if product.bias is not None or matcher.is_named(path.value) or len(readers) != 1:
        return product, path
    ((add, index),) = readers
    if matcher.standard_message(add) is None or add.op_type != "Add" or matcher.attributes(add):
        return product, path
    operand = add.inputs[1 - index]
    if operand is None or operand.producer() is not None or add.graph is not product.node.graph:
        return product, path
    dims = _known_dims(add, 1 - index, matcher)
    if dims != (product.channels,) or path.order[-1] != _CHANNEL_AXIS:
        return product, path
    longer = Path(add.outputs[0], path.orders, (*path.nodes, add))
    return replace(product, bias=operand), longer


def _is_product(node: ir.Node, matcher: Matcher) -> bool:
    return matcher.standard_message(node) is not None and node.op_type in ("Conv", "MatMul")


def _find_product(node: ir.Node, index: int, path: Path, matcher: Matcher) -> Product | Reason:
    if index > (node.op_type == "MatMul"):
        return "the patches are its weight"
    weight, dims = node.inputs[1 - index], _known_dims(node, 1 - index, matcher)
    if weight is None or dims is None:
        return "the shape of its weight is not known"
    rank = len(path.order)
    at = 1 if node.op_type == "Conv" else rank - 1 - index
    if path.order[at] != _CHANNEL_AXIS:
        return "it sums up along another axis than the channels"
    if node.op_type == "Conv":
        if len(dims) != rank:
            return "its weight is of another rank"
        if reason := _not_plain(matcher.attributes(node), dims):
            return reason
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        return Product(node, path, weight, dims[1], dims[0], rows_first=False, bias=bias)
    if len(dims) < 2 or len(dims) > rank or set(dims[:-2]) - {1}:
        return f"its {'first' if index else 'second'} input is no matrix"
    rows, channels = dims[-2:] if index == 0 else reversed(dims[-2:])
    return Product(node, path, weight, rows, channels, rows_first=index == 0)


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
    message, sizes = matcher.message(node), matcher.sizes(node)
    dims = sizes.dims(message.input[index]) if message is not None and sizes is not None else None
    known = [dim.constant for dim in dims] if dims is not None else [None]
    return None if None in known else tuple(dim for dim in known if dim is not None)


def _weight_mismatch(subject: MatchedOp, found: Product, patches: ExtractPatches) -> Reason | None:
    """Say why the weight does not fit the patches."""
    kinds, shape = subject.info.element_types, subject.request.shape
    if len(kinds) != 1 or not kinds <= _TYPES:
        names = (TensorProto.DataType.Name(kind).lower() for kind in sorted(kinds - _TYPES))
        return f"onnxruntime has no convolution of {' and '.join(names) or 'several types'}"
    assert shape is not None
    channels, places = shape[patches.channel_axis], math.prod(patches.kernel)
    fits = not isinstance(channels, int) or channels * places == found.rows
    if not fits or found.rows % places or min(found.rows, found.channels) < 1:
        return "its weight does not fit the channels of the patches"
    return None


def _find_front(subject: MatchedOp, patches: ExtractPatches, matcher: Matcher) -> Path:
    """Find what the convolution reads, and the orders that lead from there to the operator."""
    data = subject.node.inputs[0]
    assert data is not None
    order, node = _order_of_axes(patches), data.producer()
    perm = matcher.perm(node, patches.rank)
    if node is None or perm is None or node.graph is not subject.node.graph:
        return Path(data, (order,))
    source, start = node.inputs[0], tuple(order[perm.index(axis)] for axis in range(patches.rank))
    assert source is not None
    if order == tuple(range(patches.rank)):
        return Path(data, (order,))
    if matcher.is_named(data) or matcher.readers(data) != [(subject.node, 0)]:
        return Path(source, (start,))
    return Path(source, (start, order), (node,))


# 2. The border


def _find_border(
    operator: ExtractPatches, shape: Sequence[Dim], may_be_empty: Collection[int]
) -> Border | Reason:
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
        return Border((*(begin for begin, _ in pairs), *ends), (0,) * len(room), tuple(more))
    if max(operator.rates) > 1:
        return "the padding of dilated windows depends on sizes that are not known"
    return Border(None, room, tuple(more))


# 3. Costs, and the nodes


def _rewrite_product(match: _Sums, lower: Lower) -> Rewrite | Reason:
    found = match.product
    emit, value = _draft_convolution(match)
    if _saved_time(match, emit, lower) <= 0:
        return f"{blame(found.node)} one strided convolution would not be faster"
    emit.prune(value)
    return Rewrite(
        Lowered(_NAME, emit, value),
        (match.subject,),
        match.removed,
        (match.behind.value,),
        match.shape,
        found.node,
    )


def _draft_convolution(match: _Sums) -> tuple[Emitter, ir.Value]:
    """Draft the Conv, with the Pad, Transposes and Slice that it needs; return the output of all."""
    patches, found, border = match.patches, match.product, match.border
    emit, itemsize = Emitter(match.subject.request.opset), match.subject.request.itemsize
    image, _, result = match.sizes
    x = emit.tensor(match.front.value, [image[a] for a in match.front.orders[0]], itemsize)
    x = emit.transpose(x, _perm_between(match.front.orders[0], range(patches.rank)))
    # For no type in particular: the zeros need not be exact for NaN.
    x = pad(emit, x, [(0, 0), (0, 0), *((0, room) for room in border.room)], frozenset())
    if not match.is_fed:
        emit.note_constant(found.weight)
    shape, perm = _kernel_order(found, patches)
    rows = emit.op("Reshape", found.weight, emit.ints(shape, "shape"))
    kernel = emit.transpose(emit.tensor(rows, shape, itemsize), perm).value
    same = "SAME_LOWER" if patches.auto_pad == "same_lower" else "SAME_UPPER"
    value = emit.op(
        "Conv",
        *(x.value, kernel, *(() if found.bias is None else (found.bias,))),
        kernel_shape=patches.kernel,
        strides=patches.strides,
        dilations=patches.rates,
        **({"auto_pad": same} if border.pads is None else {"pads": border.pads}),
    )
    emit.nodes[-1].name = found.node.name or None
    y = emit.tensor(value, result, itemsize)
    dropped = {number + 2: -count for number, count in enumerate(border.more) if count}
    if dropped:
        y = emit.slice(y, list(dropped), [0] * len(dropped), list(dropped.values()), result)
    return emit, emit.transpose(y, match.behind.order).value


def _saved_time(match: _Sums, emit: Emitter, lower: Lower) -> float:
    """Estimate the microseconds that the drafted convolution saves."""
    found, request = match.product, match.subject.request
    try:
        saved = lower(request).cost
    except ConversionError:  # nothing else can be written
        return math.inf
    paths = match.front, found.path, match.behind
    for dims, path in zip(match.sizes, paths, strict=True):
        for start, end in itertools.pairwise(path.orders):
            if start != end:
                shape, perm = [dims[axis] for axis in start], _perm_between(start, end)
                saved += transpose_cost(shape, perm, request.itemsize)
    saved += cost_model.small().nanoseconds / 1000 - emit.cost  # of the product, and of the Conv
    return saved - _UNPACKED_US * found.rows * found.channels


def _perm_between(start: Order, end: Sequence[int]) -> list[int]:
    """Return the permutation from one order to another."""
    return [start.index(axis) for axis in end]


def _kernel_order(found: Product, patches: ExtractPatches) -> tuple[list[int], list[int]]:
    """Return the weight's shape with an axis for each place, and the order of the axes in the kernel.

    The kernel is [output channels, C, places in the window..].
    """
    axes, channels = len(patches.kernel), found.rows // math.prod(patches.kernel)
    places = list(range(axes))
    rows = [*patches.kernel, channels]
    order = [axes, *places]
    if patches.major == "channel":
        rows, order = [channels, *patches.kernel], [0, *(place + 1 for place in places)]
    if found.rows_first:
        return [*rows, found.channels], [axes + 1, *order]
    return [found.channels, *rows], [0, *(place + 1 for place in order)]


#: ExtractPatches and a product of its channels become one Conv.
STRIDED = Rule(_NAME, _match_product, _rewrite_product)


# Opposite operators


@dataclass(frozen=True)
class _Pair:
    """A BatchToSpace, the SpaceToBatch behind it, and the operator that is left of the two."""

    first: MatchedOp
    second: MatchedOp
    remainder: BlockCall


def _match_pair(subject: MatchedOp, matcher: Matcher) -> _Pair | Reason | None:
    call = subject.request.call
    if not isinstance(call, BlockCall) or call.kind is not BatchToSpace:
        return None
    output = subject.node.outputs[0]
    readers = matcher.readers(output)
    others = [s for n, i in readers if i == 0 and (s := matcher.subject(n)) is not None]
    opposite = [s for s in others if s.request.call.kind is SpaceToBatch]
    if not opposite:
        return None
    other = opposite[0]
    where = blame(other.node)
    if len(readers) > 1 or matcher.is_named(output) or other.node.graph is not subject.node.graph:
        return f"{where} other nodes read the value between the two"
    assert isinstance(other.request.call, BlockCall)
    if subject.request.checked and any(are_open(s.request) for s in (subject, other)):
        return f"{where} without the two operators no run would be checked"
    left = combine_pair(call, other.request.call)
    if isinstance(left, str):
        return f"{where} {left}"
    return _Pair(subject, other, left)


def _rewrite_pair(pair: _Pair, lower: Lower) -> Rewrite:
    first, second = pair.first, pair.second
    lowered = lower(replace(first.request, call=pair.remainder, inputs=first.request.inputs[:1]))
    outputs = (second.node.outputs[0],)
    return Rewrite(lowered, (first, second), (), outputs, second.info.output_shape)


def combine_pair(first: BlockCall, second: BlockCall) -> BlockCall | Reason:
    """Combine the two into one operator with blocks of 1, or say why that is impossible."""
    crops, pads = first.operator, second.operator
    if crops is None or pads is None:
        return "their parameters are computed at run time"
    if crops.block_shape != pads.block_shape:
        return "their blocks differ"
    assert isinstance(pads, SpaceToBatch) and isinstance(crops, BatchToSpace)
    added, taken = np.ravel(pads.pads), np.ravel(crops.crops)
    blocks = np.repeat(crops.block_shape, 2)
    if np.logical_and(added, taken).any():
        return "it pads the side that was cropped"
    if (added % blocks).any() or (taken % blocks).any():
        return "crops or paddings are not multiples of the block"
    grown = (added - taken) // blocks
    if grown.min(initial=0) < 0 < grown.max(initial=0):
        return "together they both pad and crop"
    kind = BatchToSpace if grown.min(initial=0) < 0 else SpaceToBatch
    begins, ends = (Vector(first.blocked, tuple(abs(grown[i::2]).tolist())) for i in (0, 1))
    ones = Vector(first.blocked, (1,) * first.blocked)
    return BlockCall(kind, ones, begins, ends, first.dialect, first.rank)


#: BatchToSpace and SpaceToBatch cancel each other.
CANCELLED = Rule("cancelled", _match_pair, _rewrite_pair)


# Transposes

#: Next to a convolution these cost nothing: onnxruntime's convolutions of blocked channels read and
#: write either layout (ReorderInput and ReorderOutput with channels_last).
_TO_CHANNELS_LAST = (0, 2, 3, 1)
_TO_CHANNELS_FIRST = (0, 3, 1, 2)


@dataclass(frozen=True)
class _Transposes:
    """Transposes on one side of an operator.

    Attributes:
        nodes: those that go if they are absorbed; none where the only one has other readers.
        perm: of all of them.
        cost: microseconds that are saved without them.
        value: input of the Transpose in front; None behind.
        outputs: outputs of the Transposes behind, as in `Rewrite`.
    """

    nodes: tuple[ir.Node, ...]
    perm: tuple[int, ...]
    cost: float
    value: ir.Value | None = None
    outputs: tuple[ir.Value, ...] = ()


@dataclass(frozen=True)
class _Match:
    """An operator with the Transposes in front of it, behind it, or both.

    Attributes:
        subject: the operator.
        front, behind: the Transposes of a side; None if it has none, or none that may go.
        reasons: why the Transposes of a side may not go.
    """

    subject: MatchedOp
    front: _Transposes | None
    behind: _Transposes | None
    reasons: tuple[Reason, ...]


def _match_transposes(subject: MatchedOp, matcher: Matcher) -> _Match | Reason | None:
    if subject.request.shape is None:
        return None
    sides = _front_transpose(subject, matcher), _transpose_behind(subject, matcher)
    reasons = tuple(side for side in sides if isinstance(side, str))
    front, behind = (side if isinstance(side, _Transposes) else None for side in sides)
    if front is None and behind is None:
        return "; ".join(reasons) or None
    return _Match(subject, front, behind, reasons)


def _absorb_cheapest(match: _Match, lower: Lower) -> Rewrite | Reason:
    """Absorb the Transposes of one side, both or none, whichever is cheapest."""
    forms: list[tuple[float, Lowered, _Transposes | None, _Transposes | None]] = []
    sides = (match.front, match.behind)
    options = [[None] if side is None else [None, side] for side in sides]
    for front, behind in itertools.product(*options):
        try:
            lowered = lower(_extend_request(match.subject.request, front, behind))
        except ConversionError:
            if front is None and behind is None:
                raise
            continue
        saved = sum(side.cost for side in (front, behind) if side is not None)
        forms.append((lowered.cost - saved, lowered, front, behind))
    _, lowered, front, behind = min(forms, key=itemgetter(0))
    if front is None and behind is None:
        kept = "the Transposes around it cost no more than absorbing them"
        return "; ".join([*match.reasons, kept])
    info, node = match.subject.info, match.subject.node
    absorbed = front.nodes if front is not None else ()
    outputs: tuple[ir.Value, ...] = (node.outputs[0],)
    shape = info.output_shape
    if behind is not None:
        absorbed, outputs = absorbed + behind.nodes, behind.outputs
        shape = tuple(shape[axis] for axis in behind.perm) if shape is not None else None
    return Rewrite(lowered, (match.subject,), absorbed, outputs, shape)


def _front_transpose(subject: MatchedOp, matcher: Matcher) -> _Transposes | Reason | None:
    sizes = subject.sizes
    data = subject.node.inputs[0]
    node = data.producer() if data is not None else None
    perm = matcher.perm(node, len(sizes))
    if data is None or node is None or perm is None or node.graph is not subject.node.graph:
        return None
    if any(value is data for value in subject.node.inputs[1:]):
        return f"the output of Transpose {traversal.label(node)!r} is a parameter as well"
    if matcher.is_named(data) or matcher.readers(data) != [(subject.node, 0)]:
        return _Transposes((), perm, 0.0, node.inputs[0])
    dims = [sizes[perm.index(axis)] for axis in range(len(perm))]
    cost = transpose_cost(dims, perm, subject.request.itemsize)
    if perm == _TO_CHANNELS_LAST and matcher.follows_convolution(node):
        cost = 0.0
    return _Transposes((node,), perm, cost, node.inputs[0])


def _transpose_behind(subject: MatchedOp, matcher: Matcher) -> _Transposes | Reason | None:
    sizes, output = subject.sizes, subject.node.outputs[0]
    readers = matcher.readers(output)
    shape = _output_shape(subject, sizes)
    perms = [matcher.perm(node, len(shape)) for node, _ in readers]
    transposes = [(n, p) for (n, _), p in zip(readers, perms, strict=True) if p is not None]
    if not transposes:
        return None
    node, perm = transposes[0]
    where = blame(node)
    if matcher.is_named(output):
        return f"{where} the output before it is a graph output or read by name elsewhere"
    if None in perms:
        other = readers[perms.index(None)][0]
        return f"{where} {other.op_type} {traversal.label(other)!r} also reads the output before it"
    if any(p != perm for _, p in transposes):
        return f"{where} other Transposes of the output have another permutation"
    if any(n.graph is not subject.node.graph for n, _ in transposes):
        return f"{where} not all Transposes of the output are in the graph of the operator"
    costs = [
        0.0
        if perm == _TO_CHANNELS_FIRST and matcher.leads_to_convolution(n)
        else transpose_cost(shape, perm, subject.request.itemsize)
        for n, _ in transposes
    ]
    nodes = tuple(n for n, _ in transposes)
    outputs = [n.outputs[0] for n in nodes]
    named = [v for v in outputs if matcher.is_named(v)]
    read = [v for v in outputs if v not in named and matcher.readers(v)]
    # The first keeps its name at no cost; every other one becomes a copy.
    return _Transposes(nodes, perm, sum(costs), outputs=(*named, *read) or (outputs[0],))


def _output_shape(subject: MatchedOp, sizes: Sequence[int]) -> list[int]:
    """Return the shape of the output for that of the input, with estimates of unknown dims."""
    try:
        shape = subject.request.call.output_shape(sizes)
    except OperatorError:  # the size guessed for an unknown dim is not legal
        shape = subject.info.output_shape or tuple(sizes)
    guesses = sizes if len(shape) == len(sizes) else (TYPICAL_DIM,) * len(shape)
    return [d if isinstance(d, int) else guess for d, guess in zip(shape, guesses, strict=True)]


def _extend_request(
    request: Request, front: _Transposes | None, behind: _Transposes | None
) -> Request:
    """Extend a request by the Transposes that are absorbed."""
    if front is not None:
        inputs = (front.value, *request.inputs[1:])
        request = replace(request, inputs=inputs, before=front.perm)
    if behind is not None:
        request = replace(request, after=behind.perm)
    return request


#: Transposes around an operator become part of it; the lowering has the name that is reported.
ABSORBED = Rule(None, _match_transposes, _absorb_cheapest)
