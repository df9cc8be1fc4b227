"""Rewrites as other tools make them: right ones are proven, near misses never; runs tell them apart.

name | inputs
    the original --> a right rewrite ! a wrong one ! another wrong one
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from adapter import prove, verify
from onnx import parser
from parsing import model, rows

from onnx_spatial.maps.compare import FOLDED

rng = np.random.default_rng(7)


def values(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


W, B, S, T, M = values(4, 3, 3, 3), values(4), values(4), values(4), values(4)
V = np.abs(values(4)) + np.float32(0.5)
WT, G = values(3, 4, 2, 2), values(5, 6)
FACTOR = S / np.sqrt(V + np.float32(1e-3))
CHANNELS = (4, 1, 1, 1)
GATES = values(1, 12, 4)
W_FOLDED, B_FOLDED = W * FACTOR.reshape(CHANNELS), (B - M) * FACTOR + T


def off(array: np.ndarray, place: int, by: float) -> np.ndarray:
    """An array with one number that is larger by a share."""
    result = array.copy()
    result.reshape(-1)[place] *= np.float32(1 + by)
    return result


STORED = {
    **{"W": W, "B": B, "S": S, "T": T, "M": M, "V": V, "WT": WT, "G": G, "GB": values(5)},
    "W_folded": W_FOLDED,
    "B_folded": B_FOLDED,
    "W_other": W * np.roll(FACTOR, 1).reshape(CHANNELS),
    "W_close": off(W_FOLDED, 50, 1e-5),
    "W_bit": off(W, 50, 2**-23),
    "B_close": off(B_FOLDED, 2, 1e-5),
    "WT_folded": WT * FACTOR.reshape(1, 4, 1, 1),
    "BT_folded": T - M * FACTOR,
    "W_times": W * S.reshape(CHANNELS),
    "B_times": B * S,
    "B_sum": B + T,
    "S3": S.reshape(4, 1, 1),
    "T3": T.reshape(4, 1, 1),
    "GT": np.ascontiguousarray(G.T),
    "large": np.full(4, 1e8, np.float32),
    "five": np.full(4, 5, np.float32),
    "zeros": np.zeros(4, np.float32),
    "one": np.ones(4, np.float32),
    "half": np.float32(0.5),
    "half_twice": np.float32(1),
    "zero": np.float32(0),
    "minus_zero": np.float32(-0.0),
    "P": np.array([0, 2, 0, 1]),
    "R": np.array([2, 1, 0, 1, 2, 3, 4, 5, 4]),
    "E": np.array([0, 0, 0, 1, 2, 3, 4, 5, 5]),
    **{"WL": GATES, "WO": np.ascontiguousarray(GATES[:, ::-1]), "RL": values(1, 12, 3)},
    "WLT": np.ascontiguousarray(GATES.transpose(0, 2, 1)),
    "ROWS": np.array([[1], [0]]),
    "N": -V,
    **{"u8": np.uint8(0), "i8": np.int8(0), "yes": np.array(True)},
    "ones": np.ones((1, 1, 1, 2), np.float32),
    "infinite": np.float32([[[[np.inf, 1], [1, 1]]]]),
    "around": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "table": np.zeros(100, np.float32),
    **{"first": np.array([2, 3, 16, 12]), "last": np.array([2, 16, 12, 3])},
    **{"turned": np.array([2, 12, 16, 3]), "scale": np.ones(6, np.float32)},
    **{"six": np.float32(6), "many": np.float32(1000), "nine": np.array(9), "three": np.array(3)},
    **{"ramp": np.arange(1, 7, dtype=np.float32), "near": np.float32([1.001, 2, 3, 4, 5, 6])},
    "U": np.nextafter(np.ones((3, 1, 1), np.float32), 2),
}
#: Words of the tables.
WORDS = {
    "CONV": "Conv<pads = [1, 1, 1, 1]>",
    "BN": "BatchNormalization<epsilon = 0.001>",
    "FUSED": "M.FusedConv<pads = [1, 1, 1, 1], activation",
    "IMAGE": "float[1,3,H,7] x",
    "TABLE": "float[N,6] x",
    "RESIZE": 'Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">',
    "FED": "float[A,B] x, float[A,B] z, bool q, int64 n",
    "FRONT": "v = Identity(x) p = Tanh(z)",
    "BODY": "<body = b (int64 i, bool c, float[A,B] v0) => (bool c1, float[A,B] v1) { c1 = Identity(c)",
    "TRUE": "l = Constant<value = bool {1}>()",
    "THEN": "y = If(q) <then_branch = a () => (float[A,B] s)",
    "ELSE": ", else_branch = b () => (float[A,B] t)",
}
REWRITES = """
batch normalization | IMAGE
    c = CONV(x, W, B) y = BN(c, S, T, M, V) --> y = CONV(x, W_folded, B_folded)
    ! y = CONV(x, W_other, B_folded) ! y = CONV(x, W_close, B_folded) ! y = CONV(x, W_folded, B_close)
    ! c = CONV(x, W, B) y = BatchNormalization<epsilon = 0.0011>(c, S, T, M, V)
    ! c = CONV(x, W_bit, B) y = BN(c, S, T, M, V)
    ! r = Relu(x) y = CONV(r, W_folded, B_folded)
