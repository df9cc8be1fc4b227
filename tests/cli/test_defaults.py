"""[tool.onnx-spatial] of the nearest pyproject.toml sets defaults of options."""

from __future__ import annotations

import json

import pytest
from adapter import run
from onnx import parser

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
        ("pyproject.toml", '[tool.onnx-spatial]\ndomain = ["my"]'),
        ("pyproject.toml", '[tool.onnx-spatial]\ndomain = "my"\n[tool.onnx-spatial.inspect]\n'),
        ("models/pyproject.toml", '[tool.onnx-spatial.convert]\ndomain = ["my"]'),
    ],
)
def test_options_of_the_file_are_defaults(name, text, folder, capsys):
    assert not converted(capsys)
    (folder / name).write_text(text)
    assert converted(capsys)
    assert not converted(capsys, "--domain", "other")  # the command line goes first


@pytest.mark.parametrize("text", ["[tool.other]\nx = 1", "[tool"])
def test_files_that_say_nothing_are_passed_over(text, folder, capsys):
    (folder / "pyproject.toml").write_text('[tool.onnx-spatial]\ndomain = ["my"]')
    (folder / "models" / "pyproject.toml").write_text(text)
    assert converted(capsys)


def test_a_command_goes_before_what_holds_for_all(folder, capsys):
    (folder / "pyproject.toml").write_text(
        '[tool.onnx-spatial]\ndomain = "my"\n[tool.onnx-spatial.convert]\ndomain = "other"'
    )
    assert not converted(capsys)


def test_options_of_validate(folder, capsys):
    (folder / "pyproject.toml").write_text(
        "[tool.onnx-spatial.validate]\n"
        'mode = ["lower", "function"]\ndomain = ["my"]\nno-fuse = true\nseed = 3'
    )
    assert run(["validate", ".", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["options"]["modes"] == ["lower", "function"]
    assert document["options"]["fuse"] is False and document["options"]["seed"] == 3


def test_globs_of_the_file_may_match_nothing(folder, capsys):
    (folder / "pyproject.toml").write_text(
        '[tool.onnx-spatial.validate]\ndomain = ["my"]\n'
        'expect-failure = ["other/*"]\nexclude = ["other/*"]'
    )
    assert run(["validate", "."]) == 0
    assert "other" not in capsys.readouterr().out


def test_paths_are_seen_from_the_file(folder):
    (folder / "pyproject.toml").write_text('[tool.onnx-spatial.validate]\njunit-xml = "r.xml"')
    assert run(["validate", ".", "-q"]) == 0
    assert (folder / "r.xml").exists()


def test_shapes_are_written_as_on_the_command_line(folder, capsys):
    (folder / "pyproject.toml").write_text(
        '[tool.onnx-spatial]\ndomain = ["my"]\nshape = ["x=9,9"]'
    )
    assert run(["convert", "m.onnx", "--dry-run"]) == 2
    assert "'x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("domains = 1", "no command has an option 'domains'; did you mean 'domain'?"),
        ("models = []", "no command has an option 'models'; did you mean 'mode'?"),
        (
            "convert = 1",
            "convert is a command; its options are a table [tool.onnx-spatial.convert]",
        ),
        ("[tool.onnx-spatial.convert]\noutput = 'x'", "convert has no option 'output'"),
        ("[tool.onnx-spatial.convert]\nno-verify = 'x'", "is not a valid boolean"),
        ("seed = [1]", "is not a valid integer"),
        ("seed = 'x'", "Invalid value for '--seed'"),
    ],
)
def test_what_is_no_option_is_bad_usage(text, message, folder, capsys):
    (folder / "pyproject.toml").write_text(f"[tool.onnx-spatial]\n{text}")
    assert run(["convert", "m.onnx", "--dry-run"]) == 2
    shown = capsys.readouterr().err
    assert message in " ".join(shown.split()) and "Traceback" not in shown


def test_no_table_is_bad_usage(folder, capsys):
    (folder / "pyproject.toml").write_text("[tool]\nonnx-spatial = 1")
    assert run(["convert", "m.onnx", "--dry-run"]) == 2
    assert "tool.onnx-spatial must be a table" in " ".join(capsys.readouterr().err.split())
