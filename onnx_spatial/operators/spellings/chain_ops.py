"""Read the spelling of operators in the place of chains of standard nodes, in memory only.

    ExtractPatches    x    parameters: a JSON object, as in the domain of the Python operators
    Rearrange         x    sizes splits order joins, lists of integers: see `operators.rearrange`

ExtractPatches has what the spellings of converters lack: windows along one axis or three, channels
first, and channels in front of the places of a window. SpaceToBatch and BatchToSpace are spelled as in
TensorFlow.
"""

from __future__ import annotations

from onnx_spatial.operators import ExtractPatches, Rearrange
from onnx_spatial.operators.spellings.call import FixedCall, NodeFacts
from onnx_spatial.operators.spellings.python_ops import PARAMETERS, from_json

#: Domain of the operators that take the place of chains.
DOMAIN = "onnx_spatial.chains"

OP_TYPES = frozenset({ExtractPatches.name})

#: Domains in which Rearrange is the package's own; elsewhere it may be anything.
REARRANGE_DOMAINS = frozenset({"onnx_spatial", DOMAIN})


def read(node: NodeFacts) -> FixedCall:
    """Read ExtractPatches.

    Raises:
        OperatorError: the node breaks a rule.
    """
    return FixedCall(from_json(node.op_type, node.string(PARAMETERS)), "chain")


def rearrange(node: NodeFacts) -> FixedCall:
    """Read Rearrange."""
    sizes, splits, order, joins = map(node.integers, ("sizes", "splits", "order", "joins"))
    return FixedCall(Rearrange(sizes, splits, order, joins), "chains")
