"""Operators that look along the channels only commute with SpaceToBatch; others stay, with a reason."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import structure
from adapter import plan
from onnx import numpy_helper, parser

import onnx_spatial

TF = "ai.onnx.converters.tensorflow"
RNG = np.random.default_rng(5)
ARRAYS = {
    "block": np.array([2, 2]),
    "pads": np.array([[0, 1], [0, 0]]),
    "last": np.array(-1),
    "rows": np.array(1),
    "axis": np.array([3]),
    "two": np.array([2]),
    "higher": np.array([0, 1, 0, 0, 0, 0, 0, 0]),
    "twice": np.array([1, 1, 1, 2]),
    "matrix": RNG.normal(size=(4, 3)).astype(np.float32),
    "cube": RNG.normal(size=(2, 4, 3)).astype(np.float32),
    "by_4": np.array([-1, 4]),
    "by_2": np.array([-1, 2]),
    "of_rows": np.array([1]),
    "nothing": np.array([0, 0]),
    "behind": np.array([2**31, 2]),
    "both": np.array([1, 3]),
    "far": np.array([10**9, 10**9]),
    "channels": np.array([-3]),
    "one_less": np.array([2**31, -1]),
    "of_image": np.array([2, 3]),
    "columns": np.array([3, 2]),
    "cut": np.array([4, 4, 2, 2, 4]),
    "other": np.array([4, 2, 8, 3]),
}


def model(body: str, opset: int = 23, given: str = "float[1, 7, 8, 4] x") -> onnx.ModelProto:
    """Nodes from `s` to `c` between SpaceToBatch and BatchToSpace, channels last."""
    made = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}, "{TF}" : 1]>\n'
        f"g ({given}) => (float[?,?,?,?] y) {{"
        f"s = {TF}.SpaceToBatchND(x, block, pads) {body} y = {TF}.BatchToSpaceND(c, block, pads) }}"
    )
    read = {name for node in made.graph.node for name in node.input}
    tensors = [numpy_helper.from_array(a, n) for n, a in ARRAYS.items() if n in read]
    made.graph.initializer.extend(tensors)
    return made


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        ("c = MatMul(s, matrix)", ["MatMul"]),
        ("i = ArgMax <axis = 3> (s) c = Cast <to = 1> (i)", ["ArgMax", "Cast"]),
        (
            "i = ArgMin <axis = -1, keepdims = 0> (s) f = Cast <to = 1> (i) c = Unsqueeze(f, axis)",
            ["ArgMin", "Cast", "Unsqueeze"],
        ),
    ],
)
def test_an_operator_along_the_channels_needs_no_blocks(body, ops):
    result = onnx_spatial.convert(model(body))
    assert structure.ops(result.model) == ops
    assert result.verification
    assert {site.proven for site in result.verification.operators} == {"these sizes"}


ANY = "float[N, H, W, 4] x"

WHOLE = """
    shape = Shape(s) ends = Gather(shape, of_rows) starts = Sub(ends, ends)
    c = Slice(s, starts, ends, of_rows)
"""


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        (WHOLE, []),
        ("c = Slice(s, nothing, behind, both)", ["Slice"]),
        ("c = Slice(s, nothing, far, of_image)", ["Slice"]),
    ],
)
def test_a_slice_may_keep_all_of_the_blocked_axes(body, ops):
    result = onnx_spatial.convert(model(body, given=ANY))
    assert result.verification
    assert [o for o in structure.ops(result.model) if o != "Identity"] == ops


def test_softmax_of_old_opsets_flattens_all_axes_behind_one():
    last = onnx_spatial.convert(model("c = Softmax <axis = 3> (s)", 11))
    assert structure.ops(last.model) == ["Softmax"]
    assert last.verification
    assert "Softmax looks along several axes" in declined(model("c = Softmax(s)", 11))


def declined(made: onnx.ModelProto) -> str:
    return "; ".join(d for site in plan(made).operators for d in site.declined)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("c = Tile(s, twice)", "Tile needs neighbours along the blocked axes"),
        ("c = CumSum(s, rows)", "CumSum needs neighbours along the blocked axes"),
        (
            "i = ArgMax <axis = 1> (s) c = Cast <to = 1> (i)",
            "ArgMax runs along a blocked axis",
        ),
        ("c, i = TopK(s, two)", "TopK is not known to be position-independent"),
        ("c = Pad(s, higher)", "Pad needs neighbours along the blocked axes"),
        ("c = ReduceMean(s, which)", "the axes of ReduceMean are unknown"),
        ("c = Slice(s, nothing, one_less, columns)", "Slice cuts a blocked axis"),
        ("c = Slice(s, nothing, one_less, which)", "the axes of Slice are unknown"),
        ("r = Reshape(s, by_2) c = Reshape(r, other)", "Reshape splits or joins axes"),
        ("r = Reshape(s, by_4) c = Reshape(r, other)", "Reshape splits or joins axes"),
        ("r = Reshape(s, cut) c = Reshape(r, other)", "Reshape splits or joins axes"),
        ("c = MatMul(s, factor)", "or multiplies by no matrix"),
        ("c = MatMul(s, cube)", "or multiplies by no matrix"),
    ],
)
def test_the_reason_names_the_obstacle(body, reason):
    made = model(body, given="float[1, 7, 8, 4] x, int64[] which, float[] factor")
    for given in made.graph.input[1:]:
        given.type.tensor_type.ClearField("shape")
    assert reason in declined(made)
