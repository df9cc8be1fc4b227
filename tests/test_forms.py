"""Any form of a model becomes any other, and every form is the same model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from vocabulary import MODES

import onnx_spatial

ZOO = Path(__file__).parents[1] / "models"
NAMES = sorted(p.parent.name for p in ZOO.glob("*/model.onnx"))

pytest.importorskip("onnxruntime_extensions", reason="mode custom-op needs onnxruntime-extensions")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("before", ["function", "custom-op"])
@pytest.mark.parametrize("after", MODES)
def test_any_form_becomes_any_other(name, before, after):
    original = onnx.load(ZOO / name / "model.onnx")
    first = onnx_spatial.convert(original, mode=before, verify=False).model
    second = onnx_spatial.convert(first, mode=after, verify=before != after)
    if before == after:
        assert not second.changed
        assert second.model == first
        return
    assert second.verification
    if after == "function":  # prepared operators go by their own names
        assert all(s.function for s in second.operators)
        return
    direct = onnx_spatial.convert(original, mode=after, verify=False).model
    assert {o.domain for o in second.model.opset_import} == {o.domain for o in direct.opset_import}
    assert [f.name for f in second.model.functions] == [f.name for f in direct.functions]
    assert sorted(n.op_type for n in second.model.graph.node) == sorted(
        n.op_type for n in direct.graph.node
    )


@pytest.mark.parametrize("name", ["deeplab", "raft", "openvino_style", "video"])
@pytest.mark.parametrize("form", ["function", "custom-op"])
def test_every_form_is_verified_against_the_original(name, form):
    original = onnx.load(ZOO / name / "model.onnx")
    made = onnx_spatial.convert(original, mode=form, verify=False).model
    assert onnx_spatial.verify(original, made)
