"""Rearrange splits axes into factors, permutes the factors, and merges them."""

from __future__ import annotations

import numpy as np
import pytest
from vocabulary import Rearrange

from onnx_spatial import OperatorError

#: n c (h 2) (w 2) -> n (c 2 2) h w
UNSHUFFLE = Rearrange((-1, -1, -1, 2, -1, 2), (1, 1, 2, 2), (0, 1, 3, 5, 2, 4), (1, 3, 1, 1))


def test_pixel_unshuffle():
    x = np.arange(2 * 3 * 4 * 6).reshape(2, 3, 4, 6)
    y = UNSHUFFLE(x)
    assert y.shape == (2, 12, 2, 3)
    for i, j in np.ndindex(2, 2):
        np.testing.assert_array_equal(y[:, 2 * i + j :: 4], x[:, :, i::2, j::2])


def test_unknown_dims_stay_unknown_and_keep_names():
    assert UNSHUFFLE.output_shape(("N", 3, "H", 6)) == ("N", 12, None, 3)
    assert UNSHUFFLE.output_shape((None, "C", 4, 6)) == (None, None, 2, 3)


def test_axes_of_one_come_and_go():
    operator = Rearrange((-1, 5), (1, 0, 1), (0, 1), (0, 2))
    assert operator.output_shape((4, 1, 5)) == (1, 20)
    with pytest.raises(OperatorError, match=r"axis 1: size 2 is not the product of .* 1"):
        operator.output_shape((4, 2, 5))


def test_the_identity():
    assert Rearrange((-1, 2, 1), (2, 1), (0, 1, 2), (2, 1)).is_identity
    assert Rearrange((-1, 1, 5), (2, 1), (1, 0, 2), (2, 1)).is_identity  # a 1 moves
    assert not Rearrange((-1, 2), (1, 1), (0, 1), (2,)).is_identity
    assert not Rearrange((2, 2), (1, 1), (1, 0), (1, 1)).is_identity


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (((2,), (), (0,), (1,)), "splits is empty"),
        (((2, 3), (1,), (0, 1), (2,)), r"splits \[1\] must be numbers of factors, 2 together"),
        (((2, 3), (2,), (0, 0), (2,)), r"order \[0, 0\] is no permutation of 2 factors"),
        (((0, 3), (2,), (0, 1), (2,)), r"sizes \[0, 3\] must be at least 1"),
        (((-1, -1), (2,), (0, 1), (2,)), "axis 0 has two factors of unknown size"),
    ],
)
def test_rules(fields, message):
    with pytest.raises(OperatorError, match=message):
        Rearrange(*fields)


def test_rules_of_sizes():
    with pytest.raises(OperatorError, match="the input must have rank 4, not"):
        UNSHUFFLE.output_shape((2, 3, 4))
    with pytest.raises(OperatorError, match=r"axis 2: size 5 is not divisible by .* 2"):
        UNSHUFFLE.output_shape((2, 3, 5, 6))
