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


def test_errors_are_counted_by_decade_and_the_worst_are_named() -> None:
    expected = np.array([[1, 2, 4], [4, np.nan, 0]], np.float32)
    actual = np.array([[1, 2.2, 4], [4.00002, 1, 0]], np.float32)
    found = measure_errors(expected, actual, *errors(expected, actual))
    # 0.2 and 0.00002 of 4, the largest value.
    assert found.error_decades == {"0": 3, "1e-06": 1, "1e-02": 1, "inf": 1}
    assert [each.index for each in found.worst_elements] == [(1, 1), (0, 1), (1, 0)]
    assert (found.worst_elements[1].original, found.worst_elements[1].converted) == ("2.0", "2.2")
    (result,) = compare("y", 0, False, expected, actual, Exactness())
    assert result.error_decades == found.error_decades
    (result,) = compare("y", 0, False, expected, expected, Exactness())
    assert (result.error_decades, result.worst_elements) == ({}, ())


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.complex64])
def test_errors_of_other_types_are_counted_too(dtype: type) -> None:
    expected, actual = np.array([0, 0, 0], dtype), np.array([0, 3, 0], dtype)
    found = measure_errors(expected, actual, *errors(expected, actual))
    assert found.error_decades == {"0": 2, "inf": 1}  # any error is infinite where all should be 0
    assert [each.index for each in found.worst_elements] == [(1,)]
