"""Our own spelling: the nodes that `onnx_spatial.custom_ops` writes and its Python operators run.

    SpaceToBatch    x, block_shape[M], paddings[M,2]     both int64
    BatchToSpace    x, block_shape[M], crops[M,2]        both int64
    any other       x                                    parameters: a JSON object, see `as_json`

all in the domain `onnx_spatial.ops`, each with an attribute `site` that says in words where the
node comes from. With `batch_entry` = 1 the tables hold R entries instead of M: the batch axis too,
whose entry must be 1, 0, 0.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import OPERATORS, BatchToSpace, FixedOperator, SpaceToBatch
from onnx_spatial.operators.spellings.block_call import BlockCall
from onnx_spatial.operators.spellings.call import Call, FixedCall, NodeFacts, Vector
from onnx_spatial.operators.spellings.parameters import length_of_pairs, pairs, vector

DOMAIN = "onnx_spatial.ops"
VERSION = 1

#: Operator and the name of its table of amounts.
BLOCKS: dict[str, tuple[type[SpaceToBatch] | type[BatchToSpace], str]] = {
    "SpaceToBatch": (SpaceToBatch, "paddings"),
    "BatchToSpace": (BatchToSpace, "crops"),
}
#: Operators all of whose parameters are in the attribute PARAMETERS.
FIXED = {kind.name: kind for kind in OPERATORS if issubclass(kind, FixedOperator)}
OP_TYPES = frozenset({*FIXED, *BLOCKS})

#: Attributes, each of which every node has (FIXED have no BATCH_ENTRY, the others no PARAMETERS).
SITE = "site"
BATCH_ENTRY = "batch_entry"
PARAMETERS = "parameters"

_INT64 = ("int64",)


def read(node: NodeFacts) -> Call:
    """The operator that a node of our domain asks for.

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
        block = _without_batch("block_shape", block, 1)
        begins = _without_batch(table, begins, 0)
        ends = _without_batch(table, ends, 0)
    return BlockCall(kind, block, begins, ends, "prepared", rank=rank)


def _without_batch(name: str, entries: Vector, neutral: int) -> Vector:
    if not entries.length:
        raise OperatorError(f"{name} is empty; with batch_entry it begins with the batch axis")
    if entries.values is None:
        start = entries.start + entries.step
        return replace(entries, length=entries.length - 1, start=start)
    check_batch_entry(name, entries.values[0], neutral)
    return Vector(entries.length - 1, entries.values[1:])


def check_batch_entry(name: str, value: int, neutral: int) -> None:
    """Refuse to block, pad or crop the batch axis.

    Raises:
        OperatorError: the entry is not neutral.
    """
    if value != neutral:
        raise OperatorError(f"{name}: the entry of the batch axis is {value}; it must be {neutral}")


def as_json(operator: FixedOperator) -> str:
    """The attribute `parameters`: the operator's fields by name."""
    return json.dumps(asdict(operator), separators=(",", ":"))


def from_json(name: str, text: str) -> FixedOperator:
    """The operator of that name, one of `FIXED`, that `as_json` wrote.

    Raises:
        OperatorError: the text is something else.
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
            f"attribute {PARAMETERS} holds no parameters of {name}: {error}"
        ) from None
