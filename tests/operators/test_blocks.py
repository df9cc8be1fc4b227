"""SpaceToBatch and BatchToSpace: worked examples, and the rules of parameters and shapes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import running
import sampling
from hypothesis import given
from vocabulary import BatchToSpace, SpaceToBatch

from onnx_spatial import OperatorError


@pytest.mark.parametrize(
    ("operator", "x", "expected"),
    [
        # Offset 0 of both sequences, then offset 1 of both.
        (
            SpaceToBatch((2,), ((0, 0),)),
            [[1, 2, 3, 4], [5, 6, 7, 8]],
            [[1, 3], [5, 7], [2, 4], [6, 8]],
        ),
        (SpaceToBatch((1,), ((2, 1),)), [[1, 2, 3]], [[0, 0, 1, 2, 3, 0]]),
        (SpaceToBatch((2,), ((0, 0),)), [[[1, 2], [3, 4]]], [[[1, 2]], [[3, 4]]]),
        (BatchToSpace((2,), ((1, 2),)), [[0, 2, 4], [1, 3, 5]], [[1, 2, 3]]),
    ],
)
def test_examples(operator, x, expected):
    assert operator(np.array(x)).tolist() == expected


@given(rng=sampling.randoms)
def test_batch_to_space_undoes_space_to_batch(rng):
    shape, *found = sampling.blocking(rng, True, rng.randint(0, 4), rng.randint(0, 2))
    x = sampling.array(rng, "uint32", shape)
    block, pads = map(tuple, found)
    assert running.same_bits(BatchToSpace(block, pads)(SpaceToBatch(block, pads)(x)), x)


@pytest.mark.parametrize(
    ("dtype", "nothing"),
    [(object, ""), (np.bool_, False), (ml_dtypes.bfloat16, 0.0), (np.uint64, 0)],
)
def test_padding_is_the_element_types_nothing(dtype, nothing):
    x = np.ones((1, 1), dtype) if dtype is not object else np.array([["text"]], object)
    out = SpaceToBatch((2,), ((1, 0),))(x)
    assert (out.dtype, out[0, 0], out[1, 0]) == (x.dtype, nothing, x[0, 0])


@pytest.mark.parametrize(
    ("kind", "block", "amounts", "rule"),
    [
        (SpaceToBatch, (2, -1), ((0, 0), (0, 0)), r"block_shape\[1\] is -1; it must be at least 1"),
        (SpaceToBatch, (2,), ((0, -2),), r"paddings\[0\]\[1\] is -2; it must not be negative"),
        (SpaceToBatch, (2,), ((0, 0, 0),), r"paddings must have shape \[1, 2\]"),
        (SpaceToBatch, (2.5,), ((0, 0),), "block_shape must be a list of integers"),
        (SpaceToBatch, 2, ((0, 0),), "block_shape must be a list of integers"),
        (SpaceToBatch, (2**40,) * 2, ((0, 0),) * 2, "the product of block_shape .* overflows"),
    ],
)
def test_rules_of_the_parameters(kind, block, amounts, rule):
    with pytest.raises((OperatorError, TypeError), match=rule):
        kind(block, amounts)


PADDED, CROPPED = SpaceToBatch((2,), ((1, 1),)), BatchToSpace((2, 2), ((1, 2), (0, 0)))


@pytest.mark.parametrize(
    ("operator", "shape", "rule"),
    [
        (PADDED, (1, 5, 4), r"axis 1: size 5 \+ paddings 1 \+ 1 = 7 is not divisible by .*, 2"),
        (PADDED, (1 << 62, 6, 1), "overflow"),
        (PADDED, (1 << 60, 6, 64), "element count .* overflows int64"),
        (CROPPED, (6, 2, 2), r"batch 6 is not divisible by 4, the product of block_shape \[2, 2\]"),
        (CROPPED, ("N", 1, 2), r"axis 1: crops 1 \+ 2 exceed the size 1 \* 2 = 2"),
    ],
)
def test_rules_of_the_shape(operator, shape, rule):
    with pytest.raises(OperatorError, match=f"{operator.name}: .*{rule}"):
        operator.output_shape(shape)


@pytest.mark.parametrize(
    ("operator", "shape", "expected"),
    [
        (SpaceToBatch((2, 3), ((1, 1), (0, 3))), (5, 4, 6, 7), (30, 3, 3, 7)),
        (SpaceToBatch((2,), ((0, 0),)), (None, "W", "C"), (None, None, "C")),
        (SpaceToBatch((1, 2), ((0, 0), (0, 0))), (1, "H", "W", 3), (2, "H", None, 3)),
        (SpaceToBatch((4,), ((4, 0),)), (0, 0, 0), (0, 1, 0)),
        (BatchToSpace((2, 3), ((1, 1), (0, 3))), (30, 3, 3, 7), (5, 4, 6, 7)),
        (BatchToSpace((2,), ((0, 0),)), ("N", 4, "C"), (None, 8, "C")),
    ],
)
def test_output_shape(operator, shape, expected):
    assert operator.output_shape(shape) == expected
