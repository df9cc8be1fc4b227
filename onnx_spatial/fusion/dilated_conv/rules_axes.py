"""Rules for operators that move axes, add and drop axes of size 1, or repeat along an axis."""

from __future__ import annotations

import numpy as np

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    RewrittenNode,
    Rule,
    RuleResult,
    of_data,
    same_border,
)
from onnx_spatial.fusion.rule import Reason

#: Operators whose rules need the sizes of their input.
SHAPED = frozenset({"Expand", "Flatten", "Reshape"})


@of_data
def _transpose(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    perm = node.integers("perm", tuple(reversed(range(layout.rank))))
    if perm is None or sorted(perm) != list(range(layout.rank)):
        return "the permutation of Transpose is unknown"
    places = [perm.index(axis) for axis in range(layout.rank)]
    return RuleResult((layout.moved(places, layout.rank),), same_border)


@of_data
def _unsqueeze(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.axes(1)
    if axes is None:
        return "the axes of Unsqueeze are unknown"
    rank = layout.rank + len(axes)
    new = {a % rank for a in axes}
    places = [a for a in range(rank) if a not in new]
    return RuleResult((layout.moved(places, rank),), same_border)


@of_data
def _squeeze(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axes = node.axes(1)
    if not axes:
        return "the axes of Squeeze are unknown"
    if not layout.is_free(*axes):
        return "Squeeze takes a blocked axis away"
    return RuleResult((layout.without(axes),), same_border)


@of_data
def _expand(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Accept an Expand that repeats along free axes only."""
    dims = node.view.dims(node.input(0))
    target = node.view.sizes.entries(node.input(1))
    if dims is None or target is None:
        return "the shape that Expand gives is unknown"
    rank = max(layout.rank, len(target))
    repeats = []
    for place in range(rank):
        axis, index = place - (rank - layout.rank), place - (rank - len(target))
        size = target[index] if index >= 0 else None
        if axis >= 0 and axis in layout.taken:
            if size is not None and size.constant != 1 and size != dims[axis]:
                return "Expand repeats along a blocked axis"
            repeats.append(1)
        elif size is None or size.constant is None:
            if size is not None and not (axis >= 0 and size == dims[axis]):
                return "the shape that Expand gives is unknown"
            repeats.append(1)
        else:
            repeats.append(size.constant)
    form = RewrittenNode("Expand", {}, (np.array(repeats, np.int64),))
    return RuleResult((layout.broadcast(rank),), same_border, (form,))


#: The rule for each operator.
RULES: dict[str, Rule] = {
    "Expand": _expand,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
