"""What stands between SpaceToBatch and BatchToSpace is written without blocks."""

from __future__ import annotations

import re
from pathlib import Path

import interpreter
import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert, plan, verify
from onnx import TensorProto, numpy_helper, parser
from vocabulary import ORIGIN

HEAD = '<ir_version: 9, opset_import: ["" : 17, "tf" : 1]>\n'
RNG = np.random.default_rng(6)


def model(
    body: str,
    *,
    given: str = "float[N,H,W,3] x",
    gives: str = "float[?,?,?,?] y",
    weights: dict[str, tuple[int, ...]] | None = None,
    **tables: object,
) -> onnx.ModelProto:
    """A graph; what it reads beside x are weights of the shapes given, or integer tables."""
    made = parser.parse_model(f"{HEAD} g ({given}) => ({gives}) {{ {body} }}")
    for node in made.graph.node:
        if "To" in node.op_type and (node.op_type.endswith("ND")):
            node.domain = "tf"
    for name, shape in (weights or {}).items():
        array = RNG.normal(size=shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    for name, table in tables.items():
        made.graph.initializer.append(numpy_helper.from_array(np.array(table, np.int64), name))
    return made


#: A dilated convolution as TensorFlow writes it.
ATROUS = """
    [in] s = SpaceToBatchND(x, block, pads)
    [before] t = Transpose <perm = [0, 3, 1, 2]> (s)
    [conv] c = Conv <kernel_shape = [3, 3]> (t, w)
    [behind] b = Transpose <perm = [0, 2, 3, 1]> (c)
    [out] y = BatchToSpaceND(b, block, crops)
"""
SAME = {"block": [2, 2], "pads": [[2, 3], [2, 2]], "crops": [[0, 1], [0, 0]]}
KERNEL = {"w": (4, 3, 3, 3)}


def atrous(**changes: object) -> onnx.ModelProto:
    return model(ATROUS, **{"weights": KERNEL, **SAME, **changes})


def check(made: onnx.ModelProto, *shapes: tuple[int, ...], **feeds: np.ndarray) -> onnx.ModelProto:
    """The converted model, which gives what the original means in a different order of sums."""
    converted = convert(made, domains=["tf"])
    for shape in shapes:
        fed = {"x": RNG.normal(size=shape).astype(np.float32), **feeds}
        values = interpreter.run(made, fed)
        for level in running.LEVELS:
            results = running.run_session(running.session(converted, level), fed)
            for value, result in zip(made.graph.output, results, strict=True):
                assert interpreter.difference(result, values[value.name]) is None
    return converted


def agree_unfused(made: onnx.ModelProto, **feeds: np.ndarray) -> onnx.ModelProto:
    """The converted model, which gives what it gives without fusion."""
    fused, plain = (convert(made, domains=["tf"], fuse=fuse) for fuse in (True, False))
    for level in running.LEVELS:
        results = (running.run_session(running.session(m, level), feeds) for m in (fused, plain))
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return fused


def node(found: onnx.ModelProto, name: str) -> onnx.NodeProto:
    (one,) = [n for n in structure.nodes(found) if n.name == name]
    return one


def attribute(found: onnx.NodeProto, name: str) -> object:
    values = {a.name: onnx.helper.get_attribute_value(a) for a in found.attribute}
    return values.get(name)


def strategies(made: onnx.ModelProto) -> list[str | None]:
    return [site.lowering for site in plan(made, domains=["tf"]).operators]


def declined(made: onnx.ModelProto) -> str:
    return "; ".join(d for site in plan(made, domains=["tf"]).operators for d in site.declined)


# The convolution


def test_a_model_gives_the_same_bytes_each_time() -> None:
    model = onnx.load(Path(__file__).parents[2] / "models" / "deeplab" / "model.onnx")
    given = {convert(model).SerializeToString(deterministic=True) for _ in range(3)}
    assert len(given) == 1


def test_a_dilated_convolution_comes_back() -> None:
    converted = check(atrous(), (1, 5, 6, 3), (2, 9, 4, 3))
    assert structure.ops(converted) == ["Transpose", "Conv", "Transpose"]
    conv = node(converted, "conv")
    assert attribute(conv, "dilations") == [2, 2]
    assert attribute(conv, "pads") == [2, 2, 2, 2]


def test_what_a_node_was_it_still_is() -> None:
    made = atrous()
    conv = made.graph.node[2]
    conv.doc_string = "atrous"
    conv.metadata_props.add(key="layer", value="7")
    converted = convert(made, domains=["tf"])
    after = node(converted, "conv")
    assert (after.doc_string, list(after.input)[1:]) == ("atrous", ["w"])
    assert {p.key: p.value for p in after.metadata_props} == {"layer": "7", ORIGIN: "Conv conv"}
    assert converted.graph.initializer[0] == made.graph.initializer[0]
    assert after.output[0] not in {"c", "y"}  # another value must not bear its name


def test_what_is_reported() -> None:
    first, second = plan(atrous(), domains=["tf"]).operators
    assert first.lowering == second.lowering == "dilated convolution"
    assert second.between == ("before", "conv", "behind")
    assert (first.nodes_before, first.nodes_after) == (1, 0)
    assert (second.nodes_before, second.nodes_after) == (4, 3)
    touched = plan(atrous(), domains=["tf"]).touched
    assert touched["nodes_replaced"] == ["in", "out"]
    assert touched["nodes_changed"] == ["before", "conv", "behind"]
    assert touched["nodes_removed"] == touched["initializers_added"] == []


def test_only_a_node_that_computes_something_else_says_where_it_comes_from() -> None:
    nodes = convert(atrous(), domains=["tf"]).graph.node
    marked = {n.name for n in nodes if any(p.key == ORIGIN for p in n.metadata_props)}
    assert marked == {"conv"}  # "before" and "behind" only read other values


def test_it_is_verified_as_a_whole() -> None:
    made = atrous()
    result = verify(made, convert(made, domains=["tf"]), domains=["tf"])
    assert result, result.message
    assert result.evidence == "proven"
    assert "of the largest value (1e-05 is allowed)" in result.message


def test_without_fusion_there_are_two_operators() -> None:
    converted = convert(atrous(), domains=["tf"], fuse=False)
    assert attribute(node(converted, "conv"), "dilations") is None


@pytest.mark.parametrize(
    ("attributes", "dilations", "pads"),
    [
        ("dilations = [1, 3]", [2, 6], [2, 2, 2, 2]),
        ("pads = [1, 0, 2, 1]", [2, 2], [4, 2, 6, 4]),
        ('auto_pad = "SAME_UPPER"', [2, 2], [4, 4, 4, 4]),
        ('auto_pad = "VALID"', [2, 2], [2, 2, 2, 2]),
    ],
)
def test_dilations_and_pads_of_its_own(attributes: str, dilations: object, pads: object) -> None:
    made = model(
        ATROUS.replace("kernel_shape = [3, 3]", f"kernel_shape = [3, 3], {attributes}"),
        weights=KERNEL,
        **SAME,
    )
    conv = node(check(made, (1, 11, 16, 3)), "conv")
    assert attribute(conv, "dilations") == dilations
    assert attribute(conv, "pads") == pads
    assert attribute(conv, "auto_pad") is None


def test_depthwise_and_unequal_blocks() -> None:
    body = ATROUS.replace("kernel_shape = [3, 3]", "group = 3, kernel_shape = [3, 3]")
    made = model(
        body,
        weights={"w": (6, 1, 3, 3)},
        block=[2, 1],
        pads=[[2, 2], [1, 1]],
        crops=[[0, 0], [0, 0]],
    )
    conv = node(check(made, (1, 6, 5, 3)), "conv")
    assert attribute(conv, "dilations") == [2, 1]
    assert attribute(conv, "group") == 3


def test_channels_first_with_three_blocks() -> None:
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        [conv] c = Conv(s, w)
        y = BatchToSpaceND(c, block, crops)
        """,
        given="float[N,3,H,W] x",
        weights=KERNEL,
        block=[1, 2, 3],
        pads=[[0, 0], [2, 2], [3, 3]],
        crops=[[0, 0]] * 3,
    )
    converted = check(made, (2, 3, 4, 6))
    assert structure.ops(converted) == ["Conv"]
    assert attribute(node(converted, "conv"), "dilations") == [2, 3]


def test_one_dimension_through_two() -> None:
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        u = Unsqueeze(s, axis)
        t = Transpose <perm = [0, 3, 1, 2]> (u)
        [conv] c = Conv(t, w)
        q = Squeeze(c, height)
        b = Transpose <perm = [0, 2, 1]> (q)
        y = BatchToSpaceND(b, block, crops)
        """,
        given="float[N,T,3] x",
        gives="float[?,?,?] y",
        weights={"w": (4, 3, 1, 2)},
        block=[4],
        pads=[[4, 0]],
        crops=[[0, 0]],
        axis=[1],
        height=[2],
    )
    conv = node(check(made, (1, 8, 3), (2, 4, 3)), "conv")
    assert attribute(conv, "dilations") == [1, 4]
    assert attribute(conv, "pads") == [0, 4, 0, 0]