transposed convolution | IMAGE
    c = ConvTranspose(x, WT) y = BN(c, S, T, M, V) --> y = ConvTranspose(x, WT_folded, BT_folded)
    ! y = ConvTranspose(x, WT_folded, T) ! y = ConvTranspose(x, WT, BT_folded)
factor | IMAGE
    c = CONV(x, W, B) y = Mul(S3, c) --> y = CONV(x, W_times, B_times)
    ! y = CONV(x, W_times, B) ! y = CONV(x, W, B_times)
summand | IMAGE
    c = CONV(x, W, B) y = Add(c, T3) --> y = CONV(x, W, B_sum) ! y = CONV(x, W_bit, B_sum)
bias | IMAGE
    c = CONV(x, W) y = Add(c, T3) --> y = CONV(x, W, T) ! y = CONV(x, W_bit, T) ! y = CONV(x, W, B)
gemm | TABLE
    m = MatMul(x, GT) y = Add(GB, m) --> y = Gemm<transB = 1>(x, G, GB)
    ! m = MatMul(x, GT) y = Sub(m, GB) ! y = Gemm<transB = 1, beta = 2.0>(x, G, GB)
fused convolution | IMAGE
    c = CONV(x, W, B) y = LeakyRelu<alpha = 0.2>(c) -->
    y = FUSED = "LeakyRelu", activation_params = [0.2]>(x, W, B)
    ! y = FUSED = "LeakyRelu", activation_params = [0.3]>(x, W, B)
    ! y = FUSED = "Tanh", dilations = [2, 2]>(x, W, B)
fused product | float[2,6] x
    t = Transpose(G) y = MatMul(x, t) --> y = M.FusedMatMul<transB = 1>(x, G)
    ! y = M.FusedMatMul<transB = 1, alpha = 0.25>(x, G)
casts | float16[N,6] x
    a = Cast<to = 1>(x) y = Cast<to = 10>(a) --> y = Identity(x)
    ! a = Cast<to = 6>(x) y = Cast<to = 10>(a) ! y = Neg(x)
mirror | float[2,6] x
    y = Pad<mode = "reflect">(x, P) --> y = Gather<axis = 1>(x, R)
    ! y = Pad<mode = "edge">(x, P) ! y = Gather<axis = 1>(x, E) ! y = Pad(x, P)
mirror of any size: a run fails where the mirror is wider than the data | TABLE
    a = Pad<mode = "reflect">(x, P) y = Neg(a) --> b = Neg(x) y = Pad<mode = "reflect">(b, P)
    ! b = Neg(x) t = Transpose(b) u = Pad<mode = "reflect">(t, P) y = Transpose(u)
factor of 1: but -0.0 + 0.0 is 0.0 | TABLE
    y = Identity(x) --> a = Mul(half_twice, x) b = Div(a, half_twice) y = Sub(b, zero)
    ! y = Add(x, zero) ! y = Sub(x, minus_zero) ! y = Div(half_twice, x) ! y = Mul(x, half)
global pool | IMAGE
    a = Mul(x, half_twice) y = GlobalAveragePool(a) --> y = GlobalAveragePool(x)
    ! y = GlobalMaxPool(x) ! y = ReduceMax<axes = [2, 3]>(x)
mean of one element | float[N,1] x
    y = ReduceMean<axes = [1]>(x) --> y = Identity(x)
    ! y = ReduceMean<axes = [0]>(x) ! y = ReduceL1<axes = [1]>(x)
