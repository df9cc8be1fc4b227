"""Originals run in a session, or in onnx's evaluator: every type, and what is said if a run fails.

That both give what they must is what test_grid.py and test_reference.py hold of every cell of the grid.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from building import one_node
from definitions import space_to_batch
from onnx import TensorProto
from parsing import model
from running import same_bits

from onnx_spatial import UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.python_ops import registration
from onnx_spatial.verification import evaluate
from onnx_spatial.verification.arrays import dtype_of
from onnx_spatial.verification.run.data import patterns
from onnx_spatial.verification.run.original import Original
from onnx_spatial.verification.run.sessions import RunError

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


def type_number(name: str) -> int:
    return int(getattr(TensorProto, name))


#: Some of the types that onnxruntime moves, and others.
MOVED = "FLOAT FLOAT16 BFLOAT16 UINT64 BOOL STRING"
OTHERS = "COMPLEX64 FLOAT8E4M3FN FLOAT8E5M2 INT4 UINT4"


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "session") for name in MOVED.split()] + [(n, "evaluator") for n in OTHERS.split()],
)
def test_every_bit_of_every_type_survives(name, kind):
    x = patterns(type_number(name), X.shape, np.random.default_rng(0))
    model = two_operators()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = type_number(name)
    model.graph.node[1].op_type = "Identity"
    model.opset_import[0].version, model.ir_version = 21, 10
    original = Original(reader.read(model), values=["s"]).open()
    assert original.kind == kind
    outputs = original.run({"x": x})
    assert same_bits(outputs["y"], x)
    padded = one_node("SpaceToBatchND", (x, BLOCK, NONE + 1), opset=21)
    result = Original(reader.read(padded)).open().run({"x": x})["y"]
    zero = "" if name == "STRING" else dtype_of(type_number(name)).type(0)
    assert result.shape == (8, 3, 4, 3) and (result[0, 0] == zero).all()


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
