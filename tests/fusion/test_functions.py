"""In a local function fuses what fuses in the graph: all of its calls say what is known there."""

from __future__ import annotations

from random import Random

import campaign
import functions
import numpy as np
import onnx
import pytest
import reference
import regions
import running
from adapter import convert, plan
from onnx import numpy_helper, parser

import onnx_spatial
from onnx_spatial.model import traversal
from onnx_spatial.model.inference.functions import inline

SEED, CASES = 7, 6
HEAD = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1, "own" : 1]>'
BODY = """
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv (t, w)
    back = Transpose <perm = [0, 2, 3, 1]> (c)
"""
RNG = np.random.default_rng(0)
ARRAYS = {
    "two": np.array([2, 2]),
    "three": np.array([3, 3]),
    "none": np.zeros((2, 2), np.int64),
    "some": np.array([[2, 2], [0, 0]]),
    "more": np.array([[4, 2], [2, 0]]),
    "w": RNG.integers(-3, 4, (4, 3, 2, 1)).astype(np.float32),
    "v": RNG.integers(-3, 4, (4, 3, 1, 2)).astype(np.float32),
}


def model(graph: str, *bodies: str, opset: int = 17, of_functions: int = 17) -> onnx.ModelProto:
    """A graph and the functions `own.name` that it calls; `HEAD` is put in front of each."""
    imports = (
        f'<domain: "own", opset_import: ["" : {of_functions}, "com.microsoft" : 1, "own" : 1]>'
    )
    text = "\n".join((HEAD.format(opset=opset), graph, *(f"{imports}\n{b}" for b in bodies)))
    made = parser.parse_model(text)
    read = {name for node in made.graph.node for name in traversal.needs(node)}
    for name in sorted(read & ARRAYS.keys()):
        made.graph.initializer.append(numpy_helper.from_array(ARRAYS[name], name))
    return made


def strategies(made: onnx.ModelProto) -> list[str | None]:
    return [site.lowering for site in plan(made).operators]


def reasons(made: onnx.ModelProto) -> str:
    return " ".join(" ".join(site.declined) for site in plan(made).operators)


def check(made: onnx.ModelProto, **feeds: tuple[int, ...]) -> onnx.ModelProto:
    """Convert, and compare with the definitions."""
    data = {n: RNG.integers(-4, 5, shape).astype(np.float32) for n, shape in feeds.items()}
    return reference.agree(made, data, full_check=False)


LAYER = f"""layer (x, w, block, pads, crops) => (y) {{
    s = com.microsoft.SpaceToBatchND(x, block, pads)
    {BODY}
    y = com.microsoft.BatchToSpaceND(back, block, crops)
}}"""
FUSED = ["dilated convolution"] * 2


@pytest.mark.parametrize("form", functions.FORMS)
def test_random_regions(form):
    """As much is fused as if the functions were inlined, and nothing is wrong."""
    for number in range(CASES):
        case = functions.moved(regions.build(SEED, number), Random(number), form)
        converted = onnx_spatial.convert(case.model, verify=False, prefer=campaign.LOWERING)
        copy = onnx.ModelProto.FromString(case.model.SerializeToString())
        inlined = onnx_spatial.convert(inline(copy), verify=False, prefer=campaign.LOWERING)
        where = f"case {number}"
        assert not campaign.mistakes(converted.model, case), where
        sites = [site.lowering for site in converted.operators]
        copies = [site.lowering for site in inlined.operators]
        calls = len(copies) // len(sites)
        assert sorted(map(str, sites * calls)) == sorted(map(str, copies)), where


# Calls that agree, and calls that do not


def test_calls_with_other_weights_and_sizes() -> None:
    made = model(
        """g (float[N,H,W,3] x, float[1,8,6,3] u) => (float[?,?,?,?] y, float[?,?,?,?] z) {
            y = own.layer(x, w, two, some, none)
            z = own.layer(u, v, two, some, none)
        }""",
        LAYER,
    )
    assert strategies(made) == FUSED
    converted = check(made, x=(2, 4, 6, 3), u=(1, 8, 6, 3))
    (function,) = converted.functions
    assert [n.op_type for n in function.node] == ["Transpose", "Conv", "Transpose"]
    assert list(function.input) == ["x", "w", "block", "pads", "crops"]  # callers are as they were