common subexpression | TABLE
    a = Tanh(x) b = Tanh(x) y = Mul(a, b) --> a = Tanh(x) y = Mul(a, a) ! a = Tanh(x) y = Mul(a, x)
names of other values | TABLE
    a = Tanh(x) b = Neg(a) c = Exp(b) y = Relu(c) --> b = Tanh(x) a = Neg(b) c = Exp(a) y = Relu(c)
    ! b = Neg(x) a = Tanh(b) c = Exp(b) y = Relu(c)
"""
#: Operators without a map are functions that nobody knows; these are not run.
UNKNOWN = """
recurrent | float[S,B,4] x
    i = Identity(x) t = Tanh(i) w = Transpose<perm = [0, 2, 1]>(WLT)
    y, h = LSTM<hidden_size = 3>(t, w, RL) -->
    u = Tanh(x) y, h = LSTM<hidden_size = 3, direction = "forward">(u, WL, RL)
    ! u = Tanh(x) y, h = LSTM<hidden_size = 3, direction = "reverse">(u, WL, RL)
    ! u = Tanh(x) y, h = LSTM<hidden_size = 3>(u, WO, RL)
    ! u = Tanh(x) y, h = LSTM<hidden_size = 3, input_forget = 1>(u, WL, RL)
    ! u = Relu(x) y, h = LSTM<hidden_size = 3>(u, WL, RL)
    ! u = Tanh(x) y, h = LSTM<hidden_size = 3>(x, WL, RL)
    ! u = Tanh(x) h, y = LSTM<hidden_size = 3>(u, WL, RL)
two inputs | float[N,2,H,W] x, float[N,P,Q,2] g
    a = Identity(x) b = Relu(a) c = Identity(g) y = GridSample(b, c) -->
    r = Relu(x) y = GridSample<align_corners = 0>(r, g)
    ! r = Relu(x) y = GridSample<align_corners = 1>(r, g)
    ! r = Relu(x) h = Neg(g) y = GridSample(r, h) ! y = GridSample(x, g)
resize | float[2,8,6,3] x
    t = Transpose<perm = [0, 3, 1, 2]>(x) r = RESIZE(t, , , first) y = Transpose<perm = [0, 2, 3, 1]>(r)
    --> y = RESIZE(x, , , last) ! y = RESIZE(x, , , turned) ! y = Resize<mode = "cubic">(x, , , last)
rows | float[4,B] x, float[2,B] z
    a = Identity(x) b = Neg(a) c = Identity(z) y = ScatterND(b, ROWS, c) -->
    d = Neg(x) y = ScatterND(d, ROWS, z)
    ! d = Neg(x) y = ScatterND<reduction = "add">(d, ROWS, z)
    ! o = Constant<value_int = 1>() d = Neg(x) r = Add(ROWS, o) y = ScatterND(d, r, z)
loop | FED
    o = Constant<value_float = 1.0>() two = Constant<value_float = 2.0>() FRONT l = Less(o, two)
    y = Loop(n, l, v) BODY e = Mul(v0, p) v1 = Add(e, z) }> -->
    TRUE FRONT y = Loop(n, l, v) BODY f = Mul(v0, p) v1 = Add(f, z) }>
    ! l = Constant<value = bool {0}>() FRONT y = Loop(n, l, v) BODY f = Mul(v0, p) v1 = Add(f, z) }>
    ! FRONT y = Loop(n, q, v) BODY f = Mul(v0, p) v1 = Add(f, z) }>
    ! TRUE FRONT y = Loop(n, l, v) BODY f = Mul(v0, p) v1 = Add(f, p) }>
    ! TRUE FRONT y = Loop(n, l, v) BODY f = Mul(v0, z) v1 = Add(f, z) }>
    ! TRUE FRONT y = Loop(n, l, v) BODY f = Mul(v0, p) v1 = Sub(f, z) }>
    ! TRUE FRONT y = Loop(n, l, z) BODY f = Mul(v0, p) v1 = Add(f, z) }>
branches | FED
    r = Identity(x) THEN { u = Relu(r) s = Identity(u) } ELSE { t = Sub(r, z) }> -->
    THEN { s = Relu(x) } ELSE { t = Sub(x, z) }>
    ! THEN { s = Relu(z) } ELSE { t = Sub(x, z) }> ! THEN { s = Relu(x) } ELSE { t = Sub(z, x) }>
    ! THEN { s = Sub(x, z) } ELSE { t = Relu(x) }>
    ! p = Not(q) r = Identity(p) y = If(p) <then_branch = a () => (float[A,B] s) { s = Relu(x) }
    ELSE { t = Sub(x, z) }>
