"""Find the Conv with a 1x1 kernel, MatMul or Gemm that sums up the channels of a value.

    value -> [Transpose] -> Conv 1x1
    value -> [Transpose] -> [Reshape] -> MatMul | Gemm

No other node may read the values between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import attributes
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.fusion.rule import Reason, blame

#: The axis of [N, C, spatial..] for each axis of a value.
Order = tuple[int, ...]

_OP_TYPES = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Path:
    """The nodes between a value and the node that sums up its channels.

    Attributes:
        value: the value at the end.
        orders: order of the axes at the start, and behind each Transpose.
        nodes: the Transposes, and a Reshape behind them.
        shape: shape behind the Reshape, the channels last; None without one.
    """

    value: ir.Value
    orders: tuple[Order, ...]
    nodes: tuple[ir.Node, ...] = ()
    shape: tuple[int, ...] | None = None

    @property
    def order(self) -> Order:
        """Order of the axes behind the last Transpose."""
        return self.orders[-1]


@dataclass(frozen=True)
class Contraction:
    """A node that sums up the channels of a value.

    Attributes:
        node: the node.
        path: the nodes in front of it.
        weight: its second input.
        tensor: the elements of the weight.
        rows_first: whether the first axis of the weight is that of the input channels.
        bias: one number for each output channel; None if there is none.
        added: C of a Gemm that is no such bias; None if there is none.
    """

    node: ir.Node
    path: Path
    weight: ir.Value
    tensor: onnx.TensorProto
    rows_first: bool
    bias: ir.Value | None = None
    added: ir.Value | None = None

    @property
    def is_convolution(self) -> bool:
        """Whether it is a Conv."""
        return bool(self.node.op_type == "Conv")

    @property
    def rows(self) -> int:
        """The number of input channels."""
        return int(self.tensor.dims[0 if self.rows_first else 1])

    @property
    def channels(self) -> int:
        """The number of output channels."""
        return int(self.tensor.dims[1 if self.rows_first else 0])


def find(value: ir.Value, order: Order, matcher: Matcher) -> Contraction | Reason | None:
    """Find the node that sums up the channels of a value whose axes have this order.

    Returns:
        The node, why it is more than a sum of channels, or None if there is no such node.
    """
    path = _path(value, order, matcher)
    if not isinstance(path, Path):
        return path
    ((node, _),) = matcher.readers(path.value)
    result = _contraction(node, path, matcher)
    return f"{blame(node)} {result}" if isinstance(result, str) else result


def _path(value: ir.Value, order: Order, matcher: Matcher) -> Path | Reason | None:
    path = Path(value, (order,))
    producer = value.producer()
    assert producer is not None
    while True:
        readers = matcher.readers(path.value)
        sums = [n for n, index in readers if index == 0 and _is_contraction(n, matcher)]
        if len(readers) != 1 or matcher.is_named(path.value):
            return f"{blame(sums[0])} other nodes read its input too" if sums else None
        ((node, index),) = readers
        if node.graph is not producer.graph or index != 0:
            return None
        if sums:
            return path
        longer = _extended(path, node, matcher)
        if not isinstance(longer, Path):
            return longer
        path = longer


def _is_contraction(node: ir.Node, matcher: Matcher) -> bool:
    message = matcher.standard(node)
    return message is not None and message.op_type in _OP_TYPES


def _extended(path: Path, node: ir.Node, matcher: Matcher) -> Path | Reason | None:
    """Extend a path by a Transpose, or by a Reshape that keeps the channels apart."""
    if path.shape is not None:
        return None
    nodes = (*path.nodes, node)
    perm = matcher.perm(node, len(path.order))
    if perm is not None:
        order = tuple(path.order[axis] for axis in perm)
        return Path(node.outputs[0], (*path.orders, order), nodes)
    message = matcher.standard(node)
    if message is None or message.op_type != "Reshape":
        return None
    if not any(_is_contraction(n, matcher) for n, _ in matcher.readers(node.outputs[0])):
        return None
    tensor = matcher.stored(node.inputs[1]) if len(node.inputs) > 1 else None
    if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
        return f"{blame(node)} its shape is computed at run time"
    shape = tuple(int(d) for d in onnx.numpy_helper.to_array(tensor).reshape(-1))
    copied = [axis for axis, dim in enumerate(shape) if dim == 0]
    channels_last = path.order[-1] == 1 and shape and shape[-1] > 0
    if not channels_last or any(axis >= len(path.order) - 1 for axis in copied):
        return f"{blame(node)} it does not keep the channels apart"
    if copied and attributes(message).get("allowzero", 0) != 0:
        return f"{blame(node)} it makes a tensor without elements"
    return Path(node.outputs[0], path.orders, nodes, shape)


def _contraction(node: ir.Node, path: Path, matcher: Matcher) -> Contraction | Reason:
    message = matcher.standard(node)
    assert message is not None
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = matcher.stored(weight)
    if weight is None or tensor is None:
        return "its weight is computed at run time"
    known = attributes(message)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if message.op_type == "Conv":
        reason = _not_plain(known, tensor.dims, path)
        return reason or Contraction(node, path, weight, tensor, False, bias)
    if path.order[-1] != 1:
        return "it sums up along another axis than the channels"
    if len(tensor.dims) != 2:
        return "its second input is no matrix"
    if message.op_type == "MatMul":
        return Contraction(node, path, weight, tensor, True)
    if known.get("transA", 0) != 0 or known.get("alpha", 1.0) != 1.0:
        return "it transposes or scales its first input"
    plain = Contraction(node, path, weight, tensor, known.get("transB", 0) == 0)
    if bias is None:
        return plain
    if known.get("beta", 1.0) != 1.0:
        return "it scales its bias"
    stored = matcher.stored(bias)
    per_channel = stored is not None and tuple(stored.dims) == (plain.channels,)
    return replace(plain, bias=bias) if per_channel else replace(plain, added=bias)


def _not_plain(known: Mapping[str, object], dims: Sequence[int], path: Path) -> Reason | None:
    """Say why a convolution is more than the product of the channels with a matrix."""
    if path.shape is not None or path.order != tuple(range(len(path.order))):
        return "it sums up along another axis than the channels"
    if len(dims) != len(path.order):
        return "its weight is of another rank"
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
