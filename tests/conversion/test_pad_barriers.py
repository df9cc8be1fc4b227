"""No Pad that a conversion brings in front of a pool is merged into it by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import reference
import running
import structure
from adapter import convert
from onnx import parser

TF = "ai.onnx.converters.tensorflow"
NONE = "int64[2,2] none = {0, 0, 0, 0}"


def model(ops: str, opset: int = 17) -> onnx.ModelProto:
    """Nodes on x, whose paddings are 1 on each side."""
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "{TF}" : 1]>\n'
        "g (float[N,H,W,2] x) => (float[?,?,?,?] y)"
        f"<int64[2] one = {{1, 1}}, int64[2,2] pads = {{1, 1, 1, 1}}, {NONE},"
        f"int64[8] around = {{0, 1, 1, 0, 0, 1, 1, 0}}> {{ {ops} }}"
    )


def same_numbers(made: onnx.ModelProto, converted: onnx.ModelProto) -> bool:
    feeds = {"x": -np.ones((1, 3, 3, 2), np.float32)}
    (wanted,) = reference.run(made, feeds)
    runs = [running.run_session(running.session(converted, n), feeds) for n in running.LEVELS]
    return all(running.same_bits(y, wanted) for (y,) in runs)


MAXIMUM = "MaxPool <kernel_shape = [2, 2], pads = [0, 0, 0, 0]>"
TURN = "Transpose <perm = [0, 3, 1, 2]>"
AHEAD = f"a = {TF}.SpaceToBatchND(x, one, pads)"


@pytest.mark.parametrize(
    "between",
    [
        f"b = {TURN}(a)",
        "c = Cast<to = 1>(a) b = Cast<to = 1>(c)",
    ],
)
@pytest.mark.parametrize("options", [{"fuse": False}, {"mode": "function"}])
def test_a_pad_of_a_lowering_stays_apart(between, options):
    made = model(f"{AHEAD} {between} y = {MAXIMUM}(b)")
    converted = convert(made, **options)
    assert structure.ops(converted)[-2:] == ["Reshape", "MaxPool"]
    assert same_numbers(made, converted)


def test_a_pool_whose_kernel_the_call_of_a_function_gives():
    plain = model(f"{AHEAD} b = {TURN}(a) y = {MAXIMUM}(b)")
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1, "own" : 1]>\n'
        "g (float[N,H,W,2] x) => (float[?,?,?,?] y)"
        "<int64[2] one = {1, 1}, int64[2,2] pads = {1, 1, 1, 1}>"
        "{ y = own.pool <size = [2, 2]> (x, one, pads) }"
        f'<domain: "own", opset_import: ["" : 17, "{TF}" : 1]> pool <size> (x, one, pads) => (y)'
        f"{{ {AHEAD} b = {TURN}(a) y = MaxPool <kernel_shape: ints = @size> (b) }}"
    )
    converted = convert(made, fuse=False)
    assert [n.op_type for n in converted.functions[0].node][-3:] == ["Shape", "Reshape", "MaxPool"]
    assert same_numbers(plain, converted)


def test_a_pad_of_the_model_is_left_as_it_was():
    """What onnxruntime makes of it is not the conversion's to change."""
    made = model(f"p = Pad(x, around) b = {TURN}(p) z = {MAXIMUM}(b) {AHEAD} y = Neg(a)")
    assert "Reshape" not in structure.ops(convert(made, fuse=False))


def test_a_file_of_an_old_version_gets_a_constant_node():
    made = model(f"{AHEAD} b = {TURN}(a) y = {MAXIMUM}(b)", 11)
    made.ir_version = 3
    made.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in made.graph.initializer
    )
    converted = convert(made, fuse=False)
    onnx.checker.check_model(converted)
    assert structure.ops(converted)[-2:] == ["Reshape", "MaxPool"]
    assert {v.name for v in converted.graph.input} >= {t.name for t in converted.graph.initializer}