"""


def spelled(text: str) -> str:
    """The text with the words of the tables replaced."""
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    return text


#: Inputs, the original, a right rewrite, and wrong ones.
PAIRS: dict[str, tuple[str, str, str, list[str]]] = {}
for _name, (_given,), _before, _after in rows(spelled(REWRITES + UNKNOWN.lstrip("\n"))):
    _right, *_wrong = _after.split("!")
    PAIRS[_name.partition(":")[0]] = (_given, _before, _right, _wrong)
RUN = [name.partition(":")[0] for name, *_ in rows(REWRITES)]
WRONG = [(n, i) for n, (*_, wrong) in PAIRS.items() for i in range(len(wrong))]


def made(given: str, body: str, **stored: np.ndarray) -> onnx.ModelProto:
    return model(f"g ({given}) => (y) {{ {body} }}", **(stored or STORED))


def runs(given: str, body: str) -> list[np.ndarray] | None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    results, source = [], np.random.default_rng(3)
    try:
        session = ort.InferenceSession(made(given, body).SerializeToString(), options)
        for size in (1, 4, 5):
            (fed,) = session.get_inputs()
            shape = [d if isinstance(d, int) else size for d in fed.shape]
            kind = np.float16 if "16" in fed.type else np.float32
            results += session.run(None, {"x": source.normal(0, 3, shape).astype(kind)})
    except Exception:  # onnxruntime's errors have no common class
        return None
    return results


@pytest.mark.parametrize("name", PAIRS)
def test_right_rewrites_are_proven_and_run_alike(name: str) -> None:
    given, before, after, _ = PAIRS[name]
    proofs = prove(made(given, before), made(given, after))
    assert proofs.is_proven, [proof.reason for _, proof in proofs.parts] + proofs.rest
    folded = {FOLDED in proof.assumptions for _, proof in proofs.parts}
    if name in ("batch normalization", "summand", "bias"):
        assert folded == {name != "bias"}
    if name in RUN:
        expected, actual = runs(given, before), runs(given, after)
        assert expected is not None and actual is not None
        for a, b in zip(expected, actual, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4 * np.abs(a).max())


@pytest.mark.parametrize(("name", "number"), WRONG)
def test_near_misses_are_never_proven(name: str, number: int) -> None:
    given, before, _, wrong = PAIRS[name]
    assert not prove(made(given, before), made(given, wrong[number])).is_proven


#: What the prover once took for right, as an adversary would write it: usual runs agree.
DECEPTIONS = """
numbers above 12.7 saturate in int8 only | float[N,4] x
    r = Relu(x) q = QuantizeLinear(r, half, u8) y = DequantizeLinear(q, half, u8) -->
    r = Relu(x) q = QuantizeLinear(r, half, i8) y = DequantizeLinear(q, half, i8)
each sum vanishes for one of its two terms, neither as a whole | float[N,1,3,1] x, float[N,1,1,1] z
    a = Conv<pads = [0, 1, 0, 0]>(x, ones) b = Conv<pads = [0, 0, 0, 1]>(z, ones) y = MatMul(a, b) -->
    s = Shape(x) y = ConstantOfShape(s)
0 times infinity is NaN, where the zeros are there | float[N,1,H,W] x
    y = ConvTranspose(x, infinite) -->
    q = Pad(x, around) y = ConvTranspose<pads = [1, 1, 1, 1]>(q, infinite)
a limit that usual data does not reach | TABLE
    y = Tanh(x) --> c = Min(x, six) y = Tanh(c)
NaN becomes 0 | TABLE
    y = Mul(x, half) --> n = IsNaN(x) c = Where(n, zero, x) y = Mul(c, half)
another epsilon | TABLE
    y = LayerNormalization<epsilon = 0.00001>(x, scale) -->
    y = LayerNormalization<epsilon = 0.000011>(x, scale)
a turn that does not come | TABLE
    y = Loop (three, yes, x) <body = b (int64 i, bool go, float[N,6] a) => (bool o, float[N,6] c)
    { o = Identity(go) late = Greater(i, nine) c = Where(late, a, a) }> -->
    y = Loop (three, yes, x) <body = b (int64 i, bool go, float[N,6] a) => (bool o, float[N,6] c)
    { o = Identity(go) late = Greater(i, nine) n = Neg(a) c = Where(late, n, a) }>
