"""BatchToSpace: the exact inverse of SpaceToBatch, then a crop."""

from __future__ import annotations

import definitions
import numpy as np
import pytest
import running
import sampling
from building import ELEMENT_TYPES
from hypothesis import given
from vocabulary import BatchToSpace, SpaceToBatch

from onnx_spatial import OperatorError


def test_batches_interleave_along_the_blocked_axis():
    x = np.array([[1, 3], [5, 7], [2, 4], [6, 8]])
    assert BatchToSpace((2,), ((0, 0),))(x).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_crops_take_away_from_both_ends():
    x = np.array([[0, 2, 4], [1, 3, 5]])
    assert BatchToSpace((2,), ((1, 2),))(x).tolist() == [[1, 2, 3]]


def test_crops_may_exceed_a_block():
    x = np.array([[0, 2, 4], [1, 3, 5]])
    assert BatchToSpace((2,), ((3, 2),))(x).tolist() == [[3]]


def test_cropping_all_is_legal_and_leaves_nothing():
    assert BatchToSpace((2,), ((3, 3),))(np.zeros((2, 3))).shape == (1, 0)


@pytest.mark.parametrize(
    ("block", "crops", "rule"),
    [
        ((0,), ((0, 0),), r"block_shape\[0\] is 0; it must be at least 1"),
        ((2,), ((-1, 0),), r"crops\[0\]\[0\] is -1; it must not be negative"),
        ((2, 2), ((0, 0),), r"crops must have shape \[2, 2\] .* not \[1, 2\]"),
    ],
)
def test_rules_of_the_parameters(block, crops, rule):
    with pytest.raises(OperatorError, match=f"BatchToSpace: {rule}"):
        BatchToSpace(block, crops)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ((6, 2, 2), r"batch 6 is not divisible by 4, the product of block_shape \[2, 2\]"),
        (("N", 1, 2), r"axis 1: crops 1 \+ 2 exceed the size 1 \* 2 = 2"),
        ((4, 2), "2 blocked dims need an input of rank 3 or more"),
    ],
)
def test_rules_of_the_shape(shape, rule):
    with pytest.raises(OperatorError, match=f"BatchToSpace: {rule}"):
        BatchToSpace((2, 2), ((1, 2), (0, 0))).output_shape(shape)


@pytest.mark.parametrize(
    ("block", "crops", "shape", "expected"),
    [
        ((2, 3), ((1, 1), (0, 3)), (30, 3, 3, 7), (5, 4, 6, 7)),
        ((2,), ((0, 0),), ("N", 4, "C"), (None, 8, "C")),
        ((1, 2), ((0, 0), (0, 0)), (2, "H", "W", 3), (1, "H", None, 3)),
        ((1,), ((0, 1),), ("N", "W"), ("N", None)),
        ((), (), ("N", 2), ("N", 2)),
        ((2,), ((4, 0),), (0, 2, 0), (0, 0, 0)),
    ],
)
def test_output_shape(block, crops, shape, expected):
    assert BatchToSpace(block, crops).output_shape(shape) == expected


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@given(rng=sampling.randoms)
def test_equals_its_definition_bit_for_bit(dtype, rng):
    found = sampling.blocking(rng, False, rng.randint(0, 4), rng.randint(0, 2))
    x = sampling.array(rng, dtype, found.shape)
    operator = BatchToSpace(tuple(found.block), tuple(found.amounts))
    expected = definitions.batch_to_space(x, found.block, found.amounts)
    before = x.copy()
    assert running.same_bits(operator(x), expected)
    assert running.same_bits(x, before)
    strided = np.repeat(x, 2, axis=0)[::2]
    assert running.same_bits(operator(strided), expected)


@given(rng=sampling.randoms)
def test_undoes_space_to_batch(rng):
    found = sampling.blocking(rng, True, rng.randint(0, 4), rng.randint(0, 2))
    x = sampling.array(rng, "uint32", found.shape)
    block, pads = tuple(found.block), tuple(found.amounts)
    assert running.same_bits(BatchToSpace(block, pads)(SpaceToBatch(block, pads)(x)), x)


@given(rng=sampling.randoms)
def test_output_shape_of_any_mix_of_known_dims_agrees(rng):
    found = sampling.blocking(rng, False, rng.randint(0, 4), rng.randint(0, 2))
    operator = BatchToSpace(tuple(found.block), tuple(found.amounts))
    actual = definitions.batch_to_space(np.zeros(found.shape), found.block, found.amounts).shape
    assert operator.output_shape(found.shape) == actual
    hidden = [rng.choice((d, None, f"d{i}")) for i, d in enumerate(found.shape)]
    sizes = {f"d{i}": d for i, d in enumerate(found.shape)}
    for dim, size in zip(operator.output_shape(hidden), actual, strict=True):
        assert dim is None or sizes.get(dim, dim) == size
