"""Every operator under every target: what is added, the target runs, or the refusal says why not."""

from __future__ import annotations

from random import Random

import pytest
import sampling
import structure
from building import one_node
from converting import convert, refusal
from onnx import parser
from sampling import Form, Sample

import onnx_spatial
from onnx_spatial import ConversionError
from onnx_spatial.model.targets import TARGETS

SAMPLES = [make(Random(seed)) for seed in range(3) for make in sampling.SPELLINGS.values()]


def model_of(sample: Sample, *, static: bool):
    shape = sample.inputs[0].shape
    return Form(
        shape if static else (None, *shape[1:]), frozenset(), opset=17, ir_version=8, strategy=None
    ).model(sample)


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", TARGETS)
def test_no_lowering_uses_what_the_target_does_not_run(name, static):
    target, made = TARGETS[name], 0
    for sample in SAMPLES:
        model = model_of(sample, static=static)
        try:
            types = {node.op_type for node in structure.nodes(convert(model, target=name))}
        except ConversionError as error:
            reason = str(error)
            assert (
                f"the limit is {target.max_rank}" in reason or f"not for {target.title}" in reason
            )
            continue
        made += 1
        assert not types & (target.refused | target.avoided), sample
    assert made > len(SAMPLES) / 2


PATCHES = {
    "ksizes": [1, 3, 3, 1],
    "strides": [1, 2, 2, 1],
    "rates": [1, 1, 1, 1],
    "padding": "SAME",
}


def patches(shape):
    domain = "ai.onnx.converters.tensorflow"
    data = sampling.array(Random(0), "float32", (2, 9, 12, 3))
    return one_node("ExtractImagePatches", (data,), domain=domain, shape=shape, opset=17, **PATCHES)


def test_the_candidates_and_the_cheapest_of_them():
    model = patches((2, 9, 12, 3))
    (free,) = onnx_spatial.inspect(model).sites
    (bound,) = onnx_spatial.inspect(model, target="ncnn").sites
    using_gather = {"separable-gather", "row-gather", "gather"}
    names = [{c.strategy for c in site.candidates} for site in (free, bound)]
    assert names[0] & using_gather
    assert names[1] and not names[1] & using_gather
    assert bound.strategy in names[1]


def test_the_refusal_names_the_operators_and_what_helps():
    reason = refusal(patches((None, None, None, None)), target="qnn")
    assert reason == (
        "no lowering fits: with unknown sizes it needs Shape, not for QNN (fix its sizes with --static)"
    )


def test_sizes_that_a_target_needs_as_constants_are_not_computed():
    reason = refusal(patches((None, None, None, None)), target="coreml")
    assert reason == (
        "no lowering fits: with unknown sizes it needs computed sizes of Pad, not for Core ML "
        "(fix its sizes with --static)"
    )
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,3,h,w] x) => (float[n,12,p,q] y) { y = SpaceToDepth <blocksize = 2> (x) }""")
    result = onnx_spatial.optimize(model, target="coreml")
    assert not result.changed
    (node,) = result.inspection.limits.nodes
    assert "needs computed sizes of Reshape, not for Core ML" in node.kept


def test_fixed_sizes_do_not_help_against_a_rank():
    data = sampling.array(Random(0), "float32", (4, 2, 2, 2, 2, 2))
    block = ([2, 2], [[0, 0], [0, 0]])
    inputs = (data, *(sampling.np.array(values, "int64") for values in block))
    model = one_node("BatchToSpaceND", inputs, shape=(None, 2, 2, 2, 2, 2), opset=17)
    reason = refusal(model, target="coreml")
    assert reason.endswith("the limit is 5")  # that of the target, which no option raises


def test_a_preferred_lowering_that_the_target_does_not_run_gives_way():
    model = patches((2, 9, 12, 3))
    (site,) = onnx_spatial.inspect(model, strategy="separable-gather").sites
    assert site.strategy == "separable-gather"
    (site,) = onnx_spatial.inspect(model, strategy="separable-gather", target="ncnn").sites
    assert site.strategy not in (None, "separable-gather")