another constant beside what is large | TABLE
    a = Mul(x, ramp) b = Tanh(a) c = Mul(x, many) y = Add(b, c) -->
    a = Mul(x, near) b = Tanh(a) c = Mul(x, many) y = Add(b, c)
a node that nothing reads may fail, from N = 100 on | float[N] x
    c = Constant<value_float = 2.0>() y = Relu(x) --> s = Shape(x) c = Gather(table, s) y = Relu(x)
random numbers are drawn for each dropout in training mode | float[N] x
    a = Dropout(x, half, yes) b = Dropout(x, half, yes) y = Sub(a, b) -->
    c = Dropout(x, half, yes) y = Sub(c, c)
random numbers are drawn for each loop | float[N] x
    a, b = Loop (three, yes, x) <body = b (int64 i, bool go, float[N] u) => (bool o, float[N] v,
    float[N] w) { o = Identity(go) v = Neg(u) w = RandomNormalLike(u) }>
    c, d = Loop (three, yes, x) <body = b (int64 i, bool go, float[N] u) => (bool o, float[N] v,
    float[N] w) { o = Identity(go) v = Neg(u) w = RandomNormalLike(u) }> y = Sub(b, d) -->
    a, b = Loop (three, yes, x) <body = b (int64 i, bool go, float[N] u) => (bool o, float[N] v,
    float[N] w) { o = Identity(go) v = Neg(u) w = RandomNormalLike(u) }> y = Sub(b, b)
what cancels is not known | IMAGE
    c = CONV(x, W, large) y = BN(c, S, T, large, V) --> y = CONV(x, W_folded, five)
both sides have steps | IMAGE
    c = CONV(x, W, B) y = Mul(c, S3) --> c = CONV(x, W_times, B_times) y = Mul(c, U)
a variance below zero | IMAGE
    c = CONV(x, W, B) y = BN(c, S, T, M, N) --> y = CONV(x, W_folded, B_folded)
a name that a body uses again, for another value | FED
    k, a = Loop(n, q, x, z) <body = b (int64 i, bool c, float[A,B] k0, float[A,B] a0) => (bool c1,
    float[A,B] k1, float[A,B] a1) { c1 = Identity(c) k1 = Identity(k0) u = Tanh(a0) a1 = Neg(u) }>
    y = Relu(a) -->
    k, d = Loop(n, q, x, z) <body = b (int64 i, bool c, float[A,B] k0, float[A,B] a0) => (bool c1,
    float[A,B] k1, float[A,B] a1) { c1 = Identity(c) k1 = Identity(k0) u = Sin(a0) a1 = Neg(u) }>
    r = Transpose(d) s = Relu(r) y = Transpose(s)
functions of folded numbers | IMAGE
    c = CONV(x, W, B) d = BN(c, S, T, M, V) y = Floor(d) -->
    c = CONV(x, W_close, B_folded) y = Floor(c)