@pytest.mark.parametrize(
    "between",
    [
        "a = Add(c, one)",
        "a = Relu(c)",
        "a = Clip(c, low)",
        "a = BatchNormalization(c, v, v, v, w2)",
        "k = Sigmoid(c) a = Mul(c, k)",
        "k = Cast <to = 10> (c) a = Cast <to = 1> (k)",
        "k = Add(c, one) a = PRelu(k, slope)",
        "a = Softmax <axis = 1> (c)",
    ],
)
def test_operators_on_elements_and_channels(between: str) -> None:
    body = ATROUS.replace("(c)\n    [out]", "(a)\n    [out]").replace(
        "[behind]", f"{between}\n    [behind]"
    )
    made = model(
        body,
        weights={**KERNEL, "one": (4, 1, 1), "slope": (4, 1, 1), "low": (), "v": (4,), "w2": (4,)},
        **SAME,
    )
    variance = next(t for t in made.graph.initializer if t.name == "w2")
    variance.CopyFrom(numpy_helper.from_array(np.full(4, 0.5, np.float32), "w2"))
    converted = (
        check(made, (1, 5, 6, 3)) if "Cast" not in between else convert(made, domains=["tf"])
    )
    assert "Pad" not in structure.ops(converted)
    assert not structure.spatial(converted)


GATE = """
    s = SpaceToBatchND(x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    f = Conv(t, w)
    g = Conv(t, v)
    h = Tanh(f)
    k = Sigmoid(g)
    m = Mul(h, k)
    b = Transpose <perm = [0, 2, 3, 1]> (m)
    y = BatchToSpaceND(b, block, crops)
"""


def test_a_gate() -> None:
    made = model(GATE, weights={**KERNEL, "v": (4, 3, 3, 3)}, **SAME)
    converted = check(made, (1, 5, 6, 3))
    assert structure.counts(converted) == {
        "Transpose": 2,
        "Conv": 2,
        "Tanh": 1,
        "Sigmoid": 1,
        "Mul": 1,
    }


def test_a_residual_sum_inside() -> None:
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv <pads = [1, 1, 1, 1]> (t, w)
        a = Add(c, t)
        b = Transpose <perm = [0, 2, 3, 1]> (a)
        y = BatchToSpaceND(b, block, crops)
        """,
        weights={"w": (3, 3, 3, 3)},
        block=[2, 2],
        pads=[[0, 1], [0, 0]],
        crops=[[0, 1], [0, 0]],
    )
    converted = check(made, (1, 5, 6, 3))
    assert structure.ops(converted) == ["Transpose", "Conv", "Add", "Transpose"]


FILLS = """
    n = Shape(x)
    hw = Slice(n, one1, three1)
    total = Add(hw, BASE)
    rest = Mod(total, block)
    lack = Sub(block, rest)
    fill = Mod(lack, block)
    high = Add(none, fill)
    low_c = Unsqueeze(BASE, one1)
    high_c = Unsqueeze(high, one1)
    pads = Concat <axis = 1> (low_c, high_c)
