"""Follow the axes of a value through the nodes behind it that only move its elements.

[N, C, spatial..] -> Transpose -> Reshape [-1, C] -> ..
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir

from onnx_spatial.analysis import attributes
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.fusion.strided_conv.axis_groups import AxisGroups
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: The axis of [N, C, spatial..] for each axis of a value.
Order = tuple[int, ...]

#: The axis of the channels in [N, C, spatial..].
CHANNELS = 1

_SHAPES = op_traits.having(Trait.SIZES)

#: Ends that converters write for the end of an axis are no smaller.
_TO_THE_END = 10**9


@dataclass(frozen=True)
class Path:
    """A chain of nodes that move the elements of a value.

    Attributes:
        value: the value at the end.
        axes: its axes, as groups of [N, C, spatial..].
        orders: order of these axes at the start, and behind each Transpose.
        nodes: the nodes.
        passed: the values in front of the end, with their axes.
        rows: dims in front of the channels behind a last Reshape that splits axes; None without one.
    """

    value: ir.Value
    axes: AxisGroups
    orders: tuple[Order, ...]
    nodes: tuple[ir.Node, ...] = ()
    passed: tuple[tuple[ir.Value, AxisGroups], ...] = ()
    rows: tuple[int, ...] | None = None

    def with_node(self, node: ir.Node, axes: AxisGroups) -> Path:
        """Return the path with another node."""
        orders = self.orders if axes.order == self.orders[-1] else (*self.orders, axes.order)
        return Path(
            *(node.outputs[0], axes, orders, (*self.nodes, node)),
            passed=(*self.passed, (self.value, self.axes)),
        )


def data_readers(value: ir.Value, matcher: Matcher) -> list[tuple[ir.Node, int]]:
    """Return the nodes that read more of a value than its shape."""
    return [(n, i) for n, i in matcher.readers(value) if n.op_type not in _SHAPES]


def is_movement(node: ir.Node, matcher: Matcher) -> bool:
    """Tell whether a node only moves elements."""
    if matcher.op_type(node) == "Transpose":
        return True
    message = matcher.standard(node)
    return message is not None and message.op_type in _MOVEMENTS


def extended(path: Path, node: ir.Node, matcher: Matcher) -> Path | Reason:
    """Extend a path by a node behind it, or say why that is not possible."""
    if path.rows is not None:
        return "the Reshape in front of it splits axes of the patches"
    perm = matcher.perm(node, len(path.axes.groups))
    if perm is not None:
        return path.with_node(node, path.axes.transposed(perm))
    message, sizes = matcher.standard(node), matcher.sizes(node)
    if message is None or message.op_type not in _MOVEMENTS:
        return f"{node.op_type} does more than to move elements"
    if sizes is not None:
        sizes.note(message.input[0], path.axes.dims)
    moved = _MOVEMENTS[message.op_type](_Step(path.axes, node, message, matcher))
    if isinstance(moved, AxisGroups):
        return path.with_node(node, moved)
    rows = _rows(path, _Step(path.axes, node, message, matcher))
    if rows is None:
        return moved
    return replace(path.with_node(node, path.axes), rows=rows)


@dataclass(frozen=True)
class _Step:
    """A node that moves elements of a value with these axes."""

    axes: AxisGroups
    node: ir.Node
    message: onnx.NodeProto
    matcher: Matcher

    def entries(self, name: str, index: int = 1) -> Sequence[Polynomial] | None:
        """Return the integers of an input, or of an attribute of older opsets."""
        known = attributes(self.message).get(name)
        if isinstance(known, tuple):
            return [Polynomial.of(int(v)) for v in known]
        sizes = self.matcher.sizes(self.node)
        if sizes is None or len(self.message.input) <= index or not self.message.input[index]:
            return None
        return sizes.entries(self.message.input[index])


def _reshape(step: _Step) -> AxisGroups | Reason:
    target = step.entries("shape")
    if target is None:
        return "the shape that it gives is not known"
    allow_zero = attributes(step.message).get("allowzero", 0) != 0
    return step.axes.reshaped(target, allow_zero=allow_zero)


def _flatten(step: _Step) -> AxisGroups | Reason:
    axis = attributes(step.message).get("axis", 1)
    if not isinstance(axis, int):
        return "its axis depends on the callers of its function"
    parts = step.axes.groups[:axis], step.axes.groups[axis:]
    groups = tuple(tuple(a for group in part for a in group) for part in parts)
    return replace(step.axes, groups=groups)


def _squeeze(step: _Step) -> AxisGroups | Reason:
    listed = [entry.constant for entry in step.entries("axes") or ()]
    axes = [axis for axis in listed if axis is not None]
    if not axes or len(axes) < len(listed):
        return "its axes are not known"
    rank = len(step.axes.groups)
    if step.message.op_type == "Unsqueeze":
        return step.axes.with_ones([axis % (rank + len(axes)) for axis in axes])
    result = step.axes.without([axis % rank for axis in axes])
    return result or "the axis that it drops may be longer than 1"


def _slice(step: _Step) -> AxisGroups | Reason:
    """Accept a Slice that keeps everything, as converters write it for `x[:, 0]` with Squeeze."""
    listed = [
        step.entries(name, i) for i, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    ]
    starts, ends, axes, steps = ([e.constant for e in each or ()] for each in listed)
    axes = axes or list(range(len(starts)))
    keeps = len(starts) == len(ends) == len(axes) and not any(starts) and set(steps) <= {1}
    for axis, end in zip(axes, ends, strict=False):
        size = None if axis is None else step.axes.dims[axis].constant
        keeps &= end is not None and end >= min(_TO_THE_END, size or _TO_THE_END)
    return step.axes if keeps else "it takes a part of the patches"


def _identity(step: _Step) -> AxisGroups:
    return step.axes


_MOVEMENTS: dict[str, Callable[[_Step], AxisGroups | Reason]] = {
    "Flatten": _flatten,
    "Identity": _identity,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
}


def _rows(path: Path, step: _Step) -> tuple[int, ...] | None:
    """Return the dims in front of the channels behind a Reshape to a known shape that splits axes."""
    known = [size.constant for size in step.entries("shape") or ()]
    groups, dims = path.axes.groups, path.axes.dims
    if step.message.op_type != "Reshape" or not known or groups[-1] != (CHANNELS,):
        return None
    rows = tuple(size for size in known[:-1] if size is not None and size != 0)
    kept = dims[-1].constant == known[-1] and len(rows) == len(known) - 1 and rows.count(-1) < 2
    return rows if kept else None


def known_dims(node: ir.Node, index: int, matcher: Matcher) -> tuple[int, ...] | None:
    """Return the dims of an input of a node; None if one is unknown."""
    tensor = matcher.stored(node.inputs[index] if index < len(node.inputs) else None)
    if tensor is not None:
        return tuple(tensor.dims)
    message, sizes = matcher.message(node), matcher.sizes(node)
    if message is None or sizes is None or index >= len(message.input):
        return None
    dims = sizes.dims(message.input[index])
    known = [dim.constant for dim in dims] if dims is not None else [None]
    return None if None in known else tuple(dim for dim in known if dim is not None)


@dataclass(frozen=True)
class Bias:
    """What an Add adds to each channel.

    Attributes:
        value: the input of the Add.
        dims: of the input.
        constant: its elements, if a Constant of the graph holds them; None otherwise.
    """

    value: ir.Value
    dims: tuple[int, ...]
    constant: onnx.TensorProto | None


def bias_of(path: Path, node: ir.Node, matcher: Matcher) -> Bias | None:
    """Return what an Add adds to each channel of a value; None for other nodes.

    The input must be there before any node of the graph runs, or be a Constant.
    """
    message = matcher.standard(node)
    if message is None or message.op_type != "Add" or attributes(message):
        return None  # before opset 7 attributes said how operands line up
    others = [i for i, value in enumerate(node.inputs) if value is not path.value]
    if len(others) != 1 or len(node.inputs) != 2:
        return None
    value, given = node.inputs[others[0]], known_dims(node, others[0], matcher)
    groups = path.axes.groups
    if value is None or given is None or len(given) > len(groups):
        return None
    producer = value.producer()
    constant = matcher.stored(value) if producer is not None else None
    if producer is not None and producer.graph is node.graph and constant is None:
        return None
    dims = [*[1] * (len(groups) - len(given)), *given]
    beside = [dim for group, dim in zip(groups, dims, strict=True) if group != (CHANNELS,)]
    own = [dim for group, dim in zip(groups, dims, strict=True) if group == (CHANNELS,)]
    fits = own in ([1], [path.axes.sizes[CHANNELS].constant]) and set(beside) <= {1}
    return Bias(value, given, constant) if fits else None
