"""Read the spelling of `onnx_spatial.custom_ops`, the nodes that its Python operators run.

    SpaceToBatch    x, block_shape[M], paddings[M,2]     both int64
    BatchToSpace    x, block_shape[M], crops[M,2]        both int64
    any other       x                                    parameters: a JSON object, see `as_json`

all in the domain `onnx_spatial.ops`, each with an attribute `site` that describes the original node.
With `batch_entry` = 1 the tables have an entry for the batch axis in front, which must be 1, 0, 0.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators import OPERATORS, FixedOperator
from onnx_spatial.operators.spellings.call import (
    BLOCKS,
    BlockCall,
    Call,
    FixedCall,
    NodeFacts,
    length_of_pairs,
    pairs,
    vector,
    without_batch,
)

DOMAIN = "onnx_spatial.ops"
VERSION = 1

#: Operators all of whose parameters are in the attribute PARAMETERS.
FIXED = {kind.name: kind for kind in OPERATORS if issubclass(kind, FixedOperator)}
OP_TYPES = frozenset({*FIXED, *BLOCKS})

#: Attributes of all nodes; FIXED have no BATCH_ENTRY, the others no PARAMETERS.
SITE = "site"
BATCH_ENTRY = "batch_entry"
PARAMETERS = "parameters"

_INT64 = ("int64",)


def read(node: NodeFacts) -> Call:
    """Read a node of the domain.

    Raises:
        OperatorError: the node breaks a rule.
    """
    if node.op_type in FIXED:
        return FixedCall(from_json(node.op_type, node.string(PARAMETERS)), "prepared")
    if node.op_type not in BLOCKS:
        raise OperatorError(f"domain {DOMAIN!r} has no operator {node.op_type!r}")
    kind, table = BLOCKS[node.op_type]
    block = vector(node, "block_shape", 1, _INT64, length_of_pairs(node, 2))
    begins, ends = pairs(node, table, 2, _INT64, block.length)
    rank = None
    if node.attributes.get(BATCH_ENTRY, 0):
        rank = block.length
        block = without_batch("block_shape", block, 1)
        begins = without_batch(table, begins, 0)
        ends = without_batch(table, ends, 0)
    return BlockCall(kind, block, begins, ends, "prepared", rank=rank)


def as_json(operator: FixedOperator) -> str:
    """Return the attribute `parameters`: the operator's fields as a JSON object."""
    return json.dumps(asdict(operator), separators=(",", ":"))


def from_json(name: str, text: str) -> FixedOperator:
    """Return the operator of that name, one of `FIXED`, from the text of `as_json`.

    Raises:
        OperatorError: the text does not describe its parameters.
    """
    try:
        fields = json.loads(text)
        lists: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()
        }
        return FIXED[name](**lists)
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, OperatorError):
            raise
        raise OperatorError(
            f"attribute {PARAMETERS} holds no parameters of {name}: {error}", code=Code.ATTRIBUTE
        ) from None
