"""Describe one spatial operator: its node and what was inferred."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_spatial.errors import Code, SpatialError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import Call, NodeFacts


@dataclass
class OperatorInfo:
    """A spatial operator: its node in the model as given, and what was inferred.

    Attributes:
        index: position in the order of `model.traversal.nodes`.
        place: the graph that holds the node.
        node: its message.
        opset: version of the default domain there; None if it is not imported.
        facts: facts on which all call sites agree.
        element_types: ONNX element types of the data input, over all call sites.
        call: the operator and its parameters; None if a rule is broken or the domain is unknown.
        error: the broken rule.
        error_code: its code.
        known_domain: whether the domain is known to hold spatial operators.
        output_shape: shape of the output, as far as it is known.
        dead: whether the node is in a function without calls.
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
    error_code: Code | None = None
    output_shape: tuple[Dim, ...] | None = None
    dead: bool = False

    def refuse(self, error: SpatialError) -> None:
        """Keep why the operator cannot be converted."""
        self.error, self.error_code = str(error), error.code


def opset_of(model: onnx.ModelProto, place: traversal.Place) -> int | None:
    """Return the version of the default domain in a graph; None if it is not imported there."""
    imports = model.opset_import
    for function in model.functions:
        if place.function == (function.domain, function.name, function.overload):
            imports = function.opset_import
    return op_traits.opset_of(imports)
