"""Every operator in every spelling gives its definition, bit for bit, and says the shape before."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import running
import sampling
from building import ELEMENT_TYPES
from hypothesis import given
from vocabulary import BatchToSpace, ExtractPatches, Rearrange, SpaceToBatch

from onnx_spatial.operators import strided_copies


@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
@given(rng=sampling.randoms)
def test_a_run_is_the_definition_and_its_shape_was_known(spelling, rng):
    sample = sampling.SPELLINGS[spelling](rng)
    sample = sampling.retyped(rng, sample, [rng.choice([*ELEMENT_TYPES])])
    operator, x, expected = sample.call.bind(sample.inputs), sample.inputs[0], sample.expected
    before = x.copy()
    assert running.same_bits(operator(x), expected)
    assert running.same_bits(x, before)
    assert running.same_bits(operator(np.repeat(x, 2, axis=0)[::2]), expected)
    assert operator.output_shape(x.shape) == expected.shape
    hidden = [rng.choice((d, None, f"d{i}")) for i, d in enumerate(x.shape)]
    sizes = {f"d{i}": d for i, d in enumerate(x.shape)}
    for dim, size in zip(operator.output_shape(hidden), expected.shape, strict=True):
        assert dim is None or sizes.get(dim, dim) == size


@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_what_the_memory_held_before_does_not_show(spelling, monkeypatch):
    def used(shape, dtype):
        if dtype.hasobject:
            return np.full(shape, "old", object)
        count = int(np.prod(shape)) * dtype.itemsize
        return np.full(count, 0xA5, np.uint8).view(dtype).reshape(shape)

    for number in range(40):
        sample = sampling.SPELLINGS[spelling](Random(f"{spelling} {number}"))
        operator = sample.call.bind(sample.inputs)
        with monkeypatch.context() as patched:
            patched.setattr(strided_copies.np, "empty", used)
            result = operator(sample.inputs[0])
        assert running.same_bits(result, sample.expected)


@given(rng=sampling.randoms)
def test_another_pad_value_marks_what_lies_outside(rng):
    axes = rng.choice((1, 2, 2, 3))
    fields = (tuple(rng.randint(1, most) for _ in range(axes)) for most in (3, 4, 2))
    pads = rng.choice(("same_upper", "same_lower", "same_unclamped"))
    operator = ExtractPatches(*fields, pads, rng.choice(("channels_last", "channels_first")))
    x = sampling.array(rng, "int16", tuple(rng.randint(0, 5) for _ in range(axes + 2)))
    outside = operator(np.zeros_like(x), pad_value=1)
    assert np.array_equal(operator(x, pad_value=7), np.where(outside, 7, operator(x)))


JOINED = [
    (SpaceToBatch((2, 2), ((0, 0), (0, 0))), (2, 16, 12, 3)),
    (SpaceToBatch((2, 3), ((1, 0), (2, 2))), (2, 15, 11, 3, 2)),
    (BatchToSpace((2, 2), ((0, 0), (0, 0))), (8, 8, 9, 3)),
    (BatchToSpace((2, 2), ((1, 0), (0, 3))), (8, 8, 9, 5)),
    (ExtractPatches((3, 2), (2, 1), (1, 2), "same_upper"), (1, 15, 14, 4)),
    (Rearrange((-1, 2, -1, 2, 3), (2, 2, 1), (0, 2, 1, 3, 4), (1, 1, 3)), (16, 16, 3)),
]


@pytest.mark.parametrize("dtype", ["u1", "f4", "O"])
@pytest.mark.parametrize(("operator", "shape"), JOINED, ids=lambda v: str(v)[:60])
def test_neighbours_that_are_copied_as_one_end_where_elements_do(operator, shape, dtype):
    # The same elements with the channels apart: none of them has a neighbour.
    x = (np.arange(1, 1 + np.prod(shape)) % 251).reshape(shape)
    apart = operator.plan(shape)
    assert apart.tail and apart.run(x.astype(dtype)).size
    expected = replace(apart, tail=0).run(x, 7)
    for data in (x.astype(dtype), np.asfortranarray(x.astype(dtype))):
        result = operator(data, 7)
        assert result.dtype == data.dtype
        np.testing.assert_array_equal(result.astype(x.dtype), expected)
