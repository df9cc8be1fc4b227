"""[tool.onnx-spatial] of the nearest pyproject.toml sets defaults of options."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import S2B, write

TABLE = "[tool.onnx-spatial]\n"


@pytest.fixture(autouse=True)
def folder(cli, monkeypatch):
    write(S2B.replace("ai.onnx.converters.tensorflow", "my"), "models/m.onnx")
    monkeypatch.chdir("models")


@pytest.mark.parametrize(
    ("files", "used"),
    [
        ({}, False),
        ({"../pyproject.toml": f'{TABLE}domain = "my"\n[tool.onnx-spatial.inspect]\n'}, True),
        ({"pyproject.toml": '[tool.onnx-spatial.convert]\ndomain = ["my"]'}, True),
        ({"../pyproject.toml": f'{TABLE}domain = "my"', "pyproject.toml": "[tool"}, True),
        ({"pyproject.toml": f'{TABLE}domain = "my"\nconvert.domain = "other"'}, False),
    ],
)
def test_options_of_the_nearest_file_are_defaults(files, used, cli):
    for name, text in files.items():
        Path(name).write_text(text)
    words = "convert m.onnx --dry-run --json"
    assert cli(words).document["changed"] is used
    assert not cli(f"{words} --domain other").document["changed"]  # the command line goes first


def test_options_of_validate(cli):
    Path("../pyproject.toml").write_text(
        "[tool.onnx-spatial.validate]\njunit-xml = 'r.xml'\nno-fuse = true\nseed = 3\n"
        "mode = ['lower', 'function']\ndomain = ['my']\n"
        "expect-failure = ['other/*']\nexclude = ['other/*']"
    )
    done = cli("validate . --json")
    asked = done.document["options"]
    assert (asked["modes"], asked["fuse"], asked["seed"]) == (["lower", "function"], False, 3)
    assert "other" not in done.err  # globs of a file may match nothing
    assert Path("../r.xml").exists()  # paths are seen from the file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{TABLE}domains = 1", "no command has an option 'domains'; did you mean 'domain'?"),
        (
            f"{TABLE}convert = 1",
            "convert is a command; its options are a table [tool.onnx-spatial.convert]",
        ),
        ("[tool.onnx-spatial.convert]\noutput = 'x'", "convert has no option 'output'"),
        ("[tool.onnx-spatial.convert]\nno-verify = 'x'", "is not a valid boolean"),
        (f"{TABLE}domain = 'my'\nshape = ['x=9,9']", "'x'"),
        ("[tool]\nonnx-spatial = 1", "tool.onnx-spatial must be a table"),
    ],
)
def test_what_is_no_option_is_bad_usage(text, message, cli):
    Path("pyproject.toml").write_text(text)
    done = cli("convert m.onnx --dry-run")
    assert done.code == 2 and message in done.error
