"""Sizes of what is fed beside the data follow from the nodes where both meet."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model
from onnx import helper

import onnx_spatial
from onnx_spatial.verification.runtime.sessions import Operands
from onnx_spatial.verification.sizes.operand_mismatch import matching_sizes


def weights(name: str, *dims: int) -> str:
    numbers = ", ".join(str((7 * i % 11 - 5) / 8) for i in range(int(np.prod(dims))))
    return f"float[{','.join(map(str, dims))}] {name} = {{{numbers}}}"


def recurrent(joined: str) -> onnx.ModelProto:
    """Two states beside an image, of half and of a quarter of its size, no dim of them declared."""
    return model(f"""
        g (float[a,b,c,3] x, float[d,e,f,g] h1, float[h,i,j,k] h2)
          => (float[l,m,n,o] y1, float[p,q,r,s] y2)
          <int32[2] block = {{2, 2}}, int32[2,2] none = {{0, 0, 0, 0}}, {weights("w1", 4, 3, 3, 3)},
           {weights("w2", 6, 4, 3, 3)}, {weights("g1", 4, 8, 3, 3)}, {weights("g2", 6, 12, 1, 1)}>
        {{
            nchw = Transpose<perm = [0, 3, 1, 2]>(x)
            half = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(nchw, w1)
            quarter = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(half, w2)
            c1 = Transpose<perm = [0, 2, 3, 1]>(half)
            q1 = Transpose<perm = [0, 2, 3, 1]>(quarter)
            [s2b] blocks = tf.SpaceToBatchND(q1, block, none)
            less = Relu(blocks)
            [b2s] c2 = tf.BatchToSpaceND(less, block, none)
            {joined}
            t1 = Concat<axis = 3>(c1, s1)
            t2 = Concat<axis = 3>(c2, s2)
            n1 = Transpose<perm = [0, 3, 1, 2]>(t1)
            n2 = Transpose<perm = [0, 3, 1, 2]>(t2)
            y1 = Conv<pads = [1, 1, 1, 1]>(n1, g1)
            y2 = Conv(n2, g2)
        }}
    """)


@pytest.mark.usefixtures("nothing_is_proven")
@pytest.mark.parametrize(
    "joined",
    [
        "s1 = Identity(h1)\n s2 = Sigmoid(h2)",
        "l1 = Shape(c1)\n s1 = Expand(h1, l1)\n l2 = Shape(c2)\n s2 = Expand(h2, l2)",
    ],
    ids=["as they are", "expanded"],
)
def test_states_get_the_sizes_of_what_they_meet(joined: str) -> None:
    original = recurrent(joined)
    result = verify(original, onnx_spatial.convert(original, verify=False).model)
    assert result, result.message
    batches = set()
    for run in result.runs:
        batch, height, width, _ = run.shapes["x"]
        half, quarter = ((-(-height // n), -(-width // n)) for n in (2, 4))
        assert run.shapes["h1"] == (batch, *half, 4)
        assert run.shapes["h2"] == (batch, *quarter, 6)
        batches.add(batch)
    assert len(batches) >= 2
    assert len({run.shapes["x"][1:3] for run in result.runs}) >= 2
    assert result.forced == {"g": 4, "k": 6}


def test_a_state_of_a_recurrent_operator() -> None:
    text = f"""
        g (float[2,a,3] x, float[1,b,c] h) => (float[d,e,f,g] y, float[h,i,j] last)
          <{weights("w", 1, 12, 3)}, {weights("r", 1, 12, 4)}>
        {{ y, last = GRU<hidden_size = 4>(x, w, r, "", "", h) }}
    """
    result = verify(model(text), model(text))
    assert result, result.message
    assert all(run.shapes["h"] == (1, run.shapes["x"][1], 4) for run in result.runs)
    assert len({run.shapes["x"][1] for run in result.runs}) >= 2


def test_a_branch_that_does_not_say_what_it_wants() -> None:
    """The node that fails is the If; sizes that were alike where it ran stay alike."""
    text = f"""
        g (float[a,b] x, float[2,c,3] h, bool first) => (float[d,e,f] y)
          <int64[1] from = {{700}}, int64[1] axis = {{1}}, int64[1] end = {{703}}, {weights("w", 2, 3)}>
        {{
            y = If (first) <
                then_branch = then () => (float[g,h,i] p)
                  {{ part = Slice(x, from, end, axis)  s = Gather(h, one)  q = Add(part, s)
                     p = Concat<axis = 0>(q, q) }},
                else_branch = other () => (float[j,k,l] r) {{ r = Identity(h) }}
            >
        }}
    """
    text = text.replace("int64[1] axis", "int64 one = {1}, int64[1] axis").replace(
        "Concat<axis = 0>(q, q)", "Unsqueeze(q, axis)"
    )
    result = verify(model(text), model(text))
    assert result, result.message


@pytest.mark.parametrize(
    ("op_type", "shapes", "expected"),
    [
        ("Concat", [(2, 16, 8), (3, 33, 9)], {"a": 2, "b": 16, "c": 8}),
        ("Add", [(2, 16, 8), (3, 1, 8)], {"a": 2}),
        ("Add", [(16, 8), (3, 33, 8)], {"b": 16}),
        ("MatMul", [(2, 5, 16), (3, 33, 9)], {"a": 2, "b": 16}),
        ("Reshape", [(2, 16, 8), (3, 33, 9)], {}),
    ],
)
def test_axes_that_meet(op_type: str, shapes: list, expected: dict) -> None:
    node = helper.make_node(op_type, ["x", "h"], ["y"])
    found = matching_sizes(Operands(node, shapes, {}), {"h": ("a", "b", "c")}, ["a", "b", "c"])
    assert found == expected


def test_of_two_open_dims_the_later_follows_unless_it_is_kept() -> None:
    operands = Operands(helper.make_node("Add", ["h", "x"], ["y"]), [(3, 8), (2, 8)], {})
    dims = {"x": ("a", "b"), "h": ("c", "b")}
    assert matching_sizes(operands, dims, ["a", "b", "c"]) == {"c": 2}
    assert matching_sizes(operands, dims, ["a", "b", "c"], ["c"]) == {"a": 3}
    assert matching_sizes(operands, dims, ["b"]) == {}
