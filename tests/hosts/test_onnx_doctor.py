"""The provider of diagnostics, in the real onnx-doctor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import structure
from building import one_node

import onnx_spatial

onnx_doctor = pytest.importorskip(
    "onnx_doctor", reason="needs onnx-doctor (pip install onnx-doctor)"
)
MODELS = Path(__file__).parents[2] / "models"


def diagnose(model: ir.Model, **options: object) -> list:
    from onnx_spatial.hosts.onnx_doctor import SpatialProvider

    return list(onnx_doctor.diagnose(model, [SpatialProvider(**options)]))


def test_operators_are_errors_whose_fix_converts_the_model(tmp_path):
    model = ir.load(MODELS / "function" / "model.onnx")
    messages = diagnose(model)
    assert [(m.severity, m.target.op_type, m.error_code) for m in messages] == [
        ("error", "SpaceToBatchND", "OS504"),
        ("error", "BatchToSpaceND", "OS504"),
    ]
    assert messages[0].location == 'function(zoo.layers:Atrous):node[6](SpaceToBatchND, "to_batch")'
    assert "onnx-spatial convert: " in messages[0].message and messages[0].rule.fixable
    assert messages[0].fix is messages[1].fix  # onnx-doctor applies it once
    messages[0].fix()
    assert diagnose(model) == []
    ir.save(model, tmp_path / "fixed.onnx")
    expected = onnx_spatial.convert(MODELS / "function" / "model.onnx").model
    fixed = onnx.load(tmp_path / "fixed.onnx")
    assert structure.counts(fixed) == structure.counts(expected)
    assert [f.name for f in fixed.functions] == [f.name for f in expected.functions]
    onnxruntime.InferenceSession(tmp_path / "fixed.onnx")


def test_operators_in_bodies_are_found_at_their_nodes():
    model = ir.load(MODELS / "raft" / "model.onnx")
    errors = [m for m in diagnose(model) if m.severity == "error"]
    assert {m.target.name for m in errors} == {
        "while/ExtractImagePatches",
        "while/ExtractImagePatches_1",
    }
    assert all(":body:node[" in m.location for m in errors)


def test_chains_of_standard_nodes_are_information():
    model = ir.load(MODELS / "chains" / "conv1d" / "model.onnx")
    messages = diagnose(model)
    assert {m.severity for m in messages} == {"info"}
    assert all("onnx-spatial optimize: dilated convolution" in m.message for m in messages)
    before = len(model.graph)
    messages[0].fix()
    assert len(model.graph) < before and diagnose(model) == []


def test_refused_operators_have_their_reason_and_no_fix():
    x, block = np.zeros((2, 4, 6, 3), np.float32), np.array([2, 5])
    model = one_node("SpaceToBatchND", (x, block, np.zeros((2, 2), int)))
    (message,) = diagnose(ir.from_proto(model))
    assert message.severity == "error" and message.fix is None and message.error_code == "OS302"
    assert "not divisible by its block, 5" in message.message
    model = one_node("SpaceToBatchND", (x, block, np.zeros((2, 2), int)), domain="my.domain")
    (message,) = diagnose(ir.from_proto(model))
    assert (message.severity, message.error_code, message.fix) == ("warning", "OS404", None)
    (message,) = diagnose(ir.from_proto(model), domains=["my.domain"])
    assert message.error_code == "OS302"