"""


def _renamed(body: str, suffix: str) -> str:
    words = "n hw total rest lack fill high low_c high_c pads".split()
    return re.sub(rf"\b({'|'.join(words)})\b", rf"\g<1>{suffix}", body)


@pytest.mark.parametrize("base", ["four", "five"])
def test_a_residual_sum_of_one_image_in_two_blockings(base: str) -> None:
    """The pads of one branch are what its convolution takes off; 5 are one too many for even sizes."""
    body = (
        _renamed(FILLS.replace("BASE", base), "1")
        + _renamed(FILLS.replace("BASE", "none"), "2")
        + """
        s = SpaceToBatchND(x, block, pads1)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv(t, w)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        q = SpaceToBatchND(x, block, pads2)
        a = Add(b, q)
        none_c = Unsqueeze(none, one1)
        fill_c = Unsqueeze(fill2, one1)
        crops = Concat <axis = 1> (none_c, fill_c)
        y = BatchToSpaceND(a, block, crops)
        """
    )
    made = model(
        body,
        weights={"w": (3, 3, 3, 3)},
        block=[2, 2],
        four=[4, 4],
        five=[5, 5],
        none=[0, 0],
        one1=[1],
        three1=[3],
    )
    if base == "four":
        assert strategies(made) == ["dilated convolution"] * 3
        check(made, (1, 5, 6, 3), (2, 8, 7, 3))
    else:
        assert "may be of different sizes" in declined(made)


def test_a_bias_before_a_padded_convolution() -> None:
    """The second convolution must not see the bias beyond the border, only zeros."""
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv(t, w)
        a = Add(c, one)
        [second] d = Conv <pads = [1, 1, 1, 1]> (a, v)
        b = Transpose <perm = [0, 2, 3, 1]> (d)
        y = BatchToSpaceND(b, block, crops)
        """,
        weights={**KERNEL, "one": (4, 1, 1), "v": (2, 4, 3, 3)},
        **SAME,
    )
    converted = check(made, (1, 5, 6, 3), (2, 7, 8, 3))
    assert not structure.spatial(converted)
    assert attribute(node(converted, "second"), "dilations") == [2, 2]


def test_an_activation_that_makes_something_of_zero() -> None:
    """The pads go through it: they are not zeros any more when the convolution comes."""
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        k = Sigmoid(t)
        c = Conv(k, w)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        y = BatchToSpaceND(b, block, crops)
        """,
        weights=KERNEL,
        **SAME,
    )
    converted = check(made, (1, 5, 6, 3))
    assert structure.ops(converted) == ["Transpose", "Pad", "Sigmoid", "Conv", "Transpose"]


def two_layers(between: str) -> onnx.ModelProto:
    second = ATROUS.replace("(x,", "(r,").replace("y =", "z =")
    for name in ("s", "t", "c", "b"):
        second = second.replace(f" {name} =", f" {name}2 =").replace(f"({name})", f"({name}2)")
    second = second.replace("(t, w)", "(t2, v)").replace("(b,", "(b2,")
    for name in ("in", "before", "conv", "behind", "out"):
        second = second.replace(f"[{name}]", f"[{name}2]")
    return model(
        f"{ATROUS}\n {between}\n{second}",
        gives="float[?,?,?,?] z",
        weights={**KERNEL, "v": (5, 4, 3, 3), "half": (1, 1, 1, 4)},
        **SAME,
    )


def test_two_layers_in_a_row() -> None:
    converted = check(two_layers("r = Relu(y)"), (1, 5, 6, 3))
    assert structure.ops(converted) == ["Transpose", "Conv", "Relu", "Conv", "Transpose"]


@pytest.mark.parametrize(
    ("between", "ops"),
    [
        ("r = Atan(y)", ["Atan"]),
        ("a = Abs(y) e = Pow(a, half) r = Clip(e)", ["Abs", "Pow", "Clip"]),
        ("r = CastLike(y, y)", ["Transpose", "CastLike", "Transpose"]),
    ],
    ids=["of one element", "of two elements", "of one value twice"],
)
def test_functions_of_elements_between_two_layers(between: str, ops: list[str]) -> None:
    made = two_layers(between)
    converted = agree_unfused(made, x=RNG.normal(size=(1, 5, 6, 3)).astype(np.float32))
    assert structure.ops(converted) == ["Transpose", "Conv", *ops, "Conv", "Transpose"]


# A region inside a region

NESTED = """
    s = SpaceToBatchND(x, outer, pads)
    before = Relu(s)
    q = SpaceToBatchND(before, inner, inner_pads)
    t = Transpose <perm = [0, 3, 1, 2]> (q)
    [conv] c = Conv <pads = [1, 0, 1, 0]> (t, w)
    b = Transpose <perm = [0, 2, 3, 1]> (c)
    r = BatchToSpaceND(b, inner, inner_crops)
    behind = Sigmoid(r)
    y = BatchToSpaceND(behind, outer, crops)