@pytest.mark.parametrize("crops", [("none", "none"), ("some", "more")])
def test_paddings_that_differ_between_calls_stay_inputs(crops: tuple[str, str]) -> None:
    made = model(
        f"""g (float[1,8,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {{
            y = own.layer(x, w, two, some, {crops[0]})
            z = own.layer(x, w, two, more, {crops[1]})
        }}""",
        LAYER,
    )
    assert strategies(made) == FUSED
    (function,) = check(made, x=(1, 8, 6, 3)).functions
    assert {"Pad", "Conv"} <= {node.op_type for node in function.node}


def test_a_block_that_differs_between_calls() -> None:
    made = model(
        """g (float[1,6,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {
            y = own.layer(x, w, two, none, none)
            z = own.layer(x, w, three, none, none)
        }""",
        LAYER,
    )
    assert "Conv" not in str(strategies(made)[0])
    assert "the block is not known before the model runs, or differs between the calls" in reasons(
        made
    )
    check(made, x=(1, 6, 6, 3))


ANY_RANK = """any (x, more, block, pads, crops) => (y) {
    s = com.microsoft.SpaceToBatchND(x, block, pads)
    a = Add (s, more)
    y = com.microsoft.BatchToSpaceND(a, block, crops)
}"""


def test_ranks_that_differ_between_calls() -> None:
    """The last axis of 4-D data is not that of 5-D data: what is added there may be per place."""
    graph = """g (float[1,4,4,3] x, float[1,4,4,2,3] u, float[3] b) => (float[?,?,?,?] y, Z z) {
        y = own.any(x, b, two, none, none)
        z = own.any(DATA, b, two, none, none)
    }"""
    made = model(graph.replace("DATA", "u").replace("Z", "float[?,?,?,?,?]"), ANY_RANK)
    assert "unblocked" not in strategies(made)
    assert "the rank of the data is not known before the model runs, or differs" in reasons(made)
    check(made, x=(1, 4, 4, 3), u=(1, 4, 4, 2, 3), b=(3,))
    alike = model(graph.replace("DATA", "x").replace("Z", "float[?,?,?,?]"), ANY_RANK)
    assert strategies(alike) == ["unblocked"] * 2


def test_what_one_call_adds_has_other_sizes() -> None:
    """Per channel in one call, per place in the other."""
    graph = """g (float[1,4,4,3] x, float[3] b, float[2,2,3] c)
        => (float[?,?,?,?] y, float[?,?,?,?] z) {
        y = own.any(x, b, two, none, none)
        z = own.any(x, OTHER, two, none, none)
    }"""
    made = model(graph.replace("OTHER", "c"), ANY_RANK)
    assert "unblocked" not in strategies(made)
    check(made, x=(1, 4, 4, 3), b=(3,), c=(2, 2, 3))
    assert strategies(model(graph.replace("OTHER", "b"), ANY_RANK)) == ["unblocked"] * 2


def test_axes_that_differ_between_calls() -> None:
    """With the axes of the first call the second would transpose others."""
    rows = """rows (x, axes) => (y) {
        block = Constant <value_ints = [2]> ()
        pads = Constant <value = int64[1,2] {0, 0}> ()
        s = com.microsoft.SpaceToBatchND(x, block, pads)
        u = Unsqueeze(s, axes)
        t = Transpose <perm = [0, 2, 1, 3]> (u)
        b = com.microsoft.BatchToSpaceND(t, block, pads)
        y = Identity(b)
    }"""
    graph = """g (float[1,4,6] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int64[1] first = {FIRST}, int64[1] other = {3}> {
        y = own.rows(x, first)
        z = own.rows(x, other)
    }"""
    made = model(graph.replace("FIRST", "2"), rows)
    assert "the axes of Unsqueeze are unknown" in reasons(made)
    check(made, x=(1, 4, 6))


