"""ExtractPatches: which elements each window samples, and where they land on the channel axis."""

from __future__ import annotations

import definitions
import numpy as np
import pytest
import running
import sampling
from building import ELEMENT_TYPES
from hypothesis import given
from vocabulary import ExtractPatches

from onnx_spatial import OperatorError

DEFINED_AS = {
    "valid": "VALID",
    "same_upper": "SAME_UPPER",
    "same_lower": "SAME_LOWER",
    "same_unclamped": "SAME_VOLUME",
}


def line(*values: int) -> np.ndarray:
    """One image of one row and one channel, as a 1-D operator sees it."""
    return np.array(values).reshape(1, -1, 1)


def one_axis(kernel: int, stride: int, rate: int, auto_pad: str) -> ExtractPatches:
    return ExtractPatches((kernel,), (stride,), (rate,), auto_pad)


def test_valid_windows_start_at_every_stride():
    out = one_axis(2, 3, 1, "valid")(line(1, 2, 3, 4, 5, 6, 7))
    assert out[0].tolist() == [[1, 2], [4, 5]]


def test_rates_space_the_samples_of_a_window():
    out = one_axis(3, 1, 2, "valid")(line(1, 2, 3, 4, 5, 6))
    assert out[0].tolist() == [[1, 3, 5], [2, 4, 6]]


def test_same_upper_puts_the_odd_zero_behind():
    assert one_axis(2, 1, 1, "same_upper")(line(1, 2, 3))[0].tolist() == [[1, 2], [2, 3], [3, 0]]


def test_same_lower_puts_the_odd_zero_in_front():
    assert one_axis(2, 1, 1, "same_lower")(line(1, 2, 3))[0].tolist() == [[0, 1], [1, 2], [2, 3]]


def test_same_clamps_what_a_large_stride_leaves_over():
    x = line(*range(10))
    assert one_axis(1, 5, 1, "same_upper")(x)[0].tolist() == [[0], [5]]
    assert one_axis(1, 5, 1, "same_unclamped")(x)[0].tolist() == [[2], [7]]


def test_channels_are_minor_and_positions_major_in_both_layouts():
    nhwc = np.arange(2 * 2 * 3).reshape(1, 2, 2, 3)
    out = ExtractPatches((2, 2), (1, 1), (1, 1), "valid")(nhwc)
    assert out.tolist() == [[[list(range(12))]]]  # (kh*KW + kw)*C + c
    nchw = np.ascontiguousarray(np.moveaxis(nhwc, -1, 1))
    first = ExtractPatches((2, 2), (1, 1), (1, 1), "valid", "channels_first")(nchw)
    assert first.shape == (1, 12, 1, 1)
    assert first.reshape(-1).tolist() == list(range(12))


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "count"),
    [(4, 2, 1, 3), (4, 2, 2, 2), (4, 5, 1, 0), (4, 5, 2, 0), (4, 6, 3, 0), (5, 2, 3, 2)],
)
def test_valid_counts_like_c(size, kernel, stride, count):
    assert one_axis(kernel, stride, 1, "valid").output_size(0, size) == count


def test_a_window_larger_than_the_image_is_an_error_unless_clamped():
    with pytest.raises(OperatorError, match=r"window of 7 elements on size 4 .* output size -2"):
        one_axis(7, 1, 1, "valid").output_shape((1, 4, 1))
    clamping = ExtractPatches((7,), (1,), (1,), "valid", clamp_negative=True)
    assert clamping.output_shape((1, 4, 2)) == (1, 0, 14)


@pytest.mark.parametrize("auto_pad", ["same_upper", "same_lower"])
@pytest.mark.parametrize("size", range(12))
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_padding_covers_exactly_the_windows(auto_pad, size, stride):
    operator = one_axis(3, stride, 2, auto_pad)
    begin, end = operator.padding(0, size)
    count = operator.output_size(0, size)
    assert begin >= 0
    assert end >= 0
    assert begin + size + end >= (count - 1) * stride + 5
    assert abs(begin - end) <= 1
    assert begin <= end if auto_pad == "same_upper" else begin >= end


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


