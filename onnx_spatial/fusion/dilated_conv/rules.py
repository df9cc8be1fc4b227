"""Operators that do the same to a value in blocks as to the value itself.

    op(SpaceToBatch(u), c) = SpaceToBatch(op(u, c))

These are the operators on single elements (`rules_elementwise`) or along axes that are neither batch
nor blocked (`rules_channels`), with other operands c that are the same for all places and all images.
Where an operator moves axes (`rules_axes`), the layout of its output says where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_spatial.fusion.dilated_conv import rules_axes, rules_channels, rules_elementwise
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_ACROSS = op_traits.having(Trait.ACROSS)

_RULES = {**rules_elementwise.RULES, **rules_channels.RULES, **rules_axes.RULES}


def passage(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    """What an operator makes of values in blocks, or why it cannot be had on the values themselves."""
    rule = _RULES.get(node.op_type)
    if rule is None:
        if node.op_type in _ACROSS:
            return f"{node.op_type} looks across the blocked axes"
        return f"{node.op_type} is not known to treat all places and images alike"
    return rule(node, states)
