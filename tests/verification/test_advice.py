"""What a verification that failed says is to be done."""

from __future__ import annotations

import onnxruntime
import pytest
from hand_lowered import space_to_batch, space_to_batch_lowered
from onnx import parser

import onnx_spatial

TF = "ai.onnx.converters.tensorflow"
#: onnxruntime's optimizer puts a QuantizeLinear of another type behind the Reshape (1.31.1).
NOT_OPTIMISED = f"""<ir_version: 10, opset_import: ["" : 21, "{TF}" : 1]>
g (int8[6,9,3] x) => (int8[2,24,3] y)
<float scale = {{0.5}}, int8 zero = {{3}}, int32[1] block = {{3}}, int32[1,2] crops = {{1, 2}}> {{
    real = DequantizeLinear(x, scale, zero)
    moved = {TF}.BatchToSpaceND(real, block, crops)
    y = QuantizeLinear(moved, scale, zero)
}}
"""


def test_where_only_the_optimizer_is_wrong_that_is_said():
    original = parser.parse_model(NOT_OPTIMISED)
    converted = onnx_spatial.convert(original, prefer="row-gather", verify=False).model
    try:
        onnxruntime.InferenceSession(converted.SerializeToString())
        pytest.skip("this onnxruntime loads it")
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        pass
    result = onnx_spatial.verify(original, converted)
    assert result.status == "failed"
    assert "an error in onnxruntime's optimizer" in str(result.advice)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    onnxruntime.InferenceSession(converted.SerializeToString(), options)  # as the advice says


def test_where_the_model_is_wrong_the_optimizer_is_not_blamed():
    result = onnx_spatial.verify(
        space_to_batch(), space_to_batch_lowered(split="-1, 4, 2, 3, 3, 1009")
    )
    assert result.status == "failed"
    assert "--no-fuse" in str(result.advice)
