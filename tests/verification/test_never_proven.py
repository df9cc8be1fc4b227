"""Wrong models that the prover once took for right ones: none is ever proven.

Each is as an adversary would write it: the usual runs agree, and only sizes, data or files that no run
draws tell the two models apart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import prove, verify
from onnx import parser

HEADER = """<ir_version: 8, opset_import: ["" : 17, "tf": 1, "loc": 1, "com.microsoft": 1,
    "com.microsoft.nchwc": 1]>"""


def model(text: str, functions: str = "", **weights: object) -> onnx.ModelProto:
    made = parser.parse_model(f"{HEADER} {text} {functions}")
    for name, value in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return made


def quantized(zero: np.generic) -> onnx.ModelProto:
    return model(
        """g (float[N, 4] x) => (float[N, 4] y) {
            r = Relu(x) q = QuantizeLinear(r, scale, zero) y = DequantizeLinear(q, scale, zero)
        }""",
        scale=np.float32(0.1),
        zero=zero,
    )


def product_of_sums(body: str) -> onnx.ModelProto:
    return model(
        f"g (float[N,1,3,1] x, float[N,1,1,1] z) => (float[N,1,3,1] y) {{ {body} }}",
        w=np.ones((1, 1, 1, 2), np.float32),
    )


def transposed_conv(body: str) -> onnx.ModelProto:
    kernel = np.ones((1, 1, 2, 2), np.float32)
    kernel[0, 0, 0, 0] = np.inf
    text = f"g (float[N,1,H,W] x) => (float[a,b,c,d] y) {{ {body} }}"
    return model(text, w=kernel, p=np.array([0, 0, 1, 1, 0, 0, 1, 1]))


#: Numbers above 12.7 saturate in int8 only.
TYPES = quantized(np.uint8(0)), quantized(np.int8(0))
#: Each sum vanishes for one of its two terms, neither as a whole.
SUMS = (
    product_of_sums(
        "a = Conv<pads = [0, 1, 0, 0]>(x, w) b = Conv<pads = [0, 0, 0, 1]>(z, w) y = MatMul(a, b)"
    ),
    product_of_sums("s = Shape(x) y = ConstantOfShape(s)"),
)
#: 0 times infinity is NaN, where the zeros are there.
ZEROS = (
    transposed_conv("y = ConvTranspose(x, w)"),
    transposed_conv("q = Pad(x, p) y = ConvTranspose<pads = [1, 1, 1, 1]>(q, w)"),
)


@pytest.mark.parametrize("pair", [TYPES, SUMS, ZEROS], ids=["types", "sums", "zeros"])
def test_other_values_are_not_proven(pair: tuple[onnx.ModelProto, onnx.ModelProto]) -> None:
    result = verify(*pair)
    assert result.evidence != "proven" and result.unproven


BLOCK = "block = Constant<value_ints = [{}]>() pads = Constant<value = int64[1, 2] {{0, 0}}>()"
BY_THREE = f"""<opset_import: ["" : 17, "tf": 1], domain: "loc">
F (x) => (y) {{ {BLOCK.format(3)} y = tf.SpaceToBatchND(x, block, pads) }}"""
BY_TWO = """
    s = Shape(x) n = Gather(s, i0) w = Gather(s, i1) c = Gather(s, i2) v = Div(w, two)
    n1 = Unsqueeze(n, ax) v1 = Unsqueeze(v, ax) c1 = Unsqueeze(c, ax)
    cut = Concat<axis = 0>(n1, v1, two1, c1) r = Reshape(x, cut) t = Transpose<perm = [2, 0, 1, 3]>(r)
    m = Mul(n1, two1) whole = Concat<axis = 0>(m, v1, c1) z = Reshape(t, whole)
