"""Inline the local functions of a model.

    y = Twice(x)      with Twice(v) = Add(v, v)      becomes      y = Add(x, x)

onnx's inliner ignores default attributes of functions, so they are first written into the calls.
"""

from __future__ import annotations

import logging

import onnx
import onnx.inliner

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference

logger = logging.getLogger(__name__)


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline the functions of a model with onnx's inliner; `model` itself is changed, too.

    A function of another opset than the model's stays unless its version can be converted.

    Raises:
        Exception: any error of the inliner, of many types.
    """
    if not model.functions:
        return model
    _spell_out_defaults(model)
    inlined = onnx.inliner.inline_local_functions(model)
    if inlined.functions:
        shape_inference.forget_negative_dims(model)
        shape_inference.check_negative_dims(model)
        inlined = onnx.inliner.inline_local_functions(model, convert_version=True)
    return inlined


def _spell_out_defaults(model: onnx.ModelProto) -> None:
    """Give each call the default attributes of its function that it lacks, in place."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    for _, _, node in traversal.nodes(model):
        function = functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            given = {a.name for a in node.attribute}
            node.attribute.extend(a for a in function.attribute_proto if a.name not in given)
