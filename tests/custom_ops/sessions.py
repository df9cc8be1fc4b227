"""Open prepared models as programs do."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import running

from onnx_spatial import InferenceSession, custom_ops


def options(level: ort.GraphOptimizationLevel = running.LEVELS[1]) -> ort.SessionOptions:
    """Options that print nothing."""
    made = ort.SessionOptions()
    made.graph_optimization_level = level
    made.log_severity_level = 4
    made.intra_op_num_threads = 1
    return made


def opened(
    model: onnx.ModelProto,
    level: ort.GraphOptimizationLevel = running.LEVELS[1],
    mode: str = "custom-op",
) -> InferenceSession:
    """Our session."""
    return InferenceSession(model, options(level), mode=mode, providers=["CPUExecutionProvider"])


def own(
    prepared: onnx.ModelProto, level: ort.GraphOptimizationLevel = running.LEVELS[1]
) -> ort.InferenceSession:
    """A program's own session of a prepared model."""
    registered = options(level)
    custom_ops.register(registered)
    data = prepared.SerializeToString()
    return ort.InferenceSession(data, registered, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs in mode "custom-op", the same with optimisations off and on."""
    first, second = (running.run_session(opened(model, level), feeds) for level in running.LEVELS)
    assert all(map(running.same_bits, first, second))
    return first