def test_the_rank_must_fit():
    with pytest.raises(OperatorError, match=r"rank 4, not \[1, 2, 3\]"):
        ExtractPatches((1, 1), (1, 1), (1, 1), "valid").output_shape((1, 2, 3))


@pytest.mark.parametrize(
    ("operator", "shape", "expected"),
    [
        (ExtractPatches((3,), (2,), (1,), "same_upper"), ("N", 7, 2), ("N", 4, 6)),
        (ExtractPatches((3,), (1,), (1,), "same_upper"), (1, "W", "C"), (1, "W", None)),
        (ExtractPatches((3,), (2,), (1,), "same_upper"), (1, "W", 2), (1, None, 6)),
        (ExtractPatches((3,), (1,), (1,), "valid"), (1, "W", 2), (1, None, 6)),
        (ExtractPatches((1,), (1,), (9,), "valid"), (1, "W", "C"), (1, "W", "C")),
        (ExtractPatches((2,), (1,), (1,), "valid", "channels_first"), (1, 3, 5), (1, 6, 4)),
        (ExtractPatches((2,), (1,), (1,), "same_lower"), (0, 5, 0), (0, 5, 0)),
    ],
)
def test_output_shape(operator, shape, expected):
    assert operator.output_shape(shape) == expected


def random_patches(rng, dtype: str) -> tuple[ExtractPatches, np.ndarray, np.ndarray]:
    """(operator, input, output by definition) with one to three spatial axes."""
    axes = rng.choice((1, 2, 2, 3))
    kernel, strides, rates = (
        tuple(rng.randint(1, most) for _ in range(axes)) for most in (3, 4, 2)
    )
    auto_pad = rng.choice(list(DEFINED_AS))
    layout = rng.choice(("channels_last", "channels_first"))
    clamp = auto_pad == "valid"
    sizes = [rng.choice((0, 1, 2, 3, 5, 8)[: 7 - axes]) for _ in range(axes)]
    batch, channels = rng.randint(0, 2), rng.randint(0, 3)
    shape = (batch, *sizes, channels) if layout == "channels_last" else (batch, channels, *sizes)
    x = sampling.array(rng, dtype, shape)
    operator = ExtractPatches(kernel, strides, rates, auto_pad, layout, clamp_negative=clamp)
    padding = "VALID_CLAMPED" if clamp else DEFINED_AS[auto_pad]
    first = layout == "channels_first"
    expected = definitions.extract_patches(x, kernel, strides, rates, padding, channels_first=first)
    return operator, x, expected


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@given(rng=sampling.randoms)
def test_equals_its_definition_bit_for_bit(dtype, rng):
    operator, x, expected = random_patches(rng, dtype)
    before = x.copy()
    assert running.same_bits(operator(x), expected)
    assert running.same_bits(x, before)


@given(rng=sampling.randoms)
def test_output_shape_of_any_mix_of_known_dims_agrees(rng):
    operator, x, expected = random_patches(rng, "uint8")
    assert operator.output_shape(x.shape) == expected.shape
    hidden = [rng.choice((d, None, f"d{i}")) for i, d in enumerate(x.shape)]
    sizes = {f"d{i}": d for i, d in enumerate(x.shape)}
    for dim, size in zip(operator.output_shape(hidden), expected.shape, strict=True):
        assert dim is None or sizes.get(dim, dim) == size


@given(rng=sampling.randoms)
def test_another_pad_value_marks_what_lies_outside(rng):
    operator, x, _ = random_patches(rng, "int16")
    outside = operator(np.zeros_like(x), pad_value=1)
    assert np.array_equal(operator(x, pad_value=7), np.where(outside, 7, operator(x)))