def test_element_types_that_differ_between_calls() -> None:
    made = model(
        """g (float[1,4,4,3] x, double[1,4,4,3] u, float[3] b, double[3] c)
        => (float[?,?,?,?] y, double[?,?,?,?] z) {
            y = own.any(x, b, two, none, none)
            z = own.any(u, c, two, none, none)
        }""",
        ANY_RANK,
    )
    assert strategies(made) == ["unblocked"] * 2
    converted = convert(made)
    feeds = {"x": np.ones((1, 4, 4, 3), np.float32), "b": np.float32([1, 2, 3])}
    feeds |= {"u": np.ones((1, 4, 4, 3)), "c": np.float64([1, 2, 3])}
    for level in running.LEVELS:
        y, z = running.run(converted, feeds, level)
        assert np.array_equal(y[0, 0, 0], [2, 3, 4]) and np.array_equal(z, y)


# Attributes

SCALED = """scaled <a, blocks, stride> (x, w, pads) => (y) {
    block = Constant <value_ints: ints = @blocks> ()
    s = com.microsoft.SpaceToBatchND(x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv <strides: ints = @stride> (t, w)
    l = LeakyRelu <alpha: float = @a> (c)
    back = Transpose <perm = [0, 2, 3, 1]> (l)
    y = com.microsoft.BatchToSpaceND(back, block, pads)
}"""
CALL = "own.scaled<a = A, blocks = [B, 2], stride = [S, 1]>(x, w, none)"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((0.5, 2, 1), (0.5, 2, 1), None),
        ((0.5, 2, 1), (0.25, 2, 1), None),  # of each element alone
        ((0.5, 2, 1), (0.5, 1, 1), "the block is not known before the model runs, or differs"),
        ((0.5, 1, 1), (0.5, 1, 2), "its strides has no common value in the calls"),
    ],
)
def test_attributes_of_calls(first, second, reason) -> None:
    calls = []
    for values in (first, second):
        call = CALL
        for letter, value in zip("ABS", values, strict=True):
            call = call.replace(f"= {letter}", f"= {value}").replace(f"[{letter}", f"[{value}")
        calls.append(call)
    made = model(
        f"""g (float[1,8,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {{
            y = {calls[0]}
            z = {calls[1]}
        }}""",
        SCALED,
    )
    check(made, x=(1, 8, 6, 3))
    assert (reason is None) == (strategies(made) == FUSED), reasons(made)
    assert reason is None or reason in reasons(made)


def test_an_attribute_with_a_default() -> None:
    graph = """g (float[1,8,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {
        y = own.scaled<a = 0.5, stride = [1, 1] MORE>(x, w, none)
        z = own.scaled<a = 0.5, stride = [1, 1], blocks = [2, 2]>(x, w, none)
    }"""
    scaled = SCALED.replace("blocks, stride>", "stride, blocks: ints = [2, 2]>")
    made = model(graph.replace("MORE", ""), scaled)
    assert strategies(made) == FUSED
    feeds = {"x": RNG.integers(-4, 5, (1, 8, 6, 3)).astype(np.float32)}
    spelled_out = model(graph.replace("MORE", ", blocks = [2, 2]"), scaled)
    expected = reference.run(spelled_out, feeds)
    for result, wanted in zip(running.run(convert(made), feeds), expected, strict=True):
        assert np.array_equal(result, wanted)


# Where functions are called

OUTER = "outer (x, w, block, pads) => (y) { n = Neg(x) y = own.layer(n, w, block, pads, pads) }"


def test_a_function_that_another_one_calls() -> None:
    made = model(
        """g (float[1,8,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {
            y = own.layer(x, w, two, none, none)
            z = own.outer(x, v, two, none)
        }""",
        OUTER,
        LAYER,
    )
    assert strategies(made) == FUSED
    check(made, x=(1, 8, 6, 3))


