"""What stands between SpaceToBatch and BatchToSpace is written without blocks, or stays, with a reason.

Random regions are in `test_regions`; here is each promise of docs/fusion.md once.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert, plan, verify
from onnx import helper
from region_models import (
    ATROUS,
    RNG,
    TO_FIRST,
    TO_LAST,
    around,
    attributes,
    check,
    declined,
    lowerings,
    model,
    ops,
)  # fmt: skip
from vocabulary import ORIGIN

import onnx_spatial

FUSED = "dilated convolution"
NOTHING = {"pads": [[0, 0], [0, 0]], "crops": [[0, 0], [0, 0]]}
ZEROS = {"pads": [[0, 1], [0, 0]], "crops": [[0, 1], [0, 0]]}


class Row(NamedTuple):
    """A region, the operators that are left of it, and what is said of the node "conv"."""

    body: str
    ops: str = "Transpose Conv Transpose"
    conv: dict[str, object] = {}  # noqa: RUF012
    shapes: tuple[tuple[int, ...], ...] = ((1, 5, 6, 3), (2, 9, 4, 3))
    options: dict[str, Any] = {}  # noqa: RUF012


def conv(attributes: str) -> str:
    return around(f"[conv] c = Conv <{attributes}> (t, w)")


def behind(nodes: str) -> str:
    """Nodes that make c of what a Conv gives, k."""
    return around(f"k = Conv (t, w) {nodes}")


ONE_DIMENSION = f"""
    s = SpaceToBatchND(x, block, pads) a = Unsqueeze(s, one) t = Transpose {TO_FIRST} (a)
    [conv] c = Conv(t, flat)
    q = Squeeze(c, two) b = Transpose <perm = [0, 2, 1]> (q) y = BatchToSpaceND(b, block, crops)
"""
TWO_LAYERS = (
    ATROUS.replace("y =", "m =")
    + """
    n = {}(m)
    s2 = SpaceToBatchND(n, block, pads)
    t2 = Transpose <perm = [0, 3, 1, 2]> (s2)
    c2 = Conv(t2, v)
    b2 = Transpose <perm = [0, 2, 3, 1]> (c2)
    y = BatchToSpaceND(b2, block, crops)
"""
)
FLAT = {
    "flat": np.ones((4, 3, 1, 2), np.float32),
    "block": [4],
    "pads": [[4, 0]],
    "crops": [[0, 0]],
}
#: The sizes that TensorFlow adds and takes off: whole blocks of x and `base` zeros.
COMPUTED = """
    n = Shape(x) hw = Slice(n, one, three) padded = Add(hw, base) rest = Mod(padded, block)
    lack = Sub(block, rest) fill = Mod(lack, block) high = Add(half, fill)
    low_c = Unsqueeze(half, one) high_c = Unsqueeze(high, one)
    pads = Concat <axis = 1> (low_c, high_c)
    fill_c = Unsqueeze(fill, one) none_c = Unsqueeze(nothing, one)
    crops = Concat <axis = 1> (none_c, fill_c)
