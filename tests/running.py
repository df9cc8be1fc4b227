"""Run models in onnxruntime with every element type, and compare arrays bit by bit."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from types import MappingProxyType

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

LEVELS = (
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
)


def ir_version_of(opset: int) -> int:
    """The IR version that came with an opset."""
    return int(helper.find_min_ir_version_for([helper.make_opsetid("", opset)]))


@functools.cache
def newest_opset() -> int:
    """The newest opset that the installed onnx and onnxruntime both know."""
    value = helper.make_tensor_value_info
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [value("x", 1, [1])], [value("y", 1, [1])])
    for opset in range(onnx.defs.onnx_opset_version(), 11, -1):
        imports = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version_of(opset))
        try:
            session(model, LEVELS[0])
        except Exception:  # whatever it raises, it is not this one
            continue
        return opset
    return 11


def session(
    model: onnx.ModelProto,
    level: ort.GraphOptimizationLevel,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> ort.InferenceSession:
    """A session that prints nothing."""
    options = ort.SessionOptions()
    for key, value in settings.items():
        options.add_session_config_entry(key, value)
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def feed(array: np.ndarray) -> ort.OrtValue:
    """An array as OrtValue; bfloat16 has no numpy type that onnxruntime knows."""
    if array.dtype == ml_dtypes.bfloat16:
        bits = np.ascontiguousarray(array).view(np.uint16)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def fetch(value: ort.OrtValue) -> np.ndarray:
    """The array in an OrtValue."""
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    shape = value.shape()
    size = int(np.prod(shape)) * 2
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(data, ml_dtypes.bfloat16).reshape(shape)


def run(
    model: onnx.ModelProto,
    feeds: dict[str, np.ndarray],
    level: ort.GraphOptimizationLevel = LEVELS[1],
) -> list[np.ndarray]:
    """All outputs of one run."""
    return run_session(session(model, level), feeds)


def run_session(opened: ort.InferenceSession, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs of one run of an open session."""
    if any(array.dtype == object for array in feeds.values()):
        return list(opened.run(None, feeds))
    values = opened.run_with_ort_values(None, {k: feed(v) for k, v in feeds.items()})
    return [fetch(v) for v in values]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shape, element type and bits (strings: equal texts)."""
    if a.shape != b.shape:
        return False
    if a.dtype == object or b.dtype == object:
        return a.tolist() == b.tolist()
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()
