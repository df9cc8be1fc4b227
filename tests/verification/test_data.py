"""Inputs of a model: data from the user fits it, and data that is made up is usual."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hand_lowered import model

from onnx_spatial import UsageError
from onnx_spatial.verification.run import data


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
