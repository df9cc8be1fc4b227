"""Inputs of a model: data from the user fits it, and data that is made up is usual."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hand_lowered import model
from onnx import TensorProto

from onnx_spatial import UsageError
from onnx_spatial.verification.run import data
from onnx_spatial.verification.run.data import Assignment

NET = model("""
    g (float[N,?,3] x, int64[2] k, bool flag, float[3] w, int32[2] s) => (float[A,B,C] y)
      <float[3] w = {1, -2, 8}, int32[2] s = {4, 5}> { y = Mul(x, w) }
""")


def test_unknown_dims_get_names_of_their_own() -> None:
    x, k, flag, w, _ = data.graph_inputs(NET)
    assert x.dims == ("N", "x[1]", 3)
    assert x.symbols == ["N", "x[1]"]
    assert (k.dims, flag.dims) == ((2,), ())
    assert w.default is not None


def test_what_a_run_is_fed() -> None:
    inputs = data.graph_inputs(NET)
    assignment = Assignment({"N": 2, "x[1]": 5})
    fed = data.feeds(inputs, assignment, seed=0)
    assert list(fed) == ["x", "k", "flag"]  # the others have a default
    assert fed["x"].shape == (2, 5, 3)
    assert sorted(fed["k"]) == [2, 3]  # sizes, counts or steps
    again = data.feeds(inputs, assignment, seed=0)
    assert all(np.array_equal(fed[name], again[name]) for name in fed)
    other = data.feeds(inputs, Assignment({"N": 2, "x[1]": 5}, number=1), seed=0)
    assert fed["flag"] != other["flag"]
    assert not np.array_equal(fed["x"], other["x"])
    given = Assignment({"N": 0, "x[1]": 1}, {"k": np.array([7, 8])})
    fed = data.feeds(inputs, given, seed=0)
    assert fed["x"].shape == (0, 1, 3)
    assert fed["k"].tolist() == [7, 8]


def test_types_that_npz_files_lose_are_restored() -> None:
    inputs = data.graph_inputs(model("g (bfloat16[N] x) => (bfloat16[N] y) { y = Neg(x) }"))
    array = np.array([1, 2], ml_dtypes.bfloat16)
    assert data.check_user_data(inputs, {"x": array.view("V2")})["x"].tolist() == [1, 2]
    with pytest.raises(UsageError, match="input 'x' must be bfloat16, not void32"):
        data.check_user_data(inputs, {"x": np.zeros(3, "V4")})
    with pytest.raises(UsageError, match="input 'x' must be bfloat16, not float16"):
        data.check_user_data(inputs, {"x": np.zeros(3, np.float16)})
    (text,) = data.graph_inputs(model("g (string[N] x) => (string[N] y) { y = Identity(x) }"))
    assert data.check_user_data([text], {"x": np.array(["a"])})["x"].dtype == object


def test_one_dim_has_one_size() -> None:
    inputs = data.graph_inputs(
        model("g (float[N,M] x, float[N] z) => (float[N] y) { y = F(x, z) }")
    )
    assert data.fixed_sizes(inputs, {"x": (2, 3)})[1] == {"N": 2, "M": 3}
    with pytest.raises(UsageError, match="dim N is 2 in another place"):
        data.fixed_sizes(inputs, {"x": (2, 3), "z": (4,)})


def test_every_type_has_usual_data() -> None:
    for name, number in TensorProto.DataType.items():
        if name != "UNDEFINED":
            array = data.usual(number, (2, 3), np.random.default_rng(0))
            assert array.shape == (2, 3) and array.dtype == data.dtype_of(number)
