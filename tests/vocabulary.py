"""Name the operators, their domains and spellings, and the lowerings, for tests that need them.

Tests take these names from here and not from the modules that define them, which may move or be
divided otherwise: then only this module changes.
"""

from __future__ import annotations

from onnx_spatial.conversion.options import LOWERING_NAMES as LOWERINGS
from onnx_spatial.conversion.options import MODES
from onnx_spatial.operators import (
    OPERATORS,
    AutoPad,
    BatchToSpace,
    ExtractPatches,
    FixedOperator,
    Layout,
    Operator,
    Rearrange,
    ReorgYolo,
    SpaceToBatch,
)
from onnx_spatial.operators.operator import Dim
from onnx_spatial.operators.spellings import (
    DOMAINS,
    LEFTOVER_OP_TYPES,
    OP_TYPES,
    BlockCall,
    Call,
    Conflict,
    FixedCall,
    InputFacts,
    NodeFacts,
    read,
    recognise,
)
from onnx_spatial.operators.spellings.call import BLOCKS as PYTHON_BLOCKS
from onnx_spatial.operators.spellings.chain_ops import DOMAIN as CHAIN_DOMAIN
from onnx_spatial.operators.spellings.python_ops import DOMAIN as PYTHON_DOMAIN
from onnx_spatial.operators.spellings.python_ops import OP_TYPES as PYTHON_OP_TYPES
from onnx_spatial.operators.spellings.python_ops import as_json, from_json

__all__ = [
    "CHAIN_DOMAIN",
    "DOMAINS",
    "LEFTOVER_OP_TYPES",
    "LOWERINGS",
    "MARK",
    "MODES",
    "OPERATORS",
    "OP_TYPES",
    "ORIGIN",
    "PYTHON_BLOCKS",
    "PYTHON_DOMAIN",
    "PYTHON_OP_TYPES",
    "AutoPad",
    "BatchToSpace",
    "BlockCall",
    "Call",
    "Conflict",
    "Dim",
    "ExtractPatches",
    "FixedCall",
    "FixedOperator",
    "InputFacts",
    "Layout",
    "NodeFacts",
    "Operator",
    "Rearrange",
    "ReorgYolo",
    "SpaceToBatch",
    "as_json",
    "from_json",
    "read",
    "recognise",
]

#: Metadata keys: of a new node, the node that it stands for; of a function, the operator's name.
ORIGIN = "onnx_spatial.origin"
MARK = "onnx_spatial.function"
