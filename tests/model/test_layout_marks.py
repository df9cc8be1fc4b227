"""Marked nodes give their values in the old layout, too, and nothing else changes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import running
import structure
from onnx import parser

from onnx_spatial.model.graph import marks


def marked(mark: str, opset: int = 17) -> onnx.ModelProto:
    """A sum of rank 4, marked with what it was in another model."""
    made = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]>'
        "g (float[N,2,1,L] x) => (float[N,2,1,L] y) { s = Add(x, x) y = Relu(s) }"
    )
    made.graph.node[0].metadata_props.add(key=marks.LAYOUT, value=mark)
    return made


@pytest.mark.parametrize("opset", [12, 17])
def test_the_old_value_is_computed_and_nothing_else_changes(opset: int) -> None:
    made = marked("old name 0,2,-,1", opset)
    extended = marks.with_original_values(made)
    assert structure.ops(made) == ["Add", "Relu"]
    x = np.arange(-6, 6, dtype=np.float32).reshape(2, 2, 1, 3)
    assert np.array_equal(*(running.run(m, {"x": x})[0] for m in (made, extended)))
    extended.graph.output.append(onnx.ValueInfoProto(name="old name"))
    old = running.run(extended, {"x": x})[1]
    assert np.array_equal(old, (x + x)[:, :, 0].transpose(0, 2, 1))


def test_an_order_that_is_the_same_is_a_copy() -> None:
    extended = marks.with_original_values(marked("old 0,1,2,3"))
    assert structure.ops(extended) == ["Add", "Identity", "Identity", "Relu"]


@pytest.mark.parametrize("mark", ["", "old", "old 0,0,1", "old 0,1,x", "old 0,3", "x 0,1,2,3"])
def test_damaged_marks_and_names_that_are_taken_are_ignored(mark: str) -> None:
    made = marked(mark)
    assert marks.with_original_values(made) == made
