"""What stands between SpaceToBatch and BatchToSpace is written without blocks, or stays, with a reason.

Random regions are in `test_regions`; here is each promise of docs/fusion.md once.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import running
import structure
from adapter import convert, plan, verify
from fusion.region_models import (
    ATROUS,
    CONV,
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
from onnx import helper
from vocabulary import ORIGIN

import onnx_spatial

FUSED = "dilated convolution"
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
CROPS = "crops = Concat <axis = 1> (none_c, fill_c)"
#: Pads that grow twice as fast as the crops: what is left of them depends on both.
DOUBLED = (
    COMPUTED.replace(CROPS, "")
    .replace("block", "four")
    .replace("high = Add(half, fill)", "twice = Add(fill, fill) high = Add(half, twice)")
)
SIZES = {"base": [4, 4], "half": [2, 2], "nothing": [0, 0]}
OPAQUE = "part = Mod(lack, block) f = Cast <to = 1> (part) fill = Cast <to = 7> (f)"
#: An image of one channel, of which Reshapes may move axes.
ONE_CHANNEL = """s = SpaceToBatchND(x, block, pads) {} [conv] c = Conv(t, k11) {}
    y = BatchToSpaceND(b, block, crops)"""
BACK = f"b = Transpose {TO_LAST} (c)"
KERNEL = RNG.normal(size=(1, 1, 3, 3)).astype(np.float32)
SIZE_IN_FRONT = """n = Shape(x) hw = Slice(n, one, three) p = Add(hw, five) o = Div(p, block)
    m = Concat <axis = 0> (minus1, one, o) t = Reshape(s, m)"""
#: A Pad, and what fills whole blocks behind it.
PADDED = """p = Pad {} n = Shape(p) hw = Slice(n, one, three) extra = Mod(hw, block) back = Neg(extra)
    fill = Mod(back, block) h = Unsqueeze(fill, one) l = Unsqueeze(nothing, one)
    table = Concat <axis = 1> (l, h)""" + ATROUS.replace("(x,", "(p,").replace(
    "pads)", "table)"
).replace("crops", "table")
SQUARE = {
    "k11": KERNEL,
    "crops": [[0, 0]] * 2,
    "pads": [[2, 2], [2, 2]],
    "given": "float[1,8,6,1] x",
}
PAST = {"past": [0, 4, 3, 0, 0, 1, 0, 0], "nothing": [0, 0]}
BEHIND_SIGMOID = around("k = Sigmoid(t) c = Conv <pads = [1, 1, 0, 0]> (k, w)")

ROWS = {
    "a Reshape that moves axes of size 1": Row(
        ONE_CHANNEL.format(
            "n = Shape(s) m = Gather(n, front) t = Reshape(s, m)",
            "k = Shape(c) l = Gather(k, last) b = Reshape(c, l)",
        ),
        conv={"dilations": [2, 2]}, shapes=((1, 5, 6, 1),),
        options={"given": "float[N,H,W,1] x", "k11": KERNEL, "front": [0, 3, 1, 2],
                 "last": [0, 2, 3, 1]},
    ),
    "a Reshape to a size that is computed in front": Row(
        ONE_CHANNEL.format(SIZE_IN_FRONT, BACK), conv={"dilations": [2, 2]}, shapes=((1, 5, 6, 1),),
        options={"given": "float[N,H,W,1] x", "k11": KERNEL, "five": [5, 4]},
    ),
    "a Pad in front": Row(PADDED.format("(x, past)"), conv={"pads": [4, 3, 1, 0]}, options=PAST),
    "a Pad in front and its axes": Row(
        PADDED.format("(x, short, , axes)"), conv={"pads": [4, 3, 1, 0]},
        options={"opset": 18, "short": [4, 3, 1, 0], "axes": [1, -2], "nothing": [0, 0]},
    ),
    "a Pad of another number stays": Row(
        PADDED.format("(x, past, scalar)"), "Pad Transpose Conv Transpose", options=PAST
    ),
    "a Pad that others read stays": Row(
        PADDED.format("(x, past)") + "z = Neg(p)", "",
        options={"gives": "float[?,?,?,?] y, float[?,?,?,?] z", **PAST},
    ),
    "a dilated convolution": Row(ATROUS, conv={"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    "dilations and pads": Row(
        conv("dilations = [1, 3], pads = [1, 0, 2, 1]"), shapes=((1, 11, 16, 3),),
        conv={"dilations": [2, 6], "pads": [4, 2, 6, 4]},
    ),
    "SAME": Row(conv('auto_pad = "SAME_UPPER"'), conv={"pads": [4, 4, 4, 4]}),
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
        around("[conv] c = ConvTranspose <dilations = [2, 1], pads = [1, 0, 0, 1]> "
               "(t, turned, pair)"),
        "Transpose ConvTranspose Transpose Slice", {"dilations": [4, 2], "pads": [4, 0, 2, 2]},
        ((1, 9, 6, 3),),
        {"pads": [[0, 1], [0, 0]], "crops": [[2, 3], [1, 1]], "pair": np.ones(2, np.float32)},
    ),
    "along the channels": Row(
        behind("m = Softmax <axis = 1> (k) l = ReduceMax <axes = [1]> (m) c = Concat <axis = 1> (m, l)"),
        "Transpose Conv Softmax ReduceMax Concat Transpose",
    ),
    "a matrix": Row(
        "s = SpaceToBatchND(x, block, pads) b = MatMul(s, matrix) y = BatchToSpaceND(b, block, crops)",
        "MatMul", options=ZEROS,
    ),
    "a zero point around": Row(
        around("c = QuantizeLinear(t, step, point)"), "QuantizeLinear Pad",
        options={"gives": "uint8[?,?,?,?] y", "step": np.float32(0.5), "point": np.uint8(7)},
    ),
    "two convolutions": Row(
        around("k = Conv(t, w) a = Add(k, bias) [conv] c = Conv <pads = [1, 1, 1, 1]> (a, v)"),
        "Transpose Conv Conv Transpose", {"dilations": [2, 2]},
    ),
    "two layers": Row(TWO_LAYERS.format("Relu"), "Transpose Conv Relu Conv Transpose"),
    "the target of a Reshape": Row(
        around("k = Conv(t, w) n = Shape(k) c = Reshape(k, n)")
    ),
    "a Slice of the channels": Row(
        around("c = Slice(t, starts, ends, axes)"), "Slice Pad",
        options={"starts": [0, 0], "ends": [2**31, 2], "axes": [2, 1]},
    ),
    "computed pads and crops": Row(
        COMPUTED + ATROUS, conv={"pads": [2, 2, 2, 2]}, options=SIZES
    ),
    "a crop that is computed behind": Row(
        COMPUTED.replace(CROPS, "") + ATROUS.replace("[out]", f"{CROPS} [out]"),
        conv={"pads": [2, 2, 2, 2]}, options=SIZES,
    ),
    "a crop that is computed behind, and that the convolution reads": Row(
        DOUBLED + ATROUS.replace("[out]", f"z = Neg(x) {CROPS} [out]"),
        "", options={"gives": "float[?,?,?,?] y, float[?,?,?,?] z", "four": [4, 4], **SIZES},
        shapes=((1, 6, 4, 3), (2, 8, 10, 3)),
    ),
    "sizes of a value in blocks": Row(
        ATROUS + "n = Shape <start = 1, end = 3> (b)", "",
        options={"gives": "float[?,?,?,?] y, int64[?] n"},
    ),
    "all of them": Row(ATROUS + "n = Shape(s)", "", options={"gives": "float[?,?,?,?] y, int64[?] n"}),
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
        COMPUTED.replace(CROPS, "crops = Identity(threes)")
        + ATROUS, "", options={**SIZES, "threes": np.full((2, 2), 3)},
        shapes=((1, 5, 6, 3), (2, 7, 8, 3)),
    ),
    "more is cropped than padded": Row(
        ATROUS, "Transpose Conv Transpose Slice", options={"crops": [[4, 1], [5, 0]]},
        shapes=((1, 5, 6, 3),),
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


# What others get wrong: whatever becomes of these, the numbers must be those of the definitions

NUMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "inner values that others read": (
        ATROUS + "also = Relu(t) more = Shape(s)",
        {"gives": "float[?,?,?,?] y, float[?,?,?,?] also, float[?,?,?,?] c, int64[?] more"},
    ),
    "two convolutions of one SpaceToBatch": (
        ATROUS + f"""d = Conv <pads = [0, 1, 0, 1], dilations = [1, 2]> (t, w)
            e = Transpose {TO_LAST} (d) z = BatchToSpaceND(e, block, crops)""",
        {"gives": "float[?,?,?,?] y, float[?,?,?,?] z"},
    ),
    "blocks that have changed places": (
        ATROUS.replace("(b, block", "(b, other"),
        {"block": [2, 3], "other": [3, 2], "pads": [[2, 3], [3, 3]]},
    ),
    "axes that have changed places": (ATROUS.replace("[0, 2, 3, 1]", "[0, 3, 2, 1]"), {}),
    "a region in a region": (
        ATROUS.replace("(t, w)", "(t4, u)").replace("t = Transpose", "t4 = Transpose").replace(
            "(s)", "(r)").replace("[before]", """q = SpaceToBatchND(s, inner, some)
            [deep] p = Relu(q) r = BatchToSpaceND(p, inner, some) [before]"""),
        {"inner": [2, 3], "some": [[1, 0], [0, 1]], "given": "float[1,9,12,3] x"},
    ),
    "crops of the shape of a value in blocks": (
        """s = SpaceToBatchND(x, block, pads) n = Shape(s) k = Slice(n, two, three) r = Mod(k, two)
            z = Sub(r, r) four = Concat <axis = 0> (z, r, z, r) crops = Reshape(four, square)
            b = Relu(s) y = BatchToSpaceND(b, block, crops)""",
        {"square": [2, 2]},
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
    "a Reshape that swaps axes": (
        ONE_CHANNEL.format("n = Shape(s) m = Gather(n, swapped) t = Reshape(s, m)", BACK),
        {"swapped": [0, 3, 2, 1], **SQUARE},
    ),
    "a Reshape that joins axes": (
        ONE_CHANNEL.format("m = Identity(joined) t = Reshape(s, m)", BACK),
        {"joined": [4, 1, 3, 10], **SQUARE},
    ),
    "a function with the name of Shape": (
        ATROUS + "z = own.Shape(t)", {"gives": "float[?,?,?,?] y, float[?,?,?,?] z",
        "functions": '<domain: "own", opset_import: ["" : 17]> Shape (a) => (b) { b = Add(a, a) }'},
    ),
    "a block that is large": (
        "s = SpaceToBatchND(x, large, pads) r = Relu(s) y = BatchToSpaceND(r, large, pads)",
        {"large": [2**16, 1], "pads": [[0, 2**16 - 9], [0, 0]]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_what_others_get_wrong(name: str) -> None:
    body, options = NUMBERS[name]
    for dims in ("1,9,12,3", "N,H,W,3"):
        made = model(body, **{"given": f"float[{dims}] x", **options})
        check(made, (1, 8, 6, 1) if options.get("k11") is KERNEL else (1, 9, 12, 3))
        assert "Reshape" not in name or "Reshape splits or joins axes" in declined(made)


@pytest.mark.parametrize("negative", ["Neg(s)", "Mul(s, minus)"])
def test_zeros_beyond_the_border_keep_their_sign(negative: str) -> None:
    body = f"s = SpaceToBatchND(x, block, pads) a = {negative} b = Reciprocal(a) "
    tables = {"pads": [[2, 0], [0, 0]], "minus": np.float32(-1)}
    made = model(f"{body} y = BatchToSpaceND(b, block, none)", **tables)
    for level in running.LEVELS:
        (y,) = running.run(convert(made), {"x": np.ones((1, 4, 6, 3), np.float32)}, level)
        assert np.array_equal(np.unique(y), [-np.inf, -1])


def test_a_pad_of_strings_in_front_is_taken_in() -> None:
    body = "p = Pad(x, before, e) s = SpaceToBatchND(p, block, none) r = Identity(s) "
    tables = {"before": [0, 1, 0, 0, 0, 1, 0, 0], "e": np.array("", object)}
    texts = {"given": "string[1,8,6,3] x", "gives": "string[?,?,?,?] y"}
    made = model(f"{body} y = BatchToSpaceND(r, block, none)", **texts, **tables)
    assert lowerings(made) == ["unblocked"] * 2


# Amounts that only the run knows


@pytest.mark.parametrize("given", [("pads",), ("crops",), ("pads", "crops")])
@pytest.mark.parametrize("node", [CONV, "c = Sigmoid(t)"])
@pytest.mark.parametrize(
    ("kind", "pads", "crops"),
    [("int32", [[2, 3], [2, 2]], [[0, 1], [0, 0]]), ("int64", [[4, 1], [3, 3]], [[3, 0], [0, 4]])],
)
def test_pads_and_crops_that_are_inputs(kind, pads, crops, node, given) -> None:
    tables = {"pads": np.array(pads, kind), "crops": np.array(crops, kind)}
    feeds = {name: tables.pop(name) for name in given}
    inputs = "".join(f", {kind}[2,2] {name}" for name in feeds)
    made = model(around(node), given=f"float[N,H,W,3] x{inputs}", **tables)
    counts = structure.counts(check(made, (1, 5, 6, 3), **feeds))
    assert not counts["SpaceToBatchND"] and counts["Conv"] == (node == CONV)
    assert len(feeds) < 2 or (counts["Pad"], counts["Slice"]) == (1, 1)


@pytest.mark.parametrize("crops", [[[1, 1], [1, 1]], [[0, 0], [0, 0]]])
def test_a_zero_point_that_only_the_run_knows_is_not_padded_with_zeros(crops: object) -> None:
    made = model(
        around("c = ConvInteger <pads = [1, 1, 1, 1]> (t, k, z)"), gives="int32[?,?,?,?] y",
        given="uint8[N,H,W,3] x, uint8 z, int64[2,2] crops", pads=[[2, 2], [2, 2]],
        k=RNG.integers(0, 9, (4, 3, 3, 3)).astype(np.uint8),
    )  # fmt: skip
    x = RNG.integers(0, 255, (1, 6, 8, 3)).astype(np.uint8)
    feeds = {"x": x, "z": np.array(9, np.uint8), "crops": np.array(crops)}
    fused, plain = (running.run(convert(made, fuse=fuse), feeds)[0] for fuse in (True, False))
    np.testing.assert_array_equal(fused, plain)


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
    body = f"{ATROUS} q = Relu(c)" + TWO_LAYERS[TWO_LAYERS.index("s2 =") :].replace("(n,", "(x,")
    body = body.replace("y = BatchToSpaceND(b2", "y2 = BatchToSpaceND(b2").replace(
        "(t2, v)", "(t2, w)"
    )
    made = model(body, gives="float[?,?,?,?] y, float[?,?,?,?] q, float[?,?,?,?] y2")
    assert lowerings(made).count(FUSED) == 2
    assert "Relu '<q>' reads 'c' from outside of the region, in blocks" in declined(made)
    check(made, (1, 5, 6, 3))


def test_no_region_takes_away_what_a_checked_model_has_to_find() -> None:
    (reason, *_) = plan(model(), checked=True).operators[0].declined
    assert "its sizes are checked at run time" in reason
    static = model(given="float[1,5,6,3] x")
    assert {site.lowering for site in plan(static, checked=True).operators} == {FUSED}


# Why not

REASONS: dict[str, tuple[str, dict[str, Any]]] = {
    "Conv has stride 2 on a blocked axis": (conv("strides = [2, 1]"), {}),
    "Slice has other numbers of axes, starts and ends": (
        around("c = Slice(t, starts, ends, axes)"), {"starts": [0], "ends": [2**31, 2], "axes": [2, 1]}
    ),
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
    "a dilated MaxPool gives NaN in other places": (
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
