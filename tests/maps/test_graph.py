"""Names, attributes and conditions of functions and branches are their own."""

from __future__ import annotations

import maps
import onnx
import onnx.parser
import pytest

from onnx_spatial.maps.cases import Case

IDENTITY = "f (int64[N,M] x) => (y) { y = Identity(x) }"

TURNED_TWICE = """<ir_version: 8, opset_import: ["": 18, "own": 1]>
    f (int64[N,M] x) => (y) { a = Transpose(x) b = own.g(a) y = Identity(b) }
    <domain: "own", opset_import: ["": 18]>
    g (x) => (y) { a = Transpose(x) y = Identity(a) }"""

REFERRED = """<ir_version: 8, opset_import: ["": 18, "own": 1]>
    f (int64[N,M] x) => (y) { a = own.g<perm=[1,0]>(x) y = own.g<perm=[1,0]>(a) }
    <domain: "own", opset_import: ["": 18]>
    g <perm> (x) => (y) { y = Transpose<perm: ints = @perm>(x) }"""


@pytest.mark.parametrize("text", [TURNED_TWICE, REFERRED])
def test_functions(text):
    original, converted = maps.parse(IDENTITY), onnx.parser.parse_model(text)
    sizes = list(maps.up_to(3, ["N", "M"]))
    assert maps.first_difference(original, converted, sizes) is None
    assert maps.compare(original, converted).equal


@pytest.mark.parametrize(
    "text",
    [
        TURNED_TWICE.replace("y = Identity(a) }", "y = Identity(x) }"),
        REFERRED.replace("[1,0]>(a)", "[0,1]>(a)"),
    ],
)
def test_wrong_functions(text):
    original, converted = maps.parse(IDENTITY), onnx.parser.parse_model(text)
    sizes = list(maps.up_to(3, ["N", "M"]))
    assert maps.first_difference(original, converted, sizes) is not None
    assert not maps.compare(original, converted).equal


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Identity(x, x)",
        "a = Transpose<slow = 1>(x) y = Transpose(a)",
        "a = Inverted(x) y = Inverted(a)",
    ],
)
def test_nodes_that_no_runtime_takes_have_no_map(nodes):
    original = maps.parse("f (int64[2,M] x) => (y) { y = Identity(x) }")
    assert not maps.compare(original, maps.parse(f"f (int64[2,M] x) => (y) {{ {nodes} }}")).equal


def branches(then: str, otherwise: str, condition: str = "Greater(n, three)") -> onnx.ModelProto:
    return maps.parse(
        f"""f (int64[N,M] x) => (y) <int64 three={{3}}> {{
            s = Shape(x) n = ReduceMax<keepdims=0>(s) c = {condition}
            y = If(c)<then_branch = g() => (u) {{ {then} }}, else_branch = h() => (u) {{ {otherwise} }}>
        }}"""
    )


RIGHT = "a = Transpose(x) u = Transpose(a)"
OTHER = "a = Identity(x) u = Identity(a)"
WRONG = "a = Transpose(x) u = Reshape(a, s)"


def test_names_of_branches_are_their_own():
    assert maps.compare(maps.parse(IDENTITY), branches(RIGHT, OTHER)).equal


@pytest.mark.parametrize(("then", "otherwise"), [(RIGHT, WRONG), (WRONG, OTHER)])
def test_both_branches_count(then, otherwise):
    original, converted = maps.parse(IDENTITY), branches(then, otherwise)
    sizes = list(maps.up_to(5, ["N", "M"]))
    assert maps.first_difference(original, converted, sizes) is not None
    assert not maps.compare(original, converted).equal


BLOCKS = """f (int64[N,H,W] x) => (y) <int32[1] b={2}, int32[1,2] p={0,0}>
    { y = tf.SpaceToBatchND(x, b, p) }"""
EXCHANGED = """f (int64[N,H,W] x) => (y) <int64[1] one={1}, int64[1] two={2},
    int64[1] last={2}, int64[1] minus={-1}> {
        s = Shape(x) h = Gather(s, one) cells = Div(h, two) w = Gather(s, last)
        t = Concat<axis=0>(minus, w, cells) y = Reshape(x, t)
    }"""


def test_sizes_with_names_of_other_symbols():
    # [2N, H/2, W] and [2N, W, H/2]: equal only if W is taken for H/2.
    original, converted = maps.parse(BLOCKS), maps.parse(EXCHANGED)
    case = Case()
    (_,) = case.all(lambda: maps.operator_map(case, original)[0].index())
    names = {atom.key.name for atom in case.symbols} - {"N", "H"}
    assert len(names) > 2
    for name in names:
        for model in (original, converted):
            model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = name
        assert not maps.compare(original, converted).equal
