"""Every strategy on its own: exact wherever it does not refuse, whatever is known before the run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import sampling
from converting import convert, plan
from hypothesis import given, settings
from sampling import Form, Sample

from onnx_spatial.lowering import STRATEGIES

NAMES = [strategy.name for strategy in STRATEGIES]


def blocks(rng: Random) -> Sample:
    return sampling.SPELLINGS_OF_BLOCKS[rng.choice(list(sampling.SPELLINGS_OF_BLOCKS))](
        rng, rng.random() < 0.5
    )


def patches(rng: Random) -> Sample:
    return rng.choice((sampling.image_tf, sampling.image_openvino, sampling.volume))(rng)


def anything(rng: Random) -> Sample:
    return blocks(rng) if rng.random() < 0.5 else patches(rng)


def still(rng: Random) -> Sample:
    """Nothing is moved: blocks of 1 without pads, windows of 1."""
    if rng.random() < 0.5:
        sample = sampling.openvino(rng, rng.random() < 0.5)
        data, block, *amounts = sample.inputs
        unmoved = (np.ones_like(block), *map(np.zeros_like, amounts))
        return replace(sample, inputs=(data, *unmoved))
    sample = patches(rng)
    kernel = "sizes" if "sizes" in sample.attributes else "ksizes"
    ones = {name: [1] * len(sample.attributes[kernel]) for name in (kernel, "strides")}
    return replace(sample, attributes={**sample.attributes, **ones})


def empty(rng: Random) -> Sample:
    while True:
        sample = anything(rng)
        if 0 in sample.inputs[0].shape or 0 in sample.expected.shape:
            return sample


def tiling(rng: Random) -> Sample:
    """Windows that touch: stride = kernel, rate 1."""
    while True:
        sample = patches(rng)
        kernel = "sizes" if "sizes" in sample.attributes else "ksizes"
        tiles = dict(sample.attributes)
        tiles["strides"] = tiles[kernel]
        if "rates" in tiles:
            tiles["rates"] = [1] * len(tiles[kernel])
        sample = replace(sample, attributes=tiles)
        try:
            assert sample.expected is not None
        except ValueError:  # with these strides a VALID window may be too large
            continue
        return sample


SUITED = {
    "identity": still,
    "empty": empty,
    "transpose": blocks,
    "reshape": tiling,
    "separable-gather": patches,
    "row-gather": anything,
}


def test_all_strategies_are_tested():
    assert set(NAMES) == set(SUITED)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=200)
@given(rng=sampling.randoms)
def test_is_exact(name, rng):
    sample = SUITED[name](rng)
    form = sampling.form(rng, sample)
    made = plan(form.model(sample), strategy=name)
    assert made.model is not None, f"{sample}\n{form}\n{made.sites}"
    sampling.check(sample, form, made.model)


@pytest.mark.parametrize("name", NAMES)
def test_is_taken_when_asked_for(name):
    taken = 0
    for seed in range(30):
        rng = Random(seed)
        sample = SUITED[name](rng)
        form = replace(
            sampling.form(rng, sample), shape=sample.inputs[0].shape, run_time=frozenset()
        )
        (site,) = plan(form.model(sample), strategy=name).sites
        taken += site.strategy == name
    assert taken >= 20  # below opset 14 and for strings some refuse


@pytest.mark.parametrize("name", NAMES)
def test_takes_the_cheapest_where_the_wanted_one_does_not_apply(name):
    sample = Sample(
        "tfnd",
        "SpaceToBatchND",
        sampling.TF,
        (np.arange(8.0).reshape(2, 4, 1), np.array([2]), np.array([[0, 0]])),
    )
    form = Form((2, 4, 1), frozenset(), 17, 8, None)
    (site,) = plan(form.model(sample), strategy=name).sites
    assert site.strategy == (name if name in ("transpose", "row-gather") else "transpose")


@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
@settings(max_examples=100)
@given(rng=sampling.randoms)
def test_the_cheapest_is_exact(spelling, rng):
    sample = sampling.SPELLINGS[spelling](rng)
    form = sampling.form(rng, sample)
    sampling.check(sample, form, convert(form.model(sample)))


@pytest.mark.parametrize("strategy", ["separable-gather", "row-gather", "reshape", None])
@pytest.mark.parametrize("known", [True, False], ids=["static", "symbolic"])
def test_an_empty_axis_has_nothing_to_start_inside_of(strategy, known):
    """ExtractVolumePatches SAME with stride > kernel starts inside, but not inside of nothing."""
    data = np.zeros((1, 1, 0, 0, 2), np.float32)
    ints = {"ksizes": [1, 3, 3, 2, 1], "strides": [1, 3, 1, 5, 1], "padding": "SAME"}
    sample = Sample("volume", "ExtractVolumePatches", sampling.TF, (data,), ints)
    shape = data.shape if known else ("a", "b", "c", "d", "e")
    form = Form(shape, frozenset(), 17, 8, strategy)
    sampling.check(sample, form, convert(form.model(sample), strategy=strategy))