"""
SIZES = {"base": [4, 4], "half": [2, 2], "nothing": [0, 0]}
BY_HAND = "cells = Div(lack, block) down = Mul(cells, block) fill = Sub(lack, down)"
OPAQUE = "part = Mod(lack, block) f = Cast <to = 1> (part) fill = Cast <to = 7> (f)"
BEHIND_SIGMOID = around("k = Sigmoid(t) c = Conv <pads = [1, 1, 0, 0]> (k, w)")

ROWS = {
    "a dilated convolution": Row(ATROUS, conv={"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    "dilations": Row(
        conv("dilations = [1, 3]"), conv={"dilations": [2, 6]}, shapes=((1, 11, 16, 3),)
    ),
    "pads": Row(conv("pads = [1, 0, 2, 1]"), conv={"pads": [4, 2, 6, 4]}),
    "SAME": Row(conv('auto_pad = "SAME_UPPER"'), conv={"pads": [4, 4, 4, 4]}),
    "VALID": Row(conv('auto_pad = "VALID"'), conv={"pads": [2, 2, 2, 2]}),
    "groups, one axis": Row(
        around("[conv] c = Conv <group = 3> (t, each)"), conv={"dilations": [2, 1], "group": 3},
        options={"block": [2, 1], "pads": [[2, 3], [1, 1]]},
    ),
    "stride where the block is 1": Row(
        conv("strides = [1, 2]"), conv={"dilations": [2, 1], "pads": [2, 1, 2, 2]},
        options={"block": [2, 1], "pads": [[2, 3], [1, 2]]},
    ),
    "channels first": Row(
        "s = SpaceToBatchND(x, block, pads) [conv] c = Conv(s, w) y = BatchToSpaceND(c, block, crops)",
        "Conv", {"dilations": [2, 3]}, ((2, 3, 4, 6),),
        {"given": "float[N,3,H,W] x", "block": [1, 2, 3], "pads": [[0, 0], [2, 2], [3, 3]],
         "crops": [[0, 0]] * 3},
    ),
    "one dimension": Row(
        ONE_DIMENSION, "Unsqueeze Transpose Conv Squeeze Transpose",
        {"dilations": [1, 4], "pads": [0, 4, 0, 0]}, ((1, 8, 3), (2, 4, 3)),
        {"given": "float[N,T,3] x", "gives": "float[?,?,?] y", **FLAT},
    ),
    "a transposed convolution": Row(
        around("[conv] c = ConvTranspose (t, turned, pair)"), "Transpose ConvTranspose Transpose",
        {"dilations": [2, 2], "pads": [2, 1, 2, 1]}, ((1, 9, 6, 3),),
        {"pads": [[0, 1], [0, 0]], "crops": [[2, 3], [1, 1]], "pair": np.ones(2, np.float32)},
    ),
    "its own dilations and pads": Row(
        around("[conv] c = ConvTranspose <dilations = [2, 1], pads = [1, 0, 0, 1]> (t, turned)"),
        "Transpose ConvTranspose Transpose", {"dilations": [4, 2], "pads": [2, 0, 0, 2]},
        ((1, 8, 6, 3),), NOTHING,
    ),
    "a bias": Row(behind("c = Add(k, bias)"), "Transpose Conv Add Transpose"),
    "activations": Row(
        behind("l = Relu(k) m = Clip(l, scalar) o = Sigmoid(m) c = PRelu(o, slope)"),
        "Transpose Conv Relu Clip Sigmoid PRelu Transpose",
    ),
    "statistics": Row(
        behind("c = BatchNormalization(k, channels, channels, channels, variance)"),
        "Transpose Conv BatchNormalization Transpose",
        options={"variance": np.full(4, 0.5, np.float32)},
    ),
    "along the channels": Row(
        behind("m = Softmax <axis = 1> (k) l = ReduceMax <axes = [1]> (m) c = Concat <axis = 1> (m, l)"),
        "Transpose Conv Softmax ReduceMax Concat Transpose",
    ),
    "the largest channel": Row(
        around("i = ArgMin <axis = -3, keepdims = 0> (t) f = Cast <to = 1> (i) c = Unsqueeze(f, one)"),
        "Transpose Pad ArgMin Cast Unsqueeze Transpose",
    ),
    "a matrix": Row(
        "s = SpaceToBatchND(x, block, pads) b = MatMul(s, matrix) y = BatchToSpaceND(b, block, crops)",
        "MatMul", options=ZEROS,
    ),
    "a gate": Row(
        around("f = Conv(t, w) g = Conv(t, w) h = Tanh(f) k = Sigmoid(g) c = Mul(h, k)"),
        "Transpose Conv Conv Tanh Sigmoid Mul Transpose",
    ),
    "a zero point around": Row(
        around("c = QuantizeLinear(t, step, point)"), "QuantizeLinear Pad",
        options={"gives": "uint8[?,?,?,?] y", "step": np.float32(0.5), "point": np.uint8(7)},
    ),
    "a residual sum": Row(
        around("k = Conv <pads = [1, 1, 1, 1]> (t, u) c = Add(k, t)"),
        "Transpose Conv Add Transpose", options=ZEROS,
        shapes=((1, 5, 6, 3),),
    ),
    "two convolutions": Row(
        around("k = Conv(t, w) a = Add(k, bias) [conv] c = Conv <pads = [1, 1, 1, 1]> (a, v)"),
        "Transpose Conv Add Conv Transpose", {"dilations": [2, 2]},
    ),
    "a number behind zeros": Row(
        around("k = Sigmoid(t) c = Conv(k, w)"), "Transpose Pad Sigmoid Conv Transpose"
    ),
    "two layers": Row(TWO_LAYERS.format("Relu"), "Transpose Conv Relu Conv Transpose"),
    "a node of one value twice": Row(
        TWO_LAYERS.format("Relu").replace("Relu(m)", "CastLike(m, m)"),
        "Transpose Conv Transpose CastLike Transpose Conv Transpose",
    ),
    "blocks that others read": Row(
        ATROUS, "",
        options={"gives": "float[?,?,?,?] y, float[?,?,?,?] s"}, shapes=((1, 5, 6, 3),),
    ),
    "the target of a Reshape": Row(
        around("k = Conv(t, w) n = Shape(k) c = Reshape(k, n)")
    ),
    "a Slice of everything": Row(
        around("n = Shape(t) e = Gather(n, two) f = Sub(e, e) c = Slice(t, f, e, two)"),
        "Pad",
    ),
    "a Slice of the channels": Row(
        around("c = Slice(t, starts, ends, axes)"), "Slice Pad",
        options={"starts": [0, 0], "ends": [2**31, 2], "axes": [2, 1]},
    ),
    "computed pads and crops": Row(
        COMPUTED + ATROUS, conv={"pads": [2, 2, 2, 2]}, options=SIZES
    ),
    "computed pads and crops, written out": Row(
        COMPUTED.replace("fill = Mod(lack, block)", BY_HAND) + ATROUS, options=SIZES
    ),
    "nothing but a remainder": Row(
        COMPUTED + ATROUS, options={**SIZES, "base": [0, 0], "half": [0, 0]}, shapes=((1, 7, 8, 3),)
    ),
    "a remainder behind Sigmoid": Row(
        COMPUTED + BEHIND_SIGMOID, "Transpose Pad Sigmoid Conv Transpose", options=SIZES,
    ),
    "a crop of which nothing is known": Row(
        COMPUTED.replace("fill = Mod(lack, block)", OPAQUE) + BEHIND_SIGMOID,
        "", options=SIZES,
    ),
    "pads and crops in one table": Row(
        COMPUTED[:COMPUTED.index("fill_c")]
        + around("""k = Conv <pads = [1, 1, 1, 1]> (t, w) a = Add(k, bias) r = Relu(a)
            c = Conv <pads = [1, 1, 1, 1]> (r, v)""").replace("crops", "pads"),
        "",
        options={"base": [0, 0], "half": [0, 0]}, shapes=((1, 5, 6, 3), (1, 3, 3, 3)),
    ),
    "a known crop of computed pads": Row(
        COMPUTED.replace("crops = Concat <axis = 1> (none_c, fill_c)", "crops = Identity(threes)")
        + ATROUS, "", options={**SIZES, "threes": np.full((2, 2), 3)},
        shapes=((1, 5, 6, 3), (2, 7, 8, 3)),
    ),
    "more is cropped than padded": Row(
        ATROUS, "Transpose Conv Transpose Slice", options={"crops": [[4, 1], [5, 0]]},
        shapes=((1, 5, 6, 3),),
    ),
    "more than there is": Row(
        ATROUS, "", options={"pads": [[6, 7], [0, 0]], "crops": [[13, 0], [0, 0]]},
        shapes=((1, 5, 6, 3),),
    ),
    "crops that leave nothing": Row(
        ATROUS, "Transpose Conv Transpose Slice", shapes=((1, 6, 6, 3), (1, 8, 6, 3)),
        options={"pads": [[2, 2], [2, 2]], "crops": [[0, 6], [0, 0]]},
    ),
    "what is wanted lies in the pads": Row(
        around("k = Sigmoid(t) c = Conv <pads = [0, 1, 0, 2]> (k, w1)"), "", shapes=((2, 4, 3, 3),),
        options={"given": "float[2,4,3,3] x", "block": [4, 4], "pads": [[0, 0], [2, 11]],
                 "crops": [[0, 0], [24, 3]], "w1": np.ones((4, 3, 1, 1), np.float32)},
    ),
    "crops of an axis without blocks": Row(
        ATROUS, "Transpose Conv Transpose Slice",
        options={"block": [2, 1, 1], "pads": [[2, 3], [0, 0], [0, 0]],
                 "crops": [[0, 1], [1, 0], [0, 2]]},
    ),
    "pads and crops of nothing but Relu": Row(
        around("c = Relu(t)"), "Relu Pad Slice",
        options={"pads": [[2, 0], [0, 0]], "crops": [[0, 0], [2, 0]]}, shapes=((1, 4, 6, 3),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_region_is_written_without_blocks(name: str) -> None:
    row = ROWS[name]
    made = model(row.body, **row.options)
    converted = check(made, *row.shapes)
    assert set(lowerings(made)[-1:]) <= {FUSED, "unblocked"}, declined(made)
    if row.ops:
        assert ops(converted) == row.ops
    if row.conv:
        found = attributes(converted, "conv")
        assert {name: found.get(name) for name in row.conv} == row.conv
        assert "auto_pad" not in found


def test_what_a_node_was_it_still_is_and_the_report_says_what_became_of_it() -> None:
    made = model()
    node = made.graph.node[2]
    node.doc_string = "atrous"
    node.metadata_props.add(key="layer", value="7")
    result = plan(made)
    assert result.model is not None
    marked = {n.name for n in result.model.graph.node if n.metadata_props}
    assert marked == {"conv"}  # the Transposes only read other values
    (after,) = [n for n in result.model.graph.node if n.name == "conv"]
    assert (after.doc_string, list(after.input)[1:]) == ("atrous", ["w"])
    assert {p.key: p.value for p in after.metadata_props} == {"layer": "7", ORIGIN: "Conv conv"}
    assert after.output[0] not in {"c", "y"}  # another value must not bear its name
    first, second = result.operators
    assert second.between == ("before", "conv", "behind")
    assert (first.nodes_before, first.nodes_after) == (1, 0)
    assert (second.nodes_before, second.nodes_after) == (4, 3)
    assert result.touched["nodes_replaced"] == [first.node, "out"]
    assert result.touched["nodes_changed"] == ["before", "conv", "behind"]
    assert result.touched["nodes_removed"] == result.touched["initializers_added"] == []
    assert convert(made).SerializeToString() == result.model.SerializeToString()
    verdict = verify(made, result.model)
    assert verdict.evidence == "proven", verdict.message
    assert "of the largest value (1e-05 is allowed)" in verdict.message
    assert "dilations" not in attributes(convert(made, fuse=False), "conv")


def test_nodes_without_names_get_some() -> None:
    made = model()
    for node in made.graph.node:
        node.name = ""
    result = plan(made)
    assert result.operators[1].between == ("<t>", "<c>", "<b>")
    assert result.model is not None
    assert all(n.name and n.output[0] != ":0" for n in result.model.graph.node)
    check(made, (1, 5, 6, 3))


# What others get wrong: whatever becomes of these, the numbers must be those of the definitions

NUMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "stride 2 on both axes": (conv("strides = [2, 2]"), {}),
    "stride 2 on one axis": (conv("strides = [2, 1]"), {}),
    "dilations on one axis": (conv("dilations = [2, 1]"), {"pads": [[4, 5], [2, 2]]}),
    "pads behind a bias": (
        around("a = Add(t, own) c = Conv <pads = [1, 1, 1, 1]> (a, w)"),
        {**ZEROS, "own": np.ones((3, 1, 1), np.float32)},
    ),
    "SAME_LOWER": (conv('auto_pad = "SAME_LOWER"'), {"pads": [[1, 0], [1, 1]]}),
    "inner values that others read": (
        ATROUS + "also = Relu(t) more = Shape(s)",
        {"gives": "float[?,?,?,?] y, float[?,?,?,?] also, float[?,?,?,?] c, int64[?] more"},
    ),
    "two convolutions of one SpaceToBatch": (
        ATROUS + f"""d = Conv <pads = [0, 1, 0, 1], dilations = [1, 2]> (t, w)
            e = Transpose {TO_LAST} (d) z = BatchToSpaceND(e, block, crops)""",
        {"gives": "float[?,?,?,?] y, float[?,?,?,?] z"},
    ),
    "other blocks": (ATROUS.replace("(b, block", "(b, other"), {"other": [4, 1]}),
    "smaller blocks": (ATROUS.replace("(b, block", "(b, other"), {"other": [2, 1]}),
    "blocks that have changed places": (
        ATROUS.replace("(b, block", "(b, other"),
        {"block": [2, 3], "other": [3, 2], "pads": [[2, 3], [3, 3]]},
    ),
    "axes that have changed places": (ATROUS.replace("[0, 2, 3, 1]", "[0, 3, 2, 1]"), {}),
    "crops exceed the image": (ATROUS, {"pads": [[8, 9], [0, 2]], "crops": [[9, 8], [2, 5]]}),
    "pads that are uneven": (ATROUS, {"pads": [[5, 0], [1, 3]], "crops": [[3, 0], [0, 2]]}),
    "a Sigmoid between padded convolutions": (
        around("""k = Conv <pads = [1, 1, 1, 1]> (t, u) a = Sigmoid(k)
            c = Conv <pads = [1, 1, 1, 1]> (a, w)"""),
        ZEROS,
    ),
    "a maximum": (around("c = MaxPool <kernel_shape = [2, 2]> (t)"), {}),
    "a region in a region": (
        ATROUS.replace("(t, w)", "(t4, u)").replace("t = Transpose", "t4 = Transpose").replace(
            "(s)", "(r)").replace("[before]", """q = SpaceToBatchND(s, inner, some)
            [deep] p = Relu(q) r = BatchToSpaceND(p, inner, some) [before]"""),
        {"inner": [2, 3], "some": [[1, 0], [0, 1]], "given": "float[1,9,12,3] x"},
    ),
    "blocks that leave in the wrong order": (
        """s = SpaceToBatchND(x, block, pads) q = SpaceToBatchND(s, inner, none) p = Relu(q)
            r = BatchToSpaceND(p, block, none) y = BatchToSpaceND(r, inner, crops)""",
        {"inner": [2, 3], "pads": [[2, 1], [0, 0]]},
    ),
    "crops of the shape of a value in blocks": (
        """s = SpaceToBatchND(x, block, pads) n = Shape(s) k = Slice(n, two, three) r = Mod(k, two)
            z = Sub(r, r) four = Concat <axis = 0> (z, r, z, r) crops = Reshape(four, square)
            b = Relu(s) y = BatchToSpaceND(b, block, crops)""",
        {"square": [2, 2]},
    ),
    "a shape that a node computes with": (
        around("""n = Shape(t) k = Slice(n, two, three) f = Cast <to = 1> (k) m = Mul(t, f)
            c = Conv(m, w)"""),
        {},
    ),
    "crops of the size of the convolution": (
        around("c = Conv(t, w) n = Shape(c) k = Slice(n, two, three) r = Mod(k, two)"
               "four = Concat <axis = 0> (zero, r, zero, r) table = Reshape(four, square)")
        .replace("crops", "table"),
        {"square": [2, 2]},
    ),
    "crops of the values of the region": (
        around("""c = Conv(t, w) k = ReduceMax <keepdims = 0> (c) i = Cast <to = 7> (k)
            z = Mul(i, zero) crops = Add(z, few)""".replace("crops", "table")).replace("crops", "table"),
        {"few": [[0, 1], [0, 0]]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("dims", ["1,9,12,3", "N,H,W,3"])
@pytest.mark.parametrize("name", NUMBERS)
def test_what_others_get_wrong(name: str, dims: str) -> None:
    body, options = NUMBERS[name]
    check(model(body, **{"given": f"float[{dims}] x", **options}), (1, 9, 12, 3))


@pytest.mark.parametrize("negative", ["Neg(s)", "Mul(s, minus)"])
def test_zeros_beyond_the_border_keep_their_sign(negative: str) -> None:
    body = f"s = SpaceToBatchND(x, block, pads) a = {negative} b = Reciprocal(a) "
    tables = {"pads": [[2, 0], [0, 0]], "minus": np.float32(-1)}
    made = model(f"{body} y = BatchToSpaceND(b, block, none)", **tables)
    for level in running.LEVELS:
        (y,) = running.run(convert(made), {"x": np.ones((1, 4, 6, 3), np.float32)}, level)
        assert np.array_equal(np.unique(y), [-np.inf, -1])


# Amounts that only the run knows


@pytest.mark.parametrize("element_type", ["int32", "int64"])
@pytest.mark.parametrize(
    ("pads", "crops"),
    [
        ([[2, 3], [2, 2]], [[0, 1], [0, 0]]),
        ([[0, 1], [0, 0]], [[1, 0], [0, 2]]),
        ([[4, 1], [3, 3]], [[3, 0], [0, 4]]),
    ],
)
def test_pads_and_crops_that_are_inputs(element_type: str, pads: object, crops: object) -> None:
    feeds = {"pads": np.array(pads, element_type), "crops": np.array(crops, element_type)}
    for name in ("pads", "crops", None):
        given = {k: v for k, v in feeds.items() if name in (k, None)}
        inputs = "".join(f", {element_type}[2,2] {k}" for k in given)
        made = model(
            given=f"float[N,H,W,3] x{inputs}", **{k: v for k, v in feeds.items() if k not in given}
        )
        counts = structure.counts(check(made, (1, 5, 6, 3), **given))
        assert counts["Conv"] == 1 and not counts["SpaceToBatchND"]
    assert (counts["Pad"], counts["Slice"]) == (1, 1)
    sigmoid = model(around("c = Sigmoid(t)"), given=f"float[N,H,W,3] x{inputs}")
    counts = structure.counts(check(sigmoid, (1, 5, 6, 3), **feeds))
    assert (counts["Pad"], counts["Slice"]) == (1, 1)


def test_amounts_for_all_axes() -> None:
    """OpenVINO's vectors begin with the batch."""
    made = model(
        around("c = Conv <pads = [1, 1, 1, 1]> (t, w)").replace("block, pads", "whole, low, high")
        .replace("block, crops", "whole, begins, ends").replace("ND(", "("),
        given="float[N,H,W,3] x, int64[4] low, int64[4] high, int64[4] begins, int64[4] ends",
        whole=[1, 2, 2, 1],
    )  # fmt: skip
    for node in (made.graph.node[0], made.graph.node[-1]):
        node.domain = "org.openvinotoolkit"
    made.opset_import.add(domain="org.openvinotoolkit", version=1)
    counts = structure.counts(check(
        made, (1, 5, 6, 3), low=[0, 1, 2, 0], high=[0, 2, 0, 0], begins=[0, 1, 0, 0], ends=[0, 0, 3, 0]
    ))  # fmt: skip
    assert counts["Pad"] == counts["Slice"] == counts["Conv"] == 1


