"""Rules for operators along axes that are neither batch nor blocked: the channels, mostly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    BorderValue,
    Rule,
    RuleResult,
    no_border,
    of_data,
    same_border,
    zero_stays,
)
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: Reductions to numbers of the same type; ArgMax and ArgMin give positions.
_REDUCTIONS = op_traits.having(Trait.REDUCES) - op_traits.having(Trait.STEPS)
#: Operators along one axis, with their default axis.
_ALONG = {"Hardmax": -1, "LogSoftmax": -1, "LpNormalization": -1, "Softmax": -1}


@of_data
def _batch_normalization(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if node.integer("training_mode", 0) != 0 or any(node.message.output[1:]):
        return "BatchNormalization is in training mode"
    if not layout.is_free(1):
        return "the channels of BatchNormalization are a blocked axis"
    return RuleResult((layout,), no_border)


@of_data
def _quantize(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    scale, zero = node.view.dims(node.input(1)), node.known(2)
    if scale is None or len(scale) > 1 or node.integer("block_size", 0) != 0:
        return f"{node.op_type} is neither per tensor nor per channel"
    axis = node.integer("axis", 1)
    per_channel = len(scale) == 1 and scale[0].constant != 1
    if per_channel and (axis is None or not layout.is_free(axis)):
        return f"{node.op_type} is per channel along a blocked axis"
    types = node.view.element_types(node.message.output[0])
    if not types:
        index = 2 if node.op_type == "QuantizeLinear" else 1
        types = node.view.element_types(node.input(index)) or frozenset({TensorProto.UINT8})
    point: int | None = 0 if not node.input(2) else None
    if zero is not None and zero.size and bool((zero == zero.reshape(-1)[0]).all()):
        point = int(zero.reshape(-1)[0])
    known = node.known(1)
    sane = known is not None and bool((np.isfinite(known) & (known != 0)).all())

    def border(borders: Sequence[BorderValue]) -> BorderValue:
        before, behind = (0, point) if node.op_type == "QuantizeLinear" else (point, 0)
        return behind if sane and before is not None and borders[0] == before else None

    return RuleResult((layout.with_types(types),), border)


@of_data
def _along_axis(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if node.op_type != "LpNormalization" and node.view.opset < 13:
        return f"{node.op_type} flattens its input before opset 13"
    axis = node.integer("axis", _ALONG[node.op_type])
    if axis is None or not layout.is_free(axis):
        return f"{node.op_type} runs along a blocked axis"
    return RuleResult((layout,), no_border)


@of_data
def _local_response(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if not layout.is_free(1):
        return "the channels of LRN are a blocked axis"
    return RuleResult((layout,), no_border)


@of_data
def _layer_normalization(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axis = node.integer("axis", -1)
    if axis is None or any(not layout.is_free(a) for a in range(axis % layout.rank, layout.rank)):
        return "LayerNormalization runs along a blocked axis"
    if any(node.message.output[1:]):
        return "LayerNormalization gives mean or deviation as well"
    for name in node.message.input[1:]:
        dims = node.view.dims(name) if name else ()
        if dims is None or any(
            axis >= layout.rank - len(dims) and dims[axis - layout.rank + len(dims)].constant != 1
            for axis in layout.taken
        ):
            return f"{name!r} may differ from place to place, or from image to image"
    return RuleResult((layout,), no_border)


@of_data
def _reduction(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.axes(1)
    if not axes or any(not layout.is_free(a) for a in axes):
        return f"{node.op_type} runs along a blocked axis"
    if node.integer("keepdims", 1):
        return RuleResult((layout,), no_border)
    return RuleResult((layout.without(axes),), no_border)


def _concat(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> RuleResult | Reason:
    axis = node.integer("axis", 1)
    first = next(layout for layout in layouts if layout is not None)
    if axis is None or not first.is_free(axis):
        return "Concat joins along a blocked axis"
    if any(layout is None or not layout.aligned_with(first) for layout in layouts):
        return "Concat joins a value in blocks with others"
    return RuleResult((first,), same_border)


@of_data
def _split(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axis = node.integer("axis", 0)
    if axis is None or not layout.is_free(axis):
        return "Split cuts a blocked axis"
    return RuleResult((layout,) * len(node.message.output), same_border)


@of_data
def _slice(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.axes(3)
    if axes is None or any(not layout.is_free(a) for a in axes):
        return "Slice cuts a blocked axis"
    return RuleResult((layout,), same_border)


@of_data
def _gather(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axis = node.integer("axis", 0)
    indices = node.view.dims(node.input(1))
    if axis is None or indices is None or not layout.is_free(axis):
        return "Gather takes from a blocked axis"
    axis %= layout.rank
    shift = len(indices) - 1
    places = [a if a < axis else a + shift for a in range(layout.rank)]
    return RuleResult((layout.moved(places, layout.rank + shift),), same_border)


def _matmul(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> RuleResult | Reason:
    layout = layouts[0]
    if layout is None or layouts[1] is not None:
        return "MatMul multiplies by a value in blocks"
    dims = node.view.dims(node.input(1))
    if dims is None or len(dims) != 2 or not layout.is_free(layout.rank - 1) or layout.rank < 3:
        return "MatMul mixes along a blocked axis"
    known = node.known(1)
    finite = known is not None and bool(np.isfinite(known).all())
    return RuleResult((layout,), zero_stays if finite else no_border)


#: The rule for each operator.
RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_ALONG, _along_axis),
    "BatchNormalization": _batch_normalization,
    "Concat": _concat,
    "DequantizeLinear": _quantize,
    "Gather": _gather,
    "LRN": _local_response,
    "LayerNormalization": _layer_normalization,
    "MatMul": _matmul,
    "QuantizeLinear": _quantize,
    "Slice": _slice,
    "Split": _split,
}
