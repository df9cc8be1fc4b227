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
    may_differ,
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
#: Operators along one axis, by default the last.
_ALONG = ("Hardmax", "LogSoftmax", "LpNormalization", "Softmax")


@of_data
def _per_channel(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if node.integer("training_mode", 0) != 0 or any(node.message.output[1:]):
        return f"{node.op_type} is in training mode"
    if not layout.is_free(1):
        return f"the channels of {node.op_type} are a blocked axis"
    return RuleResult((layout,))


@of_data
def _quantize(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    scale, zero = node.view.dims(node.input(1)), node.known(2)
    if scale is None or len(scale) > 1 or node.integer("block_size", 0) != 0:
        return f"{node.op_type} is neither per tensor nor per channel"
    per_channel = len(scale) == 1 and scale[0].constant != 1
    if per_channel and not layout.is_free(node.integer("axis", 1)):
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
    if not layout.is_free(node.integer("axis", -1)):
        return f"{node.op_type} runs along a blocked axis"
    return RuleResult((layout,))


@of_data
def _layer_normalization(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axis = node.integer("axis", -1)
    if axis is None or not layout.is_free(*range(axis % layout.rank, layout.rank)):
        return "LayerNormalization runs along a blocked axis"
    if any(node.message.output[1:]):
        return "LayerNormalization gives mean or deviation as well"
    for name in node.message.input[1:]:
        dims = node.view.dims(name) if name else ()
        if dims is None or layout.may_vary(dims):
            return may_differ(name)
    return RuleResult((layout,))


@of_data
def _reduction(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.axes(1)
    if not axes or not layout.is_free(*axes):
        return f"{node.op_type} runs along a blocked axis"
    return RuleResult((layout if node.integer("keepdims", 1) else layout.without(axes),))


def _concat(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> RuleResult | Reason:
    first = next(layout for layout in layouts if layout is not None)
    if not first.is_free(node.integer("axis", 1)):
        return "Concat joins along a blocked axis"
    if any(layout is None or not layout.aligned_with(first) for layout in layouts):
        return "Concat joins a value in blocks with others"
    return RuleResult((first,), same_border)


@of_data
def _split(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if not layout.is_free(node.integer("axis", 0)):
        return "Split cuts a blocked axis"
    return RuleResult((layout,) * len(node.message.output), same_border)


@of_data
def _slice(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.axes(3)
    if axes is None or not layout.is_free(*axes):
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
    "BatchNormalization": _per_channel,
    "Concat": _concat,
    "DequantizeLinear": _quantize,
    "Gather": _gather,
    "LRN": _per_channel,
    "LayerNormalization": _layer_normalization,
    "MatMul": _matmul,
    "QuantizeLinear": _quantize,
    "Slice": _slice,
    "Split": _split,
}
