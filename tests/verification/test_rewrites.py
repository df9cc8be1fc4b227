"""Rewrites as other tools make them: right ones are proven, near misses never; runs tell them apart."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from adapter import prove
from onnx import numpy_helper, parser

from onnx_spatial.maps.compare import FOLDED

rng = np.random.default_rng(7)


def values(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


W, B, S, T, M = values(4, 3, 3, 3), values(4), values(4), values(4), values(4)
V = np.abs(values(4)) + np.float32(0.5)
WT, G = values(3, 4, 2, 2), values(5, 6)
FACTOR = S / np.sqrt(V + np.float32(1e-3))
CHANNELS = (4, 1, 1, 1)
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
}
IMAGE, TABLE = "float[1,3,H,7] x", "float[N,6] x"
CONV = "Conv<pads = [1, 1, 1, 1]>"
BN = "BatchNormalization<epsilon = 0.001>"
FUSED = 'com.microsoft.FusedConv<activation = "{}", pads = [1, 1, 1, 1]{}>(x, W, B)'

#: Inputs, the original, a right rewrite, and wrong ones.
REWRITES: dict[str, tuple[str, str, str, list[str]]] = {
    "batch normalization": (
        IMAGE,
        f"c = {CONV}(x, W, B) y = {BN}(c, S, T, M, V)",
        f"y = {CONV}(x, W_folded, B_folded)",
        [
            f"y = {CONV}(x, W_other, B_folded)",
            f"y = {CONV}(x, W_close, B_folded)",
            f"y = {CONV}(x, W_folded, B_close)",
            f"c = {CONV}(x, W, B) y = BatchNormalization<epsilon = 0.0011>(c, S, T, M, V)",
            f"c = {CONV}(x, W_bit, B) y = {BN}(c, S, T, M, V)",
        ],
    ),
    "transposed convolution": (
        IMAGE,
        f"c = ConvTranspose(x, WT) y = {BN}(c, S, T, M, V)",
        "y = ConvTranspose(x, WT_folded, BT_folded)",
        ["y = ConvTranspose(x, WT_folded, T)", "y = ConvTranspose(x, WT, BT_folded)"],
    ),
    "factor": (
        IMAGE,
        f"c = {CONV}(x, W, B) y = Mul(S3, c)",
        f"y = {CONV}(x, W_times, B_times)",
        [f"y = {CONV}(x, W_times, B)", f"y = {CONV}(x, W, B_times)"],
    ),
    "summand": (
        IMAGE,
        f"c = {CONV}(x, W, B) y = Add(c, T3)",
        f"y = {CONV}(x, W, B_sum)",
        [
            f"y = {CONV}(x, W_bit, B_sum)",
        ],
    ),
    "bias": (
        IMAGE,
        f"c = {CONV}(x, W) y = Add(c, T3)",
        f"y = {CONV}(x, W, T)",
        [f"y = {CONV}(x, W_bit, T)", f"y = {CONV}(x, W, B)"],
    ),
    "gemm": (
        TABLE,
        "m = MatMul(x, GT) y = Add(GB, m)",
        "y = Gemm<transB = 1>(x, G, GB)",
        ["m = MatMul(x, GT) y = Sub(m, GB)", "y = Gemm<transB = 1, beta = 2.0>(x, G, GB)"],
    ),
    "fused convolution": (
        IMAGE,
        f"c = {CONV}(x, W, B) y = LeakyRelu<alpha = 0.2>(c)",
        f"y = {FUSED.format('LeakyRelu', ', activation_params = [0.2]')}",
        [
            f"y = {FUSED.format('LeakyRelu', ', activation_params = [0.3]')}",
            f"y = {FUSED.format('Tanh', ', dilations = [2, 2]')}",
        ],
    ),
    "fused product": (
        "float[2,6] x",
        "t = Transpose(G) y = MatMul(x, t)",
        "y = com.microsoft.FusedMatMul<transB = 1>(x, G)",
        ["y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.25>(x, G)"],
    ),
    "casts": (
        "float16[N,6] x",
        "a = Cast<to = 1>(x) y = Cast<to = 10>(a)",
        "y = Identity(x)",
        ["a = Cast<to = 6>(x) y = Cast<to = 10>(a)", "y = Neg(x)"],
    ),
    "mirror": (
        "float[2,6] x",
        'y = Pad<mode = "reflect">(x, P)',
        "y = Gather<axis = 1>(x, R)",
        ['y = Pad<mode = "edge">(x, P)', "y = Gather<axis = 1>(x, E)", "y = Pad(x, P)"],
    ),
    "mirror of any size": (  # a run fails where the mirror is wider than the data
        "float[N,6] x",
        'a = Pad<mode = "reflect">(x, P) y = Neg(a)',
        'b = Neg(x) y = Pad<mode = "reflect">(b, P)',
        ['b = Neg(x) t = Transpose(b) u = Pad<mode = "reflect">(t, P) y = Transpose(u)'],
    ),
    "factor of 1": (  # but -0.0 + 0.0 is 0.0
        TABLE,
        "y = Identity(x)",
        "a = Mul(half_twice, x) b = Div(a, half_twice) y = Sub(b, zero)",
        [
            "y = Add(x, zero)",
            "y = Sub(x, minus_zero)",
            "y = Div(half_twice, x)",
            "y = Mul(x, half)",
        ],
    ),
    "global pool": (
        IMAGE,
        "a = Mul(x, half_twice) y = GlobalAveragePool(a)",
        "y = GlobalAveragePool(x)",
        ["y = GlobalMaxPool(x)", "y = ReduceMax<axes = [2, 3]>(x)"],
    ),
    "mean of one element": (
        "float[N,1] x",
        "y = ReduceMean<axes = [1]>(x)",
        "y = Identity(x)",
        ["y = ReduceMean<axes = [0]>(x)", "y = ReduceL1<axes = [1]>(x)"],
    ),
    "common subexpression": (
        TABLE,
        "a = Tanh(x) b = Tanh(x) y = Mul(a, b)",
        "a = Tanh(x) y = Mul(a, a)",
        ["a = Tanh(x) y = Mul(a, x)"],
    ),
}
WRONG = [(n, i) for n, (*_, wrong) in REWRITES.items() for i in range(len(wrong))]


def made(name: str, body: str) -> onnx.ModelProto:
    given = REWRITES[name][0] if name in REWRITES else name
    kind = "float16" if "float16" in given else "float"
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = parser.parse_model(f"{head} g ({given}) => ({kind}[] y) {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    read = {i for n in model.graph.node for i in n.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in STORED.items() if n in read
    )
    return model


def runs(name: str, body: str) -> list[np.ndarray] | None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    results, source = [], np.random.default_rng(3)
    try:
        session = ort.InferenceSession(made(name, body).SerializeToString(), options)
        for size in (1, 4, 5):
            (given,) = session.get_inputs()
            shape = [d if isinstance(d, int) else size for d in given.shape]
            kind = np.float16 if "16" in given.type else np.float32
            results += session.run(None, {"x": source.normal(0, 3, shape).astype(kind)})
    except Exception:  # onnxruntime's errors have no common class
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


def test_a_proof_says_that_weights_were_folded_and_only_then() -> None:
    for name, is_folded in (("batch normalization", True), ("summand", True), ("bias", False)):
        _, before, after, _ = REWRITES[name]
        ((_, proof),) = prove(made(name, before), made(name, after)).parts
        assert (FOLDED in proof.assumptions) == is_folded


#: Constants that are no fold, or whose rounding is not known.
DECEPTIONS = {
    "what cancels is not known": (
        f"c = {CONV}(x, W, large) y = {BN}(c, S, T, large, V)",
        f"y = {CONV}(x, W_folded, five)",
    ),
    "both sides have steps": (
        f"c = {CONV}(x, W, B) y = Mul(c, S3)",
        f"c = {CONV}(x, W_times, B_times) y = Mul(c, U)",
    ),
    "a variance below zero": (
        f"c = {CONV}(x, W, B) y = {BN}(c, S, T, M, N)",
        f"y = {CONV}(x, W_folded, B_folded)",
    ),
    "functions of folded numbers": (
        f"c = {CONV}(x, W, B) d = {BN}(c, S, T, M, V) y = Floor(d)",
        f"c = {CONV}(x, W_close, B_folded) y = Floor(c)",
    ),
}


@pytest.mark.parametrize("name", DECEPTIONS)
def test_deceptions_are_never_proven(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORED, "N", -V)
    monkeypatch.setitem(STORED, "U", np.nextafter(np.ones((3, 1, 1), np.float32), 2))
    before, after = (order(made(IMAGE, body)) for body in DECEPTIONS[name])
    assert not prove(before, after).is_proven


def order(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its constants in front."""
    nodes = sorted(model.graph.node, key=lambda node: node.op_type != "Constant")
    unsqueezed = sorted(nodes, key=lambda node: node.op_type not in ("Constant", "Unsqueeze"))
    del model.graph.node[:]
    model.graph.node.extend(unsqueezed)
    return model


