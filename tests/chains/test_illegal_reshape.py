"""Patches of tf2onnx with unknown sizes, which no runtime loads, are operators again."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import patch_models
import pytest
from chain_models import Net
from vocabulary import ExtractPatches

import onnx_spatial
from onnx_spatial.chains import ILLEGAL, with_legal_patches

SHAPES = {
    "batch": (None, 11, 13, 3),
    "all sizes": (None, None, None, 3),
    "height and width": (2, None, None, 3),
    "named batch": ("n", 11, 13, 3),
}


@pytest.mark.parametrize(
    ("shape", "stride", "rate"),
    [
        (s, *other)
        for s, other in zip(SHAPES.values(), [(1, 1), (2, 1), (1, 2), (1, 1)], strict=True)
    ],
    ids=SHAPES,
)
def test_convert(shape, stride, rate):
    model = patch_models.tf2onnx(shape, stride=stride, rate=rate)
    with pytest.raises(Exception, match=r"Invalid dimension value|-1"):
        onnxruntime.InferenceSession(model.SerializeToString())
    result = onnx_spatial.convert(model)
    (site,) = result.operators
    assert (site.op_type, site.domain, site.action) == ("ExtractImagePatches", "", "lower")
    assert site.notes == (ILLEGAL,)
    assert result.verification.status == "passed"
    x = np.random.default_rng(0).standard_normal((2, 11, 13, 3)).astype(np.float32)
    operator = ExtractPatches((3, 3), (stride,) * 2, (rate,) * 2, "valid")
    session = onnxruntime.InferenceSession(result.model.SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], operator(x))
    assert all(node.op_type not in ("Conv", "EyeLike") for node in result.model.graph.node)


@pytest.mark.parametrize(("shape", "stride"), [((None, 11, 13, 3), 2), ((None, None, None, 3), 1)])
def test_same_without_its_pads(shape, stride):
    result = onnx_spatial.convert(patch_models.tf2onnx_same(shape, stride))
    assert [site.op_type for site in result.operators] == ["ExtractImagePatches"]
    assert result.verification.status == "passed"
    x = np.random.default_rng(0).standard_normal((2, 11, 13, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(result.model.SerializeToString())
    expected = ExtractPatches((3, 3), (stride, stride), (1, 1), "same_upper")(x)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize("mode", ["function", "custom-op"])
def test_other_modes(mode):
    model = patch_models.tf2onnx((None, 11, 13, 3))
    result = onnx_spatial.convert(model, mode=mode)
    assert result.verification.status == "passed"
    assert onnx_spatial.convert(result.model).verification.status == "passed"


def test_inspect_and_verify():
    model = patch_models.tf2onnx((None, 11, 13, 3))
    found = onnx_spatial.inspect(model)
    assert [site.op_type for site in found.operators] == ["ExtractImagePatches"]
    assert found.chains == []
    result = onnx_spatial.optimize(model)
    assert [site.action for site in result.operators] == ["lower"]
    assert onnx_spatial.verify(model, result.model).status == "passed"
    other = onnx_spatial.convert(patch_models.tf2onnx((None, 11, 13, 3), rate=2)).model
    assert onnx_spatial.verify(model, other).status == "failed"


def test_legal_models_stay():
    model = patch_models.tf2onnx((2, 11, 13, 3))
    assert with_legal_patches(model).model is model
    assert not onnx_spatial.convert(model).changed


def test_another_number_of_channels_stays():
    model = patch_models.tf2onnx((None, 11, 13, 3))
    tensor = next(
        t for t in model.graph.initializer if -3 in onnx.numpy_helper.to_array(t).reshape(-1)
    )
    shape = np.array([-6, 11, 13, 1], np.int64)
    tensor.CopyFrom(onnx.numpy_helper.from_array(shape, tensor.name))
    assert with_legal_patches(model).model is model


def test_another_illegal_reshape_stays():
    net = Net()
    model = net.model(("n", 6), net("Reshape", "x", [-3, 2]))
    assert with_legal_patches(model).model is model
    patches = patch_models.tf2onnx((None, 11, 13, 3))
    last = patches.graph.output[0].name
    shape = onnx.numpy_helper.from_array(np.array([-2, 9], np.int64), "other")
    patches.graph.initializer.append(shape)
    patches.graph.node.append(onnx.helper.make_node("Reshape", [last, "other"], ["more"]))
    patches.graph.output[0].name = "more"
    assert with_legal_patches(patches).model is patches
