"""Run models in onnxruntime with every element type, and compare arrays bit by bit."""

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


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


@dataclass
class Case:
    """A model, what to feed it, and what must come out.

    Attributes:
        model, feeds, expected: these, outputs by their names in order.
        tolerance: how far a result may be off, as a share of the largest element; 0 for no bit.
        about: the case in words.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    tolerance: float = 0.0
    about: str = ""


#: onnxruntime's own rewriting to QLinearConv breaks models with QuantizeLinear per channel.
SETTINGS = {"session.disable_quant_qdq": "1"}


def mistakes(model: onnx.ModelProto, case: Case) -> dict[str, str]:
    """What is wrong with a converted model, by where: optimisations off and on."""
    found = {}
    for level in LEVELS:
        try:
            results = run_session(session(model, level, SETTINGS), case.feeds)
        except Exception as error:  # onnxruntime's errors have no common class
            found[level.name] = f"{type(error).__name__}: {error}"
            continue
        for (name, wanted), result in zip(case.expected.items(), results, strict=True):
            if off := difference(np.asarray(result), wanted, case.tolerance):
                found[f"{level.name}, {name}"] = off
    return found


def difference(result: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-4) -> str | None:
    """What is wrong with a result; None if nothing is."""
    if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
        return f"{result.dtype}{result.shape}, not {wanted.dtype}{wanted.shape}"
    if not tolerance or wanted.dtype.kind != "f":
        return None if same_bits(result, wanted) else "other elements"
    off = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
    allowed = tolerance * max(np.abs(wanted.astype(np.float64)).max(initial=0), 1e-2)
    wrong = ~(off <= allowed)  # what is not a number is wrong
    return f"{wrong.sum()} of {off.size} differ by up to {off.max():.2g}" if wrong.any() else None
