"""Replacements that look alike: each is proven by what it computes."""

import numpy as np
import onnx
import pytest
from adapter import convert, prove, verify
from maps import maps
from onnx import numpy_helper

ORIGINAL = """f (float[N,H,3] x, float[N,H,3] z, int64[1] k={2})
    => (float[A,B,3] y1, float[C,D,3] y2, int64[1] y3)
    <int32[1] b={2}, int32[1,2] p={0,0}> {
        y1 = tf.SpaceToBatchND(x, b, p) y2 = tf.SpaceToBatchND(z, b, p) y3 = Identity(k)
    }"""
CONVERTED = """f (float[N,H,3] x, float[N,H,3] z, int64[1] k={2})
    => (float[A,B,3] y1, float[C,D,3] y2, int64[1] y3)
    <int64[1] zero={0}, int64[1] one={1}, int64[1] two={2}, int64[1] three={3}, int64[1] rare={2468},
     int64[1] far={9223372036854775807}> { BODY y3 = Identity(k) }"""


def lowered(number: int, source: str, result: str, two: str = "two") -> str:
    """The nodes in the place of one operator, with names of their own."""
    text = f"""
        @s = Shape({source}) @n = Gather(@s, zero) @h = Gather(@s, one) @cells = Div(@h, {two})
        @split = Concat<axis=0>(@n, @cells, {two}, three)
        @r = Reshape<allowzero=1>({source}, @split) @t = Transpose<perm=[2,0,1,3]>(@r)
        @images = Mul(@n, {two}) @shape = Concat<axis=0>(@images, @cells, three)
        {result} = Reshape<allowzero=1>(@t, @shape)"""
    return text.replace("@", f"v{number}")


def rotated(number: int, source: str, result: str, other: str) -> str:
    """Nodes with two outputs: the right one, and one that is rotated at one size."""
    text = """
        @q = Equal(@h, rare) @k = Cast<to=7>(@q) @u = Slice(@m, @k, far, one)
        @v = Slice(@m, zero, @k, one) @w = Concat<axis=1>(@u, @v) @c = Concat<axis=2>(@m, @w)"""
    split = f"{result}, {other} = Split<axis=2, num_outputs=2>(@c)"
    return lowered(number, source, f"v{number}m") + (text + split).replace("@", f"v{number}")


def proven(body: str) -> dict[str, str | None]:
    """What is proven of both results."""
    original, converted = maps.parse(ORIGINAL), maps.parse(CONVERTED.replace("BODY", body))
    onnx.checker.check_model(converted)
    return {part.output: proof.scope for part, proof in prove(original, converted).parts}


@pytest.mark.parametrize(
    ("body", "scopes"),
    [
        (lowered(1, "x", "y1") + lowered(2, "z", "y2"), {"y1": "all sizes", "y2": "all sizes"}),
        # Other outputs of the same nodes.
        (
            rotated(1, "x", "y1", "other1") + rotated(2, "z", "other2", "y2"),
            {"y1": "all sizes", "y2": None},
        ),
        # By a constant that the caller may replace: y2 is in no part.
        (lowered(1, "x", "y1") + lowered(2, "z", "y2", "k"), {"y1": "all sizes"}),
    ],
)
def test_replacements_that_are_equal_or_look_so(body, scopes):
    assert proven(body) == scopes


LAYERS = 6


def layers() -> onnx.ModelProto:
    """Dilated convolutions in a row, as converters write them, each with weights of its own."""
    body, values = "", ["x", *(f"y{i}" for i in range(1, LAYERS)), "y"]
    for number, source, result in zip(range(LAYERS), values, values[1:], strict=False):
        body += f"""
            s@ = tf.SpaceToBatchND({source}, block, pads) t@ = Transpose<perm=[0,3,1,2]>(s@)
            c@ = Conv(t@, w@) u@ = Transpose<perm=[0,2,3,1]>(c@)
            z@ = tf.BatchToSpaceND(u@, block, none) {result} = Relu(z@)""".replace("@", str(number))
    tables = "int64[2] block={2,2}, int64[2,2] pads={2,2,2,2}, int64[2,2] none={0,0,0,0}"
    made = maps.parse(f"f (float[N,32,32,4] x) => (float[A,B,C,4] y) <{tables}> {{ {body} }}")
    rng = np.random.default_rng(1)
    for number in range(LAYERS):
        weights = rng.normal(size=(4, 4, 3, 3)).astype(np.float32) / 4
        made.graph.initializer.append(numpy_helper.from_array(weights, f"w{number}"))
    return made


@pytest.fixture(scope="module")
def in_a_row() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Equal layers, and their conversion."""
    made = layers()
    return made, convert(made)


@pytest.mark.parametrize("wrong", ["dilations", "weights", "two weights"])
def test_a_region_that_differs_in_anything_else_has_no_part_in_them(in_a_row, wrong):
    made, right = in_a_row
    converted = onnx.ModelProto.FromString(right.SerializeToString())
    convolutions = [node for node in converted.graph.node if node.op_type == "Conv"]
    stored = {tensor.name: tensor for tensor in converted.graph.initializer}
    if wrong == "dilations":
        (dilations,) = (a for a in convolutions[3].attribute if a.name == "dilations")
        (pads,) = (a for a in convolutions[3].attribute if a.name == "pads")
        dilations.ints[:], pads.ints[:] = [3, 3], [3, 3, 3, 3]
    elif wrong == "weights":
        array = numpy_helper.to_array(stored["w3"]).copy()
        array[0, 0, 0, 0] += 1
        stored["w3"].CopyFrom(numpy_helper.from_array(array, "w3"))
    else:
        convolutions[3].input[1], convolutions[4].input[1] = "w4", "w3"
    scopes = [proof.scope for _, proof in prove(made, converted).parts]
    assert scopes.count(None) == (2 if wrong == "two weights" else 1)
    if wrong == "weights":
        assert verify(made, converted).status == "failed"
