"""Know the operators of the ONNX standard: which nodes are of them, and in which version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    import onnx_ir as ir

_DOMAINS = ("", "ai.onnx")
#: The newest opset that runtimes agree on, by the first IR version that goes with it.
_OPSET_OF_IR = ((8, 17), (7, 13), (0, 11))


def is_standard_domain(domain: str) -> bool:
    """Tell whether a domain is ONNX's own, in either of its two spellings."""
    return domain in _DOMAINS


def is_standard(node: onnx.NodeProto | ir.Node) -> bool:
    """Tell whether a node's operator is of ONNX's own domain."""
    return node.domain in _DOMAINS


def canonical_domain(domain: str) -> str:
    """Return the one spelling under which domains are compared: "" for ONNX's own."""
    return "" if domain in _DOMAINS else domain


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return the imported versions by canonical domain; the first import of a domain counts."""
    found: dict[str, int] = {}
    for imported in imports:
        found.setdefault(canonical_domain(imported.domain), imported.version)
    return found


def opset_of(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    """Return the version of ONNX's own operators; None if they are not imported."""
    return opsets_of(imports).get("")


def assumed_opset(ir_version: int) -> int:
    """Return the version of ONNX's own operators in a model that does not import them."""
    return next((opset for first, opset in _OPSET_OF_IR if ir_version >= first), 11)
