"""Small tensors that are taken apart and put together: what stands where afterwards."""

from __future__ import annotations

import pytest
from onnx import parser

from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.symbolic.symbolic_values import (
    ElementKey,
    Polynomial,
    SymbolicValues,
)

HELD = """int64[1] k0 = {0}, int64[1] k1 = {1}, int64[1] k2 = {2}, int64[1] km1 = {-1}, int64 s1 = {1},
    int64 s3 = {3}, int64[2] k31 = {3, 1}, int64[2] k13 = {1, 3}, int64[2] k22 = {2, 2},
    int64[1] far = {9223372036854775807}, int64[1] below = {-9223372036854775808},
    int64[1] km9 = {-9}, int64[2] k02 = {0, -1}, bool[4] some = {1, 0, 0, 1}, int64[0] none = {}"""


def moved(nodes: str, opset: int = 17) -> tuple[object, object]:
    """Elements of `v` and its shape; letters stand for the elements of p, q and the 2x2 tensor m."""
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : {opset}]>
        g (int64[4] p, int64[4] q, int64[2,2] m, float[6] x, int64 late) => (int64[M] v)
        <{HELD}> {{ {nodes} }}""")
    scope, *_ = (scope for scope, _ in constant_folding.scopes(model))
    sizes = SymbolicValues(scope)
    letters = {
        Polynomial.atom(ElementKey(scope, name, i)): letter
        for name, four in (("p", "abcd"), ("q", "efgh"), ("m", "ijkl"))
        for i, letter in enumerate(four)
    }
    found = sizes.entries("v")
    if found is None:
        return None, None
    words = [str(e.constant) if e.constant is not None else letters[e] for e in found]
    return " ".join(words), sizes.shape_of_entries("v")


@pytest.mark.parametrize(
    ("nodes", "elements", "shape"),
    [
        ("v = Identity(p)", "a b c d", (4,)),
        ("v = Slice(p, k1, far)", "b c d", (3,)),
        ("v = Slice(p, k1, km1, k0)", "b c", (2,)),
        ("v = Slice(p, k0, far, k0, k2)", "a c", (2,)),
        ("v = Slice(p, km1, below, k0, km1)", "d c b a", (4,)),
        ("v = Slice(p, km9, below, k0, km1)", "a", (1,)),  # as onnxruntime, unlike Python
        ("v = Slice(p, k2, k1)", "", (0,)),
        ("v = Slice(m, k1, k2, k1)", "j l", (2, 1)),
        ("v = Gather(p, k31)", "d b", (2,)),
        ("v = Gather <axis = 0> (p, s3)", "d", ()),
        ("v = Gather <axis = 1> (m, km1)", "j l", (2, 1)),
        ("v = Concat <axis = 0> (p, k1, q)", "a b c d 1 e f g h", (9,)),
        ("v = Concat <axis = -1> (m, m)", "i j i j k l k l", (2, 4)),
        ("v = Reshape(p, k22)", "a b c d", (2, 2)),
        ("v = Reshape(m, km1)", "i j k l", (4,)),
        ("v = Reshape(m, k02)", "i j k l", (2, 2)),
        ("v = Flatten <axis = 0> (m)", "i j k l", (1, 4)),
        ("v = Flatten(p)", "a b c d", (4, 1)),
        ("v = Unsqueeze(p, k0)", "a b c d", (1, 4)),
        ("v = Unsqueeze(p, km1)", "a b c d", (4, 1)),
        ("t = Unsqueeze(p, km1) v = Squeeze(t, k1)", "a b c d", (4,)),
        ("t = Unsqueeze(p, km1) v = Squeeze(t)", "a b c d", (4,)),
        ("v = Transpose(m)", "i k j l", (2, 2)),
        ("v = Transpose <perm = [0, 1]> (m)", "i j k l", (2, 2)),
        ("v, w = Split(p, k13)", "a", (1,)),
        ("w, v = Split(p, k13)", "b c d", (3,)),
        ("w, v = Split(p)", "c d", (2,)),
        ("v = Expand(m, k1)", "i j k l", (2, 2)),
        ("t = Slice(p, k0, k1) v = Expand(t, k22)", "a a a a", (2, 2)),
        ("v = Where(some, p, q)", "a f g d", (4,)),
        ("t = GreaterOrEqual(p, p) v = Where(t, p, q)", "a b c d", (4,)),
        ("t = Less(p, p) v = Where(t, p, q)", "e f g h", (4,)),
        ("u = Add(p, k1) t = Greater(u, p) v = Where(t, p, q)", "a b c d", (4,)),
        ("v = Range(s1, s3, s1)", "1 2", (2,)),
        ("t = Shape(p) v = ConstantOfShape <value = int64[1] {7}> (t)", "7 7 7 7", (4,)),
        ("t = Cast <to = 6> (p) v = Cast <to = 7> (t)", "a b c d", (4,)),
        ("t = Neg(p) v = Neg(t)", "a b c d", (4,)),
        ("t = Sum(p, q, p) w = Add(p, p) v = Sub(t, w)", "e f g h", (4,)),
        ("v = CastLike(p, k0)", "a b c d", (4,)),
    ],
)
def test_elements_keep_what_they_are(nodes, elements, shape):
    assert moved(nodes) == (elements, shape)


@pytest.mark.parametrize(
    ("nodes", "opset", "elements"),
    [
        ("v = Slice <starts = [1], ends = [3]> (p)", 9, "b c"),
        ("v = Slice <starts = [1], ends = [2], axes = [1]> (m)", 9, "j l"),
        ("t = Unsqueeze <axes = [1]> (p) v = Squeeze <axes = [1]> (t)", 11, "a b c d"),
        ("v, w = Split <split = [1, 3]> (p)", 11, "a"),
        ("w, v, u = Split <num_outputs = 3> (p)", 18, "c d"),
        ("w, u, v = Split <num_outputs = 3> (p)", 18, ""),
        ("v = Reshape <allowzero = 1> (p, k22)", 17, "a b c d"),
    ],
)
def test_the_spellings_of_other_opsets(nodes, opset, elements):
    assert moved(nodes, opset)[0] == elements


@pytest.mark.parametrize(
    "nodes",
    [
        "t = Unsqueeze(late, k0) v = Gather(p, t)",
        "t = Unsqueeze(late, k0) v = Slice(p, t, far)",
        "v = GatherND(p, k1)",
        "v = GatherElements(p, k1)",
        "v = Tile(p, k2)",
        "v = Squeeze(m, none)",
        "v = Range(s1, late, s1)",
        "v = Add <axis = 0, broadcast = 1> (p, q)",
        "t = Unsqueeze(p, k1) u = Expand(t, far) v = Identity(u)",
        "t = Gather(p, far) v = Identity(t)",
        "v = local.Shape(p)",
    ],
)
def test_what_depends_on_the_run_or_is_not_understood(nodes):
    assert moved(nodes) == (None, None)
