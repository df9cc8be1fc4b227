"""Read the spelling of what the package itself puts in the place of chains of standard nodes.

Rearrange  x    sizes splits order joins, lists of integers: see `operators.rearrange`
"""

from __future__ import annotations

from onnx_spatial.operators import Rearrange
from onnx_spatial.operators.spellings.call import FixedCall, NodeFacts

#: Domains in which these names are the package's own; elsewhere they may be anything.
DOMAINS = frozenset({"onnx_spatial", "onnx_spatial.chains"})
OP_TYPES = frozenset({"Rearrange"})


def rearrange(node: NodeFacts) -> FixedCall:
    """Read Rearrange."""
    sizes, splits, order, joins = map(node.integers, ("sizes", "splits", "order", "joins"))
    return FixedCall(Rearrange(sizes, splits, order, joins), "chains")
