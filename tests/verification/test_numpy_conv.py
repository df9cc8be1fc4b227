"""Conv in double precision is what onnx's reference evaluator says it is."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_spatial import OperatorError
from onnx_spatial.verification.runtime import numpy_conv


def node(**attributes: object) -> onnx.NodeProto:
    given = {k: v for k, v in attributes.items() if v is not None}
    return onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], **given)  # type: ignore[arg-type]


def by_the_evaluator(conv: onnx.NodeProto, *arrays: np.ndarray) -> np.ndarray:
    double = onnx.TensorProto.DOUBLE
    graph = onnx.helper.make_graph(
        [conv],
        "g",
        [onnx.helper.make_tensor_value_info(n, double, None) for n in ("x", "w", "b")],
        [onnx.helper.make_tensor_value_info("y", double, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    (result,) = ReferenceEvaluator(model).run(None, dict(zip("xwb", arrays, strict=True)))
    return np.asarray(result)


def drawn(rng: np.random.Generator, rank: int) -> tuple[dict[str, object], list[np.ndarray]]:
    kernel = rng.integers(1, 4, rank).tolist()
    dilations, strides = rng.integers(1, 4, rank).tolist(), rng.integers(1, 4, rank).tolist()
    sizes = [
        (k - 1) * d + 1 + int(rng.integers(0, 5)) for k, d in zip(kernel, dilations, strict=True)
    ]
    pads = rng.integers(0, 4, 2 * rank).tolist()
    group, per_group, outputs = (int(n) for n in rng.integers(1, 4, 3))
    x = rng.standard_normal((2, group * per_group, *sizes))
    w = rng.standard_normal((group * outputs, per_group, *kernel))
    b = rng.standard_normal(group * outputs)
    attributes: dict[str, object] = {
        "dilations": dilations,
        "strides": strides,
        "pads": pads,
        "group": group,
        "kernel_shape": kernel if rng.integers(2) else None,
    }
    return attributes, [x, w, b]


@pytest.mark.parametrize(("rank", "seed"), list(itertools.product((1, 2, 3), range(12))))
def test_any_attributes(rank: int, seed: int) -> None:
    attributes, arrays = drawn(np.random.default_rng([rank, seed]), rank)
    conv = node(**attributes)
    expected = by_the_evaluator(conv, *arrays)
    found = numpy_conv.run_node(conv, arrays)
    assert found.dtype == np.float64
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-12


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [7, 8])
def test_auto_pad(mode: str, stride: int, size: int) -> None:
    """The same as with the pads that ONNX says it stands for."""
    rng = np.random.default_rng(size)
    arrays = [rng.standard_normal((1, 2, size)), rng.standard_normal((3, 2, 4)), None]
    total = max(0, (-(-size // stride) - 1) * stride + 4 - size) if mode.startswith("SAME") else 0
    pads = [total // 2, total - total // 2]
    pads = pads[::-1] if mode == "SAME_LOWER" else pads
    automatic = numpy_conv.run_node(node(auto_pad=mode, strides=[stride]), arrays)
    explicit = numpy_conv.run_node(node(pads=pads, strides=[stride]), arrays)
    assert np.array_equal(automatic, explicit)
    if mode.startswith("SAME"):
        assert automatic.shape[2] == -(-size // stride)


def test_auto_pad_with_dilations() -> None:
    """Which onnxruntime refuses: the odd element of the padding goes to the end, or the beginning."""
    x, w = np.arange(1.0, 7).reshape(1, 1, 6), np.array([[[1.0, 10.0]]])
    upper = numpy_conv.run_node(node(auto_pad="SAME_UPPER", dilations=[3]), [x, w, None])
    lower = numpy_conv.run_node(node(auto_pad="SAME_LOWER", dilations=[3]), [x, w, None])
    assert upper.ravel().tolist() == [30, 41, 52, 63, 4, 5]
    assert lower.ravel().tolist() == [20, 30, 41, 52, 63, 4]


def test_negative_pads_crop() -> None:
    x, w = np.arange(1.0, 7).reshape(1, 1, 6), np.array([[[1.0, 10.0]]])
    found = numpy_conv.run_node(node(pads=[-1, 1]), [x, w, None])
    assert found.ravel().tolist() == [32, 43, 54, 65, 6]


@pytest.mark.parametrize(
    ("attributes", "channels", "message"),
    [
        ({"strides": [1]}, 2, "strides has 1 entries, not 2"),
        ({"kernel_shape": [3, 3]}, 2, "kernel_shape differs from the shape of the weights"),
        ({"auto_pad": "SOMEHOW"}, 2, "auto_pad is 'SOMEHOW'"),
        ({"group": 2}, 2, "do not match"),
        ({}, 3, "do not match"),
        ({"dilations": [9, 1]}, 2, "does not fit the data"),
    ],
)
def test_what_does_not_fit(attributes: dict[str, object], channels: int, message: str) -> None:
    x, w = np.zeros((1, channels, 5, 5)), np.zeros((3, 2, 2, 2))
    with pytest.raises(OperatorError, match=message):
        numpy_conv.run_node(node(**attributes), [x, w, None])


def test_what_is_too_large() -> None:
    x, w = np.zeros((1, 1, 2**20)), np.broadcast_to(np.zeros(()), (2**14, 1, 1))
    with pytest.raises(OperatorError, match="too large to be compared"):
        numpy_conv.run_node(node(), [x, w, None])
