"""Options of a project: the nearest onnx-spatial.toml or pyproject.toml sets defaults."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import parser

from onnx_spatial.cli import project_file
from onnx_spatial.cli.main import commands, run

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
        ("onnx-spatial.toml", 'domain = "my"\n[inspect]\nmax-rank = 3'),
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


def test_globs_of_the_file_may_match_nothing(folder, capsys):
    (folder / "onnx-spatial.toml").write_text(
        '[validate]\ndomain = ["my"]\nexpect-failure = ["other/*"]\nexclude = ["other/*"]'
    )
    assert run(["validate", "."]) == 0
    assert "other" not in capsys.readouterr().out


def test_shapes_are_tables(folder, capsys):
    (folder / "onnx-spatial.toml").write_text('domain = ["my"]\nshape = { x = [9, 9] }')
    assert run(["convert", "m.onnx", "--dry-run"]) != 0
    assert "x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("domain = [", "cannot be read"),
        ("domains = 1", "no command has an option 'domains'; did you mean 'domain'? [OS101]"),
        ("[convert]\noutput = 'x'", "convert has no option 'output'"),
        ("convert = 1", "convert is a command; its options are a table [convert]"),
        ("model = 1", "no command has an option 'model'; did you mean 'models'?"),
        ("models = 1", "write options of models in tables [[models]]"),
        ("[models]\nseed = 1", "write options of models in tables [[models]]"),
        ("[[models]]\nseed = 1", "models, entry 1: match must say which models"),
        ("[[models]]\nmatch = 1", "models, entry 1: match must say which models"),
        (
            '[[models]]\nmatch = "a"\n[[models]]\nmatch = "b"\nshapes = {}',
            "models, entry 2: 'shapes' is no option of a single model; did you mean 'shape'? [OS101]",
        ),
        ('[[models]]\nmatch = "*"\nstrict = true', "'strict' is no option of a single model"),
        ('[[models]]\nmatch = "*"\nseed = "x"', "models, entry 1: Invalid value for '--seed'"),
        ('[[models]]\nmatch = "*"\nshape = {x = ["a"]}', "models, entry 1: --shape must be"),
    ],
)
def test_what_is_no_option_is_bad_usage(text, message, folder, capsys):
    (folder / "onnx-spatial.toml").write_text(text)
    assert run(["convert", "m.onnx", "--dry-run"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_every_option_of_a_model_is_one_of_a_command():
    names = {name for each in commands.commands.values() for name in project_file._options(each)}
    assert names >= {*project_file._OF_MODELS}


@pytest.mark.parametrize("match", ["models/m.onnx", "models/*", "m.onnx", '["other", "*/m.onnx"]'])
@pytest.mark.parametrize("command", ["convert", "optimize", "inspect"])
def test_models_have_options_of_their_own(match, command, folder, capsys):
    match = match if match.startswith("[") else f'"{match}"'
    (folder / "onnx-spatial.toml").write_text(f'[[models]]\nmatch = {match}\ndomain = ["my"]')
    words = [] if command == "inspect" else ["--dry-run"]

    def action(*more: str) -> str:
        run([command, "m.onnx", "--json", *words, *more])
        document = json.loads(capsys.readouterr().out)
        return document.get("inspection", document)["sites"][0]["action"]

    assert action() == "lower"
    assert action("--domain", "other") == "leave"  # the command line goes first


@pytest.mark.parametrize("match", ["other.onnx", "models/models/*", "m"])
def test_other_models_keep_the_options_of_the_command(match, folder, capsys):
    (folder / "onnx-spatial.toml").write_text(f'[[models]]\nmatch = "{match}"\ndomain = ["my"]')
    assert not converted(capsys)


def test_the_last_entry_that_matches_counts(folder, capsys):
    (folder / "onnx-spatial.toml").write_text(
        'domain = ["my"]\n[[models]]\nmatch = "*"\nmode = "custom-op"\nno-fuse = true\n'
        '[[models]]\nmatch = "m.onnx"\nmode = "function"'
    )
    run(["convert", "m.onnx", "--dry-run", "--json"])
    (site,) = json.loads(capsys.readouterr().out)["inspection"]["sites"]
    assert site["action"] == "function"


def test_shapes_and_inputs_of_one_model(folder, capsys):
    (folder / "n.onnx").write_bytes((folder / "models" / "m.onnx").read_bytes())
    np.savez(folder / "data.npz", x=np.ones((1, 4, 6, 3), np.float32))
    (folder / "onnx-spatial.toml").write_text(
        'domain = ["my"]\n[[models]]\nmatch = "models/*"\ninputs = "data.npz"\n'
        '[[models]]\nmatch = "n.onnx"\nshape = { x = [9, 9] }\n'
    )
    assert run(["convert", "m.onnx", "--dry-run"]) == 0
    assert run(["convert", "../n.onnx", "--dry-run"]) == 2
    assert "x" in capsys.readouterr().err
    assert run(["convert", "m.onnx", "-o", "out.onnx"]) == 0
    # The command that verifies again says what the file says.
    assert "--inputs" in capsys.readouterr().out


def test_tolerances_of_a_model_do_not_hinder_a_run_without_verification(folder):
    (folder / "onnx-spatial.toml").write_text(
        'domain = ["my"]\n[[models]]\nmatch = "*"\nrtol = 1e-3\noutputs-only = true'
    )
    assert run(["convert", "m.onnx", "--dry-run", "--no-verify"]) == 0
    assert run(["convert", "m.onnx", "--check"]) == 1


def test_validate_gives_each_model_its_options(folder, capsys):
    model = (folder / "models" / "m.onnx").read_bytes()
    for name in ("n.onnx", "other.onnx"):
        (folder / "models" / name).write_bytes(model)
    np.savez(folder / "data.npz", x=np.ones((1, 4, 6, 3), np.float32))
    np.savez(folder / "wrong.npz", y=np.ones((1, 4, 6, 3), np.float32))
    (folder / "onnx-spatial.toml").write_text(
        '[validate]\ndomain = ["my"]\n'
        '[[models]]\nmatch = "m.onnx"\nmode = ["lower", "function"]\ninputs = "data.npz"\n'
        '[[models]]\nmatch = "n.onnx"\ninputs = "wrong.npz"\n'
    )
    assert run(["validate", ".", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    first, second, third = document["models"]
    assert [mode["mode"] for mode in first["modes"]] == ["lower", "function"]
    assert first["options"]["inputs"] == str(folder / "data.npz") and first["status"] == "passed"
    runs = [len(each["modes"][0]["verification"]["runs"]) for each in (first, third)]
    assert runs == [1, 2]  # on the data of the file alone; on two generated sets
    assert "wrong.npz" in second["message"] and second["status"] == "failed"
    assert "--inputs" in second["reproduce"] and "--inputs" not in third["reproduce"]
    assert third["options"] is None and [m["mode"] for m in third["modes"]] == ["lower"]
