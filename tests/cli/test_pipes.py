"""Names that are too long, and readers that close a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import run
from building import one_node
from onnx import helper, numpy_helper

X = np.zeros((1, 4, 6, 3), np.float32)
TOO_LONG = "x" * 300


def spatial(*, weights: int = 1) -> onnx.ModelProto:
    model = one_node("SpaceToBatchND", (X, np.array([2, 2]), np.zeros((2, 2), np.int64)))
    (output,) = model.graph.node[0].output
    model.graph.node[0].output[0] = "inner"
    model.graph.initializer.append(numpy_helper.from_array(np.ones(weights, np.float32), "w"))
    model.graph.node.append(helper.make_node("ReduceMax", ["w"], ["m"], keepdims=0))
    model.graph.node.append(helper.make_node("Add", ["inner", "m"], [output]))
    return model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(spatial(weights=2**15), path)  # it stays in the file
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", TOO_LONG],
        ["convert", TOO_LONG, "-o", "out.onnx"],
        ["convert", "MODEL", "-o", f"{TOO_LONG}.onnx"],
        ["validate", "MODEL", "--junit-xml", TOO_LONG],
        ["validate", TOO_LONG],
    ],
)
def test_names_that_are_too_long_are_refused_in_one_line(model, capsys, arguments):
    assert run([str(model) if a == "MODEL" else a for a in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert TOO_LONG in line
    assert "report" not in line


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["verify", "--json", "MODEL", "OTHER"], 1),
        (["verify", "-v", "MODEL", "OTHER"], 1),
        (["verify", "--json", "MODEL", "MISSING"], 2),
        (["verify", "--colour", "MODEL", "OTHER"], 2),
        (["inspect", "MODEL"], 0),
        (["--help"], 0),
    ],
)
@pytest.mark.parametrize("stderr_too", [False, True])
def test_a_closed_pipe_changes_no_exit_code(model, tmp_path, arguments, code, stderr_too):
    other = spatial()
    other.graph.output[0].name = other.graph.node[-1].output[0] = "renamed"
    onnx.save(other, tmp_path / "other.onnx")
    paths = {"MODEL": model, "OTHER": tmp_path / "other.onnx", "MISSING": tmp_path / "none.onnx"}
    command = [sys.executable, "-m", "onnx_spatial.cli", *(str(paths.get(a, a)) for a in arguments)]
    reader, closed = os.pipe()
    os.close(reader)
    err = closed if stderr_too else subprocess.PIPE
    done = subprocess.run(command, stdout=closed, stderr=err, timeout=120, check=False)
    os.close(closed)
    assert done.returncode == code
    assert stderr_too or (b"rror" in done.stderr) == bool(code)
    assert stderr_too or not re.search(b"Traceback|BrokenPipe|ignored", done.stderr)
