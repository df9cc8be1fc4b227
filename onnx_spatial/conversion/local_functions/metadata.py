"""Mark local functions of this package with the operator that their calls were."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.operators.spellings import LEFTOVER_OP_TYPES, OP_TYPES

#: Metadata key of a marked function: "domain:op_type" of the nodes that call it, as in the file.
MARK = "onnx_spatial.function"

#: Most nodes of a body. Ours have fewer than a hundred; longer ones would multiply when inlined.
_LARGEST_BODY = 1000


class Spelled(NamedTuple):
    """Domain and operator type of a node in the file."""

    domain: str
    op_type: str


def mark(function: onnx.FunctionProto, spelled: Spelled) -> None:
    """Mark a function."""
    function.metadata_props.add(key=MARK, value=f"{spelled.domain}:{spelled.op_type}")


def spelled(function: onnx.FunctionProto) -> Spelled | None:
    """Return the operator that the calls of a function were; None for a function of the user's own.

    A marked function of another form than `body` writes is the user's own, too.
    """
    value = next((p.value for p in function.metadata_props if p.key == MARK), None)
    if value is None:
        return None
    domain, separator, op_type = value.rpartition(":")
    is_ours = (
        separator == ":"
        and op_type in OP_TYPES | LEFTOVER_OP_TYPES
        and not function.overload
        and len(function.input) >= 1
        and len(function.output) == 1
        and len(function.node) <= _LARGEST_BODY
        and all(n.domain == "" and not any(traversal.subgraphs(n)) for n in function.node)
    )
    return Spelled(domain, op_type) if is_ours else None
