"""Whole models that only move data run on every bit pattern, too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model, space_to_batch, space_to_batch_lowered

from onnx_spatial import convert
from onnx_spatial.verification.arrays import extremes
from onnx_spatial.verification.checks.bit_patterns import moved_inputs
from onnx_spatial.verification.run.data import patterns
from onnx_spatial.verification.runtime.program import Program

MOVES = """
    g (float[N,4,6,3] x, float[N,3] z, int64[1] i) => (float[A,B,C,D] y, float[E,F] v)
    { y = Transpose<perm = [0, 3, 1, 2]>(x)  w = Gather<axis = 1>(z, i)  v = Relu(w) }
"""


def test_inputs_that_are_only_moved() -> None:
    assert moved_inputs(Program(model(MOVES), ())) == ["x"]


@pytest.mark.parametrize(
    ("body", "moved"),
    [
        ("y = Gather(z, i)", ["z"]),
        ("s = Shape(x) y = Reshape(z, s)", ["z"]),
        ("s = Shape(x) t = Transpose(x) y = Reshape(t, s)", ["x"]),
        ("y = loc.Identity(x)", []),
        ("p = Constant<value = int64[1, 1] {1}>() y = ScatterND(x, p, x)", ["x"]),
        ('p = Constant<value = int64[1, 1] {1}>() y = ScatterND<reduction = "add">(x, p, x)', []),
        (
            "c = Constant<value = float {3.}>() p = Constant<value = int64[4] {0, 0, 1, 0}>() "
            "y = Pad(x, p, c)",
            ["x"],
        ),
    ],
    ids=[
        "places",
        "sizes lead to no output",
        "sizes",
        "of somebody else",
        "scattered",
        "summed",
        "padded",
    ],
)
def test_what_an_input_is_read_for(body: str, moved: list[str]) -> None:
    text = f"g (float[2,3] x, float[6] z, int64[6] i) => (float[E,F] y) {{ {body} }}"
    assert moved_inputs(Program(model(text), ())) == moved


@pytest.mark.parametrize(
    ("body", "moved"),
    [
        ("y = If(b) <then_branch = f () => (float[A,B] o) { o = Identity(x) }, "
         "else_branch = h () => (float[C,D] p) { p = Transpose(x) }>", ["x"]),
        ("y = If(b) <then_branch = f () => (float[A,B] o) { o = Identity(x) }, "
         "else_branch = h () => (float[C,D] p) { p = Relu(x) }>", []),
        ("y = Scan <num_scan_inputs = 1, body = f (float[3] r) => (float[3] o) "
         "{ o = Identity(r) }> (x)", ["x"]),
        ("s, y = Scan <num_scan_inputs = 1, body = f (float[3] a, float[3] r) => "
         "(float[3] c, float[3] o) { o = Neg(a) c = Identity(r) }> (z, x)", []),
        ("s, y = Scan <num_scan_inputs = 1, body = f (float[3] a, float[3] r) => "
         "(float[3] c, float[3] o) { o = Identity(a) c = Identity(r) }> (z, x)", ["x", "z"]),
        ("s, y = Loop(n, b, x) <body = f (int64 i, bool c, float[2,3] a) => "
         "(bool d, float[2,3] e, float[2,3] o) { d = Identity(c) o = Identity(a) e = Identity(z2) }>",
         ["x"]),
        ("s, y = Loop(n, b, x) <body = f (int64 i, bool c, float[2,3] a) => "
         "(bool d, float[2,3] e, float[2,3] o) { d = Identity(c) o = Relu(z2) e = Identity(a) }>",
         []),
        ("y = Loop(n, b, x) <body = f (int64 i, bool c, bool[2,3] a) => "
         "(bool d, bool[2,3] e) { d = Identity(a) e = Identity(a) }>", []),
    ],
    ids=["both branches", "one branch", "scan", "hidden in a state", "states", "loop", "loop, other",
         "it says whether a loop goes on"],
)  # fmt: skip
def test_inputs_that_are_only_moved_in_bodies(body: str, moved: list[str]) -> None:
    text = f"""
        g (float[2,3] x, float[3] z, float[2,3] z2, int64 n, bool b) => (float[E,F] y)
        {{ {body} }}
    """
    found = moved_inputs(Program(model(text), ()))
    assert [name for name in found if name in ("x", "z")] == moved


def test_a_scan_of_opset_8_has_an_input_more_than_its_body() -> None:
    text = """
        g (float[1,2] s, float[1,3,2] x, int64[1] n) => (float[1,2] y, float[1,3,2] z) {
            y, z = Scan <num_scan_inputs = 1, body = f (float[2] a, float[2] r) =>
                (float[2] b, float[2] o) { b = BODY(a) o = Identity(r) }> (LENGTHS, s, x)
        }
    """

    def moved(body: str, lengths: str) -> list[str]:
        changed = text.replace("BODY", body).replace("LENGTHS", lengths)
        return moved_inputs(Program(model(changed, 8, 3), ()))

    assert moved("Identity", "") == ["s", "x"]
    assert moved("Neg", "") == ["x"]
    assert moved("Identity", "n") == ["s", "x"]  # how many turns there are is no data


@pytest.mark.parametrize("through", ["int32", "double"])
def test_numbers_that_are_lost_behind_a_scan_are_seen(through: str) -> None:
    text = """
        g (int64[T,N,4] x) => (int64[T,M,2] y) <int64[1] b = {2}, int64[1,2] p = {0, 0}> {
            y = Scan <num_scan_inputs = 1, body = f (int64[N,4] r) => (int64[M,2] o) {
                o = ai.onnx.converters.tensorflow.SpaceToBatchND (r, b, p) }> (x)
        }
    """
    numbers = {"int32": 6, "double": 11}
    cast = f"short = Cast<to = {numbers[through]}>(s) y = Cast<to = 7>(short)"
    wrong = text.replace("y = Scan", "s = Scan").replace("}> (x)", "}> (x) " + cast)
    right, broken = (convert(model(t), verify=False).model for t in (text, wrong))
    assert verify(model(text), right)
    assert verify(model(text), broken).status == "failed"


def test_arithmetic_on_the_way_of_the_whole_is_seen() -> None:
    """Negative zeros lose their sign in front of the operator, where no comparison of it looks."""
    after = MOVES.replace("y = T", "zero = Constant<value_float = 0.0>() u = Add(x, zero) y = T")
    result = verify(model(MOVES), model(after.replace("(x)", "(u)")))
    assert result.status == "failed"
    assert result.first_difference is not None
    assert {o.name for o in result.outputs if o.passed is False} == {"y"}
    assert verify(model(MOVES), model(MOVES))


@pytest.mark.parametrize("kind", ["float", "double", "int32", "uint8", "bool", "string"])
def test_a_model_of_one_operator(kind: str) -> None:
    text = """
        g (TYPE[N,4,6,3] x) => (TYPE[A,B,C,D] y) <int64[2] b = {2, 2}, int64[2,2] p = {0,0,0,0}>
        { y = BODY }
    """.replace("TYPE", kind)
    site = "ai.onnx.converters.tensorflow.SpaceToBatchND (x, b, p)"
    lowered = """
        Reshape(t, out)
    """
    before = model(text.replace("BODY", site))
    chain = "s = Reshape(x, split) t = Transpose<perm = [2, 4, 0, 1, 3, 5]>(s) y ="
    after = model(
        text.replace("y = BODY", f"{chain} {lowered}").replace(
            "<int64[2] b",
            "<int64[6] split = {-1, 2, 2, 3, 2, 3}, int64[4] out = {-1, 2, 3, 3}, int64[2] b",
        )
    )
    result = verify(before, after)
    assert result, result.message
    assert result.runs[-1].shapes["x"] == result.runs[1].shapes["x"]  # once more, on other bits


def test_extreme_patterns_go_everywhere() -> None:
    array = extremes(onnx.TensorProto.FLOAT, (6, 50), np.random.default_rng(0))
    assert array is not None
    for row in array.view(np.uint32):
        assert {0x80000000, 0x7F800000, 0x7FC00000} <= set(row.tolist())
    assert extremes(onnx.TensorProto.INT32, (4,), np.random.default_rng(0)) is None


@pytest.mark.parametrize("name", ["FLOAT16", "BFLOAT16"])
def test_short_types_have_negative_zero_even_in_small_data(name: str) -> None:
    array = patterns(getattr(onnx.TensorProto, name), (100,), np.random.default_rng(1))
    bits = array.view(np.uint16).tolist()
    assert 0x8000 in bits
    assert len(set(bits)) == 100


def test_the_lost_sign_in_one_slice_is_found() -> None:
    """Each part that a lowering cuts sees every extreme."""
    wrong = space_to_batch_lowered()
    for node in wrong.graph.node:
        if node.op_type == "Transpose":
            node.output[0] = "moved"
            zero = onnx.numpy_helper.from_array(np.float32(0))
            constant = onnx.helper.make_node("Constant", [], ["zero"], value=zero)
            add = onnx.helper.make_node("Add", ["moved", "zero"], ["transposed"])
            index = list(wrong.graph.node).index(node)
            for later in list(wrong.graph.node)[index + 1 :]:
                later.input[0] = "transposed" if later.op_type == "Reshape" else later.input[0]
            wrong.graph.node.insert(index + 1, add)
            wrong.graph.node.insert(index + 1, constant)
            break
    assert verify(space_to_batch(), wrong).status == "failed"
