"""`-` is standard input where a model is read, standard output where one is written."""

from __future__ import annotations

import io
import json
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


def piped(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "onnx_spatial.cli", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, timeout=120)


def test_a_model_goes_through_pipes_alone(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = piped("convert", "-", "-o", "-", given=model.read_bytes())
    assert done.returncode == 0, done.stderr
    assert b"PASSED" in done.stderr
    assert run(["convert", str(model), "-o", "out.onnx"]) == 0
    assert onnx.ModelProto.FromString(done.stdout) == onnx.load("out.onnx")
    assert not Path("-").exists()


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_what_needs_nothing_comes_out_as_it_went_in(model, tmp_path, capsysbinary):
    assert run(["convert", str(model), "-o", str(tmp_path / "out.onnx")]) == 0
    capsysbinary.readouterr()
    assert run(["convert", str(tmp_path / "out.onnx"), "-o", "-", "--quiet"]) == 0
    assert capsysbinary.readouterr() == ((tmp_path / "out.onnx").read_bytes(), b"")


def test_inspect_and_verify_read_one_model_from_there(model, capsys, monkeypatch):
    give(monkeypatch, model.read_bytes())
    assert run(["inspect", "-", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["sites"]) == 1
    give(monkeypatch, model.read_bytes())
    assert run(["convert", str(model), "-o", f"{model}.out"]) == 0
    assert run(["verify", "-", f"{model}.out"]) == 0
    assert run(["verify", "-", "-"]) == 2
    assert "only one model can be -" in capsys.readouterr().err


def test_what_fails_leaves_standard_output_empty(capsysbinary, monkeypatch):
    give(monkeypatch, b"no model")
    assert run(["convert", "-", "-o", "-"]) == 2
    assert capsysbinary.readouterr().out == b""


@pytest.mark.parametrize(
    ("arguments", "terminal", "reason"),
    [
        (["convert", "MODEL", "-o", "-"], "stdout", "standard output is a terminal"),
        (["convert", "-", "-o", "x.onnx"], "stdin", "standard input is a terminal"),
        (["convert", "MODEL", "-o", "-", "--json"], None, "-o - and --json cannot be combined"),
        (["convert", "-", "--in-place"], None, "model path"),
        (["validate", "MODEL", "--junit-xml", "-"], None, "reports are written to files"),
    ],
)
def test_what_makes_no_sense_is_refused(
    model, tmp_path, monkeypatch, capsys, arguments, terminal, reason
):
    monkeypatch.chdir(tmp_path)
    give(monkeypatch, model.read_bytes())
    if terminal is not None:
        monkeypatch.setattr(getattr(sys, terminal), "isatty", lambda: True)
    before = list(tmp_path.iterdir())
    assert run([str(model) if a == "MODEL" else a for a in arguments]) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == before


def test_external_data_does_not_fit_through_a_pipe(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    onnx.save(spatial(weights=64), path, save_as_external_data=True, size_threshold=200)
    assert run(["convert", str(path), "-o", "-"]) == 2
    assert "the model has external data" in capsys.readouterr().err


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
