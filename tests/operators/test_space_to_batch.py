"""SpaceToBatch: pad, split, permute, merge; and the rules that its parameters must keep."""

from __future__ import annotations

import definitions
import ml_dtypes
import numpy as np
import pytest
import running
import sampling
from building import ELEMENT_TYPES
from hypothesis import given
from vocabulary import SpaceToBatch

from onnx_spatial import OperatorError


def test_block_offset_is_the_major_index_of_the_output_batch():
    x = np.array([[[1], [2], [3], [4]], [[5], [6], [7], [8]]])  # two sequences of four
    out = SpaceToBatch((2,), ((0, 0),))(x)
    # offset 0 of both sequences, then offset 1 of both
    assert out.reshape(4, 2).tolist() == [[1, 3], [5, 7], [2, 4], [6, 8]]


def test_offsets_of_several_axes_are_row_major():
    x = np.arange(1, 7).reshape(1, 2, 3)
    out = SpaceToBatch((2, 3), ((0, 0), (0, 0)))(x)
    assert out.reshape(-1).tolist() == [1, 2, 3, 4, 5, 6]


def test_begin_pads_come_before_and_end_pads_after():
    x = np.array([[1, 2, 3]])
    assert SpaceToBatch((1,), ((2, 1),))(x).tolist() == [[0, 0, 1, 2, 3, 0]]


def test_axes_behind_the_blocked_ones_stay():
    x = np.arange(2 * 4 * 3).reshape(2, 4, 3)
    out = SpaceToBatch((2,), ((0, 0),))(x)
    assert out.shape == (4, 2, 3)
    assert np.array_equal(out[3, 1], x[1, 3])


def test_a_block_larger_than_the_image_is_mostly_padding():
    out = SpaceToBatch((4,), ((1, 2),))(np.array([[7]]))
    assert out.tolist() == [[0], [7], [0], [0]]


@pytest.mark.parametrize(
    ("dtype", "nothing"),
    [(object, ""), (np.bool_, False), (np.float16, 0.0), (ml_dtypes.bfloat16, 0.0), (np.uint64, 0)],
)
def test_padding_is_the_element_types_nothing(dtype, nothing):
    x = np.ones((1, 1), dtype) if dtype is not object else np.array([["text"]], object)
    out = SpaceToBatch((2,), ((1, 0),))(x)
    assert out.dtype == x.dtype
    assert out[0, 0] == nothing
    assert out[1, 0] == x[0, 0]


def test_another_pad_value_can_be_given():
    out = SpaceToBatch((1,), ((1, 0),))(np.array([[5]]), pad_value=-1)
    assert out.tolist() == [[-1, 5]]


@pytest.mark.parametrize(
    ("block", "pads", "rule"),
    [
        ((0,), ((0, 0),), r"block_shape\[0\] is 0; it must be at least 1"),
        ((2, -1), ((0, 0), (0, 0)), r"block_shape\[1\] is -1; it must be at least 1"),
        ((2,), ((0, -2),), r"paddings\[0\]\[1\] is -2; it must not be negative"),
        ((2,), ((0, 0), (0, 0)), r"paddings must have shape \[1, 2\] .* not \[2, 2\]"),
        ((2,), ((0, 0, 0),), r"paddings must have shape \[1, 2\]"),
        ((2.5,), ((0, 0),), "block_shape must be a list of integers"),
        ((2,), ((0.5, 0),), "paddings must be a list of integers"),
        (2, ((0, 0),), "block_shape must be a list of integers"),
    ],
)
def test_rules_of_the_parameters(block, pads, rule):
    with pytest.raises((OperatorError, TypeError), match=rule):
        SpaceToBatch(block, pads)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        (
            (1, 5, 4),
            r"axis 1: size 5 \+ paddings 1 \+ 1 = 7 is not divisible by its block, 2",
        ),
        ((1,), r"1 blocked dims need an input of rank 2 or more, not \[1\]"),
        ((1 << 62, 6, 1), "overflow"),
        ((1 << 60, 6, 64), "element count .* overflows int64"),
    ],
)
def test_rules_of_the_shape(shape, rule):
    with pytest.raises(OperatorError, match=f"SpaceToBatch: .*{rule}"):
        SpaceToBatch((2,), ((1, 1),)).output_shape(shape)


@pytest.mark.parametrize(
    ("block", "pads", "shape", "expected"),
    [
        ((2, 3), ((1, 1), (0, 3)), (5, 4, 6, 7), (30, 3, 3, 7)),
        ((2,), ((0, 0),), ("N", 4, "C"), (None, 2, "C")),
        ((2,), ((0, 0),), (None, "W", None), (None, None, None)),
        ((1, 2), ((0, 0), (0, 0)), (1, "H", "W", 3), (2, "H", None, 3)),
        ((1,), ((1, 0),), ("N", "W"), ("N", None)),
        ((), (), ("N",), ("N",)),
        ((4,), ((4, 0),), (0, 0, 0), (0, 1, 0)),
    ],
)
def test_output_shape(block, pads, shape, expected):
    assert SpaceToBatch(block, pads).output_shape(shape) == expected


def test_a_rank_of_one_more_than_the_blocked_axes_is_enough():
    assert SpaceToBatch((2, 2), ((0, 0), (0, 0))).output_shape((1, 2, 2)) == (4, 1, 1)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@given(rng=sampling.randoms)
def test_equals_its_definition_bit_for_bit(dtype, rng):
    found = sampling.blocking(rng, True, rng.randint(0, 4), rng.randint(0, 2))
    x = sampling.array(rng, dtype, found.shape)
    operator = SpaceToBatch(tuple(found.block), tuple(found.amounts))
    expected = definitions.space_to_batch(x, found.block, found.amounts)
    before = x.copy()
    assert running.same_bits(operator(x), expected)
    assert running.same_bits(x, before)
    strided = np.repeat(x, 2, axis=0)[::2]  # the input need not be contiguous
    assert running.same_bits(operator(strided), expected)


@given(rng=sampling.randoms)
def test_output_shape_of_any_mix_of_known_dims_agrees(rng):
    found = sampling.blocking(rng, True, rng.randint(0, 4), rng.randint(0, 2))
    operator = SpaceToBatch(tuple(found.block), tuple(found.amounts))
    actual = definitions.space_to_batch(np.zeros(found.shape), found.block, found.amounts).shape
    assert operator.output_shape(found.shape) == actual
    hidden = [rng.choice((d, None, f"d{i}")) for i, d in enumerate(found.shape)]
    sizes = {f"d{i}": d for i, d in enumerate(found.shape)}
    for dim, size in zip(operator.output_shape(hidden), actual, strict=True):
        assert dim is None or sizes.get(dim, dim) == size
