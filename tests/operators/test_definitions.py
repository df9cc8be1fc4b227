"""Every operator in every spelling gives its definition, bit for bit, and says the shape before."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import running
import sampling
from building import ELEMENT_TYPES
from hypothesis import given
from vocabulary import ExtractPatches

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
