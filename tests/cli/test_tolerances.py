"""--rtol, --atol and --outputs-only of `verify` and `convert`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import run
from onnx import numpy_helper
from rich.console import Console
from validating import SCALED, save

import onnx_spatial
from onnx_spatial import Verification
from onnx_spatial.cli import render
from onnx_spatial.report.outcome import describe_verification

CONVERTED = ["original.onnx", "converted.onnx"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds a model, and its conversion with a weight off by a thousandth."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    original = save(tmp_path / "original.onnx", SCALED)
    converted = onnx_spatial.convert(original, verify=False).model
    tensor = next(t for t in converted.graph.initializer if t.name == "third")
    tensor.CopyFrom(numpy_helper.from_array(np.array([0.3333], np.float32), "third"))
    onnx.save(converted, "converted.onnx")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 1),
        (["--rtol", "1e-2"], 0),  # another constant: PASSED sampled
        (["--rtol", "1e-2", "--strict-proof"], 1),
        (["--outputs-only"], 1),
        (["--rtol", "1e-2", "--outputs-only"], 0),
        (["--rtol", "y=1e-2", "--outputs-only"], 0),
        (["--rtol", "1e-9", "--rtol", "y=1e-2", "--outputs-only"], 0),
        (["--rtol", "1e-4", "--outputs-only"], 1),
        (["--atol", "100", "--outputs-only"], 0),
    ],
)
def test_verify(words, code):
    assert run(["verify", *CONVERTED, *words]) == code


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rtol", "-1"], "--rtol must be a number of 0 or more"),
        (["--atol", "nan"], "--atol must be a number of 0 or more"),
        (["--rtol", "y="], "--rtol must be a number of 0 or more"),
        (["--rtol", "=1"], "--rtol must be a number of 0 or more"),
        (["--rtol", "y=a"], "--rtol must be a number of 0 or more"),
        (["--rtol", "1"], "rtol must be at least 0 and below 1, not 1.0"),
        (["--rtol", "z=0.1"], "rtol: the model has no output 'z'; its outputs are 'y'"),
        (["--rtol", "0.1", "--rtol", "0.2"], "--rtol is set twice"),
        (["--atol", "y=1", "--atol", "y=2"], "--atol of 'y' is set twice"),
        (["--strict-proof", "--outputs-only"], "cannot be combined"),
    ],
)
@pytest.mark.parametrize(
    "command", [["verify", *CONVERTED], ["convert", "original.onnx", "-o", "o.onnx"]]
)
def test_what_fits_nothing_is_bad_usage(command, words, message, capsys):
    assert run([*command, *words]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "rror: " in line]
    assert message in line


def test_json_and_text_say_that_only_outputs_were_compared(capsys):
    assert run(["verify", *CONVERTED, "--rtol", "1e-2", "--outputs-only", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["outputs_only"] is True
    assert document["notes"] == [
        "only outputs were compared, no single operators and no other nodes"
    ]
    assert {o["tolerance"] for o in document["outputs"]} == {1e-2}
    assert run(["verify", *CONVERTED, "--rtol", "1e-2", "--outputs-only"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PASSED  outputs agree to 9.0e-04 of the largest value")
    assert out.count("only outputs were compared") == 1 and "proven" not in out


def test_what_is_not_verified_has_no_tolerance():
    assert run(["convert", "original.onnx", "-o", "o.onnx", "--no-verify", "--rtol", "0.1"]) == 2


@pytest.mark.parametrize(("width", "wide"), [(80, False), (140, True)])
def test_outputs_that_differ_fit_the_terminal(width, wide):
    result = onnx_spatial.verify("original.onnx", "converted.onnx")
    stream = io.StringIO()
    render.outcome(Console(file=stream, width=width), describe_verification(result, verbose=False))
    lines = stream.getvalue().splitlines()
    (head,) = [line for line in lines if line.startswith("output ")]
    assert ("99 %" in head) is wide and len(head) <= width
    assert sum(line.endswith("DIFFERS") for line in lines) == 1  # the output, at its worst
    assert "(-v shows all)" in lines[-1]
    assert not any("ulp" in line and len(line.split(" ulp")[0].split()[-1]) > 7 for line in lines)
    stream.truncate(0)
    render.outcome(Console(file=stream, width=width), describe_verification(result, verbose=True))
    rows = [line for line in stream.getvalue().splitlines() if line.endswith("DIFFERS")]
    assert len(rows) >= len(result.outputs) > 3


def test_problems_beyond_the_first_are_left_to_v():
    result = Verification("failed", "failed: one (and 8 more)", problems=["one", *"abcdefgh"])
    stream = io.StringIO()
    render.outcome(Console(file=stream, width=80), describe_verification(result, verbose=False))
    assert "  and 2 more (-v shows them)\n" in stream.getvalue()
    assert stream.getvalue().count("one") == 1
    stream.truncate(0)
    render.outcome(Console(file=stream, width=80), describe_verification(result, verbose=True))
    assert "  h\n" in stream.getvalue() and "more (-v" not in stream.getvalue()
