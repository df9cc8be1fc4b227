"""Convert a model as every test does: what was given stays as it was, what comes out is valid."""

from __future__ import annotations

from typing import Any

import onnx

from onnx_spatial import ConversionError
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import EditResult, convert_operators, refusals


def plan(model: onnx.ModelProto, **options: Any) -> EditResult:
    """`convert_operators`, which must leave its argument alone."""
    before = model.SerializeToString(deterministic=True)
    made = convert_operators(model, ConvertOptions(**options))
    assert model.SerializeToString(deterministic=True) == before
    return made


def convert(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """The converted model, checked by onnx.

    Raises:
        ConversionError: an operator is refused.
    """
    made = plan(model, **options)
    if refused := made.refused():
        raise ConversionError(refusals(refused))
    assert made.model is not None
    declared = (*model.graph.input, *model.graph.output)
    if all(v.type.tensor_type.HasField("shape") for v in declared):  # the checker wants a rank
        onnx.checker.check_model(made.model)
    return made.model


def refusal(model: onnx.ModelProto, **options: Any) -> str:
    """Why the only operator of the model that is refused is refused."""
    (site,) = plan(model, **options).refused()
    assert site.reason is not None
    return site.reason
