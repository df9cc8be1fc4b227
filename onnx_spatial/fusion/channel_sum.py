"""What sums up the channels of a value: a Conv with a 1x1 kernel, a MatMul, a Gemm.

    value -> [Transpose] -> Conv 1x1
    value -> [Transpose] -> [Reshape] -> MatMul | Gemm

`find` looks for it behind a value that nobody else reads, and answers with the reason where one is there
that is not as simple as that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import attributes
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.model import traversal

#: For each axis of a value, which axis of [N, C, spatial..] it is.
Order = tuple[int, ...]

_OP_TYPES = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Path:
    """What lies between a value and what reads it.

    Attributes:
        value: what is read in the end.
        orders: of the value that it begins with, and of what each Transpose on the way gives.
        nodes: the Transposes, and a Reshape behind them.
        shape: what the Reshape makes of it, the channels last; None if there is none.
    """

    value: ir.Value
    orders: tuple[Order, ...]
    nodes: tuple[ir.Node, ...] = ()
    shape: tuple[int, ...] | None = None

    @property
    def order(self) -> Order:
        """Of what is read, before it is reshaped."""
        return self.orders[-1]


@dataclass(frozen=True)
class Contraction:
    """A node that sums up the channels of a value.

    Attributes:
        node: it.
        path: what lies in front of it.
        weight: its second input.
        tensor: the message of that.
        rows_first: whether the first axis of the weight is that of the channels that are summed up.
        bias: one number for each channel of the result; None if there is none.
        added: what is added to the result otherwise; None if nothing is.
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
        """How many channels are summed up."""
        return int(self.tensor.dims[0 if self.rows_first else 1])

    @property
    def channels(self) -> int:
        """How many channels the result has."""
        return int(self.tensor.dims[1 if self.rows_first else 0])


def find(value: ir.Value, order: Order, matcher: Matcher) -> Contraction | str | None:
    """What sums up the channels of a value; None if nothing of that kind stands behind it.

    Args:
        value: computed in the graph.
        order: of its axes.
        matcher: the graph.
    """
    path = _path(value, order, matcher)
    if not isinstance(path, Path):
        return path
    ((node, _),) = matcher.readers(path.value)
    found = _contraction(node, path, matcher)
    return f"{named(node)} {found}" if isinstance(found, str) else found


def named(node: ir.Node) -> str:
    """How a reason begins."""
    return f"behind it stands {node.op_type} {traversal.label(node)!r}, but"


def _path(value: ir.Value, order: Order, matcher: Matcher) -> Path | str | None:
    path = Path(value, (order,))
    producer = value.producer()
    assert producer is not None
    while True:
        readers = matcher.readers(path.value)
        found = [n for n, index in readers if index == 0 and _is_contraction(n, matcher)]
        if len(readers) != 1 or matcher.is_named(path.value):
            return f"{named(found[0])} others read what it reads too" if found else None
        ((node, index),) = readers
        if node.graph is not producer.graph or index != 0:
            return None
        if found:
            return path
        further = _step(path, node, matcher)
        if not isinstance(further, Path):
            return further
        path = further


def _is_contraction(node: ir.Node, matcher: Matcher) -> bool:
    message = matcher.standard(node)
    return message is not None and message.op_type in _OP_TYPES


def _step(path: Path, node: ir.Node, matcher: Matcher) -> Path | str | None:
    """Beyond a Transpose, or a Reshape that keeps the channels apart."""
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
        return f"{named(node)} its shape is computed at run time"
    shape = tuple(int(d) for d in onnx.numpy_helper.to_array(tensor).reshape(-1))
    copied = [axis for axis, dim in enumerate(shape) if dim == 0]
    channels_last = path.order[-1] == 1 and shape and shape[-1] > 0
    if not channels_last or any(axis >= len(path.order) - 1 for axis in copied):
        return f"{named(node)} it does not keep the channels apart"
    if copied and attributes(message).get("allowzero", 0) != 0:
        return f"{named(node)} it makes a tensor without elements"
    return Path(node.outputs[0], path.orders, nodes, shape)


def _contraction(node: ir.Node, path: Path, matcher: Matcher) -> Contraction | str:
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
    found = Contraction(node, path, weight, tensor, known.get("transB", 0) == 0)
    if bias is None:
        return found
    if known.get("beta", 1.0) != 1.0:
        return "it scales its bias"
    held = matcher.stored(bias)
    plain = held is not None and tuple(held.dims) == (found.channels,)
    return replace(found, bias=bias) if plain else replace(found, added=bias)


def _not_plain(known: Mapping[str, object], dims: Sequence[int], path: Path) -> str | None:
    """Why a convolution is more than the product of channels with a matrix."""
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
