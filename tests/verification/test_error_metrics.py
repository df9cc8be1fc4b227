"""The figures of a comparison: by hand on few numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnx_spatial.verification.compare.error_metrics import (
    errors,
    measure_errors,
    ulp_distance,
)
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.outputs import compare


def test_figures_by_hand() -> None:
    expected = np.array([1, 2, 3, 4], np.float32)
    actual = np.array([1, 2, 3.5, 2], np.float32)
    found = measure_errors(expected, actual, *errors(expected, actual))
    assert (found.max_abs_error, found.max_relative_error) == (2, 0.5)
    assert found.mean_relative_error == pytest.approx(2.5 / 4 / 4)
    # By rank: the upper of the middle two.
    assert found.p50_relative_error == pytest.approx(0.5 / 4)
    assert found.p99_relative_error == 0.5


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_steps_count_numbers_of_the_type(dtype: type) -> None:
    one = np.array([1], dtype)
    bits = one.view(f"u{one.itemsize}")
    assert ulp_distance(one, (bits + bits.dtype.type(3)).view(dtype)) == 3
    assert ulp_distance(np.array([0.0], dtype), np.array([-0.0], dtype)) == 0
    tiny = np.array([1], bits.dtype).view(dtype)
    assert ulp_distance(tiny, -tiny) == 2
    assert ulp_distance(np.array([np.nan], dtype), one) == np.inf
    assert ulp_distance(np.array([np.nan], dtype), np.array([np.nan], dtype)) == 0


def test_integers_have_no_steps_and_strings_no_figures() -> None:
    numbers = np.array([1, 2])
    (result,) = compare("y", 0, False, numbers, np.array([1, 3]), Exactness())
    assert (result.max_steps, result.max_abs_error) == (None, 1)
    texts = np.array(["a", "b"], object)
    (result,) = compare("y", 0, False, texts, texts[::-1], Exactness())
    assert result.passed is False
    assert result.mean_relative_error is None


def test_infinity_on_one_side_is_not_hidden_by_quantiles() -> None:
    expected = np.arange(1000, dtype=np.float32)
    actual = expected.copy()
    actual[3] = np.inf
    found = measure_errors(expected, actual, *errors(expected, actual))
    assert found.max_relative_error == np.inf
    assert found.p99_relative_error == 0
    (result,) = compare("y", 0, False, expected, actual, Exactness())
    assert result.reason == "1 of 1000 elements differ, some by NaN or infinity"


def test_a_difference_from_nothing_but_zeros_is_said_as_it_is() -> None:
    zeros = np.zeros(4, np.float32)
    (result,) = compare("y", 0, False, zeros, zeros + np.float32(0.5), Exactness())
    assert result.reason == "4 of 4 elements differ, by at most 0.5 where all values should be 0"
