"""Find the node that sums up the channels of a value: a Conv 1x1 or a MatMul, behind Transposes.

    [N, C, spatial..]                        order (0, 1, 2, 3): the patches
    Transpose [2, 3, 0, 1]                   order (2, 3, 0, 1): no element changed, nor its channel
    MatMul by [C, D]                         order (2, 3, 0, 1): C is now D

An `Order` lists the axes of [N, C, spatial..] in the order of the axes of a value. Nobody but the next
node may read a value on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.fusion.rule import Reason, blame

#: The axis of [N, C, spatial..] for each axis of a value.
Order = tuple[int, ...]

#: The axis of the channels in [N, C, spatial..].
CHANNELS = 1

_PRODUCTS = ("Conv", "MatMul")

#: Most nodes between the patches and a product that is reported as not reached.
_FAR = 3


@dataclass(frozen=True)
class Path:
    """Transposes behind a value, one behind the other.

    Attributes:
        value: the value behind the last.
        orders: the orders of the axes: at the start, and behind each Transpose.
        nodes: the Transposes.
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


def through_transposes(value: ir.Value, order: Order, matcher: Matcher) -> Path:
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


def find(value: ir.Value, order: Order, matcher: Matcher) -> Product | Reason | None:
    """Find the product behind a value with this order of axes.

    Returns:
        The product, why what is there cannot be fused, or None if there is no product.
    """
    path = through_transposes(value, order, matcher)
    producer, readers = value.producer(), matcher.readers(path.value)
    assert producer is not None
    if any(node.graph is not producer.graph for node, _ in readers):
        return None
    products = [(node, index) for node, index in readers if _is_product(node, matcher)]
    if not products:
        behind = _next_product(readers[0][0], matcher) if len(readers) == 1 else None
        where = f"it stands between the patches and {behind.op_type}" if behind else ""
        return f"{blame(readers[0][0])} {where}" if where else None
    node, index = products[0]
    if len(readers) > 1 or matcher.is_named(path.value):
        return f"{blame(node)} other nodes read its input too"
    product = _product(node, index, path, matcher)
    return f"{blame(node)} {product}" if isinstance(product, str) else product


def with_bias(product: Product, path: Path, matcher: Matcher) -> tuple[Product, Path]:
    """Take in an Add behind the path whose operand is one stored number for each channel."""
    readers = matcher.readers(path.value)
    if product.bias is not None or matcher.is_named(path.value) or len(readers) != 1:
        return product, path
    ((add, index),) = readers
    if matcher.standard(add) is None or add.op_type != "Add" or matcher.attributes(add):
        return product, path
    operand = add.inputs[1 - index]
    tensor = matcher.stored(operand)
    is_there = operand is not None and operand.producer() is None  # a Constant may stand behind
    if not is_there or tensor is None or add.graph is not product.node.graph:
        return product, path
    if tuple(tensor.dims) != (product.channels,) or path.order[-1] != CHANNELS:
        return product, path
    longer = Path(add.outputs[0], path.orders, (*path.nodes, add))
    return replace(product, bias=operand), longer


def _is_product(node: ir.Node, matcher: Matcher) -> bool:
    return matcher.standard(node) is not None and node.op_type in _PRODUCTS


def _next_product(node: ir.Node, matcher: Matcher) -> ir.Node | None:
    """Return the product behind a node of one output and at most a few others in a row."""
    for _ in range(_FAR):
        if matcher.standard(node) is None or len(node.outputs) != 1:
            return None
        readers = [reader for reader, _ in matcher.readers(node.outputs[0])]
        if products := [reader for reader in readers if _is_product(reader, matcher)]:
            return products[0]
        if len(readers) != 1:
            return None
        (node,) = readers
    return None


def _product(node: ir.Node, index: int, path: Path, matcher: Matcher) -> Product | Reason:
    if index > (node.op_type == "MatMul"):
        return "the patches are its weight"
    weight = node.inputs[1 - index]
    dims = _known_dims(node, 1 - index, matcher)
    if weight is None or dims is None:
        return "the shape of its weight is not known"
    rank = len(path.order)
    at = 1 if node.op_type == "Conv" else rank - 1 - index
    if path.order[at] != CHANNELS:
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
    tensor = matcher.stored(node.inputs[index])
    if tensor is not None:
        return tuple(tensor.dims)
    message, sizes = matcher.message(node), matcher.sizes(node)
    dims = sizes.dims(message.input[index]) if message is not None and sizes is not None else None
    known = [dim.constant for dim in dims] if dims is not None else [None]
    return None if None in known else tuple(dim for dim in known if dim is not None)
