"""Operators in numpy against onnxruntime's own kernels, in float32, on random attributes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from onnx_spatial import OperatorError
from onnx_spatial.verification.runtime import numpy_conv
from onnx_spatial.verification.runtime.numpy_ops import KERNELS
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.segment import _MOST_LOOPED
from onnx_spatial.verification.runtime.sessions import RunFailure

FLOAT = onnx.TensorProto.FLOAT
OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 31)


def agree(op_type: str, arrays: list[np.ndarray], **attributes: Any) -> None:
    names = [f"i{number}" for number in range(len(arrays))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(n, FLOAT, a.shape) for n, a in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    graph.output[0].type.tensor_type.elem_type = FLOAT
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (expected,) = session.run(None, dict(zip(names, arrays, strict=True)))
    actual = KERNELS[op_type](node, [a.astype(np.float64) for a in arrays])
    np.testing.assert_allclose(actual, expected, atol=3e-5, err_msg=str(node))


def rngs(count: int) -> Iterator[tuple[int, np.random.Generator]]:
    for number in range(count):
        yield 1 + number % 3, np.random.default_rng(number)


def test_transposed_convolutions() -> None:
    for rank, rng in rngs(60):
        kernel, strides, sizes = (
            rng.integers(low, high, rank) for low, high in ((1, 4), (1, 4), (5, 9))
        )
        dilations, group = rng.integers(1, 3, rank), int(rng.integers(1, 3))
        x = rng.standard_normal((2, 4, *sizes)).astype(np.float32)
        w = rng.standard_normal((4, 3, *kernel)).astype(np.float32)
        b = rng.standard_normal(3 * group).astype(np.float32)
        given: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
        how = rng.integers(5)
        if how == 0:
            given["pads"] = rng.integers(0, 2, 2 * rank)
        elif how == 1:
            given["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
        elif how == 2:
            given["output_padding"] = np.minimum(strides, dilations) - 1
        elif how == 3:
            given["output_shape"] = (sizes - 1) * strides + 1
        plain = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in given.items()}
        agree("ConvTranspose", [x, w, b][: rng.integers(2, 4)], **plain)


@pytest.mark.skipif(OLD, reason="onnxruntime 1.23 counts what ceil_mode adds as padding")
def test_average_pools() -> None:
    for rank, rng in rngs(60):
        kernel, strides, sizes = (
            rng.integers(low, high, rank) for low, high in ((1, 4), (1, 4), (6, 9))
        )
        x = rng.standard_normal((2, 3, *sizes)).astype(np.float32)
        given: dict[str, Any] = {"kernel_shape": kernel.tolist(), "strides": strides.tolist()}
        given |= {name: int(rng.integers(2)) for name in ("ceil_mode", "count_include_pad")}
        how = rng.integers(3)
        if how == 0:
            given["pads"] = np.minimum([*(kernel - 1), *(kernel - 1)], rng.integers(0, 2)).tolist()
        elif how == 1:
            given["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
        else:  # with auto_pad onnxruntime ignores them
            given["dilations"] = rng.integers(1, 3, rank).tolist()
        agree("AveragePool", [x], **given)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_samples_of_a_grid(mode: str, padding: str) -> None:
    rng = np.random.default_rng(5)
    ranks = (2,) if mode == "cubic" else (2, 3)  # onnxruntime has no cubic one of volumes
    for rank, corners in itertools.product(ranks, (0, 1)):
        x = rng.standard_normal((2, 3, *rng.integers(1, 7, rank))).astype(np.float32)
        grid = rng.normal(0, 1.2, (2, *rng.integers(2, 9, rank), rank)).astype(np.float32)
        if OLD and rank == 3 and padding == "reflection":
            continue  # onnxruntime 1.23 computes NaN in some runs and numbers in others
        agree("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=corners)


def test_a_large_convolution_is_computed_for_some_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for group in (1, 4):
        x = rng.standard_normal((2, 8, 6, 5))
        w = rng.standard_normal((12, 8 // group, 3, 2))
        b = rng.standard_normal(12)
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 0, 0, 1], group=group)
        whole = numpy_conv.run_node(node, [x, w, b])
        monkeypatch.setattr(numpy_conv, "MAX_PRODUCTS", whole[0, 0].size * 2 * w.size // 3)
        some = numpy_conv.run_node(node, [x, w, b])
        monkeypatch.undo()
        computed = ~np.isnan(some).any(axis=(0, 2, 3))
        assert 0 < computed.sum() < 12 and computed[0]
        np.testing.assert_allclose(some[:, computed], whole[:, computed])


def test_what_does_not_fit_is_said_to() -> None:
    node = helper.make_node("GridSample", ["x", "g"], ["y"])
    with pytest.raises(OperatorError, match="does not match the data"):
        KERNELS["GridSample"](node, [np.zeros((1, 1, 4, 4)), np.zeros((1, 2, 2, 3))])


def test_loops_over_elements_are_bounded() -> None:
    """onnxruntime has no LRN in double, and onnx's reference evaluator loops over the elements."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (double[1,1,A,B] x) => (double y) { y = LRN<size = 3>(x) }"""
    )
    program = Program(model, [])
    small = program.run({"x": np.ones((1, 1, 4, 4))})
    assert small["y"].shape == (1, 1, 4, 4) and program.substitutes
    with pytest.raises(RunFailure, match=r"LRN node .* too large for the reference kernel"):
        program.run({"x": np.ones((1, 1, 2, _MOST_LOOPED))})
