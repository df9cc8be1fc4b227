"""ExtractPatches: which elements each window samples, and where they land on the channel axis."""

from __future__ import annotations

import numpy as np
import pytest
from vocabulary import ExtractPatches

from onnx_spatial import OperatorError


def line(*values: int) -> np.ndarray:
    """One image of one row and one channel, as a 1-D operator sees it."""
    return np.array(values).reshape(1, -1, 1)


def one_axis(kernel: int, stride: int, rate: int, auto_pad: str) -> ExtractPatches:
    return ExtractPatches((kernel,), (stride,), (rate,), auto_pad)


@pytest.mark.parametrize(
    ("operator", "x", "windows"),
    [
        ((2, 3, 1, "valid"), range(1, 8), [[1, 2], [4, 5]]),
        ((3, 1, 2, "valid"), range(1, 7), [[1, 3, 5], [2, 4, 6]]),
        ((2, 1, 1, "same_upper"), range(1, 4), [[1, 2], [2, 3], [3, 0]]),
        ((2, 1, 1, "same_lower"), range(1, 4), [[0, 1], [1, 2], [2, 3]]),
        # What a large stride leaves over.
        ((1, 5, 1, "same_upper"), range(10), [[0], [5]]),
        ((1, 5, 1, "same_unclamped"), range(10), [[2], [7]]),
    ],
)
def test_windows(operator, x, windows):
    assert one_axis(*operator)(line(*x))[0].tolist() == windows


def test_channels_are_minor_and_positions_major_in_both_layouts():
    nhwc = np.arange(2 * 2 * 3).reshape(1, 2, 2, 3)
    out = ExtractPatches((2, 2), (1, 1), (1, 1), "valid")(nhwc)
    assert out.tolist() == [[[list(range(12))]]]  # (kh*KW + kw)*C + c
    nchw = np.ascontiguousarray(np.moveaxis(nhwc, -1, 1))
    first = ExtractPatches((2, 2), (1, 1), (1, 1), "valid", "channels_first")(nchw)
    assert first.shape == (1, 12, 1, 1)
    assert first.reshape(-1).tolist() == list(range(12))


def test_a_window_larger_than_the_image_is_an_error_unless_clamped():
    with pytest.raises(OperatorError, match=r"window of 7 elements on size 4 .* output size -2"):
        one_axis(7, 1, 1, "valid").output_shape((1, 4, 1))
    clamping = ExtractPatches((7,), (1,), (1,), "valid", clamp_negative=True)
    assert clamping.output_shape((1, 4, 2)) == (1, 0, 14)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"kernel": (0, 1)}, r"kernel\[0\] is 0; it must be at least 1"),
        ({"strides": (1, 0)}, r"strides\[1\] is 0; it must be at least 1"),
        ({"rates": (-1, 1)}, r"rates\[0\] is -1; it must be at least 1"),
        ({"rates": (1,)}, "rates has 1 entries, kernel 2"),
        ({"auto_pad": "SAME"}, "unknown padding 'SAME'"),
        ({"layout": "NHWC"}, "unknown layout 'NHWC'"),
    ],
)
def test_rules_of_the_parameters(fields, rule):
    good = {"kernel": (2, 2), "strides": (1, 1), "rates": (1, 1), "auto_pad": "valid"}
    with pytest.raises(OperatorError, match=f"ExtractPatches: {rule}"):
        ExtractPatches(**{**good, **fields})


@pytest.mark.parametrize(
    ("operator", "shape", "expected"),
    [
        (ExtractPatches((3,), (2,), (1,), "same_upper"), ("N", 7, 2), ("N", 4, 6)),
        (ExtractPatches((3,), (1,), (1,), "same_upper"), (1, "W", "C"), (1, "W", None)),
        (ExtractPatches((3,), (2,), (1,), "same_upper"), (1, "W", 2), (1, None, 6)),
        (ExtractPatches((1,), (1,), (9,), "valid"), (1, "W", "C"), (1, "W", "C")),
    ],
)
def test_output_shape(operator, shape, expected):
    assert operator.output_shape(shape) == expected