"""
NESTED_TABLES = {
    "outer": [2, 2],
    "inner": [2, 3],
    "pads": [[2, 3], [0, 6]],
    "inner_pads": [[0, 1], [3, 0]],
    "inner_crops": [[1, 0], [0, 2]],
    "crops": [[0, 1], [3, 0]],
}


def test_of_a_region_inside_a_region_only_the_inner_one_is_fused() -> None:
    made = model(NESTED, weights={"w": (3, 3, 3, 2)}, **NESTED_TABLES)
    strategy = strategies(made)
    assert strategy[1:3] == ["dilated convolution"] * 2
    assert "dilated convolution" not in (strategy[0], strategy[3])
    assert declined(made).count("begins another region inside the region") == 2
    agree_unfused(made, x=RNG.normal(size=(1, 5, 6, 3)).astype(np.float32))


def test_blocks_that_are_taken_out_in_the_wrong_order() -> None:
    body = NESTED.replace("(b, inner,", "(b, outer,").replace("(behind, outer,", "(behind, inner,")
    made = model(
        body, weights={"w": (3, 3, 3, 2)}, **{**NESTED_TABLES, "inner_crops": [[0, 0], [0, 0]]}
    )
    assert "are not those of the SpaceToBatch in front" in declined(made)
    agree_unfused(made, x=RNG.normal(size=(1, 5, 6, 3)).astype(np.float32))


# Others that read


def test_a_second_reader_of_the_blocks_keeps_them() -> None:
    made = atrous(gives="float[?,?,?,?] y, float[?,?,?,?] s")
    converted = check(made, (1, 5, 6, 3))
    assert strategies(made)[1] == "dilated convolution"
    assert attribute(node(converted, "conv"), "dilations") == [2, 2]


def test_a_reader_of_a_value_inside_keeps_the_blocks() -> None:
    made = model(
        ATROUS + "\n [outside] z = Softmax <axis = 0> (b)",
        gives="float[?,?,?,?] y, float[?,?,?,?] z",
        weights=KERNEL,
        **SAME,
    )
    assert "Softmax 'outside' reads 'b' from outside of the region, in blocks" in declined(made)
    assert "dilated convolution" not in strategies(made)
    agree_unfused(made, x=RNG.normal(size=(1, 5, 6, 3)).astype(np.float32))


def test_run_time_shapes_of_the_blocks_are_not_computed_for_nobody() -> None:
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv(t, w)
        n = Shape(c)
        r = Reshape(c, n)
        b = Transpose <perm = [0, 2, 3, 1]> (r)
        y = BatchToSpaceND(b, block, crops)
        """,
        weights=KERNEL,
        **SAME,
    )
    converted = check(made, (1, 5, 6, 3))
    assert "Shape" not in structure.ops(converted)


def test_run_time_shapes_that_a_node_computes_with_stay() -> None:
    """The shape of a value in blocks is another than that of the value."""
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        n = Shape(s)
        k = Slice(n, one, two)
        f = Cast <to = 1> (k)
        a = Mul(s, f)
        t = Transpose <perm = [0, 3, 1, 2]> (a)
        c = Conv(t, w)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        y = BatchToSpaceND(b, block, crops)
        """,
        weights=KERNEL,
        one=[1],
        two=[2],
        **SAME,
    )
    converted = check(made, (1, 5, 6, 3))
    assert strategies(made)[1] == "dilated convolution"
    assert "Shape" in structure.ops(converted)


# Sizes that only the run knows

#: pads = base + fill, crops = fill, where fill makes the padded size a multiple of the block.
COMPUTED = """
    n = Shape(x)
    hw = Slice(n, one1, three1)
    padded = Add(hw, base)
    rest = Mod(padded, block)
    lack = Sub(block, rest)
    fill = Mod(lack, block)
    high = Add(halves, fill)
    low_c = Unsqueeze(halves, one1)
    high_c = Unsqueeze(high, one1)
    pads = Concat <axis = 1> (low_c, high_c)
    none_c = Unsqueeze(none, one1)
    fill_c = Unsqueeze(fill, one1)
    crops = Concat <axis = 1> (none_c, fill_c)
"""


def computed(crops: str = "") -> onnx.ModelProto:
    body = COMPUTED + ATROUS
    return model(
        body.replace("crops = Concat <axis = 1> (none_c, fill_c)", crops) if crops else body,
        weights=KERNEL,
        block=[2, 2],
        base=[4, 4],
        halves=[2, 2],
        none=[0, 0],
        one1=[1],
        three1=[3],
    )


def test_pads_less_crops_are_known_although_neither_is() -> None:
    converted = check(computed(), (1, 5, 6, 3), (2, 7, 3, 3))
    assert structure.ops(converted) == ["Transpose", "Conv", "Transpose"]
    assert attribute(node(converted, "conv"), "pads") == [2, 2, 2, 2]


def test_what_is_not_known_is_computed_at_run_time() -> None:
    made = atrous()
    made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == "crops"))
    made.graph.input.append(onnx.helper.make_tensor_value_info("crops", 7, [2, 2]))
    for crops in ([[0, 1], [0, 0]], [[1, 0], [2, 1]], [[0, 0], [0, 0]], [[3, 3], [0, 6]]):
        converted = check(made, (1, 5, 6, 3), crops=np.array(crops))
    assert strategies(made) == ["dilated convolution"] * 2
    assert structure.counts(converted)["Slice"] == 1
    assert verify(made, converted, domains=["tf"])


@pytest.mark.parametrize(
    "fill",
    [
        "fill = Mod(lack, block)",
        "cells = Div(lack, block) down = Mul(cells, block) fill = Sub(lack, down)",
    ],
)
def test_a_remainder_leaves_something(fill: str) -> None:
    """VALID: nothing but the remainder is padded and cropped, which is less than a block."""
    made = model(
        COMPUTED.replace("fill = Mod(lack, block)", fill) + ATROUS,
        weights=KERNEL,
        block=[2, 2],
        base=[0, 0],
        halves=[0, 0],
        none=[0, 0],
        one1=[1],
        three1=[3],
    )
    converted = check(made, (1, 7, 8, 3), (1, 5, 5, 3))
    assert structure.ops(converted) == ["Transpose", "Conv", "Transpose"]


@pytest.mark.parametrize(
    "fill",
    [
        "fill = Mod(lack, block)",
        "cells = Div(lack, block) down = Mul(cells, block) fill = Sub(lack, down)",
        # Nothing is known of this one but that it is a crop.
        "part = Mod(lack, block) f = Cast <to = 1> (part) q = Div(f, unit) fill = Cast <to = 7> (q)",
    ],
)
def test_a_computed_crop_behind_an_activation_is_not_negative(fill: str) -> None:
    """Nothing beyond the border of Sigmoid's output is needed, which is no single number there."""
    made = model(
        COMPUTED.replace("fill = Mod(lack, block)", fill)
        + ATROUS.replace("(s)", "(k)")
        .replace("[before]", "k = Sigmoid(s) [before]")
        .replace("<kernel_shape = [3, 3]>", "<pads = [1, 1, 0, 0]>"),
        weights=KERNEL,
        block=[2, 2],
        base=[4, 4],
        halves=[2, 2],
        none=[0, 0],
        one1=[1],
        three1=[3],
    )
    made.graph.initializer.append(numpy_helper.from_array(np.array([1], np.float32), "unit"))
    converted = check(made, (1, 5, 6, 3), (2, 8, 7, 3))
    assert strategies(made) == ["dilated convolution"] * 2
    assert "Max" not in structure.ops(converted)


