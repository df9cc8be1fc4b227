"""In a local function fuses what fuses in the graph: all of its calls say what is known there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import running
from adapter import plan
from building import TF
from region_models import check, declined, lowerings, model

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
SCALED = function("""scaled <a, blocks, stride> (x, w, pads) => (y) {
    block = Constant <value_ints: ints = @blocks> ()
    s = SpaceToBatchND(x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv <strides: ints = @stride> (t, w)
    l = LeakyRelu <alpha: float = @a> (c)
    back = Transpose <perm = [0, 2, 3, 1]> (l)
    y = BatchToSpaceND(back, block, pads)
}""")
FOUR = "float[1,8,6,3] x"


def scaled(a: float = 0.5, block: int = 2, stride: int = 1) -> str:
    return f"own.scaled <a = {a}, blocks = [{block}, 2], stride = [{stride}, 1]> (x, w11, none)"


class Calls(NamedTuple):
    """Two calls, and what becomes of the operators in their function, or why nothing does."""

    first: str
    second: str
    body: str
    fused: list[str] | str
    given: str = FOUR
    shapes: dict[str, tuple[int, ...]] = {"x": (1, 8, 6, 3)}  # noqa: RUF012
    second_output: str = "float[?,?,?,?] z"


CALLS = {
    "other weights and sizes": Calls(
        "own.layer(x, w, block, pads, none)", "own.layer(i, w2, block, pads, none)", LAYER, FUSED,
        "float[N,H,W,3] x, float[1,7,6,3] i", {"x": (1, 5, 4, 3), "i": (1, 7, 6, 3)},
    ),
    "other crops": Calls(
        "own.layer(x, w, block, pads, none)", "own.layer(x, w, block, pads, crops)", LAYER, FUSED,
        "float[1,7,6,3] x", {"x": (1, 7, 6, 3)},
    ),
    "other blocks": Calls(
        "own.layer(x, w11, block, none, none)", "own.layer(x, w11, six, none, none)", LAYER,
        "the block is not known before the model runs, or differs between the calls",
        "float[1,6,6,3] x", {"x": (1, 6, 6, 3)},
    ),
    "other ranks": Calls(  # the last axis but one of 5-D data is not blocked
        "own.any(x, m, block)", "own.any(i, m, block)", ANY_RANK,
        "the rank of the data is not known before the model runs, or differs",
        "float[1,4,4,3] x, float[1,4,4,2,3] i, float[3] m",
        {"x": (1, 4, 4, 3), "i": (1, 4, 4, 2, 3), "m": (3,)}, "float[?,?,?,?,?] z",
    ),
    "what is added has other sizes": Calls(
        "own.any(x, m, block)", "own.any(x, i, block)", ANY_RANK, "the rank of 'more' is unknown",
        "float[1,4,4,3] x, float[3] m, float[2,2,3] i",
        {"x": (1, 4, 4, 3), "m": (3,), "i": (2, 2, 3)},
    ),
    "an attribute of each element": Calls(scaled(), scaled(0.25), SCALED, FUSED),
    "a block that is an attribute": Calls(
        scaled(), scaled(block=1), SCALED, "the block is not known before the model runs, or differs"
    ),
    "strides that are attributes": Calls(
        scaled(block=1), scaled(block=1, stride=2), SCALED,
        "its strides has no common value in the calls",
    ),
    "through another function": Calls(
        "own.layer(x, w11, block, none, none)", "own.outer(x, w11, block)",
        LAYER + function("""outer (x, w, block) => (y) {
            pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
            n = Neg(x) y = own.layer(n, w, block, pads, pads) }"""), FUSED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_agree_and_calls_that_do_not(name: str) -> None:
    row = CALLS[name]
    made = model(
        f"y = {row.first} z = {row.second}",
        given=row.given,
        gives=f"float[?,?,?,?] y, {row.second_output}",
        functions=row.body,
        six=[3, 3],
        w2=np.ones((4, 3, 3, 3), np.float32),
    )
    rng = np.random.default_rng(0)
    feeds = {n: rng.normal(size=s).astype(np.float32) for n, s in row.shapes.items() if n != "x"}
    converted = check(made, row.shapes["x"], **feeds)
    if isinstance(row.fused, str):
        assert row.fused in declined(made) and lowerings(made) not in (FUSED, UNBLOCKED)
    else:
        assert lowerings(made) == row.fused, declined(made)
        assert list(converted.functions[0].input) == list(
            made.functions[0].input
        )  # as callers know it
        ops = {node.op_type for node in converted.functions[0].node}
        assert ("Slice" in ops) == (name == "other crops")


def test_element_types_that_differ_between_calls() -> None:
    made = model(
        "y = own.any(x, b, block) z = own.any(i, c, block)",
        given="float[1,4,4,3] x, double[1,4,4,3] i, float[3] b, double[3] c",
        gives="float[?,?,?,?] y, double[?,?,?,?] z",
        functions=ANY_RANK,
    )
    assert lowerings(made) == UNBLOCKED
    check(
        made,
        (1, 4, 4, 3),
        i=np.ones((1, 4, 4, 3)),
        b=np.float32([1, 2, 3]),
        c=np.float64([1, 2, 3]),
    )


def test_a_function_that_a_loop_calls() -> None:
    made = model(
        """go = Constant <value = bool {1}> ()
        y = Loop(n, go, x) <body = b (int64 i, bool g, float[1,8,6,3] d)
            => (bool e, float[1,8,6,3] f) {
                e = Identity(g) f = own.layer(d, eye, block, none, none) }>""",
        given="float[1,8,6,3] x, int64 n",
        functions=LAYER,
        eye=np.diag([1.0, 1, -1]).astype(np.float32).reshape(3, 3, 1, 1),
    )
    assert lowerings(made) == FUSED
    check(made, (1, 8, 6, 3), n=np.array(3))


def test_a_body_in_a_function() -> None:
    """A branch reads what the function is given."""
    layer = function(f"""layer (on, x, w, block, pads, crops) => (y) {{
        y = If(on) <then_branch = a () => (float[?,?,?,?] r) {{ {INSIDE.replace("y =", "r =")} }},
                    else_branch = b () => (float[?,?,?,?] n) {{ n = Neg(x) }}>
    }}""")
    graph = "y = own.layer(on, x, w, block, pads, crops)"
    made = model(graph, given="bool on, float[1,5,6,3] x", functions=layer)
    assert lowerings(made) == FUSED
    for on in (True, False):
        check(made, (1, 5, 6, 3), on=np.array(on))


ALONE = """layer (x) => (y) {
    block = Constant <value_ints = [2, 2]> ()
    pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
    half = Constant <value_float = 2.0> ()
    n = Mul(x, half)
    s = SpaceToBatchND(n, block, pads)
    c = Mul(s, half)
    y = BatchToSpaceND(c, block, pads)
}"""


def test_of_a_function_without_calls_only_constants_are_known() -> None:
    made = model("y = Neg(x)", functions=function(ALONE))
    assert "the rank of the data is not known" in declined(made)


def test_a_function_of_another_opset() -> None:
    """The inliner rewrites its nodes: what is known of them is not known of those of the function."""
    made = model("y = own.layer(x)", given=FOUR, opset=18, functions=function(ALONE))
    found = plan(made)
    assert found.model is not None and lowerings(made) == UNBLOCKED
    assert {f.opset_import[0].version for f in found.model.functions} == {17}
    x = np.random.default_rng(0).normal(size=(1, 8, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(running.run(found.model, {"x": x})[0], x * 4)
