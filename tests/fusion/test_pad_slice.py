"""Pads and Slices that a region keeps, and how few nodes compute their amounts."""

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
def test_vectors_for_all_axes_are_joined(transposed):
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
    ops = structure.ops(converted)
    amounts = ["Concat", "Gather", "Pad"] * 2
    assert [op for op in ops if op in ("Concat", "Gather", "Pad")] == amounts
    assert ops.count("Neg") == 1


def test_a_crop_that_only_the_run_knows_is_a_pad():
    """Of two Pads: more may be cropped at one end than is there before the other is padded."""
    tables = {"block": [2, 2], "pads": [[2, 1], [0, 0]], "crops": [[0, 0], [1, 1]]}
    made = model(
        "s = SpaceToBatchND(x, block, pads) a = Sigmoid(s) y = BatchToSpaceND(a, block, crops)",
        **tables,
    )
    fed(made, "pads", "crops", shape=(2, 2))
    feeds = {name: np.array(tables[name]) for name in ("pads", "crops")}
    converted = check(made, (1, 5, 6, 3), **feeds)
    assert (structure.counts(converted)["Pad"], structure.counts(converted)["Slice"]) == (2, 0)


@pytest.mark.parametrize(
    ("pads", "crops", "ops"),
    [
        ([[2, 0], [0, 0]], [[0, 0], [2, 0]], ["Pad"]),  # pads one axis and crops another
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


def test_a_residual_sum_is_cropped_once():
    """Behind the sum, instead of both of its operands."""
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (t, w)
        a = Add(t, c)
        b = Transpose <perm = [0, 2, 3, 1]> (a)
        y = BatchToSpaceND(b, block, crops)
        """,
        weights={"w": (3, 3, 3, 3)},
        block=[2, 2],
        pads=[[2, 1], [2, 2]],
        crops=[[0, 1], [2, 1]],
    )
    fed(made, "crops", shape=(2, 2))
    converted = check(made, (1, 5, 6, 3), crops=np.array([[0, 1], [2, 1]]))
    assert structure.counts(converted)["Pad"] == 2  # of the image, and to crop the sum


def test_amounts_are_read_in_front_of_the_table_that_joins_them():
    made = model(
        """
        n = Shape(x)
        h = Slice(n, one, two)
        w = Slice(n, two, three)
        more_h = Mod(h, two)
        more_w = Mod(w, two)
        pair_h = Concat <axis = 0> (zero, more_h)
        pair_w = Concat <axis = 0> (zero, more_w)
        row_h = Unsqueeze(pair_h, zero)
        row_w = Unsqueeze(pair_w, zero)
        table = Concat <axis = 0> (row_h, row_w)
        s = SpaceToBatchND(x, block, table)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        a = Sigmoid(t)
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a, w3)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        y = BatchToSpaceND(b, block, table)
        """,
        weights={"w3": (3, 3, 3, 3)},
        block=[2, 2],
        zero=[0],
        one=[1],
        two=[2],
        three=[3],
    )
    converted = check(made, (1, 5, 6, 3), (1, 4, 7, 3))
    assert "Unsqueeze" not in structure.ops(converted)
    assert structure.ops(converted).count("Concat") == 1
    assert len(converted.graph.node) < len(made.graph.node)
