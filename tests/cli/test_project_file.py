"""Options of a project: the nearest onnx-spatial.toml or pyproject.toml sets defaults."""

from __future__ import annotations

import json

import pytest
from onnx import parser

from onnx_spatial.cli.main import run

TEXT = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
g (float[1,4,6,3] x) => (float[?,?,?,?] y) <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}> {
    [s2b] y = my.SpaceToBatchND(x, block, none)
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    inner = tmp_path / "models"
    inner.mkdir()
    (inner / "m.onnx").write_bytes(parser.parse_model(TEXT).SerializeToString())
    monkeypatch.chdir(inner)
    return tmp_path


def converted(capsys, *words: str) -> bool:
    assert run(["convert", "m.onnx", "--dry-run", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["changed"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("onnx-spatial.toml", 'domain = ["my"]'),
        ("onnx-spatial.toml", 'domain = "my"\n[bench]\nruns = 3'),
        ("onnx-spatial.toml", '[convert]\ndomain = ["my"]'),
        ("pyproject.toml", '[tool.onnx-spatial]\ndomain = ["my"]'),
        ("models/pyproject.toml", '[tool.onnx-spatial.convert]\ndomain = ["my"]'),
    ],
)
def test_options_of_the_file_are_defaults(name, text, folder, capsys):
    assert not converted(capsys)
    (folder / name).write_text(text)
    assert converted(capsys)
    assert not converted(capsys, "--domain", "other")  # the command line goes first


def test_files_that_say_nothing_are_passed_over(folder, capsys):
    (folder / "onnx-spatial.toml").write_text('domain = ["my"]')
    (folder / "models" / "pyproject.toml").write_text("[tool.other]\nx = 1")
    assert converted(capsys)


def test_modes_and_expected_failures_of_validate(folder, capsys):
    (folder / "onnx-spatial.toml").write_text(
        '[validate]\nmode = ["lower", "function"]\ndomain = ["my"]\nno-fuse = true\nseed = 3'
    )
    assert run(["validate", ".", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["options"]["modes"] == ["lower", "function"]
    assert document["options"]["fuse"] is False and document["options"]["seed"] == 3


def test_shapes_are_tables(folder, capsys):
    (folder / "onnx-spatial.toml").write_text('domain = ["my"]\nshape = { x = [9, 9] }')
    assert run(["convert", "m.onnx", "--dry-run"]) != 0
    assert "x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("domain = [", "cannot be read"),
        ("domains = 1", "no command has an option 'domains'"),
        ("[convert]\noutput = 'x'", "convert has no option 'output'"),
        ("convert = 1", "convert; the command line lists the options"),
    ],
)
def test_what_is_no_option_is_bad_usage(text, message, folder, capsys):
    (folder / "onnx-spatial.toml").write_text(text)
    assert run(["convert", "m.onnx", "--dry-run"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
