"""An operator with parameters of the run is compared on its own, also where all data is empty."""

from __future__ import annotations

import onnx
import pytest

import onnx_spatial


@pytest.mark.parametrize("batch", [0, 2])
def test_pads_of_the_run_behind_a_constant_operator(batch):
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[{batch},4,4,2] x, int32[2,2] pads) => (float[?,?,?,?] y)
        <int32[2] block = {{2, 2}}, int32[2,2] none = {{0, 0, 0, 0}}> {{
            a = com.microsoft.SpaceToBatchND(x, block, none)
            y = com.microsoft.SpaceToBatchND(a, block, pads)
        }}""")
    assert onnx_spatial.convert(model).verification.status == "passed"
