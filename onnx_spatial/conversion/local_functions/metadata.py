"""How a function of ours is told: a metadata key that says which operator its calls were."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.operators.spellings import LEFTOVER_OP_TYPES, OP_TYPES

#: Metadata key on every function that we make: "domain:op_type" of the nodes that call it, as they
#: were in the file.
MARK = "onnx_spatial.function"


#: Nodes of a body. Ours have fewer than a hundred; longer ones would multiply when inlined.
_LARGEST_BODY = 1000


class Spelled(NamedTuple):
    """Domain and operator type of a node as the file spelled it."""

    domain: str
    op_type: str


def mark(function: onnx.FunctionProto, spelled: Spelled) -> None:
    """Make a function ours."""
    function.metadata_props.add(key=MARK, value=f"{spelled.domain}:{spelled.op_type}")


def spelled(function: onnx.FunctionProto) -> Spelled | None:
    """What the calls of a function were in the file; None if it is not ours.

    A function with the mark that is not of the form that we write is its author's.
    """
    value = next((p.value for p in function.metadata_props if p.key == MARK), None)
    if value is None:
        return None
    domain, separator, op_type = value.rpartition(":")
    of_our_form = (
        separator == ":"
        and op_type in OP_TYPES | LEFTOVER_OP_TYPES
        and not function.overload
        and len(function.input) >= 1
        and len(function.output) == 1
        and len(function.node) <= _LARGEST_BODY
        and all(n.domain == "" and not any(traversal.subgraphs(n)) for n in function.node)
    )
    return Spelled(domain, op_type) if of_our_form else None
