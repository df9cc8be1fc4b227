"""Prices: what a node is said to do, and that estimates behave like times."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.cost_model import Work

FACTS = json.loads(
    (cost_model.resources.files("onnx_spatial.lowering.core") / "prices.json").read_text()
)

dims = st.lists(st.integers(1, 5), min_size=1, max_size=6).map(tuple)


@st.composite
def movements(draw):
    sizes = draw(dims)
    return sizes, tuple(draw(st.permutations(range(len(sizes)))))


@given(movements())
def test_merging_axes_keeps_the_movement(movement):
    sizes, perm = movement
    x = np.arange(math.prod(sizes)).reshape(sizes)
    small, order = cost_model.merged(sizes, perm)
    assert np.array_equal(x.transpose(perm).ravel(), x.reshape(small).transpose(order).ravel())
    assert 1 not in small
    assert all(b != a + 1 for a, b in pairwise(order))


@given(movements(), st.sampled_from([1, 2, 4, 8, 40]))
def test_every_transpose_has_a_price(movement, itemsize):
    sizes, perm = movement
    work = cost_model.transpose(sizes, perm, itemsize)
    assert set(work.features) >= {"call", "run", "byte", "far"}
    assert work.nanoseconds > 0


@pytest.mark.parametrize(
    ("sizes", "perm", "itemsize", "regime"),
    [
        ((64, 2), (1, 0), 4, "transpose 4"),
        ((64, 2), (1, 0), 1, "transpose 1"),
        ((64, 2), (1, 0), 8, "transpose 8"),
        ((64, 2, 2), (1, 0, 2), 4, "transpose 8"),  # pairs of float32 go as one
        ((64, 2, 3), (1, 0, 2), 4, "transpose one axis"),
        ((4, 64, 2, 3), (0, 2, 1, 3), 4, "transpose one axis"),
        ((64, 1, 2, 3), (1, 2, 0, 3), 4, "transpose inwards"),
        ((4, 64, 1, 2, 3), (0, 2, 3, 1, 4), 4, "transpose inwards"),
        ((64, 1, 2), (1, 2, 0), 4, "transpose 4"),
        ((4, 8, 2, 3), (2, 1, 0, 3), 4, "transpose blocks"),
        ((4, 8, 2), (2, 1, 0), 4, "transpose elements"),
        ((4, 1, 2), (1, 0, 2), 4, "crop"),  # nothing moves
    ],
)
def test_transposes_fall_into_the_kernels_of_onnxruntime(sizes, perm, itemsize, regime):
    assert cost_model.transpose(sizes, perm, itemsize).regime == regime


@pytest.mark.parametrize(
    ("dims", "itemsize", "features"),
    [
        ((64, 64), 4, set()),
        ((65, 64), 4, {"row edge"}),
        ((64, 66), 4, {"column edge"}),
        ((68, 64), 1, {"row edge"}),  # tiles of 8 x 8 bytes
        ((64, 1024), 4, {"read apart"}),
        ((64, 1028), 4, set()),
        ((4096, 16), 4, {"write apart"}),
        ((4096, 8), 4, set()),
    ],
)
def test_transposes_of_elements_know_their_tiles_and_cache_lines(dims, itemsize, features):
    special = {"row edge", "column edge", "read apart", "write apart"}
    work = cost_model.transpose(dims, (1, 0), itemsize)
    assert special.intersection(work.features) == features


def test_each_regime_has_prices_for_one_thread_and_two():
    assert all(len(each) == 2 for each in FACTS["prices"].values())
    assert all(v > 0 for each in FACTS["prices"].values() for p in each for v in p.values())
    for regime, features in FACTS["prices"].items():
        known = Work(regime, dict.fromkeys(features[0], 1.0))
        assert known.nanoseconds > 0


@settings(max_examples=50)
@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(2, 16), st.booleans())
def test_more_work_is_never_cheaper(runs, size, parts, single):
    for make in (
        lambda n: cost_model.gather(runs * n, size * n),
        lambda n: cost_model.take(runs * n, size * n, strided=single, single=single),
        lambda n: cost_model.concat(parts, runs * n, size * n, single=single),
        lambda n: cost_model.split(parts, runs * n, size * n, single=single),
        lambda n: cost_model.pad(runs * n, size * n),
        lambda n: cost_model.depth(runs * n, size * n, parts, to_depth=True),
    ):
        assert make(2).nanoseconds >= make(1).nanoseconds
