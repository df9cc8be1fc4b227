"""Patches as a one-hot Conv: only for data that is declared to be finite, and where it is faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from benchmarks import forms
from onnx_spatial import ConversionError, lowering
from onnx_spatial.lowering import Request
from onnx_spatial.operators import ExtractPatches
from onnx_spatial.operators.spellings import FixedCall


def request(
    shape: tuple[int | None, ...], operator: ExtractPatches, element_type: int = TensorProto.FLOAT
) -> Request:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType(element_type)), shape=ir.Shape(shape))
    call = FixedCall(operator, "tensorflow")
    types = frozenset({element_type})
    return Request(call, (x,), shape, types, (element_type,), 17, finite=True)


def patches(k: int, s: int = 1, r: int = 1, *, axes: int = 2, **others: str) -> ExtractPatches:
    return ExtractPatches((k,) * axes, (s,) * axes, (r,) * axes, "same_upper", **others)


def run(made: lowering.Lowered, x: np.ndarray, *, optimised: bool = True) -> np.ndarray:
    nodes, tensors = forms.serialize(made)
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * x.ndim) for name in "xy"
    ]
    graph = helper.make_graph(nodes, "patches", infos[:1], infos[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {"x": x})[0]


def bits(x: np.ndarray) -> bytes:
    return x.tobytes()


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("known", [True, False])
def test_finite_data_is_exact(layout, axes, channels, known):
    sizes = (11, 8)[:axes]
    shape = (2, *sizes, channels) if layout == "channels_last" else (2, channels, *sizes)
    x = np.random.default_rng(0).uniform(-3e38, 3e38, shape).astype(np.float32)
    x.flat[::7] = np.float32(1e-45)  # subnormal
    for k, s, r in ((3, 1, 1), (3, 2, 1), (2, 3, 1), (3, 2, 2)):
        for major in ("place", "channel"):
            op = patches(k, s, r, axes=axes, layout=layout, major=major)
            dims = shape if known else (None,) * len(shape)
            made = lowering.lower(request(dims, op), strategy="convolution")
            for optimised in (False, True):
                assert bits(run(made, x, optimised=optimised)) == bits(op(x))


def test_images_without_a_window_are_empty():
    op = ExtractPatches((3, 3), (1, 1), (1, 1), "valid", clamp_negative=True)
    made = lowering.lower(request((None, None, None, 1), op), strategy="convolution")
    for sizes in ((2, 5), (1, 1), (3, 3)):
        x = np.ones((1, *sizes, 1), np.float32)
        assert run(made, x).shape == op(x).shape


def test_nan_spreads_and_negative_zeros_become_positive():
    """What `finite` declares not to be there."""
    op = patches(3)
    x = np.zeros((1, 4, 4, 1), np.float32)
    x[0, 1, 1, 0], x[0, 3, 3, 0] = np.nan, -0.0
    made = lowering.lower(request(x.shape, op), strategy="convolution")
    y = run(made, x)
    assert np.isnan(op(x)).sum() == 9 < np.isnan(y).sum()
    assert np.signbit(op(x)).any() and not np.signbit(y[~np.isnan(y)]).any()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (replace(request((1, 8, 8, 1), patches(3)), finite=False), "NaN, infinities or -0.0"),
        (request((1, 8, 8, 1), patches(3), TensorProto.DOUBLE), "float32 only"),
        (request((1, 8, 8, 1), patches(3), TensorProto.UINT8), "float32 only"),
        (request((1, 4, 8, 8, 1), patches(3, axes=3)), "convolution of volumes"),
        (request((1, 32, 32, 1), patches(9)), "more than 64"),
        (request((1, 8, 8, 1), patches(1, 2)), "one place"),
        (
            request((1, 2, 2, 1), ExtractPatches((3, 3), (1, 1), (1, 1), "valid")),
            "window|no patches",
        ),
    ],
    ids=["undeclared", "double", "uint8", "volume", "large", "one place", "no window"],
)
def test_is_refused_with_the_reason(made, reason):
    with pytest.raises(ConversionError, match=reason):
        lowering.lower(made, strategy="convolution")


def test_is_taken_where_it_is_faster():
    small = request((1, 32, 32, 1), patches(3, 2))
    first = request((1, 1, 224, 224), patches(3, layout="channels_first"))
    assert lowering.lower(small).strategy == "convolution"
    assert lowering.lower(replace(small, finite=False)).strategy == "element-gather"
    assert lowering.lower(first).strategy == "planes"


def test_one_channel_needs_three_nodes():
    made = lowering.lower(request((1, 224, 224, 1), patches(5)), strategy="convolution")
    assert [n.op_type for n in made.emitted.nodes] == ["Reshape", "Conv", "Transpose"]
