"""Write the Transpose and the Reshape that give a value of [N, C, spatial..] grouped axes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_spatial.fusion.strided_conv.axis_groups import AxisGroups
from onnx_spatial.fusion.strided_conv.axis_path import Order
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.core.builder import Size

#: The opset in which Squeeze and Unsqueeze got their axes as an input.
_AXES_INPUT = 13


def steps(start: Order, end: Order) -> tuple[Order, ...]:
    """Return the orders of the axes in front of a Transpose and behind it; one if there is none."""
    return (start,) if start == end else (start, end)


def perm(start: Order, end: Order) -> list[int]:
    """Return the permutation from one order to another."""
    return [start.index(axis) for axis in end]


def transposed(value: ir.Value, orders: Sequence[Order], emit: Emitter) -> ir.Value:
    """Write the Transpose between two orders, if there is one."""
    return value if len(orders) == 1 else emit.op("Transpose", value, perm=perm(*orders))


def joined(value: ir.Value, axes: AxisGroups, emit: Emitter) -> ir.Value:
    """Write the Reshape that joins the axes of a value in the order of these groups."""
    if axes.are_apart:
        return value
    shape = _constant_shape(axes)
    if shape is not None:
        return emit.reshape_to(value, shape)
    ones = _ones(axes)
    if ones is not None:
        for op_type, listed in zip(("Squeeze", "Unsqueeze"), ones, strict=True):
            if listed and emit.opset < _AXES_INPUT:
                value = emit.op(op_type, value, axes=listed)
            elif listed:
                value = emit.op(op_type, value, emit.ints(listed, "axes"))
        return value
    lengths = [emit.length(value, axis) for axis in range(len(axes.order))]
    sizes: dict[int, Size] = {}
    for axis, length in zip(axes.order, lengths, strict=True):
        known = axes.sizes[axis].constant
        sizes[axis] = length if known is None else known
    target = [emit.product([sizes[axis] for axis in group]) for group in axes.groups]
    return emit.reshape(emit.tensor(value, list(sizes.values())), target).value


def node_count(axes: AxisGroups) -> int:
    """Return how many nodes these take, or an estimate where the shape is computed."""
    count = int(axes.order != tuple(range(len(axes.sizes))))
    if axes.are_apart:
        return count
    if _constant_shape(axes) is not None:
        return count + 1
    ones = _ones(axes)
    return count + (5 if ones is None else sum(map(bool, ones)))


def _ones(axes: AxisGroups) -> tuple[list[int], list[int]] | None:
    """Return the axes of size 1 to drop and then to add; None if that is not all there is to do."""
    kept = [
        next((axis for axis in group if axes.sizes[axis].constant != 1), *group[:1])
        for group in axes.groups
        if group
    ]
    dropped = [axis for axis in axes.order if axis not in kept]
    if any(axes.sizes[axis].constant != 1 for axis in dropped):
        return None
    added = [place for place, group in enumerate(axes.groups) if not group]
    return [axes.order.index(axis) for axis in dropped], added


def _constant_shape(axes: AxisGroups) -> list[int] | None:
    """Return a shape for the Reshape that is right in every run; None if there is none.

    It cannot infer a -1 beside a size of 0.
    """
    shape = []
    for place, (group, dim) in enumerate(zip(axes.groups, axes.dims, strict=True)):
        kept = len(group) == 1 and axes.order.index(*group) == place
        shape.append(dim.constant if dim.constant is not None else 0 if kept else -1)
    beside = {a for group, d in zip(axes.groups, shape, strict=True) if d != -1 for a in group}
    inferred = shape.count(-1)
    return shape if inferred == 0 or (inferred == 1 and beside <= axes.nonzero) else None
