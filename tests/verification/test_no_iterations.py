"""Scan outputs of a Loop without iterations have the shape that is inferred for the body."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial

DOMAIN = "ai.onnx.converters.tensorflow"


def value(name: str, element_type: int, dims: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, dims)


def blocks_in_a_loop(
    trips: int, declared: list[int | str] | None, image: list[int | str] | None = None
) -> onnx.ModelProto:
    """A Loop whose scan output is a SpaceToBatchND of an outer value."""
    arrays = {
        "block": np.array([2, 2], np.int32),
        "pads": np.zeros((2, 2), np.int32),
        "trips": np.array(trips, np.int64),
        "go": np.array(True),
    }
    nodes = [
        helper.make_node("SpaceToBatchND", ["x", "block", "pads"], ["s"], "s2b", domain=DOMAIN),
        helper.make_node("Identity", ["on"], ["still"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", TensorProto.INT64, []), value("on", TensorProto.BOOL, [])],
        [value("still", TensorProto.BOOL, []), value("s", TensorProto.FLOAT, declared)],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "go"], ["y"], "loop", body=body)],
        "g",
        [value("x", TensorProto.FLOAT, image or [2, 4, 4, 1])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def blocks_in_a_scan(rows: int) -> onnx.ModelProto:
    """A Scan over images, each of which is blocked."""
    arrays = {"block": np.array([2, 2], np.int32), "pads": np.zeros((2, 2), np.int32)}
    body = helper.make_graph(
        [helper.make_node("SpaceToBatchND", ["x", "block", "pads"], ["s"], domain=DOMAIN)],
        "body",
        [value("x", TensorProto.FLOAT, [2, 4, 4, 1])],
        [value("s", TensorProto.FLOAT, ["a", "b", "c", "d"])],
    )
    graph = helper.make_graph(
        [helper.make_node("Scan", ["images"], ["y"], body=body, num_scan_inputs=1)],
        "g",
        [value("images", TensorProto.FLOAT, [rows, 2, 4, 4, 1])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def status(model: onnx.ModelProto) -> str:
    return onnx_spatial.convert(model).verification.status


@pytest.mark.parametrize("trips", [0, 2])
@pytest.mark.parametrize("declared", [None, [8, 2, 2, 1], ["a", "b", "c", "d"]])
@pytest.mark.parametrize("image", [[2, 4, 4, 1], ["n", "h", "w", 1]])
def test_a_loop(trips, declared, image):
    if "h" in image and declared == [8, 2, 2, 1]:
        declared = ["a", "b", "c", 1]
    assert status(blocks_in_a_loop(trips, declared, image)) == "passed"


@pytest.mark.parametrize("rows", [1, 3])
def test_a_scan(rows):
    assert status(blocks_in_a_scan(rows)) == "passed"


def test_a_wrong_empty_shape_is_seen():
    model = blocks_in_a_loop(0, None)
    converted = onnx_spatial.convert(model, verify=False).model
    wrong = converted.graph.node[0].attribute[0].g
    shape = next(v for v in wrong.output if v.name == "s").type.tensor_type.shape
    for node in wrong.node:  # make the body's own inference find other sizes
        if node.output[0] == "s":
            node.output[0] = "inner"
    wrong.node.append(helper.make_node("Unsqueeze", ["inner", "axis"], ["s"]))
    wrong.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "axis"))
    del shape.dim[:]
    shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=d) for d in (1, 8, 2, 2, 1))
    assert onnx_spatial.verify(model, converted).status == "failed"
