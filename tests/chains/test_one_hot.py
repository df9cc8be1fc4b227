"""One-hot convolutions that became patches: equal for finite values, and other mistakes are found."""

from __future__ import annotations

import json

import chain_models
import numpy as np
import onnx
import patch_models
import pytest
from chain_models import Net, weights
from patch_models import one_hot

import onnx_spatial
from onnx_spatial.chains.one_hot import NOTE, NOTE_OF_SUMS
from onnx_spatial.maps.elements import FINITE_DATA


@pytest.fixture(scope="module")
def keras() -> onnx.ModelProto:
    """Like Keras 3: one-hot Conv between Transposes, on images of any number."""
    return patch_models.channels_last(one_hot((8, 8), 3), ("n", 64, 64, 3), strides=[8, 8])


@pytest.fixture(scope="module")
def result(keras) -> onnx_spatial.Conversion:
    return onnx_spatial.optimize(keras)


def test_optimize_says_which_values_differ(result):
    (site,) = result.inspection.chains
    assert (site.op_type, site.action) == ("ExtractImagePatches", "lower")
    assert site.notes == (NOTE,)
    (proven,) = result.operators
    assert (proven.proven, proven.op_type) == ("all sizes", "ExtractImagePatches")
    document = json.loads(json.dumps(result.to_dict()))["operators"][0]
    assert document == proven.to_dict() | {"assumptions": [*proven.assumptions]}
    assert "NaN" in document["notes"][0] and document["dialect"] == "standard nodes"
    assert FINITE_DATA in proven.assumptions
    assert any("every size" in assumption for assumption in proven.assumptions)


def test_verify_passes_and_says_it(keras, result):
    verification = onnx_spatial.verify(keras, result.model)
    assert verification.evidence == "proven"
    assert verification.notes == [f"the proof assumes that {FINITE_DATA}"]


def test_values_differ_as_is_said(keras, result):
    import onnxruntime

    x = np.ones((1, 64, 64, 3), np.float32)
    x[0, 0, 0] = np.nan, np.inf, -0.0
    before, after = (
        onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
        for model in (keras, result.model)
    )
    assert np.isnan(after).sum() == 1
    assert np.isnan(before[0, 0, 0]).all()
    assert np.signbit(after[0, 0, 0, 2]) and after[0, 0, 0, 2] == 0


def strided() -> onnx.ModelProto:
    """With a product behind the patches."""
    net = Net()
    conv = net("Conv", "x", one_hot((3, 3), 4, major="channel"), pads=[1, 1, 1, 1])
    return net.model(("n", 4, "h", "w"), net("Conv", conv, weights(8, 36, 1, 1), weights(8)))


def between_blocks() -> onnx.ModelProto:
    """The Conv is still there then, and spreads NaN as before."""
    net, shape = Net(), (1, 64, 64, 3)
    x = chain_models.to_batch(net, net("Pad", "x", [0, 2, 2, 0, 0, 2, 2, 0]), shape, 4, 2)
    conv = net("Conv", net("Transpose", x, perm=[0, 3, 1, 2]), one_hot((3, 3), 3))
    x = net("Transpose", conv, perm=[0, 2, 3, 1])
    return net.model(shape, chain_models.to_space(net, x, 2, None, channels=27))


def gathers() -> onnx.ModelProto:
    return patch_models.im2col((2, 3, 32, 40), computed=True)


def of_tf2onnx() -> onnx.ModelProto:
    """As small as those that stay, but onnxruntime moves single elements behind it."""
    return patch_models.tf2onnx((1, 32, 32, 3))


ASSUMED = [f"the proof assumes that {FINITE_DATA}"]


@pytest.mark.parametrize(
    ("made", "lowering", "notes", "verified"),
    [
        (strided, "strided convolution", (NOTE_OF_SUMS,), ASSUMED),
        (between_blocks, "dilated convolution", (), []),
        (gathers, None, (), []),
        (of_tf2onnx, None, (NOTE,), ASSUMED),
    ],
)
def test_where_patches_differ_from_convolutions_both_reports_say_so(
    made, lowering, notes, verified
) -> None:
    model = made()
    result = onnx_spatial.optimize(model)
    assert result.changed and result.verification.operators[0].proven
    for chain in result.inspection.chains:
        assert lowering in (None, chain.lowering)
        assert chain.notes == notes
    assert onnx_spatial.verify(model, result.model).notes == verified
    assert onnx_spatial.verify(model, model).notes == []
