"""Name the operators, their domains and spellings, and the lowerings, for tests that need them.

Tests take these names from here and not from the modules that define them, which may move or be
divided otherwise: then only this module changes.
"""

# ruff: noqa: F401

from onnx_spatial.conversion.options import LOWERING_NAMES as LOWERINGS
from onnx_spatial.operators import (
    OPERATORS,
    BatchToSpace,
    ExtractPatches,
    Operator,
    Rearrange,
    ReorgYolo,
    SpaceToBatch,
)
from onnx_spatial.operators.spellings import (
    DOMAINS,
    LEFTOVER_OP_TYPES,
    OP_TYPES,
    Call,
    InputFacts,
    NodeFacts,
    read,
    recognize,
)
from onnx_spatial.operators.spellings.python_ops import DOMAIN as PYTHON_DOMAIN
from onnx_spatial.operators.spellings.python_ops import OP_TYPES as PYTHON_OP_TYPES

#: Metadata keys: of a new node, the node that it stands for; of a function, the operator's name.
ORIGIN = "onnx_spatial.origin"
MARK = "onnx_spatial.function"