@pytest.mark.parametrize("crops", [[[1, 1], [1, 1]], [[0, 0], [0, 0]]])
def test_a_zero_point_that_only_the_run_knows_is_not_padded_with_zeros(crops: object) -> None:
    made = model(
        around("c = ConvInteger <pads = [1, 1, 1, 1]> (t, k, z)"),
        given="uint8[N,H,W,3] x, uint8 z, int64[2,2] crops",
        gives="int32[?,?,?,?] y",
        pads=[[2, 2], [2, 2]],
        k=RNG.integers(0, 9, (4, 3, 3, 3)).astype(np.uint8),
    )
    x = RNG.integers(0, 255, (1, 6, 8, 3)).astype(np.uint8)
    feeds = {"x": x, "z": np.array(9, np.uint8), "crops": np.array(crops)}
    fused, plain = (running.run(convert(made, fuse=fuse), feeds)[0] for fuse in (True, False))
    np.testing.assert_array_equal(fused, plain)


def test_one_image_in_two_blockings() -> None:
    """The pads of one branch are what its convolution takes off; 5 are one too many for even sizes."""
    body = COMPUTED + around("c = Conv(t, u) table = Identity(pads)")[: -len("[out]")]
    second = COMPUTED.replace("base", "nothing").replace("half", "nothing")
    names = "n hw padded rest lack fill high low_c high_c pads fill_c none_c crops".split()
    for name in names:
        second = second.replace(f"{name} =", f"{name}2 =")
        for end in ",)":
            second = second.replace(f"({name}{end}", f"({name}2{end}").replace(
                f" {name}{end}", f" {name}2{end}"
            )
    body = (
        body[: body.index("[out]")]
        + second
        + """
        q = SpaceToBatchND(x, block, pads2) a = Add(b, q) y = BatchToSpaceND(a, block, crops2)
    """
    )
    made = model(body, **SIZES)
    assert lowerings(made) == [FUSED] * 3, declined(made)
    check(made, (1, 5, 6, 3), (2, 8, 7, 3))
    assert "may be of different sizes" in declined(model(body, **{**SIZES, "base": [5, 5]}))


