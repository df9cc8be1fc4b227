"""Rule for pools: one on a value in blocks is a dilated one on the value itself.

    Pool(SpaceToBatch(u, D), dilations d, pads p) = SpaceToBatch(Pool(u, dilations D d, pads D p), D)

as for convolutions (`conv`). They differ in what they make of the elements beyond the border:

    LpPool                           zeros, as a convolution
    AveragePool, count_include_pad   zeros
    AveragePool                      left out; one without pads may count the pads it gets as zeros
    MaxPool                          minus infinity

An AveragePool of an opset without dilations becomes a depthwise Conv
if the channels are known. The zeros of SpaceToBatch stay as a Pad in front where a window that is needed
reads them and the pool pads otherwise, or where runtimes refuse pads as large as the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.graph_view import Array, NodeView
from onnx_spatial.fusion.dilated_conv.rule import RuleResult, of_data, zero_stays
from onnx_spatial.fusion.dilated_conv.window_axes import Axis, enlarged, spatial_axes
from onnx_spatial.fusion.rule import Reason

#: The opset in which each pool gets dilations.
DILATIONS_SINCE = {"AveragePool": 19, "LpPool": 18, "MaxPool": 10}

#: Most elements of the kernel of such a Conv.
_LARGEST = 1 << 18
_REALS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})

#: Channels for which onnxruntime has a fast MaxPool of images with dilations, on any processor.
_FAST_CHANNELS = 16
#: Elements of all windows from which the slow one takes longer than the operators around the fast one.
#: Measured with onnxruntime 1.31: 2.3 ns an element, against 1.2 ns for each output and 8 us.
_SLOW_FROM = 4096


@of_data
def _pool(node: NodeView, layout: BlockedLayout) -> RuleResult | BlockedConv | Reason:
    """Write a pool on u, or say why that is impossible."""
    if any(node.message.output[1:]):
        return "MaxPool gives the places of its maxima as well"
    if layout.batch != 0:
        return f"the batch axis is not the first axis of {node.op_type}"
    axes = spatial_axes(node, layout.rank - 2)
    if isinstance(axes, str):
        return axes
    if any(axis.reach is None for axis in axes):
        return f"the kernel size of {node.op_type} is unknown"
    if all(at == 1 or _is_single(axes[at - 2]) for at in layout.axes):
        return RuleResult((layout,), zero_stays)
    if 1 in layout.axes:
        return f"the channels of {node.op_type} are blocked or padded"
    has_gaps = any(axis.dilation > 1 for axis in axes)
    if has_gaps and str(node.attributes.get("auto_pad", "")).startswith("SAME"):
        return f"runtimes disagree on auto_pad of {node.op_type} with dilations"
    rounds_up = node.integer("ceil_mode", 0) != 0 and any(axis.stride != 1 for axis in axes)
    on_u = list(axes)
    for block, at in zip(layout.blocks, (axis - 2 for axis in layout.axes), strict=True):
        axis = axes[at]
        if block > 1 and axis.stride != 1:
            return f"{node.op_type} has stride {axis.stride} on a blocked axis"
        if rounds_up and axis.stride != 1:
            return f"{node.op_type} rounds the number of windows up along a padded axis"
        on_u[at] = _enlarged(axis, block)
    if node.op_type == "AveragePool":
        return _average(node, layout, on_u, rounds_up=rounds_up)
    if _is_dilated(on_u) and (reason := _lacks_dilations(node)):
        return reason
    place = tuple(axis - 2 for axis in layout.axes)
    if node.op_type == "LpPool":
        return BlockedConv(layout, tuple(on_u), place, 0)
    if _is_dilated(on_u) and _is_slow(node, layout, on_u):
        return (
            "onnxruntime's MaxPool with dilations is slow for other channels than multiples of 16"
        )
    known = bool(layout.element_types) and layout.element_types <= _REALS
    # Only windows with gaps can lie in the padding: onnxruntime gives a finite number there.
    pad_value = float("-inf") if known and not has_gaps else None
    return BlockedConv(layout, tuple(on_u), place, pad_value)


def _average(
    node: NodeView, layout: BlockedLayout, axes: Sequence[Axis], *, rounds_up: bool
) -> BlockedConv | Reason:
    """Write an AveragePool with these axes on u."""
    place = tuple(axis - 2 for axis in layout.axes)
    counts = node.integer("count_include_pad", 0) == 1
    may_count = not rounds_up and not any(any(axis.pads) for axis in axes)
    if _is_dilated(axes) and (reason := _lacks_dilations(node)):
        weight = _mean(node, layout) if (counts or may_count) and not rounds_up else None
        if weight is None:
            return reason
        axes = [replace(axis, most=None) for axis in axes]
        return BlockedConv(layout, tuple(axes), place, 0, weight=weight)
    if not (counts or may_count):
        return BlockedConv(layout, tuple(axes), place, None)
    return BlockedConv(layout, tuple(axes), place, 0, counts_padding=may_count)


def _is_single(axis: Axis) -> bool:
    """Return whether each window of an axis is one element."""
    return axis == Axis(1, axis.dilation, (0, 0), 0)


def _lacks_dilations(node: NodeView) -> Reason | None:
    """Return why a pool cannot have dilations; None if it can."""
    since = DILATIONS_SINCE[node.op_type]
    if node.view.opset < since:
        return f"{node.op_type} has no dilations before opset {since}"
    return None


def _is_dilated(axes: Sequence[Axis]) -> bool:
    return any(axis.dilation > 1 for axis in axes)


def _enlarged(axis: Axis, block: int) -> Axis:
    """Return the axis on u, without dilations that a kernel of size 1 does not need."""
    assert axis.reach is not None
    most = axis.reach // axis.dilation  # onnxruntime refuses pads as large as the kernel
    return replace(enlarged(axis, block if axis.reach else 1), most=most)


def _is_slow(node: NodeView, layout: BlockedLayout, axes: Sequence[Axis]) -> bool:
    """Return whether a MaxPool with dilations is known to take longer than the operators in blocks."""
    dims = node.view.dims(node.input(0))
    batch, *sizes = [None] if dims is None else [dim.constant for dim in dims]
    channels, *_ = sizes or [None]
    if channels is None or None in sizes or not layout.element_types & _REALS:
        return False
    if len(axes) == 2 and channels % _FAST_CHANNELS == 0:
        return False
    images = math.prod(layout.blocks) if batch is None else batch
    elements = images * math.prod(size for size in sizes if size is not None)
    window = math.prod(axis.reach // axis.dilation + 1 for axis in axes if axis.reach)
    return elements * window >= _SLOW_FROM


def _mean(node: NodeView, layout: BlockedLayout) -> Array | None:
    """Return the kernel of the depthwise Conv that gives the mean; None if it cannot be written."""
    dims, kernel = node.view.dims(node.input(0)), node.integers("kernel_shape", ())
    channels = None if dims is None else dims[1].constant
    if layout.element_types != {TensorProto.FLOAT}:
        return None
    if not channels or not kernel or channels * math.prod(kernel) > _LARGEST:
        return None
    return np.full((channels, 1, *kernel), 1 / math.prod(kernel), np.float32)


#: The rule for each pool.
RULES = dict.fromkeys(DILATIONS_SINCE, _pool)