"""


@pytest.mark.parametrize(("name", "options", "before", "after"), [*rows(spelled(DECEPTIONS))])
def test_deceptions_are_never_proven(name, options, before, after) -> None:
    (given,) = options
    assert not prove(made(given, before), made(given, after)).is_proven


def test_each_output_of_the_same_nodes_is_proven_for_itself() -> None:
    head, halves = (
        "g (float[2,N] x) => (float[1,N] y, float[1,N] z)",
        "Split<axis = 0, num_outputs = 2>",
    )
    before = model(f"{head} {{ y, z = {halves}(x) }}", 18)
    body = f"{{ y, w = {halves}(x) z = Neg(w) }}"
    function = f'<opset_import: ["" : 18], domain: "own"> parts (x) => (y, z) {body}'
    after = model(f"{head} {{ y, z = own.parts(x) }} {function}", 18)
    proofs = {part.output: proof.scope for part, proof in prove(before, after).parts}
    assert proofs == {"y": "all sizes", "z": None}


@pytest.mark.parametrize(
    ("given", "before", "after"),
    [
        ("float[1,3,7,7] x, float[1,4,1,1] s", "Conv(x, W) z = Add(c, s)", "(x, W, B, s)"),
        ("double[1,3,7,7] x", "Conv(x, W) z = Relu(c)", "(x, W)"),
    ],
)
def test_fused_operators_are_proven_where_they_run(given: str, before: str, after: str) -> None:
    first = made(given, f"c = {before} y = Identity(z)")
    second = made(given, f'y = M.FusedConv<activation = "Relu">{after}')
    assert not prove(first, second).is_proven


def test_values_that_a_tool_named_anew_part_a_net_at_each_layer() -> None:
    stored = {f"w{number}": values(3, 3, 3, 3) for number in range(3)}
    before, after, p, q = "", "", "x", "x"
    for number, (relu, fused) in enumerate([("a", "u"), ("b", "v"), ("y", "y")]):
        before += f"c{number} = Conv({p}, w{number}) {relu} = Relu(c{number}) "
        after += f'{fused} = M.FusedConv<activation = "Relu">({q}, w{number}) '
        p, q = relu, fused
    nets = [
        model(f"g (float[1,3,9,9] x) => (float[1,3,3,3] y) {{ {t} }}", **stored)
        for t in (before, after)
    ]
    result = verify(*nets)
    assert [part.proven for part in result.parts] == ["these sizes"] * 3


@pytest.mark.parametrize(
    "row", ["y = Identity(a)", "b = Identity(a) c = Identity(b) y = Identity(c)"]
)
def test_a_value_behind_a_row_of_identities_is_found_under_the_last_name(row: str) -> None:
    branches = """then_branch = t () => (float[N] t) { t = Neg(x) },
        else_branch = e () => (float[N] e) { e = Abs(x) }"""
    graph = "g (float[N] x, bool s) => (float[N] y) { "
    original = model(f"{graph} a = If(s) <{branches}> {row} }}")
    converted = model(f"{graph} y = If(s) <{branches.replace('Neg(x)', 'Mul(x, $-1)')}> }}")
    (part,) = verify(original, converted).parts
    assert (part.op_type, part.graph) == ("Neg", "main graph > If a.then_branch")


def test_a_function_does_not_redefine_an_operator_of_onnxruntime() -> None:
    """Its own kernel runs."""
    given = PAIRS["fused product"][0]
    second = made(given, "y = M.FusedMatMul(x, GT)")
    text = '<opset_import: ["" : 17], domain: "com.microsoft"> FusedMatMul (a, b) => (c)'
    second.functions.append(parser.parse_function(f"{text} {{ d = Neg(a) c = MatMul(d, b) }}"))
    first = made(given, "d = Neg(x) y = MatMul(d, GT)")
    assert not prove(first, second).is_proven


@pytest.mark.parametrize(
    ("node", "op_type"),
    [
        ("r = Slice(c, nulls, twos, nulls)", "Slice"),
        ("r = Flatten<axis = 5>(c)", "Flatten"),
        ("r = Tile(c, one)", "Tile"),
        ("r = Transpose<perm = [0, -1]>(c)", "Transpose"),
        ("t = Equal(c, c) f = Add(t, t) r = Cast<to = 1>(f)", "Add"),
    ],
)
def test_constants_that_no_runtime_computes_are_not_folded(node: str, op_type: str) -> None:
    """onnx's evaluator computes all of them."""
    head = "g (float[2,2] x) => (float[?,?] y)"
    stored = """<float[2,2] c = {1, 2, 3, 4}, int64[2] nulls = {0, 0}, int64[2] twos = {2, 2},
        int64[1] one = {1}>"""
    before = model(f"{head} {stored} {{ y = Add(x, c) }}")
    after = model(f"{head} {stored} {{ {node} y = Add(x, r) }}")
    assert op_type in {n.op_type for n in after.graph.node}
    with pytest.raises(Exception, match=r"."):
        ort.InferenceSession(after.SerializeToString()).run(
            None, {"x": np.ones((2, 2), np.float32)}
        )
    assert not prove(before, after).is_proven


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

