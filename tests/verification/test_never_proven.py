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

HEADER = '<ir_version: 8, opset_import: ["" : 17, "tf": 1, "loc": 1]>'


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


def test_random_numbers_are_drawn_for_each_dropout_in_training_mode() -> None:
    drop = "{} = Dropout(x, half, yes)"
    pair = [
        model(
            f"g (float[N] x) => (float[N] y) {{ {nodes} }}",
            half=np.float32(0.5),
            yes=np.array(True),
        )
        for nodes in (
            f"{drop.format('a')} {drop.format('b')} y = Sub(a, b)",
            f"{drop.format('c')} y = Sub(c, c)",
        )
    ]
    assert not prove(*pair).is_proven


def loop(outputs: str, step: str) -> str:
    return f"""{outputs} = Loop (k, yes, x) <body = b (int64 i, bool go, float[4] a) =>
        (bool go2, float[4] a2, float[4] a3) {{ go2 = Identity(go) a2 = Neg(a) {step} }}>"""


def loops(nodes: str) -> onnx.ModelProto:
    """A model whose Loops leave out their first outputs."""
    text = f"g (float[4] x) => (float[2, 4] y, float[2, 4] z) {{ {nodes} }}"
    made = model(text, k=np.array(2), yes=np.array(True), half=np.float32(0.5))
    for node in made.graph.node:
        if node.op_type == "Loop":
            node.output[0] = ""
    return made


@pytest.mark.parametrize("draw", ["RandomNormalLike(a)", "Dropout(a, half, yes)"])
def test_random_numbers_are_drawn_for_each_loop(draw: str) -> None:
    twice = loop("a, b", f"a3 = {draw}") + loop("c, d", f"a3 = {draw}")
    original = loops(f"{twice} y = Sub(b, d) z = Neg(b)")
    converted = loops(f"{loop('e, f', f'a3 = {draw}')} y = Sub(f, f) z = Neg(f)")
    assert not prove(original, converted).is_proven