# Shapes of values in blocks


@pytest.mark.parametrize(
    ("node", "count"),
    [("Shape(s)", 4), ("Shape <start = 1, end = 3> (b)", 3), ("Shape <start = -1> (b)", 0)],
)
def test_the_shape_of_a_value_in_blocks_is_computed_without_them(node: str, count: int) -> None:
    made = model(f"{ATROUS} n = {node}", gives="float[?,?,?,?] y, int64[?] n")
    found = structure.counts(check(made, (1, 5, 6, 3), (2, 9, 4, 3)))
    assert found["Conv"] == 1 and not found["Reshape"]
    assert sum(found[op] for op in ("Shape", "Add", "Mul", "Div")) == count
    static = model(
        f"{ATROUS} n = {node}", given="float[1,5,6,3] x", gives="float[?,?,?,?] y, int64[?] n"
    )
    assert not structure.counts(check(static, (1, 5, 6, 3)))["Shape"]


# Axes of size 1

ONES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "computed": (
        "n = Shape(s) m = Gather(n, first) t = Reshape(s, m)",
        "k = Shape(c) l = Gather(k, last) b = Reshape(c, l)",
        {"first": [0, 3, 1, 2], "last": [0, 2, 3, 1]},
    ),
    "with one more axis": (
        "a = Unsqueeze(s, zero) t = Reshape(a, first)", "o = Reshape(c, last) b = Squeeze(o, zero)",
        {"first": [-1, 1, 0, 0], "last": [1, -1, 0, 0, 1]},
    ),
    "Squeeze and Unsqueeze": (
        "q = Squeeze(s, three) t = Unsqueeze(q, one)", f"b = Transpose {TO_LAST} (c)", {},
    ),
    "known sizes": (
        "t = Reshape <allowzero = 1> (s, first)", "b = Reshape(c, last)",
        {"first": [4, 1, 5, 5], "last": [4, 3, 3, -1], "given": "float[1,5,6,1] x"},
    ),
    "a size computed in front": (
        """n = Shape(x) hw = Slice(n, one, three) p = Add(hw, five) o = Div(p, block)
            m = Concat <axis = 0> (minus1, one, o) t = Reshape(s, m)""",
        f"b = Transpose {TO_LAST} (c)", {"five": [5, 4]},
    ),
}  # fmt: skip