def test_layers_between_one_pair_of_operators() -> None:
    """What TensorFlow documents for several dilated convolutions: pads and crops are one table."""
    made = model(
        COMPUTED[: COMPUTED.index("none_c")]
        + """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv <pads = [1, 1, 1, 1]> (t, w)
        a = Add(c, bias)
        r = Relu(a)
        d = Conv <pads = [1, 1, 1, 1]> (r, v)
        b = Transpose <perm = [0, 2, 3, 1]> (d)
        y = BatchToSpaceND(b, block, pads)
        """,
        weights={**KERNEL, "bias": (4, 1, 1), "v": (2, 4, 3, 3)},
        block=[2, 2],
        base=[0, 0],
        halves=[0, 0],
        none=[0, 0],
        one1=[1],
        three1=[3],
    )
    converted = check(made, (1, 5, 6, 3), (2, 8, 7, 3), (1, 3, 3, 3))
    counts = structure.counts(converted)
    assert counts["Conv"] == 2
    assert "SpaceToBatchND" not in counts


@pytest.mark.parametrize("element_type", [TensorProto.INT32, TensorProto.INT64])
def test_pads_and_crops_that_are_inputs(element_type: int) -> None:
    made = atrous()
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    for name in ("pads", "crops"):
        made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == name))
        given = onnx.helper.make_tensor_value_info(name, element_type, [2, 2])
        made.graph.input.append(given)
    for pads, crops in (
        ([[2, 3], [2, 2]], [[0, 1], [0, 0]]),
        ([[0, 1], [0, 0]], [[1, 0], [0, 2]]),
        ([[4, 1], [3, 3]], [[3, 0], [0, 4]]),
    ):
        feeds = {"pads": np.array(pads, dtype), "crops": np.array(crops, dtype)}
        converted = check(made, (1, 5, 6, 3), **feeds)
    counts = structure.counts(converted)
    assert (counts["Pad"], counts["Slice"]) == (1, 1)


def test_a_crop_of_unknown_sign_is_a_pad_and_a_known_crop() -> None:
    """fill - 1 may be -1: padded is by fill, then 1 is cropped."""
    made = computed("crops = Identity(three)")
    made.graph.initializer.append(numpy_helper.from_array(np.full((2, 2), 3, np.int64), "three"))
    converted = check(made, (1, 5, 6, 3), (2, 7, 8, 3))
    ops = structure.counts(converted)
    assert (ops["Pad"], ops["Max"], ops["Conv"]) == (1, 0, 1)
    assert ops["Slice"] == 2  # one of the shape


def test_crops_of_a_value_that_the_region_computes() -> None:
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv(t, w)
        k = ReduceMax <keepdims = 0> (c)
        i = Cast <to = 7> (k)
        z = Mul(i, zero)
        crops = Add(z, base)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        y = BatchToSpaceND(b, block, crops)
        """,
        weights=KERNEL,
        block=[2, 2],
        pads=[[2, 3], [2, 2]],
        base=[[0, 1], [0, 0]],
        zero=[[0, 0], [0, 0]],
    )
    assert "ReduceMax" in declined(made)
    agree_unfused(made, x=RNG.normal(size=(1, 5, 6, 3)).astype(np.float32))


@pytest.mark.parametrize(
    ("pads", "crops", "shape"),
    [
        ([[2, 3], [2, 2]], [[4, 1], [5, 0]], (1, 5, 6, 3)),  # more is cropped than was padded
        ([[0, 1], [0, 0]], [[5, 0], [0, 0]], (1, 9, 6, 3)),
        ([[6, 7], [0, 0]], [[13, 0], [0, 0]], (1, 5, 6, 3)),  # more than there is before padding
    ],
)
def test_strange_pads_and_crops(pads: object, crops: object, shape: tuple[int, ...]) -> None:
    check(atrous(pads=pads, crops=crops), shape)


def test_crops_of_an_axis_that_is_not_blocked() -> None:
    tables = {"block": [2, 1, 1], "pads": [[2, 3], [0, 0], [0, 0]]}
    made = atrous(**tables, crops=[[0, 1], [1, 0], [0, 2]])
    assert strategies(made) == ["dilated convolution"] * 2
    converted = check(made, (1, 5, 6, 3), (2, 7, 4, 3))
    assert structure.ops(converted) == ["Transpose", "Conv", "Transpose", "Slice"]


CHANNELS_FIRST = """
    s = SpaceToBatchND(x, block, pads)
    [conv] c = Conv(s, w)
    [relu] r = Relu(c)
    y = BatchToSpaceND(r, block, crops)
