"""Vectors too long to be shapes are kept from onnx's data propagation; all others are not."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from onnx_spatial.model.inference import shape_inference

LONGEST = shape_inference.MAX_SIZES
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def infer(text: str) -> onnx.ModelProto:
    return shape_inference.infer(parser.parse_model(HEAD + text), lambda number, types: None)


def dims(model: onnx.ModelProto, name: str) -> tuple[object, ...] | None:
    return next(shape_inference.dims(v.type) for v in model.graph.value_info if v.name == name)


def test_what_was_put_in_is_taken_out():
    text = """g (int64[5000] x) => (int64[m] z)
        <int64[1] one = {1}, int64[1] two = {2}> {
            [first] y = Slice(x, one, two)
            [second] w = Slice(x, one, two)
            z = Add(y, w)
    }"""
    model = infer(text)
    given = parser.parse_model(HEAD + text)
    assert [n.SerializeToString() for n in model.graph.node] == [
        n.SerializeToString() for n in given.graph.node
    ]
    assert [v.name for v in model.graph.value_info] == ["y", "w"]


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ([LONGEST], (LONGEST,)),
        ([LONGEST + 1], (None,)),
        ([10**9, 10**9], (10**9, 10**9)),
        ([2, -1, 3], (2, None, 3)),
        ([2, -(2**62), 2**62], (2, None, None)),
    ],
)
def test_a_bound_hides_long_vectors_negative_sizes_and_what_could_overflow(declared, shown):
    known = onnx.helper.make_tensor_type_proto(7, declared)
    assert shape_inference.dims(shape_inference.output_type(known, LONGEST)) == shown
