"""No command fails for what the encoding of its output lacks, nor for names that are no text."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from adapter import run
from building import one_node
from onnx import numpy_helper

NAME = "swap/☃/é"
REPORTS = ("--junit-xml", "--html")
X = np.zeros((1, 4, 6, 3), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> str:
    made = one_node("SpaceToBatchND", (X, np.array([2, 2]), np.zeros((2, 2), np.int64)))
    made.graph.node[0].name = NAME
    path = tmp_path / "☃.onnx"
    onnx.save(made, path)
    return str(path)


@pytest.fixture
def encoding() -> str:
    return "cp1252"


def printed(encoding: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, and what a command writes to streams of that encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    texts = [stream.buffer.getvalue().decode(encoding) for stream in (out, err)]
    return code, texts[0], texts[1]


def escaped(text: str, encoding: str) -> str:
    return text.encode(encoding, "backslashreplace").decode(encoding)


def test_names_are_escaped_where_the_encoding_lacks_them(model, encoding, tmp_path):
    output = str(tmp_path / "é☃.onnx")
    for command in (
        ["inspect", model, "-v"],
        ["convert", model, "-o", output, "-v"],
        ["verify", model, output, "-v"],
        ["validate", model, "-v"],
    ):
        code, out, err = printed(encoding, *command)
        assert code == 0, err
        name = Path(model).name if command[0] == "validate" else NAME
        assert escaped(name, encoding) in out, command


def test_errors_are_told(model, encoding, tmp_path):
    made = onnx.load(model)
    made.graph.initializer.append(numpy_helper.from_array(np.array([2, 0]), "zero"))
    made.graph.node[0].input[1] = "zero"
    onnx.save(made, model)
    code, _, err = printed(encoding, "convert", model, "-o", str(tmp_path / "o.onnx"))
    assert code == 3
    assert escaped(NAME, encoding) in err
    code, _, err = printed(encoding, "inspect", f"{model}☃")
    assert code == 2
    assert escaped("☃.onnx☃: cannot be read", encoding) in err


def test_json_is_the_same_in_every_encoding(model, encoding):
    code, out, _ = printed(encoding, "inspect", model, "--json")
    assert code == 0
    assert json.loads(out)["operators"][0]["node"] == NAME


def test_reports_are_utf_8(model, tmp_path):
    files = {option: tmp_path / option for option in REPORTS}
    options = [word for option, path in files.items() for word in (option, str(path))]
    assert printed("ascii", "validate", model, *options)[0] == 0
    assert "☃" in files["--html"].read_text("utf-8")
    cases = ElementTree.fromstring(files["--junit-xml"].read_bytes()).iter("testcase")
    assert any("☃" in str(case.attrib) for case in cases)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_names_of_files_that_are_no_text(model, tmp_path, monkeypatch):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx")
    Path(model).rename(path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    reports = [word for option in REPORTS for word in (option, str(tmp_path / option))]
    for wanted, command in (
        (0, ["inspect", path]),
        (0, ["convert", path, "-o", f"{path}.out"]),
        (2, ["convert", path, "-o", path]),
        (1, ["validate", path, "--expect-failure", "*", *reports]),
    ):
        code, out, err = printed("ascii", *command)
        assert code == wanted, err
        assert r"\udcff.onnx" in out + err, command
    assert all((tmp_path / option).exists() for option in REPORTS)


def test_a_pipe_of_another_encoding(model, tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "LC_ALL": "C"}
    command = [sys.executable, "-m", "onnx_spatial.cli", "inspect", model]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert escaped(NAME, "cp1252").encode("cp1252") in done.stdout
