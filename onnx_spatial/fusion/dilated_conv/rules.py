"""Rules of regions by operator type: what a node on t = SpaceToBatch(u) is on u.

    op(SpaceToBatch(u), c) = SpaceToBatch(op(u, c))

holds for operators on single elements (`rules_elementwise`) or along axes that are neither batch nor
blocked (`rules_channels`, `rules_parts`), with other operands c that are the same for all places and
all images. Where an operator moves axes (`rules_axes`, `rules_reshape`), the layout of its output says
where they are; where a Reshape merges them into rows, u keeps them (`rules_rows`). Convolutions get
larger dilations and pads (`conv`). Pools do not: a dilated one loses NaN in other places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx_spatial.fusion.dilated_conv import (
    conv,
    rules_axes,
    rules_channels,
    rules_elementwise,
    rules_parts,
    rules_reshape,
    rules_rows,
)
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_ACROSS = op_traits.having(Trait.ACROSS)
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})

#: The rule for each operator type.
RULES: dict[
    str, Callable[[NodeView, Sequence[BlockedLayout | None]], RuleResult | BlockedConv | Reason]
] = {
    **rules_elementwise.RULES,
    **rules_channels.RULES,
    **rules_axes.RULES,
    **rules_parts.RULES,
    **rules_reshape.RULES,
    **rules_rows.RULES,
    **conv.RULES,
}


def apply(
    node: NodeView, layouts: Sequence[BlockedLayout | None]
) -> RuleResult | BlockedConv | Reason:
    """Rewrite a node on the values themselves, or say why that is impossible."""
    rule = RULES.get(node.op_type)
    if any(layout is not None and layout.rows for layout in layouts):
        reason = rules_rows.refusal(node, layouts)
        if reason is not None:
            return reason
    if rule is not None:
        return rule(node, layouts)
    if node.op_type in _POOLS:
        return f"runtimes compute {node.op_type} with dilations otherwise (NaN), and slowly"
    if node.op_type in _ACROSS:
        return f"{node.op_type} needs neighbours along the blocked axes"
    return f"{node.op_type} is not known to be position-independent"