def ones(front: str, back: str, options: dict[str, Any], channels: int = 1) -> onnx.ModelProto:
    options = {"given": f"float[N,H,W,{channels}] x", **options}
    body = f"s = SpaceToBatchND(x, block, pads) {front} [conv] c = Conv(t, k11) {back}"
    kernel = RNG.normal(size=(1, channels, 3, 3)).astype(np.float32)
    return model(f"{body} y = BatchToSpaceND(b, block, crops)", k11=kernel, **options)


@pytest.mark.parametrize("name", ONES)
def test_a_reshape_that_moves_axes_of_size_1_is_a_transpose(name: str) -> None:
    made = ones(*ONES[name])
    converted = check(made, (1, 5, 6, 1))
    assert attributes(converted, "conv")["dilations"] == [2, 2]
    assert not {"Reshape", "Shape"} & set(structure.ops(converted))
    result = verify(made, converted)
    assert result.evidence == "proven", result.message


@pytest.mark.parametrize(
    ("dims", "target", "channels"),
    [
        ("N,H,W,1", "Gather(n, swapped)", 1),
        ("N,4,6,2", "Gather(n, first)", 2),
        ("1,4,6,1", "Identity(static)", 1),
        ("1,8,6,1", "Identity(joined)", 1),
    ],
)
def test_a_reshape_that_is_no_transpose(dims: str, target: str, channels: int) -> None:
    made = ones(
        f"n = Shape(s) m = {target} t = Reshape(s, m)", f"b = Transpose {TO_LAST} (c)",
        {"given": f"float[{dims}] x", "swapped": [0, 3, 2, 1], "first": [0, 3, 1, 2],
         "crops": [[0, 0]] * 2,
         "static": [4, 1, 5, 4], "joined": [4, 1, 3, 10], "pads": [[2, 2], [2, 2]]}, channels,
    )  # fmt: skip
    assert "Reshape splits or joins axes" in declined(made)
    check(made, (1, 8 if "8" in dims else 4, 6, channels))


