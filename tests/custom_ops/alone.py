"""Run Python in a process of its own: for what could end the process, or marks it for good."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from signals import heard

TESTS = Path(__file__).parents[1]

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


def python(*code: str, timeout: float = 120) -> None:
    """Run a program of several parts, which must end well."""
    path = os.pathsep.join([str(TESTS), str(TESTS / "custom_ops")])
    with heard():
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(map(textwrap.dedent, (MODEL, *code)))],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
