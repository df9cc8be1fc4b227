"""Every strategy on its own: exact wherever it does not refuse, whatever is known before the run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import onnx
import pytest
import running
import sampling
from adapter import convert, plan
from hypothesis import given, settings
from sampling import Form, Sample
from vocabulary import LOWERINGS

import onnx_spatial
from onnx_spatial.lowering import row_gather, select
from onnx_spatial.lowering.core import gather_indices

NAMES = list(LOWERINGS)


def of_any_kind(rng: Random) -> Sample:
    return sampling.SPELLINGS[rng.choice(list(sampling.SPELLINGS))](rng)


def still(rng: Random) -> Sample:
    """Nothing is moved: blocks of 1 without pads, windows of 1, cells of 1."""
    if rng.random() < 0.5:
        sample = sampling.openvino(rng, rng.random() < 0.5)
        data, block, *amounts = sample.inputs
        unmoved = (np.ones_like(block), *map(np.zeros_like, amounts))
        return replace(sample, inputs=(data, *unmoved))
    if rng.random() < 0.2:
        return replace(sampling.reorg(rng), attributes={"stride": 1})
    sample = sampling.SPELLINGS[rng.choice(("image-tf", "image-openvino", "volume"))](rng)
    kernel = "sizes" if "sizes" in sample.attributes else "ksizes"
    ones = {name: [1] * len(sample.attributes[kernel]) for name in (kernel, "strides")}
    return replace(sample, attributes={**sample.attributes, **ones})


def empty(rng: Random) -> Sample:
    while True:
        sample = of_any_kind(rng)
        if 0 in sample.inputs[0].shape or 0 in sample.expected.shape:
            return sample


def square(rng: Random) -> Sample:
    """The last two axes in equal blocks, floats."""
    b = rng.choice([2, 3])
    batch, channels = rng.choice([1, 2]), rng.choice([1, 3])
    x = np.array([batch, channels, b * rng.randint(1, 3), b * rng.randint(1, 3)])
    if rng.random() < 0.5:
        x[0] *= b * b
        op_type = "BatchToSpaceND"
    else:
        op_type = "SpaceToBatchND"
    data = sampling.array(rng, rng.choice(["float32", "float64"]), tuple(int(d) for d in x))
    table = np.zeros((3, 2), np.int32)
    return Sample("tfnd", op_type, sampling.TF, (data, np.array([1, b, b], np.int32), table))


#: Lowerings that few nodes are for, with those.
RARE = {"identity": still, "empty": empty, "space-to-depth": square}


# Campaigns (tests/campaign) draw thousands of random nodes with random strategies.


@pytest.mark.parametrize("name", NAMES)
def test_each_is_taken_when_asked_for_and_exact(name):
    taken = 0
    for seed in range(120):
        rng = Random(f"{name} {seed}")
        sample = RARE.get(name, of_any_kind)(rng)
        form = sampling.form(rng, sample)
        made = plan(form.model(sample), prefer=name)
        if made.operators[0].lowering == name:
            assert made.model is not None
            sampling.check(sample, form, made.model)
            taken += 1
        if taken == 12:
            return
    raise AssertionError(f"{name} took {taken} of 120 nodes")


@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
@settings(max_examples=10)
@given(rng=sampling.randoms)
def test_the_cheapest_is_exact(spelling, rng):
    sample = sampling.SPELLINGS[spelling](rng)
    form = sampling.form(rng, sample)
    sampling.check(sample, form, convert(form.model(sample)))


@pytest.mark.parametrize("strategy", ["row-gather", "planes", "slices", None])
@pytest.mark.parametrize("known", [True, False], ids=["static", "symbolic"])
def test_an_empty_axis_has_nothing_to_start_inside_of(strategy, known):
    """ExtractVolumePatches SAME with stride > kernel starts inside, but not inside of nothing."""
    data = np.zeros((1, 1, 0, 0, 2), np.float32)
    ints = {"ksizes": [1, 3, 3, 2, 1], "strides": [1, 3, 1, 5, 1], "padding": "SAME"}
    sample = Sample("volume", "ExtractVolumePatches", sampling.TF, (data,), ints)
    shape = data.shape if known else ("a", "b", "c", "d", "e")
    form = Form(shape, frozenset(), 17, 8, strategy)
    sampling.check(sample, form, convert(form.model(sample), prefer=strategy))


@settings(max_examples=30)
@given(rng=sampling.randoms)
def test_a_rank_limit_is_kept_or_the_reason_given(rng):
    sample = of_any_kind(rng)
    form = sampling.form(rng, sample)
    data = sample.inputs[0]
    limit = rng.choice((3, 4, 5))
    made = plan(form.model(sample), max_rank=limit)
    (site,) = made.operators
    if made.model is None:
        assert site.action == "refuse" and site.reason
        return
    known = onnx.shape_inference.infer_shapes(made.model)
    new = [v for v in known.graph.value_info if v.type.tensor_type.HasField("shape")]
    assert all(len(v.type.tensor_type.shape.dim) <= limit for v in new)
    sampling.check(sample, form, made.model)
    if form.shape == data.shape and data.ndim <= limit and not form.run_time:
        assert site.action == "lower"


@pytest.fixture
def long_indices(monkeypatch):
    """Indices are computed of tables however short they are, as those of large images are."""
    for module in (gather_indices, row_gather):
        monkeypatch.setattr(module, "MAX_STORED_ENTRIES", 0)


@pytest.mark.parametrize("name", ["gather", "row-gather", "element-gather", "planes"])
def test_long_indices_are_exact(name, long_indices):
    """Runtimes add the tables up when they load; the samples here are too small for any."""
    for seed in range(15):
        rng = Random(seed)
        sample = of_any_kind(rng)
        shape = sample.inputs[0].shape
        form = replace(sampling.form(rng, sample), shape=shape, run_time=frozenset())
        select._rank_present.cache_clear()
        made = plan(form.model(sample), prefer=name)
        assert made.model is not None
        sampling.check(sample, form, made.model)
    select._rank_present.cache_clear()


# Sizes of 0


def test_crops_of_the_run_from_an_axis_without_elements():
    """The estimated crops exceed the axis: an estimated time is no root of a negative number."""
    model = onnx.parser.parse_model("""
        <ir_version: 7, opset_import: ["" : 12, "org.openvinotoolkit" : 1]>
        g (float[a,b,c,3,0,2] x, int8[6] ends) => (float[d,e,f,g,h,i] y)
        <int8[6] block = {1, 1, 2, 4, 1, 1}, int8[6] begins = {0, 0, 1, 0, 0, 0}> {
            y = org.openvinotoolkit.BatchToSpace(x, block, begins, ends)
        }""")
    made = onnx_spatial.convert(model, verify=False).model
    x = np.zeros((8, 4, 3, 3, 0, 2), np.float32)
    feeds = {"x": x, "ends": np.array([0, 0, 1, 4, 0, 0], np.int8)}
    (y,) = running.run(made, feeds)
    assert y.shape == (1, 4, 4, 8, 0, 2)
