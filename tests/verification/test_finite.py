"""Data of patches that is declared to be finite: proven under that assumption, and said so."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import onnx_spatial
from onnx_spatial import chains
from onnx_spatial.passes import SpatialPass

TEXT = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
net (float[N, H, W, 1] x) => (float[N, P, Q, 9] y) {
    a = FRONT (x)
    y = ai.onnx.converters.tensorflow.ExtractImagePatches <ksizes = [1, 3, 3, 1],
        strides = [1, 2, 2, 1], rates = [1, 1, 1, 1], padding = "SAME"> (a)
}
"""


def model(front: str = "Identity") -> onnx.ModelProto:
    return parser.parse_model(TEXT.replace("FRONT", front))


def converted(front: str = "Identity", **options) -> onnx_spatial.Conversion:
    return onnx_spatial.convert(model(front), strategy="convolution", finite=True, **options)


@pytest.mark.parametrize("mode", ["lower", "function"])
@pytest.mark.parametrize("static", [{}, {"N": 1, "H": 9, "W": 8}], ids=["dynamic", "static"])
def test_is_proven_under_the_assumption(mode, static):
    done = converted(mode=mode, static=static)
    (site,) = done.verification.sites
    assert done.inspection.sites[0].strategy == "convolution"
    assert site.proven == ("these sizes" if static else "all sizes")
    assert chains.ASSUMPTION in site.assumptions
    assert any(chains.ASSUMPTION in note for note in done.verification.notes)
    assert chains.ASSUMPTION in json.dumps(done.to_dict())


def test_fails_without_the_declaration():
    done = converted()
    assert onnx_spatial.verify(model(), done.model, finite=True).status == "passed"
    undeclared = onnx_spatial.verify(model(), done.model)
    assert undeclared.status == "failed"
    assert chains.ASSUMPTION not in undeclared.sites[0].assumptions


def test_a_wrong_weight_is_found_all_the_same():
    done = converted(verify=False)
    (weight,) = (t for t in done.model.graph.initializer if len(t.dims) == 4)
    kernel = onnx.numpy_helper.to_array(weight).copy()
    kernel[[0, 1]] = kernel[[1, 0]]
    weight.CopyFrom(onnx.numpy_helper.from_array(kernel, weight.name))
    assert onnx_spatial.verify(model(), done.model, finite=True).status == "failed"


def test_other_lowerings_assume_nothing():
    done = onnx_spatial.convert(model(), strategy="planes", finite=True)
    assert chains.ASSUMPTION not in done.verification.sites[0].assumptions


def test_a_run_on_other_data_decides_nothing():
    """Log makes NaN of the generated data."""
    result = converted("Log").verification
    assert result.status == "unverified"
    assert "not finite as declared" in result.message


def test_negative_zeros_are_not_told_apart():
    x = np.zeros((1, 4, 4, 1), np.float32)
    assert converted("Neg", inputs={"x": x}).verification.status == "passed"


def test_without_the_declaration_nothing_changes():
    done = onnx_spatial.convert(model(), strategy="convolution")
    assert done.inspection.sites[0].strategy != "convolution"
    assert all(node.op_type != "Conv" for node in done.model.graph.node)


def test_optimize_and_the_pass_have_the_option():
    done = onnx_spatial.optimize(model(), strategy="convolution", finite=True)
    assert done.verification.status == "passed"
    assert any(node.op_type == "Conv" for node in done.model.graph.node)
    declared = SpatialPass(strategy="convolution", finite=True)(ir.from_proto(model()))
    assert any(node.op_type == "Conv" for node in declared.model.graph)