"""


@pytest.mark.parametrize("known", [True, False])
def test_channels_that_are_padded(known: bool) -> None:
    """They are blocked like the others; at run time that may be by nothing."""
    tables = {"pads": [[1, 0], [2, 3], [2, 2]], "crops": [[0, 2], [0, 1], [0, 0]]}
    made = model(
        CHANNELS_FIRST,
        given="float[N,2,H,W] x" + ("" if known else ", int64[3,2] pads, int64[3,2] crops"),
        weights={"w": (4, 3, 3, 3)},
        block=[1, 2, 2],
        **(tables if known else {}),
    )
    feeds = {} if known else {name: np.array(table) for name, table in tables.items()}
    assert "the channels of Conv are padded, or may be" in declined(made)
    check(made, (1, 2, 5, 6), **feeds)


def test_crops_that_leave_nothing() -> None:
    """A convolution that gives nothing does not run: there it gives more, and a Slice takes it."""
    made = atrous(pads=[[2, 2], [2, 2]], crops=[[0, 6], [0, 0]])
    converted = check(made, (1, 6, 6, 3), (1, 8, 6, 3))
    assert "Slice" in structure.ops(converted)


# Where else


def test_in_a_branch_and_in_a_function() -> None:
    body = """
        w = Constant <value = float[1,1,1,2] {2.0, -1.0}> ()
        block = Constant <value_ints = [2]> ()
        pads = Constant <value = int64[1,2] {2, 0}> ()
        crops = Constant <value = int64[1,2] {0, 0}> ()
        axis = Constant <value_ints = [1]> ()
        two = Constant <value_ints = [2]> ()
        s = tf.SpaceToBatchND(x, block, pads)
        u = Unsqueeze(s, axis)
        t = Transpose <perm = [0, 3, 1, 2]> (u)
        c = Conv(t, w)
        q = Squeeze(c, two)
        b = Transpose <perm = [0, 2, 1]> (q)
        r = tf.BatchToSpaceND(b, block, crops)
    """
    made = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17, "tf" : 1, "own" : 1]>
        g (float[N,T,1] x, bool on) => (float[?,?,?] y) {{
            y = If (on) <
                then_branch = a () => (float[?,?,?] r) {{ {body} }},
                else_branch = e () => (float[?,?,?] n) {{ n = own.layer(x) }}
            >
        }}
        <domain: "own", opset_import: ["" : 17, "tf" : 1]>
        layer (x) => (r) {{ {body} }}
    """)
    assert strategies(made) == ["dilated convolution"] * 4
    converted = convert(made, domains=["tf"])
    assert structure.counts(converted)["Conv"] == 2
    assert not structure.spatial(converted)
    x = np.arange(12, dtype=np.float32).reshape(2, 6, 1)
    for on in (True, False):
        for level in running.LEVELS:
            (y,) = running.run_session(
                running.session(converted, level), {"x": x, "on": np.array(on)}
            )
            past = np.concatenate([np.zeros((2, 2, 1), np.float32), x[:, :-2]], axis=1)
            assert np.array_equal(y, 2 * past - x)


BRANCHES = """
    y = If (on) <
        then_branch = a () => (float[?,?,?,?] z) {
            s = SpaceToBatchND(x, block, pads)
            t = Transpose <perm = [0, 3, 1, 2]> (s)
            c = Conv(t, w)
            b = Transpose <perm = [0, 2, 3, 1]> (c)
            z = BatchToSpaceND(b, block, crops)
        },
        else_branch = e () => (float[?,?,?,?] u) { REST }
    >
"""


@pytest.mark.parametrize(
    ("rest", "op_types"),
    [
        ("u = Identity(x)", ["If"]),
        ("i = ReduceSum(fill) f = Cast <to = 1> (i) u = Mul(x, f)",
         ["Shape", "Slice", "Add", "Mod", "Sub", "Mod", "If"]),
    ],
)  # fmt: skip
def test_sizes_that_only_a_branch_needed_are_not_computed_around_it(
    rest: str, op_types: list[str]
) -> None:
    made = model(
        COMPUTED + BRANCHES.replace("REST", rest),
        given="float[N,H,W,3] x, bool on",
        weights={"w": (3, 3, 3, 3)},
        block=[2, 2],
        base=[4, 4],
        halves=[2, 2],
        none=[0, 0],
        one1=[1],
        three1=[3],
    )
    for inner in structure.nodes(made):
        inner.domain = "tf" if inner.op_type.endswith("ND") else ""
    made.graph.value_info.append(onnx.helper.make_tensor_value_info("pads", 7, [2, 2]))
    converted = convert(made, domains=["tf"])
    assert [node.op_type for node in converted.graph.node] == op_types
    assert not converted.graph.value_info
    x = RNG.normal(size=(1, 5, 6, 3)).astype(np.float32)
    for on in (True, False):
        agree_unfused(made, x=x, on=np.array(on))


# Why not


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("kernel_shape = [3, 3]", "strides = [2, 1]"), "Conv has stride 2 on a blocked axis"),
        (("c = Conv <kernel_shape = [3, 3]> (t, w)", "c = GlobalMaxPool(t)"),
         "GlobalMaxPool needs neighbours along the blocked axes"),
        (("c = Conv <kernel_shape = [3, 3]> (t, w)", "c = Softmax <axis = 2> (t)"),
         "Softmax runs along a blocked axis"),
        (("s = SpaceToBatchND(x, block, pads)",
          "i = SpaceToBatchND(x, block, pads) s = BatchNormalization(i, v, v, v, v)"),
         "BatchNormalization runs along a blocked axis"),
        (("c = Conv <kernel_shape = [3, 3]> (t, w)", "c = Add(t, place)"),
         "'place' may differ between positions or images"),
        (("c = Conv <kernel_shape = [3, 3]> (t, w)", "c = tf.Strange(t)"),
         "tf:Strange is not known to be position-independent"),
        (("BatchToSpaceND(b, block,", "BatchToSpaceND(b, other,"),
         "its blocks [4, 1] are not those of the SpaceToBatch in front"),
        (("perm = [0, 2, 3, 1]> (c)", "perm = [2, 0, 3, 1]> (c)"),
         "the batch axis is not the first any more"),
        (("perm = [0, 2, 3, 1]> (c)", "perm = [0, 3, 2, 1]> (c)"),
         "its blocks [2, 2] are not those of the SpaceToBatch in front"),
    ],
)  # fmt: skip
def test_reasons(change: tuple[str, str], reason: str) -> None:
    made = model(
        ATROUS.replace(*change),
        weights={**KERNEL, "place": (3, 4), "v": (4,)},
        other=[4, 1],
        given="float[4,H,W,3] x",
        **SAME,
    )
    assert reason in declined(made)
    assert "dilated convolution" not in strategies(made)


