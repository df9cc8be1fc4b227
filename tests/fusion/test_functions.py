"""In a local function fuses what fuses in the graph: all of its calls say what is known there."""

from typing import NamedTuple

import numpy as np
import pytest
import running
import structure
from adapter import convert
from building import TF
from fusion.region_models import check, declined, lowerings, model

from onnx_spatial import ConversionError

FUSED, UNBLOCKED = ["dilated convolution"] * 2, ["unblocked"] * 2


def function(text: str, opset: int = 17) -> str:
    return f'<domain: "own", opset_import: ["" : {opset}, "{TF}" : 1, "own" : 1]> {text}'


INSIDE = """
    s = SpaceToBatchND(x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv(t, w)
    back = Transpose <perm = [0, 2, 3, 1]> (c)
    y = BatchToSpaceND(back, block, crops)
"""
LAYER = function(f"layer (x, w, block, pads, crops) => (y) {{ {INSIDE} }}")
ANY_RANK = function("""any (x, more, block) => (y) {
    pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
    s = SpaceToBatchND(x, block, pads)
    a = Add(s, more)
    y = BatchToSpaceND(a, block, pads)
}""")
SCALED = function("""scaled <a, blocks, stride, one> (x, w, pads) => (y) {
    block = Constant <value_ints: ints = @blocks> ()
    s = SpaceToBatchND(x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv <strides: ints = @stride, group: int = @one> (t, w)
    l = LeakyRelu <alpha: float = @a> (c)
    back = Transpose <perm = [0, 2, 3, 1]> (l)
    y = BatchToSpaceND(back, block, pads)
}""")
MEASURED = function(f"""layer <axis> (x, w, block, pads, crops) => (y, n) {{
    {INSIDE} n = Shape <start: int = @axis> (c) }}""")
FOUR = "float[1,8,6,3] x"


def scaled(a: float = 0.5, block: int = 2, stride: int = 1) -> str:
    return (
        f"scaled <a = {a}, blocks = [{block}, 2], stride = [{stride}, 1], one = 1> (x, w11, none)"
    )


class Row(NamedTuple):
    """A graph that calls functions, and what becomes of the operators in them, or why nothing does."""

    graph: str
    functions: str
    fused: list[str] | str
    given: str = FOUR
    feeds: dict[str, tuple[int, ...] | np.ndarray] = {}  # noqa: RUF012
    gives: str = "float[?,?,?,?] y, float[?,?,?,?] z"


def twice(first: str, second: str) -> str:
    return f"y = own.{first} z = own.{second}"


OUTER = function("""outer (x, w, block) => (y) { pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
    n = Neg(x) y = own.layer(n, w, block, pads, pads) }""")
#: A branch reads what the function is given.
BRANCH = function(f"""layer (on, x, w, block, pads, crops) => (y) {{
    y = If(on) <then_branch = a () => (float[?,?,?,?] r) {{ {INSIDE.replace("y =", "r =")} }},
                else_branch = b () => (float[?,?,?,?] n) {{ n = Neg(x) }}> }}""")
LOOP = """go = Constant <value = bool {1}> () y = Loop(n, go, x) <
    body = b (int64 i, bool g, float[1,8,6,3] d) => (bool e, float[1,8,6,3] f) {
        e = Identity(g) f = own.layer(d, eye, block, none, none) }>"""
