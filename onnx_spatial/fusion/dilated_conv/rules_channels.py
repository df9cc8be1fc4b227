"""Rules for operators along axes that are neither batch nor blocked: the channels, mostly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    zero_stays,
)
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: Reductions to positions; all others give numbers of the same type.
_POSITIONS = ("ArgMax", "ArgMin")
_REDUCTIONS = op_traits.having(Trait.REDUCES) - set(_POSITIONS)
#: Operators along one axis, by default the last; before opset 13 along all axes from one on.
_FLATTENING = ("Hardmax", "LogSoftmax", "Softmax")
_INT64 = frozenset({int(TensorProto.INT64)})


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
    if scale is None:
        return f"the rank of the scale of {node.op_type} is unknown"
    if len(scale) > 1 or node.integer("block_size", 0) != 0:
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
    first = node.integer("axis", -1)
    axes: tuple[int | None, ...] = (first,)
    if node.op_type in _FLATTENING and node.view.opset < 13:
        first = node.integer("axis", 1)
        axes = (first,) if first is None else tuple(range(first % layout.rank, layout.rank))
    if not layout.is_free(*axes):
        return f"{node.op_type} runs along a blocked axis"
    return RuleResult((layout,))


@of_data
def _cumulative(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axis = node.known(1)
    if axis is None or axis.size != 1:
        return f"the axis of {node.op_type} is unknown"
    if not layout.is_free(int(axis.reshape(-1)[0])):
        return f"{node.op_type} runs along a blocked axis"
    return RuleResult((layout,))


@of_data
def _top_k(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if not layout.is_free(node.integer("axis", -1)):
        return "TopK runs along a blocked axis"
    if node.integer("sorted", 1) != 1:
        return "TopK gives its elements in any order"
    return RuleResult((layout, layout.with_types(_INT64)))


@of_data
def _normalization(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Accept LayerNormalization and RMSNormalization along free axes."""
    axis = node.integer("axis", -1)
    if axis is None or not layout.is_free(*range(axis % layout.rank, layout.rank)):
        return f"{node.op_type} runs along a blocked axis"
    if any(node.message.output[1:]):
        return f"{node.op_type} gives mean or deviation as well"
    for name in node.message.input[1:]:
        dims = node.view.dims(name) if name else ()
        if dims is None or layout.may_vary(dims):
            return may_differ(name)
    return RuleResult((layout,))


@of_data
def _mean_variance(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.integers("axes", (0, 2, 3))
    if not axes or not layout.is_free(*axes):
        return "MeanVarianceNormalization runs along the batch or a blocked axis"
    return RuleResult((layout,))


@of_data
def _reduction(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.axes(1)
    if axes is None and node.input(1):
        return f"the axes of {node.op_type} are unknown"
    if not axes:
        return f"{node.op_type} names no axes"
    if not layout.is_free(*axes):
        return f"{node.op_type} runs along a blocked axis"
    return RuleResult((layout if node.integer("keepdims", 1) else layout.without(axes),))


@of_data
def _position(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axis = node.integer("axis", 0)
    if axis is None or not layout.is_free(axis):
        return f"{node.op_type} runs along the batch or a blocked axis"
    layout = layout.with_types(_INT64)
    return RuleResult((layout if node.integer("keepdims", 1) else layout.without((axis,)),))


def _matmul(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> RuleResult | Reason:
    layout = layouts[0]
    if layout is None or layouts[1] is not None:
        return "MatMul multiplies by a value in blocks"
    dims = node.view.dims(node.input(1))
    if dims is None:
        return f"the rank of {node.input(1)!r} is unknown"
    if len(dims) != 2:
        return f"MatMul multiplies by {node.input(1)!r}, which is no matrix"
    if not layout.is_free(layout.rank - 1) or layout.rank < 3:
        return "MatMul mixes along a blocked axis"
    return RuleResult((layout,), _zero_if_finite(node, (1,)))


def _zero_if_finite(
    node: NodeView, factors: Sequence[int]
) -> Callable[[Sequence[BorderValue]], BorderValue]:
    """Keep zeros in a product with factors that are known to be finite."""
    known = [node.known(i) for i in factors]
    finite = all(k is not None and bool(np.isfinite(k).all()) for k in known)
    return zero_stays if finite else no_border


#: The rule for each operator.
RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_POSITIONS, _position),
    **dict.fromkeys((*_FLATTENING, "LpNormalization"), _along_axis),
    "BatchNormalization": _per_channel,
    "CumProd": _cumulative,
    "CumSum": _cumulative,
    "DequantizeLinear": _quantize,
    "LRN": _per_channel,
    "LayerNormalization": _normalization,
    "MatMul": _matmul,
    "MeanVarianceNormalization": _mean_variance,
    "QuantizeLinear": _quantize,
    "RMSNormalization": _normalization,
    "TopK": _top_k,
}
