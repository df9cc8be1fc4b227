"""Any form of a model becomes any other, and every form is the same model."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import onnx
import pytest
from vocabulary import MODES

import onnx_spatial

ZOO = Path(__file__).parents[1] / "models"
NAMES = sorted(p.parent.name for p in ZOO.glob("*/model.onnx"))

pytest.importorskip("onnxruntime_extensions", reason="mode custom-op needs onnxruntime-extensions")


#: From each form to each; every net takes two of these ways by default, all in the weekly run.
CHANGES = list(product(["function", "custom-op"], MODES))
WAYS = [
    pytest.param(name, *change, marks=[] if (net + number) % 3 == 0 else pytest.mark.slow)
    for net, name in enumerate(NAMES)
    for number, change in enumerate(CHANGES)
]


@pytest.mark.parametrize(("name", "before", "after"), WAYS)
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
