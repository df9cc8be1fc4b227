"""Ranks and element types that follow backward, from what reads a value."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper, parser

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.symbolic import rank_inference

HEAD = '<ir_version: 9, opset_import: ["" : 18, "other" : 1]>\n'
#: What graphs may read, by name.
STORED = {
    "w5": np.ones((3, 3, 2, 2, 2), np.float32),
    "w1": np.ones(2, np.float32),
    "square": np.ones((2, 2), np.float32),
    "number": np.float32(2),
    "scales": np.ones(4, np.float32),
    "nothing": np.ones(0, np.float32),
    "ones": np.ones(4, np.int64),
    "zeros": np.zeros(8, np.int64),
    "two": np.array([0, 1]),
    "one": np.array([1]),
    "axis0": np.array([0]),
    "first": np.array(0),
    "flat": np.array([-1, 1]),
    "no": np.array(False),
}

#: What reads a value, and the rank that it has then.
SETTLED = {
    "y = Conv(a, w5)": 5,
    "y = ConvTranspose(a, w5)": 5,
    "y = MaxPool <kernel_shape = [1]> (a)": 3,
    "y = AveragePool <kernel_shape = [1, 1], pads = [0, 0, 0, 0]> (a)": 4,
    "y = Transpose <perm = [0, 2, 1]> (a)": 3,
    "y = Pad(a, zeros)": 4,
    "y = Tile(a, ones)": 4,
    "y = Resize(a, nothing, scales)": 4,
    "y = SpaceToDepth <blocksize = 1> (a)": 4,
    "b = Sigmoid(a) c = Add(b, number) y = Conv(c, w5)": 5,
    "b = Mul(number, a) c = Clip(b) d = Sub(w1, c) y = Conv(d, w5)": 5,
    "b = Slice(a, one, one) c = Softmax(b) y = Transpose <perm = [1, 0]> (c)": 2,
    "b = Unsqueeze(a, one) y = Transpose <perm = [0, 2, 1]> (b)": 2,
    "b = Squeeze(a, one) y = Transpose <perm = [0, 1]> (b)": 3,
    "b = ReduceSum(a, axis0) y = Conv(b, w5)": 5,
    "b = ReduceSum <keepdims = 0> (a, two) y = Transpose <perm = [1, 0]> (b)": 4,
    "b = ArgMax <keepdims = 0> (a) y = Transpose <perm = [1, 0]> (b)": 3,
    "b = Gather(a, first) y = Transpose <perm = [1, 0]> (b)": 3,
    "b = Gather(a, two) y = Transpose <perm = [1, 0]> (b)": 2,
    "b, c = Split <num_outputs = 2, axis = 1> (a) y = Transpose <perm = [1, 0]> (c)": 2,
}
#: What reads a value and leaves it open.
OPEN = (
    "y = Relu(a)",
    "y = Transpose(a)",
    "b = Add(a, a) c = Mul(b, b) y = Relu(c)",
    "b = Add(a, square) y = Transpose <perm = [1, 0]> (b)",
    "b = PRelu(square, a) y = Transpose <perm = [1, 0]> (b)",
    "t = Greater(square, number) b = Where(t, a, square) y = Transpose <perm = [1, 0]> (b)",
    "b = Reshape(a, flat) y = Transpose <perm = [1, 0]> (b)",
    "b = Flatten(a) y = Transpose <perm = [1, 0]> (b)",
    "b = Expand(a, ones) y = Transpose <perm = [1, 0, 2, 3]> (b)",
    "b = MatMul(square, a) y = Identity(b)",
    "b = ReduceSum <keepdims = 0> (a) y = Identity(b)",
    # onnxruntime joins what is empty with anything.
    "b = Concat <axis = 0> (a, square) y = Transpose <perm = [1, 0]> (b)",
)


def model(body: str) -> onnx.ModelProto:
    """A graph that reads a value `a` of which only the type is known."""
    made = parser.parse_model(f"{HEAD} g (float[1] a) => (float[1] y) {{ {body} }}")
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.ClearField("shape")
    for name, array in STORED.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    if "ArgMax" in body:
        made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return made


def rank_of(made: onnx.ModelProto, name: str = "a", **outputs: int) -> int | None:
    while rank_inference.declare(
        made, shape_inference.infer(made, lambda number, types: None), outputs
    ):
        pass
    graph = made.graph
    known = {v.name: v.type for v in (*graph.value_info, *graph.output, *graph.input)}
    dims = shape_inference.dims(known.get(name))
    return None if dims is None else len(dims)


#: onnxruntime 1.23 ends the process on a Conv of another rank than its weights'.
OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 31)


def ranks_that_run(made: onnx.ModelProto) -> set[int]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = set()
    for rank in range(7):
        large = (
            (size, other, 2, 2, 2, 2)[:rank] for size, other in ((1, 3), (2, 1), (2, 2), (3, 3))
        )
        for shape in (*large, *([(0, 5, 2)] if rank == 3 else [])):
            try:
                session.run(None, {"a": np.ones(shape, np.float32)})
            except Exception:
                continue
            found.add(rank)
    return found


@pytest.mark.parametrize(("body", "rank"), SETTLED.items())
def test_a_reader_settles_the_rank(body: str, rank: int) -> None:
    made = model(body)
    assert OLD or ranks_that_run(made) == {rank}
    assert rank_of(made) == rank


@pytest.mark.parametrize("body", OPEN)
def test_no_rank_is_claimed_that_a_run_may_contradict(body: str) -> None:
    made = model(body)
    assert OLD or len(ranks_that_run(made)) > 1
    assert rank_of(made) is None


def test_a_branch_need_not_run() -> None:
    """What it reads of the graph around it may be anything then; what it computes itself may not."""
    made = model(
        "y = If (no) <then_branch = t () => (float[?] z) { d = other.Foreign(a) e = Neg(d)"
        " z = Conv(e, w5) },"
        " else_branch = e () => (float[?] z) { z = Identity(w5) }>"
    )
    then = made.graph.node[0].attribute[0].g
    then.node[2].input[0] = "a"
    assert rank_of(made) is None
    then.node[2].input[0] = "e"
    assert rank_of(made) is None
    found = {
        v.name: (len(shape_inference.dims(v.type)), shape_inference.element_type(v.type))
        for v in then.value_info
    }
    assert found["d"] == found["e"] == (5, TensorProto.FLOAT)


def test_the_type_follows_too() -> None:
    made = model("b = other.Foreign(a) c = Neg(b) d = Mul(c, number) y = Conv(d, w5)")
    assert rank_of(made, "b") == 5
    (info,) = [v for v in made.graph.value_info if v.name == "b"]
    assert shape_inference.element_type(info.type) == TensorProto.FLOAT


def test_an_output_says_of_what_rank_it_is_where_nothing_else_does() -> None:
    body = "b = other.Foreign(a) y = Relu(b)"
    assert rank_of(model(body), "b") is None
    assert rank_of(model(body), "b", y=4) == 4
    assert rank_of(model("b = other.Foreign(a) y = Conv(b, w5)"), "b", y=4) == 5


def test_nothing_is_declared_of_what_is_left_out() -> None:
    made = model("b = other.Foreign(a) y = Conv(b, w5) u = MaxPool <kernel_shape = [1, 1, 1]> (y)")
    made.graph.node[2].output.append("")
    rank_of(made)
    assert "" not in {v.name for v in made.graph.value_info}


@pytest.mark.parametrize(
    "body", ["y = Conv(a)", "y = Transpose <perm = 3> (a)", "y = Squeeze(a, w5)", "y = Gather(a)"]
)
def test_nodes_that_break_their_rules_say_nothing(body: str) -> None:
    assert rank_of(model(body)) is None
