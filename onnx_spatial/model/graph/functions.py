"""Model-local functions: their calls with every attribute spelled out, and inlined."""

from __future__ import annotations

import logging

import onnx
import onnx.inliner

from onnx_spatial.model import traversal

logger = logging.getLogger(__name__)


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with its functions inlined, as far as onnx can; it is changed on the way.

    onnx's inliner forgets the default attributes of functions, so calls are given them first. A
    function with another opset than the model's stays unless its version can be converted.

    Raises:
        Exception: whatever the inliner raises, of many types.
    """
    if not model.functions:
        return model
    _spell_out_defaults(model)
    inlined = onnx.inliner.inline_local_functions(model)
    if inlined.functions:
        inlined = onnx.inliner.inline_local_functions(model, convert_version=True)
    return inlined


def _spell_out_defaults(model: onnx.ModelProto) -> None:
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    for _, _, node in traversal.nodes(model):
        function = functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            given = {a.name for a in node.attribute}
            node.attribute.extend(a for a in function.attribute_proto if a.name not in given)