"""


def test_an_operator_of_a_function_is_not_one_of_its_caller() -> None:
    """The names in a function's body are its own: the operator there has a block of 3."""

    def made(z: str, functions: str = "", **weights: object) -> onnx.ModelProto:
        site = f"{BLOCK.format(2)} y = tf.SpaceToBatchND(x, block, pads)"
        text = f"g (float[N, W, C] x) => (float[a, b, c] y, float[d, e, f] z) {{ {site} {z} }}"
        return model(text, functions, **weights)

    numbers = {"i0": 0, "i1": 1, "i2": 2, "two": 2, "two1": [2], "ax": [0]}
    weights = {name: np.array(value, np.int64) for name, value in numbers.items()}
    original, converted = made("z = loc.F(x)", BY_THREE), made(BY_TWO, **weights)
    assert verify(original, converted, domains=["tf"]).evidence != "proven"


def test_weights_in_other_files_are_compared_by_their_bytes(tmp_path: Path) -> None:
    paths = []
    for folder, change in (("a", 0.0), ("b", 1e-6)):
        weight = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
        weight[0, 0, 0, 0] += change
        made = model("g (float[N,4,H,W] x) => (float[N,4,a,b] y) { y = Conv(x, w) }", w=weight)
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "model.onnx")
        onnx.save(made, paths[-1], save_as_external_data=True, location="w.bin", size_threshold=0)
    assert verify(*paths).evidence != "proven"


def test_a_shape_that_only_the_converted_model_declares_narrows_it() -> None:
    free = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    fixed = onnx.ModelProto.FromString(free.SerializeToString())
    for value in (free.graph.input[0], free.graph.output[0], fixed.graph.output[0]):
        value.type.tensor_type.ClearField("shape")
    result = verify(free, fixed, inputs={"x": np.ones((2, 3), np.float32)})
    assert result.evidence != "proven" and result.unproven


def test_a_node_that_nothing_reads_may_fail() -> None:
    """In place of a Constant of this name stands a Gather that fails from N = 100 on."""
    text = "g (float[N] x) => (float[N] y) {{ {} y = Relu(x) }}"
    original = model(text.format("c = Constant<value_float = 2.0>()"))
    added = model(text.format("s = Shape(x) c = Gather(t, s)"), t=np.zeros(100, np.float32))
    assert verify(original, added).evidence != "proven"


# Formulas written in another way


def line(body: str, **weights: object) -> onnx.ModelProto:
    """A model of some nodes from a list of numbers to another one."""
    return model(f"g (float[N] x) => (float[N] y) {{ {body} }}", **weights)


