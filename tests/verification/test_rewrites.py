"""Rewrites as other tools make them: right ones are proven, near misses never; runs tell them apart."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from adapter import prove
from onnx import numpy_helper, parser

from onnx_spatial.maps.algebra import FOLDED, REWRITTEN

rng = np.random.default_rng(7)


def values(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


W, B, S, T, M = values(4, 3, 3, 3), values(4), values(4), values(4), values(4)
V = np.abs(values(4)) + np.float32(0.5)
WT, G, H = values(3, 4, 2, 2), values(5, 6), values(6)
EPSILON = np.float32(1e-3)
FACTOR = S / np.sqrt(V + EPSILON)
CHANNELS = (4, 1, 1, 1)
STORED = {
    **{"W": W, "B": B, "S": S, "T": T, "M": M, "V": V, "WT": WT, "G": G, "H": H},
    "W_folded": W * FACTOR.reshape(CHANNELS),
    "W_twice": W * (FACTOR * FACTOR).reshape(CHANNELS),
    "W_other": W * np.roll(FACTOR, 1).reshape(CHANNELS),
    "W_input": W * FACTOR[:3].reshape(1, 3, 1, 1),
    "W_close": W * FACTOR.reshape(CHANNELS) * np.float32(1 + 2e-5),
    "B_folded": (B - M) * FACTOR + T,
    "B_other": (B + M) * FACTOR + T,
    "WT_folded": WT * FACTOR.reshape(1, 4, 1, 1),
    "W_times": W * S.reshape(CHANNELS),
    "B_times": B * S,
    "GB": values(5),
    "S3": S.reshape(4, 1, 1),
    "G_half": G * np.float32(0.5),
    "GT": np.ascontiguousarray(G.T),
    "x255": np.float32(1 / 255),
    "c255": np.float32(255),
    "x254": np.float32(1 / 254),
    "zero": np.float32(0),
    "one": np.float32(1),
    "two": np.float32(2),
    "three": np.float32(3),
    "six": np.float32(6),
    "half": np.float32(0.5),
    "root": np.float32(np.sqrt(2)),
    "tiny": np.float32(1e-5),
    "LS": values(6),
    "LB": values(6),
    "last": np.array([-1]),
    "first": np.array([0]),
    "ax1": np.array([1]),
    "grid": np.clip(values(1, 5, 5, 2), -0.9, 0.9),
    "sizes": np.array([1, 3, 12, 12]),
    "RW": values(1, 8, 6),
    "RR": values(1, 8, 8),
    "RW2": values(1, 8, 6),
    "I0": np.array([0, 1], np.int64),
    "I1": np.array([1], np.int64),
    "k3": np.array(3),
    "k4": np.array(4),
    "yes": np.array(True),
    "ln_shape": np.array([1, 3, 6, 6]),
}
IMAGE, TABLE = "float[1,3,H,7] x", "float[N,6] x"

CONV = "c = Conv<pads = [1, 1, 1, 1]>(x, W, B)"
BN = "BatchNormalization<epsilon = 0.001>"
LN = """m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = {square} v = ReduceMean<axes = [{axis}]>(q)
    e = Add(v, tiny) r = Sqrt(e) n = Div(d, r) s = Mul(n, LS) y = Add(s, LB)"""
LOOP = """y = Loop ({trips}, yes, x) < body = turn (int64 i, bool go, float[N,6] a)
    => (bool go2, float[N,6] a2) {{ go2 = Identity(go) a2 = {step} }} >"""
FUSED = 'com.microsoft.FusedConv<activation = "{act}", pads = [1, 1, 1, 1]{more}>(x, W, B)'

#: Inputs, the original, a right rewrite, and wrong ones.
REWRITES: dict[str, tuple[str, str, str, list[str]]] = {
    "batch normalization": (
        IMAGE, f"{CONV} y = {BN}(c, S, T, M, V)",
        "y = Conv<pads = [1, 1, 1, 1]>(x, W_folded, B_folded)",
        [
            "y = Conv<pads = [1, 1, 1, 1]>(x, W_twice, B_folded)",
            "y = Conv<pads = [1, 1, 1, 1]>(x, W_other, B_folded)",
            "y = Conv<pads = [1, 1, 1, 1]>(x, W_input, B_folded)",
            "y = Conv<pads = [1, 1, 1, 1]>(x, W_close, B_folded)",
            "y = Conv<pads = [1, 1, 1, 1]>(x, W_folded, B_other)",
            "y = Conv<pads = [1, 1, 1, 1]>(x, W_folded, T)",
            "y = Conv<pads = [1, 1, 1, 1]>(x, W_folded)",
            "y = Conv<pads = [0, 1, 2, 1]>(x, W_folded, B_folded)",
            f"{CONV} y = BatchNormalization<epsilon = 0.0011>(c, S, T, M, V)",
            f"{CONV} y = {BN}(c, S, T, V, V)",
        ],
    ),
    "batch normalization in front": (  # the padding is not normalized
        IMAGE, "n = Mul(x, two) y = Conv<pads = [1, 1, 1, 1]>(n, W, B)",
        "c = Conv<pads = [1, 1, 1, 1]>(x, W) d = Mul(c, two) e = Unsqueeze(B, axes) y = Add(d, e)"
        " axes = Constant<value_ints = [1, 2]>()",
        ["d = Add(x, two) y = Conv<pads = [1, 1, 1, 1]>(d, W, B)", "y = Conv(x, W, B)"],
    ),
    "transposed convolution": (
        IMAGE, f"c = ConvTranspose<strides = [2, 2]>(x, WT) y = {BN}(c, S, T, M, V)",
        "c = ConvTranspose<strides = [2, 2]>(x, WT_folded, k)"
        " y = Identity(c) q = Mul(M, f) k = Sub(T, q) f = Div(S, r) r = Sqrt(v) v = Add(V, e)"
        " e = Constant<value_float = 0.001>()",
        ["y = ConvTranspose<strides = [2, 2]>(x, WT_folded, T)",
         f"c = ConvTranspose<strides = [2, 2], dilations = [2, 2]>(x, WT) y = {BN}(c, S, T, M, V)",
         f"c = ConvTranspose<strides = [2, 2], output_padding = [1, 0]>(x, WT) y = {BN}(c, S, T, M, V)"],
    ),
    "factor": (
        IMAGE, f"{CONV} y = Mul(c, S3)", "y = Conv<pads = [1, 1, 1, 1]>(x, W_times, B_times)",
        ["y = Conv<pads = [1, 1, 1, 1]>(x, W_times, B)",
         "y = Conv<pads = [1, 1, 1, 1]>(x, W, B_times)"],
    ),
    "division": (
        TABLE, "y = Div(x, c255)", "y = Mul(x, x255)", ["y = Mul(x, x254)", "y = Div(c255, x)"],
    ),
    "gemm": (
        TABLE, "y = Gemm<transB = 1, alpha = 0.5>(x, G)", "y = MatMul(x, t) t = Mul(GT, half)",
        ["y = MatMul(x, GT)", "y = Gemm<transB = 1, alpha = 2.0>(x, G)",
         "m = MatMul(x, GT) y = Add(m, half)"],
    ),
    "matmul and add": (
        TABLE, "m = MatMul(x, GT) y = Add(GB, m)", "y = Gemm<transB = 1>(x, G, GB)",
        ["m = MatMul(x, GT) y = Sub(m, GB)", "y = Gemm<transB = 1, beta = 2.0>(x, G, GB)"],
    ),
    "power": (
        TABLE, "y = Pow(x, two)", "y = Mul(x, x)",
        ["y = Pow(x, three)", "y = Mul(x, two)", "a = Mul(x, x) y = Mul(a, x)"],
    ),
    "root": (
        TABLE, "a = Abs(x) y = Pow(a, half)", "a = Abs(x) y = Sqrt(a)", ["y = Abs(x)"],
    ),
    "hard swish": (
        TABLE, "y = HardSwish(x)", "s = HardSigmoid<alpha = 0.16666667>(x) y = Mul(x, s)",
        ["s = HardSigmoid(x) y = Mul(x, s)", "y = HardSigmoid<alpha = 0.16666667>(x)",
         "s = HardSigmoid<alpha = 0.16666667, beta = 0.6>(x) y = Mul(s, x)"],
    ),
    "clip": (
        TABLE, "y = Relu(x)", "y = Clip(x, zero)",
        ["y = Clip(x, zero, six)", "y = Clip(x, one)", "y = Abs(x)", "y = LeakyRelu(x)"],
    ),
    "bounds": (
        TABLE, "y = Clip(x, zero, one)", "a = Relu(x) y = Min(one, a)",
        ["y = Clip(x, one, zero)", "a = Relu(x) y = Max(one, a)", "y = Clip(x, zero, two)"],
    ),
    "gelu": (
        TABLE, "a = Div(x, root) e = Erf(a) p = Add(e, one) m = Mul(x, p) y = Mul(m, half)",
        "h = Mul(half, x) a = Div(x, root) e = Erf(a) p = Add(one, e) y = Mul(p, h)",
        ["h = Mul(half, x) a = Mul(x, root) e = Erf(a) p = Add(one, e) y = Mul(p, h)",
         "h = Mul(half, x) a = Div(x, root) e = Tanh(a) p = Add(one, e) y = Mul(p, h)",
         "h = Mul(half, x) a = Div(x, root) e = Erf(a) p = Sub(one, e) y = Mul(p, h)"],
    ),
    "swish": (
        TABLE, "s = Sigmoid(x) y = Mul(x, s)", "y = com.microsoft.QuickGelu<alpha = 1.0>(x)",
        ["y = com.microsoft.QuickGelu(x)", "y = com.microsoft.QuickGelu<alpha = -1.0>(x)",
         "y = Sigmoid(x)"],
    ),
    "softmax": (
        TABLE, "y = Softmax<axis = 1>(x)",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) y = Div(e, s)",
        ["m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, first) y = Div(e, s)",
         "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(d, last) y = Div(e, s)",
         "y = Softmax<axis = 0>(x)", "y = LogSoftmax(x)"],
    ),
    "layer normalization": (
        TABLE, LN.format(square="Pow(d, two)", axis=1),
        "y = LayerNormalization<epsilon = 0.00001>(x, LS, LB)",
        [LN.format(square="Mul(d, m)", axis=1), LN.format(square="Mul(x, x)", axis=1),
         LN.format(square="Mul(d, d)", axis=0),
         "y = LayerNormalization<epsilon = 0.01>(x, LS, LB)",
         "y = LayerNormalization(x, LB, LS)", "y = LayerNormalization(x, LS)"],
    ),
    "global pool": (
        IMAGE, "y = GlobalAveragePool(x)", "y = ReduceMean<axes = [2, 3]>(x)",
        ["y = ReduceMax<axes = [2, 3]>(x)", "y = GlobalMaxPool(x)",
         "a = ReduceMean<axes = [2]>(x) y = ReduceMax<axes = [3]>(a)"],
    ),
    "grid sample": (
        IMAGE, "a = Identity(x) g = Mul(grid, one) y = GridSample(a, g)", "y = GridSample(x, grid)",
        ["y = GridSample<mode = \"nearest\">(x, grid)", "g = Neg(grid) y = GridSample(x, g)",
         "y = GridSample<align_corners = 1>(x, grid)", "n = Neg(x) y = GridSample(n, grid)"],
    ),
    "resize": (
        "float[1,3,6,6] x", "a = Neg(x) b = Neg(a) y = Resize<mode = \"linear\">(b, , , sizes)",
        "y = Resize<mode = \"linear\">(x, , , sizes)",
        ["y = Resize<mode = \"nearest\">(x, , , sizes)", "y = Resize<mode = \"cubic\">(x, , , sizes)",
         "y = Resize<mode = \"linear\", coordinate_transformation_mode = \"align_corners\">"
         "(x, , , sizes)"],
    ),
    "recurrent": (
        "float[5,2,6] x", "a = Mul(x, one) y = RNN<hidden_size = 8>(a, RW, RR)",
        "y = RNN<hidden_size = 8>(x, RW, RR)",
        ["y = RNN<hidden_size = 8>(x, RW2, RR)",
         "y = RNN<hidden_size = 8, direction = \"reverse\">(x, RW, RR)",
         "y = RNN<hidden_size = 8, activations = [\"Relu\"]>(x, RW, RR)"],
    ),
    "loop": (
        TABLE, LOOP.format(trips="t", step="Neg(a)") + " t = Add(k3, k0) k0 = Constant<value_int = 0>()",
        LOOP.format(trips="k3", step="Neg(a)"),
        [LOOP.format(trips="k4", step="Neg(a)"), LOOP.format(trips="k3", step="Abs(a)")],
    ),
    "fused convolution": (
        IMAGE, f"{CONV} y = LeakyRelu<alpha = 0.2>(c)",
        "y = " + FUSED.format(act="LeakyRelu", more=", activation_params = [0.2]"),
        ["y = " + FUSED.format(act="LeakyRelu", more=", activation_params = [0.3]"),
         "y = " + FUSED.format(act="Relu", more=""),
         "y = " + FUSED.format(act="Relu", more=", dilations = [2, 2]")],
    ),
    "fused product": (
        "float[2,6] x", "t = Transpose(G) m = MatMul(x, t) y = Mul(m, half)",
        "y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.5>(x, G)",
        ["y = com.microsoft.FusedMatMul<transB = 1>(x, G)",
         "y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.25>(x, G)"],
    ),
    "casts": (
        "float16[N,6] x", "a = Cast<to = 1>(x) y = Cast<to = 10>(a)", "y = Identity(x)",
        ["a = Cast<to = 6>(x) y = Cast<to = 10>(a)", "y = Neg(x)"],
    ),
    "mirror": (
        "float[2,6] x", "y = Pad<mode = \"reflect\">(x, p) p = Constant<value_ints = [0, 2, 0, 1]>()",
        "a = Gather<axis = 1>(x, i) y = Identity(a) i = Constant<value_ints = [2,1,0,1,2,3,4,5,4]>()",
        ["y = Pad<mode = \"edge\">(x, p) p = Constant<value_ints = [0, 2, 0, 1]>()",
         "y = Pad<mode = \"reflect\">(x, p) p = Constant<value_ints = [0, 1, 0, 2]>()"],
    ),
    "edge": (
        "float[2,6] x", "y = Pad<mode = \"edge\">(x, p) p = Constant<value_ints = [0, 2, 0, 1]>()",
        "y = Gather<axis = 1>(x, i) i = Constant<value_ints = [0,0,0,1,2,3,4,5,5]>()",
        ["y = Pad(x, p) p = Constant<value_ints = [0, 2, 0, 1]>()"],
    ),
    "common subexpression": (
        TABLE, "a = Tanh(x) b = Tanh(x) y = Mul(a, b)", "a = Tanh(x) y = Mul(a, a)",
        ["a = Tanh(x) y = Mul(a, x)"],
    ),
}  # fmt: skip
WRONG = [(n, i) for n, (*_, wrong) in REWRITES.items() for i in range(len(wrong))]


def made(name: str, body: str) -> onnx.ModelProto:
    given = REWRITES[name][0]
    kind = "float16" if "float16" in given else "float"
    # Values inside have other names in each model, as tools write them.
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = parser.parse_model(f"{head} g ({given}) => ({kind}[] y) {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    if "HardSwish" in body or "Gelu" in body:
        model.opset_import[0].version = 17
    read = {i for n in model.graph.node for i in n.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in STORED.items() if n in read
    )
    order(model.graph)
    return model


def order(graph: onnx.GraphProto) -> None:
    from onnx_spatial.model import traversal

    nodes = list(traversal.in_order(graph))
    del graph.node[:]
    graph.node.extend(nodes)


def runs(name: str, body: str) -> list[np.ndarray] | None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(made(name, body).SerializeToString(), options)
        source = np.random.default_rng(3)
        results = []
        for size in (1, 4, 5):
            (given,) = session.get_inputs()
            shape = [d if isinstance(d, int) else size for d in given.shape]
            kind = np.float16 if "16" in given.type else np.float32
            results += session.run(None, {"x": source.normal(0, 3, shape).astype(kind)})
    except Exception:  # of the runtime: the model is invalid
        return None
    return results


@pytest.mark.parametrize("name", REWRITES)
def test_right_rewrites_are_proven_and_run_alike(name: str) -> None:
    _, before, after, _ = REWRITES[name]
    proofs = prove(made(name, before), made(name, after))
    assert proofs.is_proven, [proof.reason for _, proof in proofs.parts] + proofs.rest
    expected, actual = runs(name, before), runs(name, after)
    assert expected is not None and actual is not None
    for a, b in zip(expected, actual, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4 * np.abs(a).max())


@pytest.mark.parametrize(("name", "number"), WRONG)
def test_near_misses_are_never_proven(name: str, number: int) -> None:
    _, before, _, wrong = REWRITES[name]
    assert not prove(made(name, before), made(name, wrong[number])).is_proven
    expected, actual = runs(name, before), runs(name, wrong[number])
    assert expected is not None
    assert actual is None or any(
        a.shape != b.shape or np.abs(a - b).max() > 2e-6 * np.abs(a).max()
        for a, b in zip(expected, actual, strict=True)
    )


def test_a_proof_says_that_constants_were_folded_and_formulas_written_anew() -> None:
    _, before, after, _ = REWRITES["batch normalization"]
    ((_, proof),) = prove(
        made("batch normalization", before), made("batch normalization", after)
    ).parts
    assert {FOLDED, REWRITTEN} <= set(proof.assumptions)
    _, before, after, _ = REWRITES["casts"]
    for _, proof in prove(made("casts", before), made("casts", after)).parts:
        assert not {FOLDED, REWRITTEN} & set(proof.assumptions)
