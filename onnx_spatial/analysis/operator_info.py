"""One operator node, as the file holds it, with what is known of it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import Call, NodeFacts


@dataclass
class OperatorInfo:
    """One operator node of the model, as the file holds it, with what is known of it.

    Attributes:
        index: position in the order of `model.traversal.nodes`.
        place: graph that holds it.
        node: its message.
        opset: version of the default domain where it stands; None if that is not imported.
        facts: what is known in all of its occurrences.
        element_types: ONNX element types of the data input, over all occurrences.
        call: the operator that it asks for; None if it breaks a rule or is in an unknown domain.
        error: the rule it breaks.
        known_domain: whether it is ours to convert.
        output_shape: shape of its output, as far as it is known.
        dead: it stands in a function that nothing calls.
    """

    index: int
    place: traversal.Place
    node: onnx.NodeProto
    opset: int | None
    known_domain: bool
    facts: NodeFacts
    element_types: frozenset[int] = frozenset()
    call: Call | None = None
    error: str | None = None
    output_shape: tuple[Dim, ...] | None = None
    dead: bool = False


def opset_of(model: onnx.ModelProto, place: traversal.Place) -> int | None:
    """Version of the default domain at a place; None if it is not imported there."""
    imports = model.opset_import
    for function in model.functions:
        if place.function == (function.domain, function.name, function.overload):
            imports = function.opset_import
    return next((o.version for o in imports if o.domain in ("", "ai.onnx")), None)
