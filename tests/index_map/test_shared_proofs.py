"""A proof serves only replacements that compute the same: nodes, output, and constants that stay."""

from __future__ import annotations

import maps
import onnx

from onnx_spatial.verification import verify

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


def proven(body: str) -> list[str]:
    """What is proven of both operators."""
    original, converted = maps.parse(ORIGINAL), maps.parse(CONVERTED.replace("BODY", body))
    onnx.checker.check_model(converted)
    return [site.proven for site in verify(original, converted).sites]


def test_equal_replacements_are_proven():
    body = lowered(1, "x", "y1") + lowered(2, "z", "y2")
    assert proven(body) == ["all sizes", "all sizes"]


def test_other_output_of_the_same_nodes():
    body = rotated(1, "x", "y1", "other1") + rotated(2, "z", "other2", "y2")
    assert proven(body)[1] != "all sizes"


def test_constant_that_the_caller_may_replace():
    body = lowered(1, "x", "y1") + lowered(2, "z", "y2", "k")
    assert proven(body) == ["all sizes", "sampled"]
