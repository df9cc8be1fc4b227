"""Patches that became operators again: of one-hot convolutions, of illegal Reshapes, in exported files.

Each chain in exported/ stands between two functions of single elements. torch 2.13 wrote them with
TorchScript's exporter ("-script") and with the newer one ("-dynamo"), tf2onnx 1.17 the others.
"""

import json
from pathlib import Path

import chain_models
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import patch_models
import pytest
import running
from chain_models import Net, weights
from patch_models import one_hot
from vocabulary import ExtractPatches

import onnx_spatial
from onnx_spatial.chains.illegal_reshapes import ILLEGAL, with_legal_patches
from onnx_spatial.chains.one_hot import NOTE, NOTE_OF_SUMS
from onnx_spatial.maps.elements import FINITE_DATA


@pytest.fixture(scope="module")
def keras() -> onnx.ModelProto:
    """Like Keras 3: one-hot Conv between Transposes, on images of any number."""
    return patch_models.channels_last(one_hot((8, 8), 3), ("n", 64, 64, 3), strides=[8, 8])


@pytest.fixture(scope="module")
def result(keras) -> onnx_spatial.Conversion:
    return onnx_spatial.optimize(keras)


ASSUMED = [f"the proof assumes that {FINITE_DATA}"]


def test_optimize_and_verify_say_which_values_differ(keras, result):
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
    verification = onnx_spatial.verify(keras, result.model)
    assert (verification.evidence, verification.notes) == ("proven", ASSUMED)


def test_values_differ_as_is_said(keras, result):
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


@pytest.mark.parametrize(
    ("model", "lowering", "notes"),
    [
        (strided(), "strided convolution", (NOTE_OF_SUMS,)),
        (between_blocks(), "dilated convolution", ()),
        (patch_models.im2col((2, 3, 32, 40), computed=True), None, ()),
        # As small as those that stay, but onnxruntime moves single elements behind it.
        (patch_models.tf2onnx((1, 32, 32, 3)), None, (NOTE,)),
    ],
    ids=["strided", "between blocks", "gathers", "tf2onnx"],
)
def test_where_patches_differ_from_convolutions_both_reports_say_so(model, lowering, notes) -> None:
    result = onnx_spatial.optimize(model)
    assert result.changed and result.verification.operators[0].proven
    for chain in result.inspection.chains:
        assert lowering in (None, chain.lowering) and chain.notes == notes
    assert onnx_spatial.verify(model, result.model).notes == (ASSUMED if notes else [])
    assert onnx_spatial.verify(model, model).notes == []


# Patches of tf2onnx with unknown sizes, which no runtime loads

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


def test_inspect_optimize_and_verify():
    model = patch_models.tf2onnx(BATCH)
    found = onnx_spatial.inspect(model)
    assert [site.op_type for site in found.operators] == ["ExtractImagePatches"]
    assert found.chains == []
    result = onnx_spatial.optimize(model)
    assert [site.action for site in result.operators] == ["lower"]
    assert onnx_spatial.verify(model, result.model).status == "passed"
    other = onnx_spatial.convert(patch_models.tf2onnx(BATCH, rate=2)).model
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


# Exported files


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "exported").glob("*.onnx")), ids=lambda path: path.stem
)
def test_exported_chains_keep_all_elements_and_fit_rank_4(path):
    model, rng = onnx.load(path), np.random.default_rng(0)
    feeds = {
        v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim], np.float32)
        for v in model.graph.input
    }
    results = [onnx_spatial.optimize(model, max_rank=4, verify=False)]
    assert results[0].inspection.limits.nodes == ()
    if path.stem == "contextual_attention":  # patches beside a chain that only moves data
        results.append(onnx_spatial.optimize(model))
        assert results[1].verification.status == "passed"
        kinds = [(site.op_type, site.action) for site in results[1].inspection.chains]
        assert kinds.count(("ExtractImagePatches", "lower")) == 2
        assert ("Rearrange", "lower") in kinds
    (expected,) = running.run(model, feeds, running.LEVELS[0])
    for result in results:
        (actual,) = running.run(result.model, feeds, running.LEVELS[0])
        assert actual.tobytes() == expected.tobytes()


def test_a_large_weight_behind_an_illegal_reshape_takes_no_memory():
    """Of 4,000 x 4,000 places an identity would have 2.6e14 numbers."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,h,w,3] x) => (y)
        <int64[4] shape = {-3, -1, -1, 1}, int64[4] large = {4000, 4000, 1, 1}> {
            r = Reshape (x, shape)  k = ConstantOfShape (large)  y = Conv (r, k) }"""
    assert not onnx_spatial.convert(onnx.parser.parse_model(text), verify=False).changed
