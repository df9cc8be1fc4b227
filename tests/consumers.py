"""What reads a model with local functions: each must accept it, and all must give the same bits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import running
from adapter import plan
from onnx.reference import ReferenceEvaluator

from onnx_spatial import ConversionError


def function_form(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """The model in mode "function".

    Raises:
        ConversionError: an operator is refused.
    """
    made = plan(model, mode="function", **options)
    if made.refused:
        raise ConversionError(made.message)
    assert made.model is not None
    return made.model


def check(model: onnx.ModelProto) -> None:
    """onnx's checker and strict shape inference accept the model."""
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as onnx's inliner decomposes it, completely."""
    inlined = onnx.inliner.inline_local_functions(model)
    assert not inlined.functions
    return inlined


def assert_agree(
    made: onnx.ModelProto, lowered: onnx.ModelProto, feeds: dict[str, np.ndarray]
) -> None:
    """Every consumer accepts the function form and gives the bits of the lowered model."""
    check(made)
    expected = running.run(lowered, feeds)
    for level in running.LEVELS:
        _same(running.run(made, feeds, level), expected)
    _same(running.run(inline(made), feeds, running.LEVELS[0]), expected)
    try:
        evaluated = ReferenceEvaluator(lowered).run(None, feeds)
    except (RuntimeError, ValueError, NotImplementedError):
        return  # there is something in the rest of the model, or in Pad, that it cannot do
    _same(ReferenceEvaluator(made).run(None, feeds), evaluated)


def _same(given: Sequence[object], wanted: Sequence[object]) -> None:
    assert len(given) == len(wanted)
    assert all(
        running.same_bits(np.asarray(a), np.asarray(b)) for a, b in zip(given, wanted, strict=True)
    )
