"""Operators that do the same to a value in blocks as to the value itself.

    op(SpaceToBatch(u), c) = SpaceToBatch(op(u, c))

Such are all that look at one element at a time (`elementwise`), or along axes that are neither batch
nor blocked (`channels`), and whose other operands c are the same for all places and all images. Where
an operator moves axes (`axes`), the state of its output says where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_spatial.fusion.regions import axes, channels, elementwise
from onnx_spatial.fusion.regions.blocked import Blocked
from onnx_spatial.fusion.regions.pointwise import Pointwise
from onnx_spatial.fusion.regions.view import Node

#: Operators that are known to look further than one place.
_ACROSS = frozenset(
    "AffineGrid AveragePool ConvTranspose CumSum DepthToSpace GlobalAveragePool "
    "GlobalLpPool GlobalMaxPool GridSample GroupNormalization InstanceNormalization LpPool MaxPool "
    "MaxUnpool Pad Resize ReverseSequence SpaceToDepth Tile Upsample".split()
)

_RULES = {**elementwise.RULES, **channels.RULES, **axes.RULES}


def passage(node: Node, states: Sequence[Blocked | None]) -> Pointwise | str:
    """What an operator makes of values in blocks, or why it cannot be had on the values themselves."""
    rule = _RULES.get(node.op_type)
    if rule is None:
        if node.op_type in _ACROSS:
            return f"{node.op_type} looks across the blocked axes"
        return f"{node.op_type} is not known to treat all places and images alike"
    return rule(node, states)