def test_a_block_that_only_the_run_knows() -> None:
    made = atrous()
    made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == "block"))
    made.graph.input.append(onnx.helper.make_tensor_value_info("block", 7, [2]))
    assert "not known before the model runs; the dilations of a Conv are attributes" in declined(
        made
    )


def test_sizes_that_may_broadcast() -> None:
    """One side may turn out to be a single cell, which is not a single place of the image."""
    made = model(
        """
        s = SpaceToBatchND(x, block, none)
        q = SpaceToBatchND(o, block, none)
        a = Add(s, q)
        y = BatchToSpaceND(a, block, none)
        """,
        given="float[N,H,W,3] x, float[N,K,L,3] o",
        block=[2, 2],
        none=[[0, 0], [0, 0]],
    )
    assert "may be of different sizes" in declined(made)
    o = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    check(made, (1, 4, 4, 3), o=o)


# What went wrong once


@pytest.mark.parametrize("crops", [[[1, 1], [1, 1]], [[0, 0], [0, 0]]])
def test_a_zero_point_that_only_the_run_knows_is_not_padded_with_zeros(crops: object) -> None:
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = ConvInteger <pads = [1, 1, 1, 1]> (t, k, z)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        y = BatchToSpaceND(b, block, crops)
        """,
        given="uint8[N,H,W,3] x, uint8 z, int64[2,2] crops",
        gives="int32[?,?,?,?] y",
        block=[2, 2],
        pads=[[2, 2], [2, 2]],
    )
    kernel = RNG.integers(0, 9, size=(4, 3, 3, 3)).astype(np.uint8)
    made.graph.initializer.append(numpy_helper.from_array(kernel, "k"))
    x = RNG.integers(0, 255, size=(1, 6, 8, 3)).astype(np.uint8)
    agree_unfused(made, x=x, z=np.array(9, np.uint8), crops=np.array(crops))


def test_crops_that_are_computed_behind_the_convolution() -> None:
    """The convolution takes them in, being less than a block, and must stand behind them."""
    late = """
        rest = Mod(number, block)
        high = Unsqueeze(rest, one)
        low = Unsqueeze(none, one)
        crops = Concat <axis = 1> (low, high)
        [out]
    """
    made = model(
        ATROUS.replace("[out]", late),
        given="float[N,H,W,3] x, int64[2] number",
        weights=KERNEL,
        block=[2, 2],
        pads=[[2, 3], [2, 2]],
        one=[1],
        none=[0, 0],
    )
    converted = check(made, (1, 5, 6, 3), number=np.array([3, 4]))
    conv = node(converted, "conv")
    assert "Slice" not in [n.op_type for n in converted.graph.node if conv.output[0] in n.input]
    there = {v.name for v in converted.graph.input} | {t.name for t in converted.graph.initializer}
    for one in converted.graph.node:
        assert there.issuperset(one.input)
        there.update(one.output)


CROPS_OF = """
    s = SpaceToBatchND(x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv(t, w)
    n = Shape({value})
    first = Slice(n, zero, one)
    r = Mod(first, two)
    four = Concat <axis = 0> (none, r, none, r)
    crops = Reshape(four, square)
    b = Transpose <perm = [0, 2, 3, 1]> (c)
    y = BatchToSpaceND(b, block, crops)
"""


@pytest.mark.parametrize(("value", "axis"), [("s", 0), ("c", 0), ("s", 2), ("c", 2)])
def test_crops_of_a_run_time_shape_in_the_region(value: str, axis: int) -> None:
    """From the convolution's own size: it cannot take them in."""
    made = model(
        CROPS_OF.format(value=value),
        weights=KERNEL,
        block=[2, 2],
        pads=[[2, 3], [2, 2]],
        none=[0],
        zero=[axis],
        one=[axis + 1],
        two=[2],
        square=[2, 2],
    )
    agree_unfused(made, x=RNG.normal(size=(1, 5, 6, 3)).astype(np.float32))


def test_pads_of_a_run_time_shape_for_an_operator_that_stays() -> None:
    first = ATROUS.replace("y =", "f =") + "\n n = Shape(c)\n h = Slice(n, one, two)\n"
    second = """
        r = Mod(h, ones)
        four = Concat <axis = 0> (r, r, r, r)
        more = Reshape(four, square)
        s2 = SpaceToBatchND(f, block, more)
        k = Neg(s2)
        y = BatchToSpaceND(k, block, more)
    """
    made = model(
        first + second,
        gives="float[?,?,?,?] y, float[?,?,?,?] s2",
        weights=KERNEL,
        block=[2, 2],
        pads=[[2, 2], [2, 2]],
        crops=[[0, 0], [0, 0]],
        one=[2],
        two=[3],
        ones=[1],
        square=[2, 2],
    )
    agree_unfused(made, x=RNG.normal(size=(1, 4, 6, 3)).astype(np.float32))


def test_a_bias_stays_apart_from_a_convolution_that_is_an_output() -> None:
    made = model(
        """
        s = SpaceToBatchND(x, block, none)
        [conv] c = Conv(s, w)
        y = BatchToSpaceND(c, block, none)
        s2 = SpaceToBatchND(y, block, none)
        q = Transpose <perm = [0, 2, 3, 1]> (s2)
        a = Add(q, bias)
        r = Transpose <perm = [0, 3, 1, 2]> (a)
        z = BatchToSpaceND(r, block, none)
        """,
        given="float[1,3,8,8] x",
        gives="float[?,?,?,?] y, float[?,?,?,?] z",
        weights={**KERNEL, "bias": (4,)},
        block=[1, 2, 2],
        none=[[0, 0]] * 3,
    )
    agree_unfused(made, x=RNG.normal(size=(1, 3, 8, 8)).astype(np.float32))


def test_one_region_that_cannot_be_written_leaves_the_others() -> None:
    strange = ATROUS + "\n [swapped] q = Transpose <perm = [0, 1, 3, 2]> (t)\n p = Relu(q)\n"
    strange += (
        "c2 = Transpose <perm = [0, 1, 3, 2]> (p)\n b2 = Transpose <perm = [0, 2, 3, 1]> (c2)\n"
    )
    strange += "z = BatchToSpaceND(b2, block, crops)\n"
    other = ATROUS.replace("(x,", "(o,").replace("y =", "v =").replace("[in]", "[in3]")
    for name in ("s", "t", "c", "b"):
        other = other.replace(f" {name} =", f" {name}3 =").replace(f"({name})", f"({name}3)")
    other = other.replace("(t, w)", "(t3, w)").replace("(b,", "(b3,")
    for name in ("before", "conv", "behind", "out"):
        other = other.replace(f"[{name}]", f"[{name}3]")
    made = model(
        strange + other,
        given="float[N,H,W,3] x, float[N,H,W,3] o",
        gives="float[?,?,?,?] y, float[?,?,?,?] z, float[?,?,?,?] v, float[?,?,?,?] q",
        weights=KERNEL,
        **SAME,
    )
    strategy = {site.node: site.lowering for site in plan(made, domains=["tf"]).operators}
    assert strategy["in3"] == strategy["out3"] == "dilated convolution"
    assert "dilated convolution" not in (strategy["in"], strategy["out"])
    assert "the model reads 'q' from outside of the region, in blocks" in declined(made)
    x = RNG.normal(size=(1, 5, 6, 3)).astype(np.float32)
    agree_unfused(made, x=x, o=x)


@pytest.mark.parametrize("negative", ["Neg(s)", "Mul(s, minus)"])
def test_zeros_beyond_the_border_keep_their_sign(negative: str) -> None:
    made = model(
        f"""
        s = SpaceToBatchND(x, block, pads)
        a = {negative}
        i = Reciprocal(a)
        y = BatchToSpaceND(i, block, none)
        """,
        block=[2, 2],
        pads=[[2, 0], [0, 0]],
        none=[[0, 0], [0, 0]],
    )
    minus = np.array(-1, np.float32)
    made.graph.initializer.append(numpy_helper.from_array(minus, "minus"))
    agree_unfused(made, x=np.ones((1, 4, 6, 3), np.float32))


def test_nodes_without_names() -> None:
    made = atrous()
    for one in made.graph.node:
        one.name = ""
    result = plan(made, domains=["tf"])
    assert result.operators[1].between == ("<t>", "<c>", "<b>")
    assert result.touched["nodes_removed"] == ["<t>", "<c>", "<b>"]
    assert all(n.name and n.output[0] != ":0" for n in result.model.graph.node)
    check(made, (1, 5, 6, 3))


def test_what_is_wanted_may_lie_in_the_pads() -> None:
    """More is cropped than there is of the value: the rest is what the convolution pads."""
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        k = Sigmoid(s)
        t = Transpose <perm = [0, 3, 1, 2]> (k)
        c = Conv <kernel_shape = [1, 1], pads = [0, 1, 0, 2]> (t, w)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        y = BatchToSpaceND(b, block, crops)
        """,
        given="float[2,4,3,3] x",
        weights={"w": (4, 3, 1, 1)},
        block=[4, 4],
        pads=[[0, 0], [2, 11]],
        crops=[[0, 0], [24, 3]],
    )
    check(made, (2, 4, 3, 3))


def test_a_crop_at_run_time_beside_pads() -> None:
    """The crop may be of more than there is before the other end is padded."""
    made = model(
        """
        s = SpaceToBatchND(x, block, pads)
        t = Transpose <perm = [0, 3, 1, 2]> (s)
        c = Conv <kernel_shape = [2, 1]> (t, w)
        b = Transpose <perm = [0, 2, 3, 1]> (c)
        y = BatchToSpaceND(b, block, crops)
        """,
        given="float[1,1,3,3] x, int64[2,2] pads",
        weights={"w": (4, 3, 2, 1)},
        block=[1, 3],
        crops=[[0, 3], [0, 0]],
    )
    for pads in ([[4, 0], [0, 0]], [[3, 1], [3, 0]], [[0, 4], [0, 3]]):
        check(made, (1, 1, 3, 3), pads=np.array(pads))


def test_a_bias_that_a_node_gives() -> None:
    body = (
        ATROUS
        + """
        bias = Constant <value = float[4] {1.0, 2.0, 3.0, 4.0}> ()
        a = Add(y, bias)
        r = Transpose <perm = [0, 3, 1, 2]> (a)
        z = Relu(r)
    """
    )
    converted = check(model(body, gives="float[?,?,?,?] z", weights=KERNEL, **SAME), (1, 5, 6, 3))
    assert structure.ops(converted)[:2] == ["Transpose", "Conv"]
    assert len(node(converted, "conv").input) == 3
    there = {"x"} | {t.name for t in converted.graph.initializer}
    for one in converted.graph.node:
        assert there.issuperset(one.input)
        there.update(one.output)


def test_a_value_of_unknown_rank_is_declined() -> None:
    body = """
        f = other.Erfc(x)
        s = SpaceToBatchND(f, block, pads)
        r = Relu(s)
        y = BatchToSpaceND(r, block, crops)
    """
    made = model(body, **SAME)
    made.opset_import.add(domain="other", version=1)
    assert strategies(made) == ["gather"] * 2
    assert "the rank of the data is not known" in declined(made)