ONE, TWO, FIVE = (np.float32(n) for n in (1, 2, 5))
LARGE, HUGE, TINY = np.float32(1e8), np.float32(1e30), np.float32(1e-30)
BELOW_THREE = np.nextafter(np.float32(3), np.float32(0))
FORMULAS = {
    "the first term is no denominator": (
        line("a = Add(one, x) y = Reciprocal(a)", one=ONE),
        line("n = Neg(x) b = Add(one, n) y = Reciprocal(b)", one=ONE),
    ),
    "a denominator is no number": (
        line("a = Add(two, x) y = Div(x, a)", two=TWO),
        line("y = Mul(x, half)", half=np.float32(0.5)),
    ),
    "what cancels is not known": (
        line("a = Add(c, one) b = Sub(a, c) y = Mul(x, b)", c=LARGE, one=ONE),
        line("y = Mul(x, five)", five=FIVE),
    ),
    "what underflows is not known": (
        line("a = Mul(t, t) b = Mul(a, h) c = Mul(b, h) y = Mul(x, c)", t=TINY, h=HUGE),
        line("y = Mul(x, five)", five=FIVE),
    ),
    "what overflows is infinite": (
        line("a = Mul(h, h) y = Mul(x, a)", h=HUGE),
        line("b = Mul(x, h) y = Mul(b, h)", h=HUGE),
    ),
    "what a definition overflows in is another formula": (
        line("y = Softplus(x)"),
        line("a = Exp(x) b = Add(a, one) y = Log(b)", one=ONE),
    ),
    "functions of close numbers are not close": (
        line("a = Mul(c, two) b = Floor(a) y = Mul(x, b)", c=np.float32(1.5), two=TWO),
        line("b = Floor(a) y = Mul(x, b)", a=BELOW_THREE),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_that_round_to_other_numbers_are_not_proven(name: str) -> None:
    assert not prove(*FORMULAS[name]).is_proven


def test_the_larger_of_two_numbers_ends() -> None:
    pair = [
        line(f"a = Max({row}) b = Relu(a) y = Mul(x, b)", one=ONE, two=TWO)
        for row in ("one, two", "two, one")
    ]
    assert [proof.reason for _, proof in prove(*pair).parts if "too long" in proof.reason] == []


def test_numbers_that_are_read_again_and_again_are_evaluated_once() -> None:
    """Else this takes 2^40 steps, which no budget counts."""
    doubled = " ".join(f"a{i + 1} = Add(a{i}, a{i})" for i in range(40)).replace("a0, a0", "x, x")
    pair = line(f"{doubled} y = Neg(a40)"), line("y = Mul(x, c)", c=np.float32(-(2.0**40)))
    assert prove(*pair).is_proven


# Operators without a rule


def quantized_product(point: np.generic) -> onnx.ModelProto:
    text = """g (float[2, 4] x) => (float[2, 4] y) { a = QuantizeLinear(x, s, zero)
        q = QLinearMatMul(a, s, zero, w, s, zero, s, point) y = DequantizeLinear(q, s, point) }"""
    weight = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    return model(text, s=np.float32(0.1), zero=np.int8(0), w=weight, point=point)


def test_an_operator_without_a_rule_has_types() -> None:
    """Negative products are 0 in uint8 only."""
    assert not prove(quantized_product(np.int8(0)), quantized_product(np.uint8(0))).is_proven


def loop(outputs: str, step: str) -> str:
    return f"""{outputs} = Loop (k, yes, x) <body = b (int64 i, bool go, float[4] a) =>
        (bool go2, float[4] a2, float[4] a3) {{ go2 = Identity(go) a2 = Neg(a) {step} }}>"""


def loops(nodes: str) -> onnx.ModelProto:
    text = f"g (float[4] x) => (float[2, 4] y, float[2, 4] z) {{ {nodes} }}"
    return model(text, k=np.array(2), yes=np.array(True), half=np.float32(0.5))


def test_loops_whose_first_output_is_left_out_have_bodies_of_their_own() -> None:
    pair = []
    for operator in ("Exp", "Tanh"):
        nodes = loop("u, y", f"a3 = {operator}(a)") + loop("v, z", "a3 = Abs(a)")
        pair.append(loops(nodes))
        for node in pair[-1].graph.node:
            node.output[0] = ""
    assert not prove(*pair).is_proven


@pytest.mark.parametrize("draw", ["RandomNormalLike(a)", "Dropout(a, half, yes)"])
def test_random_numbers_are_drawn_for_each_loop(draw: str) -> None:
    twice = loop("a, b", f"a3 = {draw}") + loop("c, d", f"a3 = {draw}")
    original = loops(f"{twice} y = Sub(b, d) z = Neg(b)")
    converted = loops(f"{loop('e, f', f'a3 = {draw}')} y = Sub(f, f) z = Neg(f)")
    assert not prove(original, converted).is_proven


def test_random_numbers_are_drawn_for_each_dropout_in_training_mode() -> None:
    drop = "{} = Dropout(x, half, yes)"
    pair = [
        line(nodes, half=np.float32(0.5), yes=np.array(True))
        for nodes in (
            f"{drop.format('a')} {drop.format('b')} y = Sub(a, b)",
            f"{drop.format('c')} y = Sub(c, c)",
        )
    ]
    assert not prove(*pair).is_proven


@pytest.mark.parametrize("reader", ["y = Relu(x)", "e = Abs(x) y = Relu(e)"])
def test_a_node_that_nothing_reads_may_have_the_name_of_another_value(reader: str) -> None:
    original = line("d = Abs(x) y = Relu(d)" if "Abs" in reader else f"d = Abs(x) {reader}")
    converted = line(f"s = Shape(x) d = Gather(t, s) {reader}", t=np.zeros(100, np.float32))
    assert not prove(original, converted).is_proven


def test_a_deprecated_version_of_an_operator_has_no_types() -> None:
    pair = []
    for body in ("y = GroupNormalization<num_groups = 2>(x, s, s)", "y = Relu(x)"):
        head = "g (float[1, 4, 5] x) => (float[1, 4, 5] y)"
        made = model(f"{head} {{ {body} }}", s=np.ones(2, np.float32))
        made.opset_import[0].version = 18
        pair.append(made)
    ((_, proof),) = prove(*pair).parts
    assert "deprecated" in proof.reason


# Operators of onnxruntime


def test_a_function_does_not_redefine_an_operator_of_onnxruntime() -> None:
    """Its own kernel runs."""
    function = """<opset_import: ["" : 17], domain: "com.microsoft">
        QuickGelu (a) => (b) { b = Relu(a) }"""
    converted = model("g (float[N] x) => (float[N] y) { y = com.microsoft.QuickGelu(x) }", function)
    assert not prove(line("y = Relu(x)"), converted).is_proven


def test_a_channel_that_fills_a_block_is_not_repeated() -> None:
    head = "g (float[1,3,5,5] x) => (float[1,16,5,5] y)"
    one, all_ = np.ones((1, 3, 1, 1), np.float32), np.ones((16, 3, 1, 1), np.float32)
    filled = np.zeros((16, 3, 1, 1), np.float32)
    filled[0] = one
    blocks = [w.transpose(1, 2, 3, 0).reshape(16, 3, 1, 1) for w in (filled, all_)]
    original = model(f"{head} {{ a = Conv(x, v) b = Conv(x, w) y = Add(a, b) }}", v=one, w=all_)
    nchwc = "com.microsoft.nchwc"
    converted = model(
        f"""{head} {{ a = {nchwc}.Conv(x, v) b = {nchwc}.Conv(x, w) c = Add(a, b)
            y = {nchwc}.ReorderOutput<channels = 16>(c) }}""",
        v=blocks[0],
        w=blocks[1],
    )
    assert not prove(original, converted).is_proven


FUSED: dict[str, tuple[str, str, str]] = {
    "a summand is not broadcast": (
        "float[N,3,7,7] x, float[1,4,1,1] s",
        "c = Conv(x, v) y = Add(c, s)",
        "y = com.microsoft.FusedConv(x, v, b, s)",
    ),
    "two bounds are required": (
        "float[N,3,7,7] x",
        "c = Conv(x, v) y = Relu(c)",
        """y = com.microsoft.FusedConv<activation = "Clip", activation_params = [0.0]>(x, v)""",
    ),
    **{
        f"the other summand is not broadcast: {data} and {dims}": (
            f"float[{data}] x, float[{dims}] s",
            "a = Add(x, s) y = LayerNormalization<axis = -1, epsilon = 1e-12>(a, g, g)",
            "y = com.microsoft.SkipLayerNormalization(x, s, g, g)",
        )
        for data, dims in (
            ("2,3,6", "1,1,6"),
            ("2,3,6", "6"),
            ("2,1,6", "2,3,6"),
            ("1,3,6", "2,3,6"),
            ("2,2,3,6", "2,2,3,6"),
        )
    },
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_operators_are_proven_where_they_run(name: str) -> None:
    inputs, *bodies = FUSED[name]
    weights = {"v": np.ones((4, 3, 1, 1), np.float32), "b": np.zeros(4, np.float32)}
    weights["g"] = np.ones(6, np.float32)
    pair = [model(f"g ({inputs}) => (float[] y) {{ {body} }}", **weights) for body in bodies]
    for each in pair:
        each.graph.output[0].type.tensor_type.ClearField("shape")
    assert not prove(*pair).is_proven