@pytest.mark.parametrize(
    ("given", "before", "after"),
    [
        ("float[1,3,7,7] x, float[1,4,1,1] s", "Conv(x, W) z = Add(c, s)", "(x, W, B, s)"),
        ("double[1,3,7,7] x", "Conv(x, W) z = Relu(c)", "(x, W)"),
    ],
)
def test_fused_operators_are_proven_where_they_run(given: str, before: str, after: str) -> None:
    first = made(given, f"c = {before} y = Identity(z)")
    second = made(given, f'y = com.microsoft.FusedConv<activation = "Relu">{after}')
    assert not prove(first, second).is_proven


def test_a_function_does_not_redefine_an_operator_of_onnxruntime() -> None:
    """Its own kernel runs."""
    given = REWRITES["fused product"][0]
    second = made(given, "y = com.microsoft.FusedMatMul(x, GT)")
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
    head = '<ir_version: 9, opset_import: ["" : 17]> g (float[2,2] x) => (float[?,?] y)'
    stored = """<float[2,2] c = {1, 2, 3, 4}, int64[2] nulls = {0, 0}, int64[2] twos = {2, 2},
        int64[1] one = {1}>"""
    before = parser.parse_model(f"{head} {stored} {{ y = Add(x, c) }}")
    after = parser.parse_model(f"{head} {stored} {{ {node} y = Add(x, r) }}")
    assert op_type in {n.op_type for n in after.graph.node}
    with pytest.raises(Exception, match=r"."):
        ort.InferenceSession(after.SerializeToString()).run(
            None, {"x": np.ones((2, 2), np.float32)}
        )
    assert not prove(before, after).is_proven
