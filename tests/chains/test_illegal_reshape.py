"""Patches of tf2onnx with unknown sizes, which no runtime loads, are operators again."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import patch_models
import pytest
from chain_models import Net
from vocabulary import ExtractPatches

import onnx_spatial
from onnx_spatial.chains.one_hot import ILLEGAL, Weights, with_legal_patches
from onnx_spatial.model import traversal

BATCH, SIZES = (None, 11, 13, 3), (None, None, None, 3)
#: Models, with stride, rate and padding of the operator.
PATCHES = {
    "batch": (patch_models.tf2onnx(BATCH), 1, 1, "valid"),
    "all sizes": (patch_models.tf2onnx(SIZES, stride=2), 2, 1, "valid"),
    "height and width": (patch_models.tf2onnx((2, None, None, 3), rate=2), 1, 2, "valid"),
    "batch, same": (patch_models.tf2onnx_same(BATCH, 2), 2, 1, "same_upper"),
    "all sizes, same": (patch_models.tf2onnx_same(SIZES), 1, 1, "same_upper"),
}


@pytest.mark.parametrize("name", PATCHES)
def test_convert(name):
    model, stride, rate, padding = PATCHES[name]
    with pytest.raises(Exception, match=r"Invalid dimension value|-1"):
        onnxruntime.InferenceSession(model.SerializeToString())
    result = onnx_spatial.convert(model)
    (site,) = result.operators
    assert (site.op_type, site.domain, site.action) == ("ExtractImagePatches", "", "lower")
    assert site.notes == (ILLEGAL,)
    assert result.verification.status == "passed"
    x = np.random.default_rng(0).standard_normal((2, 11, 13, 3)).astype(np.float32)
    operator = ExtractPatches((3, 3), (stride,) * 2, (rate,) * 2, padding)
    session = onnxruntime.InferenceSession(result.model.SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], operator(x))
    assert all(node.op_type not in ("Conv", "EyeLike") for node in result.model.graph.node)


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


def test_other_models_stay():
    legal, channels, behind = (patch_models.tf2onnx(s) for s in ((2, *BATCH[1:]), BATCH, BATCH))
    stored = {t.name: t for t in channels.graph.initializer}
    (name,) = (n for n, t in stored.items() if -3 in onnx.numpy_helper.to_array(t).reshape(-1))
    shape = np.array([-6, 11, 13, 1], np.int64)
    stored[name].CopyFrom(onnx.numpy_helper.from_array(shape, name))
    last = behind.graph.output[0].name
    shape = onnx.numpy_helper.from_array(np.array([-2, 9], np.int64), "other")
    behind.graph.initializer.append(shape)
    behind.graph.node.append(onnx.helper.make_node("Reshape", [last, "other"], ["more"]))
    behind.graph.output[0].name = "more"
    net = Net()
    alone = net.model(("n", 6), net("Reshape", "x", [-3, 2]))
    for model in (legal, channels, behind, alone):
        assert with_legal_patches(model).model is model
    assert not onnx_spatial.convert(legal).changed


def test_a_large_weight_behind_an_illegal_reshape_takes_no_memory():
    """Of 4,000 x 4,000 places an identity would have 2.6e14 numbers."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,h,w,3] x) => (y)
        <int64[4] shape = {-3, -1, -1, 1}, int64[4] large = {4000, 4000, 1, 1}> {
            r = Reshape (x, shape)  k = ConstantOfShape (large)  y = Conv (r, k) }"""
    result = onnx_spatial.convert(onnx.parser.parse_model(text), verify=False)
    assert not result.changed


def test_what_is_known_of_a_weight_does_not_depend_on_what_was_asked_before():
    nodes = " ".join(f"n{i + 1} = Identity (n{i})" for i in range(40))
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g () => (n40) <float[1] n0 = {{1}}>
        {{ {nodes} }}"""
    weights, main = Weights(onnx.parser.parse_model(text), None), traversal.Place()
    assert weights.array(main, "n40") is None  # too many nodes
    assert weights.array(main, "n20") == [1.0]
