"""Every element type: compared, made up, fed and fetched bit for bit; what is said if a run fails.

That sessions and onnx's evaluator both give what they must is what test_grid.py and tests/golden hold.
"""

import numpy as np
import onnx
import pytest
from adapter import verify
from building import one_node
from definitions import space_to_batch
from onnx import TensorProto
from parsing import model
from running import same_bits

from onnx_spatial import UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.python_ops import registration
from onnx_spatial.verification import evaluate
from onnx_spatial.verification.run.data import patterns, usual
from onnx_spatial.verification.run.run_error import RunError
from onnx_spatial.verification.run.sessions import Original, Session
from onnx_spatial.verification.values import differing_bits, dtype_of

TYPES = [
    *("float16", "bfloat16", "float", "double", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool", "string"),
]

UNPADDED = """
g (TYPE[N,4,6,3] x) => (TYPE[P,Q,R,S] y) <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0},
   int64[6] s = {-1, 2, 2, 2, 3, 3}, int64[4] m = {-1, 2, 2, 3}>
{ BODY }
"""
SITE = "[site] y = tf.SpaceToBatchND(x, block, none)"
LOWERED = "a = Reshape(x, s)\n b = Transpose<perm = [2, 4, 0, 1, 3, 5]>(a)\n y = Reshape(b, m)"


@pytest.mark.parametrize("element_type", TYPES)
def test_pass_and_fail(element_type: str) -> None:
    text = UNPADDED.replace("TYPE", element_type)
    original = model(text.replace("BODY", SITE))
    result = verify(original, model(text.replace("BODY", LOWERED)))
    assert result, result.message
    assert result.evidence == "proven" and result.operators[0].ran
    wanted = {"float": "float32", "double": "float64"}.get(element_type, element_type)
    assert result.outputs[0].dtype == wanted
    short = "h = Cast<to = 6>(x)\n w = Cast<to = 7>(h)\n a = Reshape(w, s)"  # what 32 bits hold
    wrong = [LOWERED.replace("2, 4, 0", "2, 0, 4"), LOWERED.replace("a = Reshape(x, s)", short)]
    for body in wrong if element_type == "int64" else wrong[:1]:
        assert verify(original, model(text.replace("BODY", body))).status == "failed"


def test_patterns_hold_the_corners() -> None:
    array = patterns(TensorProto.FLOAT, (200,), np.random.default_rng(0))
    bits = set(array.view(np.uint32).tolist())
    assert len(bits) == array.size
    assert {0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x00000001} <= bits
    half = patterns(TensorProto.FLOAT16, (70000,), np.random.default_rng(0)).view(np.uint16)
    assert 65536 - 2 * 511 - 20 < len(set(half.tolist())) <= 65536 - 2 * 511  # no signalling NaNs
    strings = patterns(TensorProto.STRING, (9,), np.random.default_rng(0)).tolist()
    assert "" in strings
    assert set(patterns(TensorProto.BOOL, (5,), np.random.default_rng(0)).tolist()) == {True, False}


# Types that numpy lacks, in onnxruntime

SHORT = [
    *("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    *("int4", "uint4"),
]
CAST = "g (TYPE[N,5] x) => (float[N,5] y) { y = Cast<to = 1>(x) }"
BACK = "g (float[N,5] x) => (TYPE[N,5] y) { y = Cast<to = NUMBER>(x) }"


def number(name: str) -> int:
    return int(getattr(TensorProto, name.upper()))


def data(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return patterns(number(name), shape, np.random.default_rng(0))


@pytest.mark.skipif(not hasattr(TensorProto, "FLOAT6E2M3"), reason="onnx has no such type, either")
def test_tensors_that_onnxruntime_has_not_are_told_from_a_failure() -> None:
    session = Session(model("g (float[N] x) => (float[N] y) { y = Neg(x) }").SerializeToString())
    with pytest.raises(RunError, match="not supported") as caught:
        session.run({"x": np.zeros(3, dtype_of(number("float6e2m3")))})
    assert caught.value.lacks_kernel


def test_only_bits_that_count_are_compared() -> None:
    dtype = dtype_of(number("int4"))
    ours, theirs = (np.array([v], np.uint8).view(dtype) for v in (0xFB, 0x0B))  # both are -5
    assert not differing_bits(ours, theirs).any()
    assert differing_bits(ours, np.array([0x0A], np.uint8).view(dtype)).all()


@pytest.mark.parametrize("name", SHORT)
def test_whole_models_run_on_them(name: str) -> None:
    for text in (CAST, BACK.replace("NUMBER", str(number(name)))):
        whole = model(text.replace("TYPE", name), 21, 10)
        assert verify(whole, whole).status == "passed"


def test_strings_may_be_fed_beside_them() -> None:
    text = """g (bfloat16[2] x, string[2] s) => (float[2] y, string[2] t)
        { y = Cast<to = 1>(x) t = Identity(s) }"""
    x = usual(TensorProto.BFLOAT16, (2,), np.random.default_rng(0))
    s = np.array(["a", "\u00e9"], object)
    given = Session(model(text, 21, 10).SerializeToString()).run({"x": x, "s": s})
    assert list(given["t"]) == list(s)
    np.testing.assert_array_equal(given["y"], x.astype(np.float32))


KINDS = ("session", "evaluator")
X = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
BLOCK, NONE = np.array([2, 2]), np.zeros((2, 2), np.int64)


@pytest.fixture(name="opened", params=KINDS)
def opener(request, monkeypatch):
    """Opens models in a session, or, as if onnxruntime-extensions were missing, in the evaluator."""
    if request.param == "evaluator":
        monkeypatch.setattr(registration, "available", lambda: False)
    elif not registration.available():
        pytest.skip("needs onnxruntime-extensions")

    def opened(model, *arguments, **named):
        original = Original(reader.read(model), *arguments, **named).open()
        assert original.kind == request.param
        return original

    opened.kind = request.param
    return opened


# Values, types and domains


def two_operators() -> onnx.ModelProto:
    text = """g (float[2,4,6,3] x) => (float[A,B,C,D] y)
        <int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}> {
            s = SpaceToBatchND(x, block, none) e = Neg(s) y = BatchToSpaceND(e, block, none)
        }"""
    return model(text)


@pytest.mark.parametrize("name", ["complex64", "float8e4m3fn", "float8e5m2", "int4", "uint4"])
def test_every_bit_of_types_that_only_the_evaluator_has_survives(name):
    x = patterns(number(name), X.shape, np.random.default_rng(0))
    model = two_operators()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = number(name)
    model.graph.node[1].op_type = "Identity"
    model.opset_import[0].version, model.ir_version = 21, 10
    original = Original(reader.read(model), values=["s"]).open()
    assert original.kind == "evaluator"
    outputs = original.run({"x": x})
    assert same_bits(outputs["y"], x)
    padded = one_node("SpaceToBatchND", (x, BLOCK, NONE + 1), opset=21)
    result = Original(reader.read(padded)).open().run({"x": x})["y"]
    assert result.shape == (8, 3, 4, 3)
    assert (result[0, 0] == dtype_of(number(name)).type(0)).all()


def test_data_whose_type_nobody_infers_is_padded():
    """onnx infers nothing behind an operator of com.microsoft."""
    text = """g (float[2,4,6,3] x) => (float[A,B,C,D] y)
        <int64[2] block = {2, 2}, int64[2,2] one = {1, 1, 1, 1}> {
            h = M.Gelu(x) y = SpaceToBatchND(h, block, one)
        }"""
    result = Original(reader.read(model(text))).open().run({"x": X})["y"]
    assert result.shape == (8, 3, 4, 3) and not result[0, 0].any()


# What fails


def test_a_rule_that_a_run_breaks_is_told(opened):
    original = opened(one_node("SpaceToBatchND", (X, BLOCK, NONE), run_time=(1, 2)))
    feeds = {"x": X, "p1": BLOCK, "p2": NONE}
    assert same_bits(original.run(feeds)["y"], space_to_batch(X, BLOCK, NONE))
    for wrong in (NONE - 1, np.array([[1, 0], [0, 0]])):
        with pytest.raises(RunError, match="SpaceToBatchND 'site'") as caught:
            original.run({**feeds, "p2": wrong})
        assert (caught.value.stage, caught.value.node) == ("rule", "site")
    assert same_bits(original.run(feeds)["y"], space_to_batch(X, BLOCK, NONE))


def test_what_nothing_here_runs_is_told(opened):
    with pytest.raises(RunError) as caught:
        opened(one_node("SpaceToBatchND", (X, BLOCK, NONE), domain="my.domain"))
    assert (caught.value.stage, caught.value.lacks_kernel) == ("load", True)
    text = """g (float[N,1,H] x) => (float[A,B,C] y)
        <float[1,1,3] w = {1, 2, 3}>
        { y = Conv<auto_pad = "SAME_UPPER", strides = [2], dilations = [2]>(x, w) }"""
    with pytest.raises(RunError, match="needs opset 11"):
        opened(model(text, opset=10, ir=7))


def test_evaluate_says_in_one_line_what_does_not_fit():
    model = two_operators()
    assert same_bits(evaluate(model, {"x": X})["y"], -X)
    for wrong in ({}, {"x": X[0]}, {"x": X.astype(int)}, {"x": X, "z": X}):
        with pytest.raises(UsageError) as caught:
            evaluate(model, wrong)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"cannot be run on this data.*block_shape"):
        evaluate(one_node("SpaceToBatchND", (X, BLOCK - 2, NONE)), {"x": X})
