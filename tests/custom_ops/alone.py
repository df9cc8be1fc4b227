"""Run Python in a process of its own: for what could end the process, or marks it for good."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from signals import heard

TESTS = Path(__file__).parents[1]

#: A model of one node whose parameters are inputs, in the program's variable `model`.
MODEL = """
import numpy as np
from building import one_node
x = np.arange(4 * 4 * 6 * 3, dtype=np.float32).reshape(4, 4, 6, 3)
block, none = np.array([2, 2]), np.zeros((2, 2), np.int64)
model = one_node("SpaceToBatchND", (x, block, none), run_time=(1, 2))
feeds = {"x": x, "p1": block, "p2": none}
wrong = {**feeds, "p2": none - 1}
"""


def python(code: str, *, timeout: float = 120) -> str:
    """What a program prints; it must end well and write nothing to stderr but warnings."""
    done = finished(code, timeout=timeout)
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def finished(code: str, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """A program that has ended, however it did."""
    path = os.pathsep.join([str(TESTS), str(TESTS / "custom_ops")])
    with heard():
        return subprocess.run(
            [sys.executable, "-c", MODEL + textwrap.dedent(code)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