def test_blocks_as_large_as_the_image() -> None:
    """Nothing but batch and channels is left."""
    made = model(
        """s = SpaceToBatchND(x, block, none) t = Reshape(s, first)
        [conv] c = Conv <pads = [1, 1, 1, 1]> (t, u) b = Reshape(c, last)
        y = BatchToSpaceND(b, block, crops)""",
        given="float[N,3,4,3] x", block=[3, 4], first=[-1, 3, 1, 1], last=[-1, 1, 1, 3],
    )  # fmt: skip
    converted = check(made, (1, 3, 4, 3), (2, 3, 4, 3))
    assert ops(converted).count("Transpose") == 2 and attributes(converted, "conv")[
        "dilations"
    ] == [3, 4]


# A Pad in front

PADDED = (
    "p = Pad {} n = Shape(p) hw = Slice(n, one, three) extra = Mod(hw, block) back = Neg(extra) \
    fill = Mod(back, block) h = Unsqueeze(fill, one) l = Unsqueeze(nothing, one) \
    table = Concat <axis = 1> (l, h)"
    + ATROUS.replace("(x,", "(p,").replace("pads)", "table)").replace("crops", "table")
)
PAST = {"past": [0, 4, 3, 0, 0, 1, 0, 0], "nothing": [0, 0]}
THIRD = "float[?,?,?,?] y, float[?,?,?,?] {}"


@pytest.mark.parametrize("pad", ["(x, past)", "(x, short, , axes)"])
def test_a_pad_of_zeros_becomes_pads_of_the_convolution(pad: str) -> None:
    made = model(PADDED.format(pad), opset=18, short=[4, 3, 1, 0], axes=[1, -2], **PAST)
    converted = check(made, (1, 5, 6, 3), (2, 8, 7, 3))
    assert ops(converted) == "Transpose Conv Transpose"
    assert attributes(converted, "conv")["pads"] == [4, 3, 1, 0]
    twice = (
        re.sub(r"\[\w+\] ", "", ATROUS)
        .replace("(x,", "(p,")
        .replace("pads)", "table)")
        .replace("crops", "table")
    )
    for name in "stcby":
        twice = twice.replace(f" {name} =", f" {name}2 =").replace(f"({name})", f"({name}2)")
        twice = twice.replace(f"({name},", f"({name}2,")
    shared = model(PADDED.format(pad) + twice, opset=18, short=[4, 3, 1, 0], axes=[1, -2],
                   gives=THIRD.format("y2"), **PAST)  # fmt: skip
    assert "Pad" not in ops(check(shared, (1, 5, 6, 3)))


