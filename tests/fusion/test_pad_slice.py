"""Pads and Slices that a region keeps."""

from __future__ import annotations

import interpreter
import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert
from onnx import TensorProto, numpy_helper, parser
from test_dilated_conv import check, model

OPENVINO = "org.openvinotoolkit"


def fed(made: onnx.ModelProto, *names: str, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The model with some of its tables as inputs."""
    for name in names:
        made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == name))
        made.graph.input.append(onnx.helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    return made


def openvino(node: str, transposed: bool) -> onnx.ModelProto:
    """A region whose pads and crops are vectors for all axes, which the run gives."""
    front = "t = Transpose <perm = [0, 3, 1, 2]> (s)" if transposed else "t = Identity(s)"
    back = "b = Transpose <perm = [0, 2, 3, 1]> (c)" if transposed else "b = Identity(c)"
    made = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17, "{OPENVINO}" : 1]>\n'
        f"g (float[N,H,W,3] x, int64[4] begins, int64[4] ends, int64[4] low, int64[4] high)"
        f"=> (float[?,?,?,?] y) <int64[4] block = {{1, 2, 2, 1}}> {{"
        f"s = {OPENVINO}.SpaceToBatch(x, block, begins, ends) {front} c = {node} {back}"
        f"y = {OPENVINO}.BatchToSpace(b, block, low, high) }}"
    )
    kernel = np.random.default_rng(3).normal(size=(3, 3, 3, 3)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(kernel, "w"))
    return made


@pytest.mark.parametrize("transposed", [False, True])
def test_amounts_for_all_axes(transposed):
    node = (
        "Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (t, w)" if transposed else "Sigmoid(t)"
    )
    made = openvino(node, transposed)
    tables = {
        "begins": [0, 1, 2, 0],
        "ends": [0, 2, 0, 0],
        "low": [0, 1, 0, 0],
        "high": [0, 0, 3, 0],
    }
    feeds = {name: np.array(table, np.int64) for name, table in tables.items()}
    converted = convert(made)
    feeds["x"] = np.random.default_rng(5).normal(size=(1, 5, 6, 3)).astype(np.float32)
    wanted = interpreter.run(made, feeds)["y"]
    for level in running.LEVELS:
        (y,) = running.run_session(running.session(converted, level), feeds)
        assert interpreter.difference(y, wanted) is None
    assert structure.counts(converted)["Pad"] == structure.counts(converted)["Slice"] == 1


def test_amounts_that_only_the_run_knows():
    """More may be cropped at one end than is there before the other is padded."""
    tables = {"block": [2, 2], "pads": [[2, 1], [0, 0]], "crops": [[0, 0], [1, 1]]}
    made = model(
        "s = SpaceToBatchND(x, block, pads) a = Sigmoid(s) y = BatchToSpaceND(a, block, crops)",
        **tables,
    )
    fed(made, "pads", "crops", shape=(2, 2))
    feeds = {name: np.array(tables[name]) for name in ("pads", "crops")}
    converted = check(made, (1, 5, 6, 3), **feeds)
    assert (structure.counts(converted)["Pad"], structure.counts(converted)["Slice"]) == (1, 1)


@pytest.mark.parametrize(
    ("pads", "crops", "ops"),
    [
        ([[2, 0], [0, 0]], [[0, 0], [2, 0]], ["Pad", "Slice"]),  # pads one axis and crops another
        ([[0, 0], [0, 0]], [[1, 0], [0, 2]], ["Slice"]),
    ],
)
def test_known_amounts(pads, crops, ops):
    made = model(
        "s = SpaceToBatchND(x, block, pads) a = Relu(s) y = BatchToSpaceND(a, block, crops)",
        given="float[1,4,6,3] x",
        block=[2, 2],
        pads=pads,
        crops=crops,
    )
    converted = check(made, (1, 4, 6, 3))
    assert [op for op in structure.ops(converted) if op in ("Pad", "Slice")] == ops


@pytest.mark.parametrize(("height", "crop"), [("1", 1), ("1", 2), ("H", 3)])
def test_what_may_be_all_of_an_axis_is_cropped_after_it_is_padded(height, crop):
    """In one Pad, onnxruntime 1.23 fails or writes anything."""
    made = model(
        "s = SpaceToBatchND(x, block, pads) y = BatchToSpaceND(s, block, crops)",
        given=f"float[1,{height},2,3] x",
        block=[2, 2],
        pads=[[4, 1], [0, 0]],
        crops=[[0, crop], [0, 0]],
    )
    converted = check(made, (1, 1, 2, 3))
    between = [op for op in structure.ops(converted) if op in ("Pad", "Slice")]
    assert between == (["Pad"] if crop == 1 else ["Pad", "Slice"])
