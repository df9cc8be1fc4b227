"""One-hot Convs and Gathers of windows are patches, if all that they copy is a whole window."""

from __future__ import annotations

import holders
import numpy as np
import onnx
import onnxruntime
import patch_models
import pytest
from chain_models import Net
from onnx import TensorProto, helper, numpy_helper
from patch_models import one_hot

import onnx_spatial
from onnx_spatial.chains.find_chains import list_chains, with_operators
from onnx_spatial.operators.spellings.chain_ops import DOMAIN

K3 = {
    "valid": {},
    "pads": {"pads": [1, 1, 1, 1]},
    "auto_pad": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    "uneven pads": {"pads": [0, 2, 1, 3], "strides": [2, 1]},
    "one window": {"strides": [8, 10]},
}


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {"x": x})[0]


def patches_of(model: onnx.ModelProto):
    (chain,) = list_chains(model)
    return chain.patches


def same_values(model: onnx.ModelProto, shape) -> None:
    """Compare the model with its chain as a named operator, by its numpy kernel."""
    chains = list_chains(model)
    named, _ = with_operators(model, chains)
    x = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    converted = onnx_spatial.convert(named, domains=[DOMAIN], verify=False)
    assert all(node.op_type != "Conv" for node in converted.model.graph.node)
    np.testing.assert_array_equal(run(converted.model, x), run(model, x))


@pytest.mark.parametrize(
    ("shape", "major"), [((2, 3, 9, 11), "place"), (("n", 3, "h", "w"), "channel")]
)
@pytest.mark.parametrize("attributes", K3.values(), ids=K3)
def test_one_hot_convolutions(shape, attributes, major):
    model = patch_models.channels_first(one_hot((3, 3), 3, major=major), shape, **attributes)
    found = patches_of(model)
    assert (found.operator.kernel, found.operator.major) == ((3, 3), major)
    same_values(model, (2, 3, 9, 11))


def test_transposes_around_are_part_of_the_operator():
    shape = ("n", "h", "w", 3)
    model = patch_models.channels_last(one_hot((2, 4), 3), shape, strides=[2, 3])
    (chain,) = list_chains(model)
    assert [node.op_type for node in chain.nodes] == ["Transpose", "Conv", "Transpose"]
    assert chain.patches.operator.layout == "channels_last"
    assert chain.patches.before == (0, 1, 2, 3)
    same_values(model, (2, 9, 11, 3))


def test_depthwise_convolutions_put_the_channels_first():
    weight = one_hot((3, 3), 4, group=True)
    model = patch_models.channels_first(weight, ("n", 4, "h", "w"), group=4)
    assert patches_of(model).operator.major == "channel"
    same_values(model, (2, 4, 7, 8))


@pytest.mark.parametrize("shape", [(1, 9, 11, 3), (2, 9, 11, 3)])
def test_tf2onnx_form(shape):
    model = patch_models.tf2onnx(shape, stride=2)
    (chain,) = list_chains(model)
    assert (chain.source, chain.output) == ("x", model.graph.output[0].name)
    assert chain.patches.channels == 3
    same_values(model, shape)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        (3, 2, 1, 2),
        (4, 4, 0),
    ],
)
def test_gathers_of_windows(arguments, computed):
    shape = ("n", 2, "h", "w") if computed else (2, 2, 13, 12)
    model = patch_models.im2col(shape, *arguments, computed=computed)
    (chain,) = list_chains(model)
    assert chain.nodes[-1].op_type == "Reshape"
    assert not chain.one_hot
    same_values(model, (2, 2, 13, 12))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16])
def test_element_types(kind):
    model = patch_models.channels_first(one_hot((2, 2), 3), (2, 3, 8, 10), opset=22)
    graph = model.graph
    array = numpy_helper.to_array(graph.initializer[0])
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    graph.initializer[0].CopyFrom(
        numpy_helper.from_array(array.astype(dtype), graph.initializer[0].name)
    )
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.elem_type = kind
    assert patches_of(model).operator.kernel == (2, 2)


def _wrong(change) -> np.ndarray:
    weight = one_hot((3, 3), 2)
    change(weight)
    return weight


WRONG = {
    "two ones": _wrong(lambda w: w.__setitem__((0, 0, 1, 1), 1)),
    "a channel twice": _wrong(lambda w: w.__setitem__(0, w[1])),
    "mixed channels": _wrong(lambda w: w.__setitem__(slice(None), w[[1, 0, *range(2, 18)]])),
    "a part of the patches": one_hot((3, 3), 2)[:9],
    "NaN": _wrong(lambda w: w.__setitem__((0, 1, 2, 2), np.nan)),
}


@pytest.mark.parametrize("weight", WRONG.values(), ids=WRONG)
def test_other_convolutions_are_no_patches(weight):
    assert list_chains(patch_models.channels_first(weight, (1, 2, 9, 9))) == []


def test_a_bias_is_more_than_patches():
    net = Net()
    model = net.model((1, 2, 9, 9), net("Conv", "x", one_hot((3, 3), 2), np.ones(18, "f")))
    assert list_chains(model) == []


def test_a_weight_that_callers_may_replace_is_unknown():
    model = patch_models.channels_first(one_hot((3, 3), 2), (1, 2, 9, 9))
    weight = model.graph.initializer[0]
    assert len(list_chains(model)) == 1
    model.graph.input.append(
        helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, list(weight.dims))
    )
    assert list_chains(model) == []


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 1, 0], [0, 1, 1]])
def test_grids_that_are_no_windows(rows):
    grid = np.array(rows)[:, None] + np.arange(8)
    net = Net()
    value = net("Gather", net("Gather", "x", grid, axis=2), grid, axis=4)
    value = net("Transpose", value, perm=[0, 1, 2, 4, 3, 5])
    model = net.model((1, 2, 10, 10), net("Reshape", value, [1, 18, 64]))
    assert len(list_chains(model)) == (rows == [0, 1, 2])


@pytest.mark.parametrize(
    ("holder", "place"),
    [("function", "function held.here:Held"), ("branch", "main graph > If held.then_branch")],
)
def test_one_hot_convolutions_in_functions_and_branches(holder, place):
    model = patch_models.channels_first(one_hot((2, 2), 3), (1, 3, 64, 64), strides=[2, 2])
    assert [str(chain.place) for chain in list_chains(holders.HOLDERS[holder](model))] == [place]