@pytest.mark.parametrize(
    ("pad", "more", "options"),
    [
        ("(x, past, scalar)", "", {}),
        ("(x, past, minus)", "", {}),
        ('<mode = "edge"> (x, past)', "", {}),
        ("(x, wide)", "", {"w": np.ones((4, 4, 3, 3), np.float32)}),
        ("(x, less)", "", {}),
        ("(x, past)", "z = Neg(p)", {"gives": THIRD.format("z")}),
        ("(x, past)", "", {"gives": THIRD.format("p")}),
    ],
)
def test_another_pad_stays(pad: str, more: str, options: dict[str, Any]) -> None:
    tables = {
        "wide": [0, 4, 3, 0, 0, 1, 0, 1],
        "less": [0, 4, 3, 0, 0, -1, 0, 0],
        "minus": np.float32(-0.0),
    }
    made = model(PADDED.format(pad) + more, **{**PAST, **tables, **options})
    # onnx's evaluator knows no negative amounts.
    converted = check(made, *[(1, 5, 6, 3)] * ("less" not in pad))
    assert [n.output[0] for n in converted.graph.node if "x" in n.input] == ["p"]
    assert lowerings(made) == [FUSED] * 2


# Where else


def test_in_a_branch_and_in_a_function() -> None:
    """Sizes that only a branch needed are not computed around it."""
    body = ATROUS.replace(" y =", " r =")
    made = model(
        f"""{COMPUTED} y = If (on) <
            then_branch = a () => (float[?,?,?,?] r) {{ {body} }},
            else_branch = e () => (float[?,?,?,?] e1) {{ e1 = own.layer(x, w, block, nowhere) }} >""",
        given="float[N,H,W,3] x, bool on",
        functions=f"""<domain: "own", opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
            layer (x, w, block, crops) => (r) {{ {body.replace("pads", "crops")} }}""",
        nowhere=[[2, 1], [2, 2]], **SIZES,
    )  # fmt: skip
    assert lowerings(made) == [FUSED] * 4
    made.graph.value_info.append(helper.make_tensor_value_info("pads", 7, [2, 2]))
    for on in (True, False):
        converted = check(made, (1, 5, 6, 3), on=on)
    assert ops(converted) == "If" and not converted.graph.value_info
    assert structure.counts(converted)["Conv"] == 2


def test_one_region_that_cannot_be_written_leaves_the_others() -> None:
    other = ATROUS
    for name in ("s", "t", "c", "b", "y"):
        other = other.replace(f" {name} =", f" {name}3 =").replace(f"({name})", f"({name}3)")
    other = other.replace("(t, w)", "(t3, w)").replace("(b,", "(b3,")
    for name in ("before", "conv", "behind", "out"):
        other = other.replace(f"[{name}]", f"[{name}3]")
    made = model(
        f"{ATROUS} q = Relu(c) {other}",
        gives="float[?,?,?,?] y, float[?,?,?,?] q, float[?,?,?,?] y3",
    )
    assert lowerings(made).count(FUSED) == 2
    assert "Relu '<q>' reads 'c' from outside of the region, in blocks" in declined(made)
    check(made, (1, 5, 6, 3))


def test_no_region_takes_away_what_a_checked_model_has_to_find() -> None:
    (reason, *_) = plan(model(), checked=True).operators[0].declined
    assert "its sizes are checked at run time" in reason
    static = model(given="float[1,5,6,3] x")
    assert {site.lowering for site in plan(static, checked=True).operators} == {FUSED}


def test_a_computed_crop_stands_in_front_of_the_convolution_that_takes_it_in() -> None:
    late = """rest = Mod(number, block) high = Unsqueeze(rest, one) low = Unsqueeze(nothing, one)
        crops = Concat <axis = 1> (low, high) [out]"""
    made = model(
        ATROUS.replace("[out]", late), given="float[N,H,W,3] x, int64[2] number", nothing=[0, 0]
    )
    converted = check(made, (1, 5, 6, 3), number=[3, 4])
    there = {v.name for v in converted.graph.input} | {t.name for t in converted.graph.initializer}
    for node in converted.graph.node:
        assert there.issuperset(node.input)
        there.update(node.output)


# Why not