def test_a_function_that_a_loop_calls() -> None:
    made = model(
        """g (float[1,8,6,3] x, int64 n) => (float[?,?,?,?] y)
            <bool go = {1}, float[3,3,1,1] k = {1,0,0,0,1,0,0,0,-1}> {
            y = Loop(n, go, x) <body = b (int64 i, bool c, float[1,8,6,3] d)
                => (bool e, float[1,8,6,3] f) {
                e = Identity(c)
                f = own.layer(d, k, two, none, none)
            }>
        }""",
        LAYER,
    )
    assert strategies(made) == FUSED
    converted = convert(made)
    x = RNG.normal(size=(1, 8, 6, 3)).astype(np.float32)
    for level in running.LEVELS:
        (y,) = running.run(converted, {"x": x, "n": np.array(3)}, level)
        assert np.array_equal(y, x * np.float32([1, 1, -1]))


def test_a_body_in_a_function() -> None:
    """A branch reads what the function is given."""
    body = LAYER[LAYER.index("{") + 1 : LAYER.rindex("}")].replace("y = ", "r = ")
    layer = f"""layer (on, x, w, block, pads, crops) => (y) {{
        y = If(on) <then_branch = a () => (float[?,?,?,?] r) {{ {body} }},
                    else_branch = b () => (float[?,?,?,?] n) {{ n = Neg(x) }}>
    }}"""
    made = model(
        """g (bool on, float[1,8,6,3] x) => (float[?,?,?,?] y) {
            y = own.layer(on, x, w, two, none, none)
        }""",
        layer,
    )
    assert strategies(made) == FUSED
    for on in (True, False):
        data = {"on": np.array(on), "x": RNG.integers(-4, 5, (1, 8, 6, 3)).astype(np.float32)}
        reference.agree(made, data, full_check=False)


GIVEN = (
    LAYER.replace("block, pads, crops) =>", "crops) =>")
    .replace(
        "s = com",
        """block = Constant <value_ints = [2, 2]> ()
    pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
    half = Constant <value_float = 2.0> ()
    n = Mul (x, half)
    s = com""",
    )
    .replace("Conv (t, w)", "Mul (t, half)")
)


def test_a_function_without_calls() -> None:
    """Only its Constants are known."""
    made = model("g (float[1,4,4,3] x) => (float[?,?,?,?] y) { y = Neg(x) }", GIVEN)
    assert "the rank of the data is not known" in reasons(made)


def test_a_function_of_another_opset() -> None:
    """The inliner rewrites its nodes: what is known of them is not known of those of the function."""
    graph = """g (float[1,8,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] m) {
        y = own.layer(x, w, none)
        m = Neg(x)
    }"""
    made = model(graph, GIVEN, opset=18)
    edited = plan(made)
    assert edited.model is not None
    assert [site.lowering for site in edited.operators] == ["unblocked"] * 2
    assert {f.opset_import[0].version for f in edited.model.functions} == {17}
    feeds = {"x": RNG.normal(size=(1, 8, 6, 3)).astype(np.float32)}
    expected = reference.run(model(graph, GIVEN), feeds)
    for result, wanted in zip(running.run(edited.model, feeds), expected, strict=True):
        assert np.array_equal(result, wanted)


WEIGHT = ", ".join(str(i) for i in range(36))
PATCHES = f"""patches <m> (x) => (y) {{
    w = Constant <value = float[18,2] {{{WEIGHT}}}> ()
    p = com.microsoft.ExtractImagePatches <ksizes = [1, 3, 2, 1], strides = [1, 2, 2, 1],
        rates = [1, 1, 1, 1], padding = "SAME"> (x)
    y = MatMul (p, w)
}}"""


def test_a_constant_that_the_caller_gives() -> None:
    made = model(
        f"""g (float[2,7,8,3] x) => (float[?,?,?,?] y) {{
            y = own.patches<m = float[18,2] {{{WEIGHT}}}>(x)
        }}""",
        PATCHES,
    )
    assert strategies(made) == ["strided convolution"]
    check(made, x=(2, 7, 8, 3))
    weight = made.functions[0].node[0].attribute[0]
    weight.CopyFrom(onnx.AttributeProto(name="value", ref_attr_name="m", type=weight.type))
    assert strategies(made) == ["strided convolution"]
    check(made, x=(2, 7, 8, 3))
