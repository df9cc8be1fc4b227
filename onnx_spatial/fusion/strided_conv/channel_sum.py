"""Find the node that sums up the channels of a value: a Conv 1x1, MatMul or Gemm.

    value -> [Transpose | Reshape ..] -> MatMul -> [Transpose | Reshape | Add bias ..] -> result

tf.tensordot and Dense layers are written in this way: a Reshape to rows, MatMul, and a Reshape back to
a shape that is computed from that of the value. No node but those may read the values between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.fusion.rule import Reason, blame
from onnx_spatial.fusion.strided_conv import axis_path
from onnx_spatial.fusion.strided_conv.axis_groups import AxisGroups
from onnx_spatial.fusion.strided_conv.axis_path import CHANNELS, Path, data_readers
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: Most nodes in front of the sum.
_FAR = 12

_ELEMENTWISE = op_traits.having(Trait.UNARY, Trait.BROADCASTS)


@dataclass(frozen=True)
class Contraction:
    """A node that sums up the channels of a value.

    Attributes:
        node: the node.
        path: the nodes in front of it.
        axes: the axes of its result, with the output channels in the place of the channels.
        weight: its other factor, [rows, channels] or [channels, rows] and axes of size 1.
        rows: number of input channels.
        channels: number of output channels.
        rows_first: whether the axis of the input channels is the first of the two.
        bias: one number for each output channel; None if there is none.
        added: C of a Gemm that is no such bias; None if there is none.
    """

    node: ir.Node
    path: Path
    axes: AxisGroups
    weight: ir.Value
    rows: int
    channels: int
    rows_first: bool
    bias: ir.Value | None = None
    added: ir.Value | None = None


def find(
    value: ir.Value, axes_of: Callable[[], AxisGroups], matcher: Matcher
) -> Contraction | Reason | None:
    """Find the node that sums up the channels of a value.

    `axes_of` returns its axes; it is called only where a sum of products is near.

    Returns:
        The node, why it is more than a sum of channels, or None if there is no such node.
    """
    end = _behind_movements(value, matcher)
    if end is None or not _is_sum(end, matcher):
        return None if end is None else _stands_between(end, matcher)
    axes = axes_of()
    path = Path(value, axes, (axes.order,))
    while True:
        readers = data_readers(path.value, matcher)
        sums = [node for node, _ in readers if _is_sum(node, matcher)]
        if len(readers) != 1 or matcher.is_named(path.value):
            return f"{blame([*sums, readers[0][0]][0])} other nodes read its input too"
        ((node, index),) = readers
        if sums:
            result = _contraction(_Factor(node, index, path, matcher))
            return f"{blame(node)} {result}" if isinstance(result, str) else result
        longer = axis_path.extended(path, node, matcher)
        if not isinstance(longer, Path):
            return f"{blame(node)} {longer}"
        path = longer


def _is_sum(node: ir.Node, matcher: Matcher) -> bool:
    message = matcher.standard(node)
    return message is not None and message.op_type in _SUMS


def _behind_movements(value: ir.Value, matcher: Matcher) -> ir.Node | None:
    """Return what reads a value behind nodes that move its elements: a sum of products, or one node."""
    producer = value.producer()
    assert producer is not None
    for _ in range(_FAR):
        readers = data_readers(value, matcher)
        if any(node.graph is not producer.graph for node, _ in readers):
            return None
        sums = [node for node, _ in readers if _is_sum(node, matcher)]
        if sums or len(readers) != 1:
            return sums[0] if sums else None
        ((node, index),) = readers
        if index != 0 or not axis_path.is_movement(node, matcher):
            return node
        value = node.outputs[0]
    return None


def _stands_between(node: ir.Node, matcher: Matcher) -> Reason | None:
    """Say that an elementwise operator stands in front of a sum of products, if it does."""
    if matcher.standard(node) is None or node.op_type not in _ELEMENTWISE:
        return None
    behind = _behind_movements(node.outputs[0], matcher)
    if behind is None or not _is_sum(behind, matcher):
        return None
    return f"{blame(node)} it stands between the patches and {behind.op_type}"


@dataclass(frozen=True)
class _Factor:
    """A value with channels as a factor of a sum of products.

    Attributes:
        node: the node that sums up.
        index: which of its inputs the value is.
        path: how the value comes there.
        matcher: the graph.
        weight, dims: the other factor.
    """

    node: ir.Node
    index: int
    path: Path
    matcher: Matcher
    weight: ir.Value | None = None
    dims: tuple[int, ...] = ()

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of axes of the value."""
        return self.path.axes.groups

    @property
    def attributes(self) -> Mapping[str, object]:
        """The attributes of the node."""
        return self.matcher.attributes(self.node)

    def input(self, index: int) -> ir.Value | None:
        """Return an input of the node; None if it is missing."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def contraction(
        self, axes: AxisGroups, sides: Sequence[int], *, rows_first: bool
    ) -> Contraction:
        """Return the sum; `sides` are the lengths of the axes of the weight."""
        rows, channels = sides if rows_first else reversed(sides)
        assert self.weight is not None
        axes = axes.resized(CHANNELS, channels)
        return Contraction(self.node, self.path, axes, self.weight, rows, channels, rows_first)


_OTHER_AXIS = "it sums up along another axis than the channels"


def _contraction(factor: _Factor) -> Contraction | Reason:
    node = factor.node
    two_sided = node.op_type in ("Einsum", "MatMul")
    if factor.index > two_sided:
        return "the patches are its weight"
    index = 1 - factor.index
    weight = factor.input(index)
    dims = axis_path.known_dims(node, index, factor.matcher)
    if weight is None or dims is None:
        return "the shape of its weight is not known"
    return _SUMS[node.op_type](replace(factor, weight=weight, dims=dims))


def _conv(factor: _Factor) -> Contraction | Reason:
    groups, dims = factor.groups, factor.dims
    if factor.path.rows is not None or len(groups) < 3 or groups[1] != (CHANNELS,):
        return _OTHER_AXIS
    if len(dims) != len(groups):
        return "its weight is of another rank"
    if reason := _not_plain(factor.attributes, dims):
        return reason
    axes = factor.path.axes
    windows = range(2, len(axes.order))  # without one the convolution fails
    axes = replace(axes, nonzero=axes.nonzero.union(windows))
    result = factor.contraction(axes, dims[:2], rows_first=False)
    return replace(result, bias=factor.input(2))


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


def _matmul(factor: _Factor) -> Contraction | Reason:
    groups, dims = factor.groups, factor.dims
    at = len(groups) - 1 - factor.index
    if at < 0 or groups[at] != (CHANNELS,) or (factor.path.rows is not None and factor.index):
        return _OTHER_AXIS
    if len(dims) < 2 or len(dims) > len(groups) or set(dims[:-2]) - {1}:
        return f"its {'first' if factor.index else 'second'} input is no matrix"
    return factor.contraction(factor.path.axes, dims[-2:], rows_first=factor.index == 0)


def _gemm(factor: _Factor) -> Contraction | Reason:
    known, axes = factor.attributes, factor.path.axes
    if known.get("alpha", 1.0) != 1.0:
        return "it scales its first input"
    if known.get("transA", 0) != 0:
        if factor.path.rows is not None or factor.groups[0] != (CHANNELS,):
            return "it transposes its first input, and sums up along another axis than the channels"
        axes = axes.transposed((1, 0))
    if axes.groups[-1] != (CHANNELS,):
        return _OTHER_AXIS
    if len(factor.dims) != 2:
        return "its second input is no matrix"
    plain = factor.contraction(axes, factor.dims, rows_first=known.get("transB", 0) == 0)
    bias = factor.input(2)
    if bias is None:
        return plain
    if known.get("beta", 1.0) != 1.0:
        return "it scales its bias"
    if axis_path.known_dims(factor.node, 2, factor.matcher) == (plain.channels,):
        return replace(plain, bias=bias)
    return replace(plain, added=bias)


_SUMS: dict[str, Callable[[_Factor], Contraction | Reason]] = {
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
