"""Dims behind operators, in terms of the dims of the model's inputs."""

from __future__ import annotations

import pytest
from onnx import parser

from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.symbolic.polynomial import quotient
from onnx_spatial.model.symbolic.symbolic_values import (
    DimKey,
    NamedDimKey,
    Polynomial,
    SymbolicValues,
)

HELD = """int64[1] zero = {0}, int64[2] first = {0, -1}, int64[1] channel = {-3}, int64[8] pads =
    {0, 0, 1, 2, 0, 0, 3, -4}, int64[2] some = {1, 2}, float value = {1}, int64[1] nothing = {0},
    int64[3] kept = {0, -1, 0}, int64[2] zeros = {0, 0}, int64[4] order = {0, 2, 3, 1}"""
GIVEN = """float[n,c,h,w] x, float[n,c,h,w] z, float[h,w] flat, float[n,1,1,w] row, float[n,7,h,w] s,
    float[8,7,3,5] k, float[8,7,a,b] unsized, float[4] bias, int64[8] late, int64[1] axis"""


def dims(nodes: str, opset: int = 17) -> dict[str, object]:
    """Dims of `y`: sums of the inputs' dims as text, or None where they are left to the run."""
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : {opset}]>
        g ({GIVEN}) => (float y) <{HELD}> {{ {nodes} }}""")
    del model.graph.output[:]
    scope, *_ = (scope for scope, _ in constant_folding.scopes(model))
    found = SymbolicValues(scope).dims("y")
    names = {Polynomial.atom(NamedDimKey(scope, name), nonnegative=True): name for name in "nchwab"}
    n, c, h, w, a, b = names
    unknown = [Polynomial.atom(DimKey(scope, "y", i), nonnegative=True) for i in range(8)]
    return {"found": found, "unknown": unknown} | dict(
        zip("nchwab", (n, c, h, w, a, b), strict=True)
    )


def check(nodes: str, expected: str, opset: int = 17) -> None:
    """`expected`: Python over the names of dims, `half(d)` and `_`, which is left to the run."""
    known = dims(nodes, opset)
    found = known["found"]
    if expected == "None":
        assert found is None
        return
    parts = expected.split()
    assert found is not None and len(found) == len(parts)
    for axis, (size, part) in enumerate(zip(found, parts, strict=True)):
        names = {**known, "over": lambda e, d: quotient(e, Polynomial.of(d))}
        wanted = known["unknown"][axis] if part == "_" else eval(part, names) + 0
        assert size - wanted == Polynomial.of(0), (axis, size, part)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = Relu(x)", "n c h w"),
        ("y = Clip(x, value, value)", "n c h w"),
        ("y = Transpose <perm = [0, 2, 3, 1]> (x)", "n h w c"),
        ("y = Transpose(x)", "w h c n"),
        ("y = Unsqueeze(x, first)", "1 n c h w 1"),
        ("t = Unsqueeze(x, first) y = Squeeze(t, first)", "n c h w"),
        ("y = Pad(x, pads)", "n c h+4 w-2"),
        ("y = Pad(x, pads, value)", "n c h+4 w-2"),
        ("y = Pad(x, pads, late)", "n c h+4 w-2"),  # the value is not looked at
        ("y = Concat <axis = 1> (x, z)", "n 2*c h w"),
        ("y = Concat <axis = -3> (x, s)", "n c+7 h w"),
        ("y = Concat <axis = 0> (s, x)", "2*n 7 h w"),
        ("y = Add(x, z)", "n c h w"),
        ("y = Add(x, flat)", "n c h w"),
        ("y = Mul(value, x)", "n c h w"),
        ("y = Mul(row, x)", "n c h w"),
        ("y = Add(x, bias)", "n c h 4"),
        ("y = Add(x, s)", "n 7 h w"),
        ("t = Transpose <perm = [0, 1, 3, 2]> (x) y = Add(x, t)", "n c _ _"),
        ("t = NonZero(x) y = Add(t, x)", "None"),
        ("y = Where(x, s, row)", "n 7 h w"),
        ("t, y = Split <axis = 1> (x)", "n _ h w"),
        ("y = Slice(x, zero, channel, channel)", "n _ h w"),
        ("y = Gather <axis = 1> (x, zero)", "n 1 h w"),
        ("y = Gather <axis = -1> (x, k)", "n c h 8 7 3 5"),
        ("y = MatMul(x, flat)", "n c h w"),
        ("y = MatMul(x, k)", "None"),
        ("y = ReduceMax <axes = [1, -1]> (x)", "n 1 h 1"),
        ("y = ReduceMax <axes = [1, -1], keepdims = 0> (x)", "n h"),
        ("y = ReduceSum(x, channel)", "n 1 h w"),
        ("y = ReduceSum(x)", "None"),
        ("y = ArgMax <axis = 1, keepdims = 0> (x)", "n h w"),
        ("y = Reshape(x, some)", "1 2"),
        ("y = Reshape(s, first)", "n 7*h*w"),
        ("y = Reshape(s, kept)", "n 7*w h"),
        ("y = Reshape(x, axis)", "_"),
        ("y = Reshape <allowzero = 1> (x, zeros)", "0 0"),
        ("t = Shape(x) r = Gather(t, order) y = Reshape(x, r)", "n h w c"),
        ("t = Shape(x) r = Neg(t) y = Reshape(x, r)", "_ _ _ _"),
    ],
)
def test_operators_that_keep_move_or_stretch_dims(nodes, expected):
    check(nodes, expected)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = Conv(s, k)", "n 8 h-2 w-4"),
        ("y = Conv <pads = [1, 2, 1, 2]> (s, k)", "n 8 h w"),
        ("y = Conv <pads = [1, 0, 0, 0]> (s, k)", "n 8 h-1 w-4"),
        ("y = Conv <dilations = [2, 3]> (s, k)", "n 8 h-4 w-12"),
        ("y = Conv <kernel_shape = [3, 5], group = 1> (s, k)", "n 8 h-2 w-4"),
        ("y = Conv <strides = [2, 1]> (s, k)", "n 8 over(h-3,2)+1 w-4"),
        ('y = Conv <auto_pad = "VALID", pads = [9, 9, 9, 9]> (s, k)', "n 8 h-2 w-4"),
        ('y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 3]> (s, k)', "n 8 h w"),
        (
            'y = Conv <auto_pad = "SAME_LOWER", strides = [2, 3]> (s, k)',
            "n 8 over(h+1,2) over(w+2,3)",
        ),
        ("y = Conv(s, unsized)", "n 8 h-a+1 w-b+1"),
        ("y = Conv <dilations = [2, 1]> (s, unsized)", "n 8 h-2*a+2 w-b+1"),
        ("y = ConvTranspose(s, k)", "n 7 h+2 w+4"),
        (
            "y = ConvTranspose <strides = [2, 1], dilations = [1, 2], pads = [1, 0, 0, 2], "
            "output_padding = [1, 0], group = 2> (s, k)",
            "n 14 2*h+1 w+6",
        ),
        ('y = ConvTranspose <auto_pad = "SAME_UPPER"> (s, k)', "n 7 _ _"),
        ("y = MaxPool <kernel_shape = [3, 2]> (x)", "n c h-2 w-1"),
        ("y = MaxPool <kernel_shape = [3, 2], dilations = [2, 1]> (x)", "n c h-4 w-1"),
        (
            "y = AveragePool <kernel_shape = [3, 2], strides = [3, 2]> (x)",
            "n c over(h-3,3)+1 over(w-2,2)+1",
        ),
        ("y = AveragePool <kernel_shape = [3, 2], ceil_mode = 1> (x)", "n c _ _"),
    ],
)
def test_windows(nodes, expected):
    check(nodes, expected)


@pytest.mark.parametrize(
    ("nodes", "opset", "expected"),
    [
        ("y = Unsqueeze <axes = [0, 5]> (x)", 11, "1 n c h w 1"),
        ("t = Unsqueeze <axes = [0]> (x) y = Squeeze <axes = [0]> (t)", 11, "n c h w"),
        ("y = Pad <pads = [0, 0, 1, 2, 0, 0, 3, 4]> (x)", 10, "n c h+4 w+6"),
        ("y = Add <broadcast = 1, axis = 1> (x, bias)", 6, "n c h w"),
        ("y = Pad(x, some, , channel)", 18, "n c+3 h w"),
    ],
)
def test_the_spellings_of_other_opsets(nodes, opset, expected):
    check(nodes, expected, opset)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Squeeze(x)",  # what is 1 the run finds out
        "y = Squeeze(x, axis)",
        "y = Unsqueeze(x, axis)",
        "y = Pad(x, pads, value, axis)",
        "y = Pad(x, some)",
        "y = Transpose <perm = [0, 1, 2, 2]> (x)",
        'y = Conv <auto_pad = "ODD"> (s, k)',
        "y = Concat <axis = 1> (x, flat)",
        "y = Conv <pads = [1, 2]> (s, k)",
        "t, y = BatchNormalization(x, bias, bias, bias, bias)",
    ],
)
def test_where_axes_are_left_to_the_run_so_are_the_dims(nodes):
    check(nodes, "None")


def test_pads_that_are_computed_are_part_of_the_dims():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[h,w] x, int64[4] late) => (float y) { y = Pad(x, late) }""")
    del model.graph.output[:]
    scope, *_ = (scope for scope, _ in constant_folding.scopes(model))
    sizes = SymbolicValues(scope)
    (h, w), pads = sizes.dims("x"), sizes.entries("late")
    assert sizes.dims("y") == (h + pads[0] + pads[2], w + pads[1] + pads[3])


def test_numbers_that_are_declared_come_first():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[h,w] x) => (float[4,w] y) { y = Relu(x) }""")
    scope, *_ = (scope for scope, _ in constant_folding.scopes(model))
    sizes = SymbolicValues(scope)
    assert sizes.dims("y") == (Polynomial.of(4), sizes.dims("x")[1])
