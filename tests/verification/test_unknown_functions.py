"""Unknown functions, control flow, blocks of channels: right rewrites are proven, wrong ones never."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import prove
from onnx import numpy_helper, parser

rng = np.random.default_rng(5)


def values(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


GATES = values(1, 12, 4)
STORED = {
    "WL": GATES,
    "WT": np.ascontiguousarray(GATES.transpose(0, 2, 1)),
    "WO": np.ascontiguousarray(GATES[:, ::-1]),
    "RL": values(1, 12, 3),
    "ROWS": np.array([[1], [0]]),
}
MODEL = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft": 1, "com.microsoft.nchwc": 1]>'
LSTM = "y, h = LSTM<hidden_size = 3{}>({}, {}, RL)"
FORWARD, BACK = (f', direction = "{way}"' for way in ("forward", "reverse"))
LOOP = """y = Loop(n, {}, v) <body = b (int64 i, bool c, float[A,B] v0) => (bool c1, float[A,B] v1)
    {{ c1 = Identity(c) {} }}>"""
BRANCHES = """y = If(q) <then_branch = a () => (float[A,B] s) {{ {} }},
    else_branch = b () => (float[A,B] t) {{ {} }}>"""
FED = "float[A,B] x, float[A,B] z, bool q, int64 n"

#: Inputs, the original, a right rewrite, and wrong ones.
REWRITES: dict[str, tuple[str, str, str, list[str]]] = {
    "recurrent": (
        "float[S,B,4] x",
        f"i = Identity(x) t = Tanh(i) w = Transpose<perm = [0, 2, 1]>(WT) {LSTM.format('', 't', 'w')}",
        f"u = Tanh(x) {LSTM.format(FORWARD, 'u', 'WL')}",
        [
            f"u = Tanh(x) {LSTM.format(BACK, 'u', 'WL')}",
            f"u = Tanh(x) {LSTM.format('', 'u', 'WO')}",
            f"u = Tanh(x) {LSTM.format(', input_forget = 1', 'u', 'WL')}",
            f"u = Relu(x) {LSTM.format('', 'u', 'WL')}",
            f"u = Tanh(x) {LSTM.format('', 'x', 'WL')}",
            f"u = Tanh(x) {LSTM.format('', 'u', 'WL').replace('y, h', 'h, y')}",
        ],
    ),
    "two inputs": (
        "float[N,2,H,W] x, float[N,P,Q,2] g",
        "a = Identity(x) b = Relu(a) c = Identity(g) y = GridSample(b, c)",
        "r = Relu(x) y = GridSample<align_corners = 0>(r, g)",
        [
            "r = Relu(x) y = GridSample<align_corners = 1>(r, g)",
            "r = Relu(x) h = Neg(g) y = GridSample(r, h)",
            "y = GridSample(x, g)",
        ],
    ),
    "rows": (
        "float[4,B] x, float[2,B] z",
        "a = Identity(x) b = Neg(a) c = Identity(z) y = ScatterND(b, ROWS, c)",
        "d = Neg(x) y = ScatterND(d, ROWS, z)",
        [
            'd = Neg(x) y = ScatterND<reduction = "add">(d, ROWS, z)',
            "d = Neg(x) r = Add(ROWS, o) o = Constant<value_int = 1>() y = ScatterND(d, r, z)",
        ],
    ),
    "loop": (
        FED,
        "v = Identity(x) p = Tanh(z) l = Less(o, two) o = Constant<value_float = 1.0>()"
        " two = Constant<value_float = 2.0>() " + LOOP.format("l", "e = Mul(v0, p) v1 = Add(e, z)"),
        "v = Identity(x) p = Tanh(z) l = Constant<value = bool {1}>() "
        + LOOP.format("l", "f = Mul(v0, p) v1 = Add(f, z)"),
        [
            "v = Identity(x) p = Tanh(z) l = Constant<value = bool {0}>() "
            + LOOP.format("l", "f = Mul(v0, p) v1 = Add(f, z)"),
            "v = Identity(x) p = Tanh(z) " + LOOP.format("q", "f = Mul(v0, p) v1 = Add(f, z)"),
            "v = Identity(x) p = Tanh(z) l = Constant<value = bool {1}>() "
            + LOOP.format("l", "f = Mul(v0, p) v1 = Add(f, p)"),
            "v = Identity(x) p = Tanh(z) l = Constant<value = bool {1}>() "
            + LOOP.format("l", "f = Mul(v0, z) v1 = Add(f, z)"),
            "v = Identity(x) p = Tanh(z) l = Constant<value = bool {1}>() "
            + LOOP.format("l", "f = Mul(v0, p) v1 = Sub(f, z)"),
            "v = Identity(z) p = Tanh(z) l = Constant<value = bool {1}>() "
            + LOOP.format("l", "f = Mul(v0, p) v1 = Add(f, z)"),
        ],
    ),
    "branches": (
        FED,
        "r = Identity(x) " + BRANCHES.format("u = Relu(r) s = Identity(u)", "t = Sub(r, z)"),
        BRANCHES.format("s = Relu(x)", "t = Sub(x, z)"),
        [
            BRANCHES.format("s = Relu(z)", "t = Sub(x, z)"),
            BRANCHES.format("s = Relu(x)", "t = Sub(z, x)"),
            BRANCHES.format("s = Sub(x, z)", "t = Relu(x)"),
            "p = Not(q) " + BRANCHES.format("s = Relu(x)", "t = Sub(x, z)").replace("(q)", "(p)"),
        ],
    ),
    "names of other values": (
        "float[A,B] x",
        "a = Tanh(x) b = Neg(a) c = Exp(b) y = Relu(c)",
        "b = Tanh(x) a = Neg(b) c = Exp(a) y = Relu(c)",
        ["b = Neg(x) a = Tanh(b) c = Exp(b) y = Relu(c)"],
    ),
}
WRONG = [(n, i) for n, (*_, wrong) in REWRITES.items() for i in range(len(wrong))]


def made(given: str, body: str, stored: dict[str, np.ndarray] = STORED) -> onnx.ModelProto:
    model = parser.parse_model(f"{MODEL} g ({given}) => (float[] y) {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    constants = [n for n in model.graph.node if n.op_type == "Constant"]
    rest = [n for n in model.graph.node if n.op_type != "Constant"]
    del model.graph.node[:]
    model.graph.node.extend([*constants, *rest])
    read = {i for n in model.graph.node for i in n.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(a, n) for n, a in stored.items() if n in read
    )
    return model


@pytest.mark.parametrize("name", REWRITES)
def test_right_rewrites_are_proven(name: str) -> None:
    given, before, after, _ = REWRITES[name]
    proofs = prove(made(given, before), made(given, after))
    assert proofs.is_proven, [proof.reason for _, proof in proofs.parts] + proofs.rest


@pytest.mark.parametrize(("name", "number"), WRONG)
def test_wrong_rewrites_are_never_proven(name: str, number: int) -> None:
    given, before, _, wrong = REWRITES[name]
    assert not prove(made(given, before), made(given, wrong[number])).is_proven


@pytest.mark.parametrize("draw", ["RandomNormalLike(x)", "Bernoulli(x)", "Multinomial(x)"])
def test_random_numbers_are_no_unknown_function(draw: str) -> None:
    text = "a = {}(x) b = Cast<to = 1>(d) y = Add(a, b) d = " + draw
    first, second = (
        made("float[2,3] x", text.format(op).replace("b = Cast", "c = Cast").replace(", b", ", c"))
        if op == "Identity"
        else made("float[2,3] x", text.format(op))
        for op in ("Abs", "Identity")
    )
    assert not prove(first, second).is_proven


# Blocks of channels

CHANNELS = 20
NET = {
    "w0": values(CHANNELS, 3, 3, 3),
    "b0": values(CHANNELS),
    "w1": values(CHANNELS, 1, 3, 3),
    "w2": values(12, CHANNELS, 1, 1),
}
IMAGE = "float[N,3,H,W] x"
PADS = "pads = [1, 1, 1, 1]"
STANDARD = f"""c = Conv<{PADS}>(x, w0, b0) r = Relu(c) d = Conv<{PADS}, group = {CHANNELS}>(r, w1)
    e = Add(d, r) p = MaxPool<kernel_shape = [2, 2]>(e) y = Conv(p, w2)"""


def filled(array: np.ndarray, size: int, *axes: int) -> np.ndarray:
    pads = [(0, -n % size if axis in axes else 0) for axis, n in enumerate(array.shape)]
    return np.pad(array, pads)


def blocked(size: int) -> tuple[str, dict[str, np.ndarray]]:
    """The net as onnxruntime writes it for blocks of a size, by the definition of its layouts."""
    first, apart = (filled(NET[n], size, 0) for n in ("w0", "w1"))
    inner = filled(NET["w2"], size, 0, 1)
    outputs, inputs = inner.shape[:2]
    laid = np.zeros(inner.size, np.float32)
    for o, i in np.ndindex(outputs, inputs):  # 1x1 kernels: [O/B, I/B, B of I, B of O]
        place = ((o // size * (inputs // size) + i // size) * size + i % size) * size + o % size
        laid[place] = inner[o, i, 0, 0]
    stored = {
        "w0": first.reshape(-1, size, 27).transpose(0, 2, 1).reshape(first.shape),
        "b0": filled(NET["b0"], size, 0),
        "w1": apart.reshape(-1, size, 9).transpose(0, 2, 1).reshape(apart.shape),
        "w2": laid.reshape(inner.shape),
    }
    text = f"""b = com.microsoft.nchwc.Conv<{PADS}, activation = "Relu">(x, w0, b0)
        d = com.microsoft.nchwc.Conv<{PADS}, group = {len(apart)}>(b, w1, , b)
        p = com.microsoft.nchwc.MaxPool<kernel_shape = [2, 2]>(d)
        o = com.microsoft.nchwc.Conv(p, w2) y = com.microsoft.nchwc.ReorderOutput<channels = 12>(o)"""
    return text, {n: np.ascontiguousarray(a) for n, a in stored.items()}


@pytest.mark.parametrize("size", [8, 16])
def test_blocks_of_channels_are_read_as_what_they_hold(size: int) -> None:
    text, stored = blocked(size)
    proofs = prove(made(IMAGE, STANDARD, NET), made(IMAGE, text, stored))
    assert proofs.is_proven, [proof.reason for _, proof in proofs.parts] + proofs.rest
    assumptions = {each for _, proof in proofs.parts for each in proof.assumptions}
    assert any(f"{size} channels in a block" in each for each in assumptions)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("channels = 12", "channels = 11"),
        ("o = com.microsoft.nchwc.Conv(p, w2)", "t = Tanh(x) o = com.microsoft.nchwc.Conv(t, w2)"),
        ("y = com.microsoft.nchwc.ReorderOutput<channels = 12>(o)", "y = Identity(o)"),
    ],
)
def test_another_use_of_blocks_is_not_proven(old: str, new: str) -> None:
    text, stored = blocked(16)
    assert not prove(
        made(IMAGE, STANDARD, NET), made(IMAGE, text.replace(old, new), stored)
    ).is_proven


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_a_weight_in_another_place_of_its_block_is_not_proven(name: str) -> None:
    text, stored = blocked(16)
    moved = stored | {
        name: np.ascontiguousarray(np.roll(stored[name].reshape(-1), 1)).reshape(stored[name].shape)
    }
    bits = stored[name].copy()
    bits.reshape(-1).view(np.uint32)[0] ^= 1
    for wrong in (moved, stored | {name: bits}):
        assert not prove(made(IMAGE, STANDARD, NET), made(IMAGE, text, wrong)).is_proven


def test_what_fills_a_block_may_not_reach_other_channels() -> None:
    text, stored = blocked(16)
    weight = stored["w2"].copy()
    weight.reshape(-1)[(1 * 16 + 8) * 16] = 1  # of channel 24, which only fills a block
    assert not prove(
        made(IMAGE, STANDARD, NET), made(IMAGE, text, stored | {"w2": weight})
    ).is_proven