WIDE = 20
NET = {
    "w0": values(WIDE, 3, 3, 3),
    "b0": values(WIDE),
    "w1": values(WIDE, 1, 3, 3),
    "w2": values(12, WIDE, 1, 1),
}
PICTURE = "float[N,3,H,W] x"
PADS = "pads = [1, 1, 1, 1]"
STANDARD = f"""c = Conv<{PADS}>(x, w0, b0) r = Relu(c) d = Conv<{PADS}, group = {WIDE}>(r, w1)
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
    text = f"""b = nchwc.Conv<{PADS}, activation = "Relu">(x, w0, b0)
        d = nchwc.Conv<{PADS}, group = {len(apart)}>(b, w1, , b)
        p = nchwc.MaxPool<kernel_shape = [2, 2]>(d)
        o = nchwc.Conv(p, w2) y = nchwc.ReorderOutput<channels = 12>(o)"""
    return text, {n: np.ascontiguousarray(a) for n, a in stored.items()}


@pytest.mark.parametrize("size", [8, 16])
def test_blocks_of_channels_are_read_as_what_they_hold(size: int) -> None:
    text, stored = blocked(size)
    proofs = prove(made(PICTURE, STANDARD, **NET), made(PICTURE, text, **stored))
    assert proofs.is_proven, [proof.reason for _, proof in proofs.parts] + proofs.rest
    assumptions = {each for _, proof in proofs.parts for each in proof.assumptions}
    assert any(f"{size} channels in a block" in each for each in assumptions)


def moved(array: np.ndarray) -> np.ndarray:
    return np.roll(array.reshape(-1), 1).reshape(array.shape)


def with_a_bit(array: np.ndarray) -> np.ndarray:
    result = array.copy()
    result.reshape(-1).view(np.uint32)[0] ^= 1
    return result


def with_a_filled_channel(array: np.ndarray) -> np.ndarray:
    result = array.copy()
    result.reshape(-1)[(1 * 16 + 8) * 16] = 1  # of channel 24, which only fills a block
    return result


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("channels = 12", "channels = 11"),
        ("o = nchwc.Conv(p, w2)", "t = Tanh(x) o = nchwc.Conv(t, w2)"),
        ("y = nchwc.ReorderOutput<channels = 12>(o)", "y = Identity(o)"),
        *((name, change) for name in ("w1", "w2") for change in (moved, with_a_bit)),
        ("w2", with_a_filled_channel),
    ],
)
def test_other_blocks_of_channels_are_not_proven(old: str, new: Any) -> None:
    text, stored = blocked(16)
    if isinstance(new, str):
        text = text.replace(old, new)
    else:
        stored[old] = np.ascontiguousarray(new(stored[old]))
    assert not prove(made(PICTURE, STANDARD, **NET), made(PICTURE, text, **stored)).is_proven


# What only looks the same

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

    def two_sites(z: str, functions: str = "", **arrays: object) -> onnx.ModelProto:
        site = f"{BLOCK.format(2)} y = tf.SpaceToBatchND(x, block, pads)"
        text = f"g (float[N, W, C] x) => (float[a, b, c] y, float[d, e, f] z) {{ {site} {z} }}"
        return model(f"{text} {functions}", **arrays)

    numbers = {"i0": 0, "i1": 1, "i2": 2, "two": 2, "two1": [2], "ax": [0]}
    weights = {name: np.array(value, np.int64) for name, value in numbers.items()}
    original, converted = two_sites("z = loc.F(x)", BY_THREE), two_sites(BY_TWO, **weights)
    assert verify(original, converted, domains=["tf"]).evidence != "proven"


@pytest.mark.parametrize(
    "body",
    [
        "y = Mul(x, w)",
        "c = Constant<value = float[1] {%s}>() y = Mul(x, c)",
        "s = Shape(x) y = ConstantOfShape<value = float[1] {%s}>(s)",
    ],
)
def test_numbers_in_other_files_are_compared_by_their_bytes(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for folder, number in (("a", 1.0), ("b", 1.5)):
        text = body.replace("%s", str(number))
        weight = np.full(4, number, np.float32)
        whole = model(f"g (float[N,4] x) => (float[N,4] y) {{ {text} }}", w=weight)
        for tensor in (a.t for node in whole.graph.node for a in node.attribute):
            tensor.CopyFrom(onnx.numpy_helper.from_array(weight[:1]))  # only raw data is external
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "model.onnx")
        stored = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
        onnx.save(whole, paths[-1], **stored, convert_attribute=True)
    monkeypatch.chdir(tmp_path / "a")  # where a file of this name lies, too
    assert prove(paths[0], paths[0]).is_proven
    assert not prove(*paths).is_proven


def test_a_shape_that_only_the_converted_model_declares_narrows_it() -> None:
    free = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    fixed = onnx.ModelProto.FromString(free.SerializeToString())
    for value in (free.graph.input[0], free.graph.output[0], fixed.graph.output[0]):
        value.type.tensor_type.ClearField("shape")
    result = verify(free, fixed, inputs={"x": np.ones((2, 3), np.float32)})
    assert result.evidence != "proven" and result.unproven
