"""The command line and the session do what `convert` does."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import grid
import numpy as np
import onnx
import onnxruntime
import pytest
import running
from golden import defined
from golden.converting import converted

import onnx_spatial

MODELS = Path(__file__).parents[2] / "models"
#: The forms that differ most between the modes.
FORMS = ("static_2d", "run_time", "subgraph_if", "function")
CELLS = [
    cell.name
    for cell in grid.CELLS
    if cell.form in FORMS and (cell.row.dialect != "prepared" or grid.imported(cell))
]
#: Python operators run the kernels, which no other mode does: all cells.
RUNS = [(name, "custom-op") for name in CELLS]
RUNS += [(name, mode) for name in CELLS[::6] for mode in ("lower", "function")]


@pytest.mark.parametrize(("name", "mode"), RUNS)
def test_sessions_take_the_model_as_it_is(name, mode):
    if mode == "custom-op" and not onnx_spatial.custom_ops.available():
        pytest.skip("onnxruntime-extensions is not installed")
    cell = grid.get(name)
    model = grid.model(cell)
    feeds = grid.feeds(cell, np.random.default_rng(zlib.crc32(name.encode())))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnx_spatial.InferenceSession(model, options, ["CPUExecutionProvider"], mode=mode)
    outputs = running.run_session(session, feeds)
    for output, wanted in zip(outputs, defined.outputs(model, feeds), strict=True):
        assert running.same_bits(np.asarray(output), wanted)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onnx_spatial", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )


@pytest.mark.parametrize(
    ("verb", "net", "option"),
    [("convert", "openvino_style", "--strict"), ("optimize", "chains/conv1d", "--no-verify")],
)
def test_commands_write_what_the_functions_return(tmp_path, verb, net, option):
    source, target = MODELS / net / "model.onnx", tmp_path / "out.onnx"
    done = command(verb, source, "-o", target, option)
    assert done.returncode == 0, done.stderr
    expected = converted(onnx.load(source), chains=verb == "optimize")
    assert onnx.load(target) == expected


def test_a_refused_model_has_an_exit_code_and_no_output(tmp_path):
    model = grid.model(grid.get("tf_space_to_batch_nd/static_2d"))
    del model.graph.input[0].type.tensor_type.shape.dim[2:]  # two axes are blocked behind the batch
    source, target = tmp_path / "bad.onnx", tmp_path / "out.onnx"
    onnx.save(model, source)
    done = command("convert", source, "-o", target)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert not target.exists()
