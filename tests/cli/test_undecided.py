"""`convert` where nobody can tell whether the result is the same model: written, with a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from adapter import run
from onnx import parser

MODEL = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
net (float[2,4,6,3] x, int64[2] shape) => (float[?,?] z)
<int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}> {
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
    [cut] z = Reshape(y, shape)
}"""
WARNING = "warning: the result is not fully verified"


@pytest.fixture
def paths(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(MODEL).SerializeToString())
    return str(path), tmp_path / "out.onnx"


def test_the_result_is_written_with_a_warning(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out)]) == 0
    screen = capsys.readouterr()
    assert "UNVERIFIED  no legal values were found for 'shape'" in screen.out
    assert f"{WARNING}; --strict makes this an error" in screen.out.splitlines()
    assert "verify it again with: onnx-spatial" not in screen.out
    assert out.exists()


def test_a_quiet_command_warns_on_stderr(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out), "-q"]) == 0
    screen = capsys.readouterr()
    assert screen.out == "" and "not fully verified" in screen.err
    assert screen.err.startswith(f"warning: {path}: ")


def test_the_document_has_the_verdict(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verification"]["status"] == "unverified"


def test_strict_refuses_it_and_leaves_no_file(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out), "--strict"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
    assert not out.exists()


def test_in_place_the_original_keeps_its_second_name(paths):
    path, _ = paths
    assert run(["convert", path, "--in-place"]) == 0
    kept = [p.name for p in Path(path).parent.iterdir()]
    assert sorted(kept) == ["model.onnx", "model.onnx.orig"]
