"""Open prepared models as programs do, and run programs in processes of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import running
from signals import heard

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


TESTS = Path(__file__).parent

#: What every program begins with: a model of one node whose parameters are inputs, and its sessions.
MODEL = """
import os, sys
import numpy as np, onnxruntime, pytest
import onnx_spatial
from building import one_node
x = np.arange(4 * 4 * 6 * 3, dtype=np.float32).reshape(4, 4, 6, 3)
block, none = np.array([2, 2]), np.zeros((2, 2), np.int64)
model = one_node("SpaceToBatchND", (x, block, none), run_time=(1, 2))
feeds = {"x": x, "p1": block, "p2": none}
wrong = {**feeds, "p2": none - 1}

def opened(options=None):
    return onnx_spatial.InferenceSession(model, options, mode="custom-op")

def works(session):
    assert session.run(None, feeds)[0].sum() == x.sum()

"""


def assert_runs(*code: str, timeout: float = 120) -> None:
    """Run a program of several parts, which must end well."""
    with heard():
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(map(textwrap.dedent, (MODEL, *code)))],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
