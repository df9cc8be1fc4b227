"""Make tf2onnx keep the spatial operators as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx

#: Domain in which tf2onnx puts operators of TensorFlow.
DOMAIN = "ai.onnx.converters.tensorflow"

#: TensorFlow's spatial operators. tf2onnx writes some of them as chains of slices and fails at others.
OP_TYPES = (
    "SpaceToBatch",
    "BatchToSpace",
    "SpaceToBatchND",
    "BatchToSpaceND",
    "ExtractImagePatches",
    "ExtractVolumePatches",
)

#: (tf2onnx's graph, its node, name of the node, arguments) -> the node.
Handler = Callable[[Any, Any, str, list[Any]], Any]


def handlers(domain: str = DOMAIN) -> dict[str, tuple[Handler, list[Any]]]:
    """Return `custom_op_handlers` for tf2onnx that keep the spatial operators in a domain.

    They also import the domain, if the main graph has such operators. For those in branches and loop
    bodies `extra_opset=extra_opset()` imports it in any case.
    """

    def keep(graph: Any, node: Any, name: str, arguments: list[Any]) -> Any:
        node.domain = domain
        imports = graph.extra_opset
        if all(each.domain != domain for each in imports or ()):
            # A setter that leaves the other options alone does not exist.
            graph._extra_opset = [*(imports or ()), *extra_opset(domain)]
        return node

    return dict.fromkeys(OP_TYPES, (keep, []))


def extra_opset(domain: str = DOMAIN) -> list[onnx.OperatorSetIdProto]:
    """Return `extra_opset` for tf2onnx: version 1 of the domain of the operators."""
    return [onnx.helper.make_opsetid(domain, 1)]