REASONS: dict[str, tuple[str, dict[str, Any]]] = {
    "Conv has stride 2 on a blocked axis": (conv("strides = [2, 1]"), {}),
    "GlobalMaxPool needs neighbours along the blocked axes": (around("c = GlobalMaxPool(t)"), {}),
    "Softmax runs along a blocked axis": (around("c = Softmax <axis = 2> (t)"), {}),
    "Softmax looks along several axes": (around("c = Softmax(t)"), {"opset": 11}),
    "BatchNormalization runs along a blocked axis": (
        ATROUS.replace("(s)", "(i)").replace("[before]", "i = BatchNormalization(s, p, p, p, p)"),
        {"p": np.ones(3, np.float32)},
    ),
    "Softmax runs along the batch": (around("c = Softmax <axis = 0> (t)"), {}),
    "'place' may differ between positions or images": (around("c = Add(t, place)"), {}),
    "own:Strange is not known to be position-independent": (around("c = own.Strange(t)"), {}),
    "its blocks [4, 1] are not those of the SpaceToBatch in front": (
        ATROUS.replace("(b, block", "(b, other"), {"other": [4, 1]},
    ),
    "the batch axis is not the first any more": (ATROUS.replace("[0, 2, 3, 1]", "[2, 0, 3, 1]"), {}),
    "its blocks [2, 2] are not those of": (ATROUS.replace("[0, 2, 3, 1]", "[0, 3, 2, 1]"), {}),
    "begins another region inside the region": NUMBERS["a region in a region"],
    "the model reads 'b' from outside of the region, in blocks": (
        ATROUS, {"gives": "float[?,?,?,?] y, float[?,?,?,?] b"},
    ),
    "reads 'c' from outside of the region, in blocks": (
        ATROUS + "z = Size(c)", {"gives": "float[?,?,?,?] y, int64 z"},
    ),
    "the block is not known before the model runs; the dilations of a Conv are attributes": (
        ATROUS, {"given": "float[N,H,W,3] x, int64[2] block"},
    ),
    "the rank of the data is not known": (
        """f = own.Erfc(x) s = SpaceToBatchND(f, block, pads) r = Relu(s)
            y = BatchToSpaceND(r, block, crops)""", {},
    ),
    "may be of different sizes": (
        "s = SpaceToBatchND(x, block, none) q = SpaceToBatchND(o, block, none) a = Add(s, q) "
        "y = BatchToSpaceND(a, block, none)",
        {"given": "float[N,H,W,3] x, float[N,K,L,3] o"},
    ),
    "the channels of Conv are padded, or may be": (
        "s = SpaceToBatchND(x, block, table) c = Conv(s, w) y = BatchToSpaceND(c, block, table)",
        {"given": "float[N,3,H,W] x, int64[3,2] table", "block": [1, 2, 2]},
    ),
    "CumSum needs neighbours along the blocked axes": (around("c = CumSum(t, axis)"), {"axis": 1}),
    "TopK is not known to be position-independent": (around("c, i = TopK(t, two)"), {}),
    "the axes of ReduceMean are unknown": (
        around("c = ReduceMean(t, which)"), {"given": "float[N,H,W,3] x, int64[k] which", "opset": 18},
    ),
    "Slice cuts a blocked axis": (around("c = Slice(t, one, minus1, two)"), {}),
    "the axes of Slice are unknown": (
        around("c = Slice(t, one, minus1, which)"), {"given": "float[N,H,W,3] x, int64[1] which"},
    ),
    "Reshape splits or joins axes": (
        around("r = Reshape(t, rows) c = Reshape(r, rows)"), {"rows": [-1, 3, 2, 2]},
    ),
    "or multiplies by no matrix": (
        around("c = MatMul(t, cube)"), {"cube": np.ones((3, 4, 3), np.float32)},
    ),
    "which spreads the input": (around("c = ConvTranspose <strides = [2, 1]> (t, turned)"), {}),
    "output_shape or output_padding": (
        around("c = ConvTranspose <output_shape = [9, 9]> (t, turned)"), {},
    ),
    "pads larger than its kernel": (around("c = ConvTranspose <pads = [3, 0, 0, 0]> (t, turned)"), {}),
    "runtimes compute MaxPool with dilations otherwise": (
        around("c = MaxPool <kernel_shape = [2, 2]> (t)"), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_a_region_that_stays_says_why(reason: str) -> None:
    body, options = REASONS[reason]
    assert reason in declined(model(body, **options))


# Pools


@pytest.mark.parametrize("run", [onnx_spatial.convert, onnx_spatial.optimize])
@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool", "MaxPool"])
def test_a_pool_stays_in_blocks(op_type: str, run: Any) -> None:
    """A dilated MaxPool of onnxruntime loses NaN in other places, and finite values with them."""
    made = model(
        around(f"c = {op_type} <kernel_shape = [3, 2]> (t)"),
        pads=[[2, 2], [2, 2]],
        crops=[[0, 0]] * 2,
    )
    result = run(made)
    assert result.verification
    (pool,) = [n for n in result.model.graph.node if n.op_type == op_type]
    assert "dilations" not in {a.name for a in pool.attribute}
    x = -np.abs(RNG.normal(size=(2, 8, 8, 3))).astype(np.float32)
    x[RNG.random(x.shape) < 0.05] = np.nan
    (wanted,) = onnx_spatial.InferenceSession(model=made, mode="custom-op").run(None, {"x": x})
    for level in running.LEVELS:
        np.testing.assert_array_equal(running.run(result.model, {"x": x}, level)[0], wanted)


def test_a_pad_of_a_region_is_not_merged_into_a_pool_behind() -> None:
    made = model(
        around("c = Relu(t)").replace("y =", "r =")
        + f"q = Transpose {TO_FIRST} (r) y = MaxPool <kernel_shape = [2, 2], pads = [0, 0, 0, 0]> (q)"
    )
    x = -np.ones((1, 5, 6, 3), np.float32)
    assert ops(check(made, (1, 5, 6, 3))).endswith("Reshape MaxPool")
    for level in running.LEVELS:
        assert running.run(convert(made), {"x": x}, level)[0].max() == 0