EYE = np.diag([1.0, 1, -1]).astype(np.float32).reshape(3, 3, 1, 1)
ROWS = {
    "other weights and sizes": Row(
        twice("layer(x, w, block, pads, none)", "layer(i, w2, block, pads, none)"), LAYER, FUSED,
        "float[N,H,W,3] x, float[1,7,6,3] i", {"i": (1, 7, 6, 3)},
    ),
    "other crops": Row(
        twice("layer(x, w, block, pads, none)", "layer(x, w, block, pads, crops)"), LAYER, FUSED,
        "float[1,7,6,3] x",
    ),
    "other blocks": Row(
        twice("layer(x, w11, block, none, none)", "layer(x, w11, six, none, none)"), LAYER,
        "the block is not known before the model runs, or differs between the calls",
        "float[1,6,6,3] x",
    ),
    "other ranks": Row(  # the last axis but one of 5-D data is not blocked
        twice("any(x, m, block)", "any(i, m, block)"), ANY_RANK,
        "the rank of the data is not known before the model runs, or differs",
        "float[1,4,4,3] x, float[1,4,4,2,3] i, float[3] m", {"i": (1, 4, 4, 2, 3), "m": (3,)},
        "float[?,?,?,?] y, float[?,?,?,?,?] z",
    ),
    "what is added has other sizes": Row(
        twice("any(x, m, block)", "any(x, i, block)"), ANY_RANK, "the rank of 'more' is unknown",
        "float[1,4,4,3] x, float[3] m, float[2,2,3] i", {"m": (3,), "i": (2, 2, 3)},
    ),
    "other element types": Row(
        twice("any(x, m, block)", "any(i, d, block)"), ANY_RANK, UNBLOCKED,
        "float[1,4,4,3] x, double[1,4,4,3] i, float[3] m, double[3] d",
        {"m": (3,), "i": np.ones((1, 4, 4, 3)), "d": np.arange(3.0)},
        "float[?,?,?,?] y, double[?,?,?,?] z",
    ),
    "an attribute of each element": Row(twice(scaled(), scaled(0.25)), SCALED, FUSED),
    "a block that is an attribute": Row(
        twice(scaled(), scaled(block=1)), SCALED,
        "the block is not known before the model runs, or differs",
    ),
    "strides that are attributes": Row(
        twice(scaled(block=1), scaled(block=1, stride=2)), SCALED,
        "its strides has no common value in the calls",
    ),
    "a Shape of other axes": Row(
        "y, n = own.layer <axis = 0> (x, w, block, pads, none)"
        "z, m = own.layer <axis = 2> (x, w, block, pads, none)",
        MEASURED, "Shape '<n>' reads 'c' from outside of the region, in blocks",
        "float[1,7,6,3] x", gives="float[?,?,?,?] y, float[?,?,?,?] z, int64[?] n, int64[?] m",
    ),
    "through another function": Row(
        twice("layer(x, w11, block, none, none)", "outer(x, w11, block)"), LAYER + OUTER, FUSED,
    ),
    "in a loop": Row(LOOP, LAYER, FUSED, f"{FOUR}, int64 n", {"n": np.array(3)}, "float[?,?,?,?] y"),
    **{
        f"a branch in a function, {on}": Row(
            "y = own.layer(on, x, w, block, pads, crops)", BRANCH, FUSED, "float[1,5,6,3] x, bool on",
            {"on": np.array(on)}, "float[?,?,?,?] y",
        )
        for on in (True, False)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_calls_that_agree_and_calls_that_do_not(name: str) -> None:
    row = ROWS[name]
    tables = {"six": [3, 3], "w2": np.ones((4, 3, 3, 3), np.float32), "eye": EYE}
    made = model(row.graph, given=row.given, gives=row.gives, functions=row.functions, **tables)
    rng, sizes = np.random.default_rng(0), (structure.dims(made, "x"), (1, 5, 4, 3))
    feeds = {
        n: rng.normal(size=s).astype(np.float32) if isinstance(s, tuple) else s
        for n, s in row.feeds.items()
    }
    converted = check(made, tuple(sizes["N" in sizes[0]]), **feeds)
    if isinstance(row.fused, str):
        assert row.fused in declined(made) and lowerings(made) not in (FUSED, UNBLOCKED)
        return
    assert lowerings(made) == row.fused, declined(made)
    # The inputs of a function are as its callers know it.
    assert converted.functions[0].input == made.functions[0].input
    ops = {node.op_type for node in converted.functions[0].node}
    assert name not in ("other weights and sizes", "other crops") or (
        ("Slice" in ops) == (name == "other crops")
    )


ALONE = """layer (x) => (y) {
    block = Constant <value_ints = [2, 2]> ()
    pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
    half = Constant <value_float = 2.0> ()
    n = Mul(x, half)
    s = SpaceToBatchND(n, block, pads)
    c = Mul(s, half)
    y = BatchToSpaceND(c, block, pads)
}"""


def test_a_function_of_another_opset_or_without_calls() -> None:
    """The inliner rewrites its nodes: what is known of them is not known of those of the function."""
    made = model("y = Neg(x)", functions=function(ALONE))
    assert "the rank of the data is not known" in declined(made)
    made = model("y = own.layer(x)", given=FOUR, opset=18, functions=function(ALONE))
    converted = convert(made)
    assert lowerings(made) == UNBLOCKED
    assert {f.opset_import[0].version for f in converted.functions} == {17}
    x = np.random.default_rng(0).normal(size=(1, 8, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(running.run(converted, {"x": x})[0], x * 4)
    old = """old (x) => (y, n) {
        s = SpaceToBatchND <block_shape = [1, 1], paddings = [0, 0, 0, 1]> (x) n = Shape(s)
        u = Relu(s) y = BatchToSpaceND <block_shape = [1, 1], crops = [0, 0, 0, 0]> (u) }"""
    made = model(
        "y, n = own.old(x)", given="float[1,H,W,1] x", gives="float[?,?,?,?] y, int64[4] n",
        opset=8, functions=function(old, 8),
    )  # fmt: skip
    check(made, (1, 4, 4, 1))
    assert "integer constants in a function need opset 9" in declined(made)


def test_element_types_of_which_one_has_no_kernel_of_pad_are_refused() -> None:
    body = "s = SpaceToBatchND(x, block, pads) a = Identity(s) y = BatchToSpaceND(a, block, none)"
    own = function(f"own (x, block, pads, none) => (y) {{ {body} }}")
    calls = twice("own(x, block, pads, none)", "own(i, block, pads, none)")
    types = {"gives": "float[?,?,?,?] y, int16[?,?,?,?] z", "pads": [[1, 1], [2, 2]]}
    made = model(calls, given="float[1,4,4,3] x, int16[1,4,4,3] i", functions=own, **types)
    with pytest.raises(ConversionError, match="several element types and Pad has no kernel"):
        convert(made)
