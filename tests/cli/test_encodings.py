"""No command fails for what the encoding of its output lacks, nor for names that are no text."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from adapter import run
from commands import S2B, ran

NAME = "swap/☃/é"
REPORTS = ("--junit-xml", "--html")
ENCODING = "cp1252"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """A model, which lies in the current folder, too."""
    monkeypatch.chdir(tmp_path)
    made = onnx.parser.parse_model(S2B)
    made.graph.node[0].name = NAME
    onnx.save(made, "☃.onnx")
    return made


def printed(encoding: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, and what a command writes to streams of that encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    texts = [stream.buffer.getvalue().decode(encoding) for stream in (out, err)]
    return code, texts[0], texts[1]


def escaped(text: str) -> str:
    return text.encode(ENCODING, "backslashreplace").decode(ENCODING)


def test_names_are_escaped_where_the_encoding_lacks_them_and_json_is_the_same(model):
    for command in ("inspect ☃.onnx", "convert ☃.onnx -o é☃.onnx", "verify ☃.onnx é☃.onnx",
                    "validate ☃.onnx"):  # fmt: skip
        code, out, err = printed(ENCODING, *command.split(), "-v")
        assert code == 0, err
        assert escaped("☃.onnx" if "validate" in command else NAME) in out, command
    code, out, _ = printed(ENCODING, "inspect", "☃.onnx", "--json")
    assert (code, json.loads(out)["operators"][0]["node"]) == (0, NAME)


def test_errors_are_told(model):
    model.graph.initializer[0].int32_data[1] = 0
    onnx.save(model, "☃.onnx")
    code, _, err = printed(ENCODING, "convert", "☃.onnx", "-o", "o.onnx")
    assert code == 3 and escaped(NAME) in err
    code, _, err = printed(ENCODING, "inspect", "none☃")
    assert code == 2 and escaped("none☃: cannot be read") in err


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_reports_are_utf_8_and_names_of_files_may_be_no_text(model, monkeypatch):
    reports = [word for option in REPORTS for word in (option, option[2:])]
    assert printed("ascii", "validate", "☃.onnx", *reports)[0] == 0
    assert "☃" in Path("html").read_text("utf-8")
    cases = ElementTree.fromstring(Path("junit-xml").read_bytes()).iter("testcase")
    assert any("☃" in str(case.attrib) for case in cases)
    path = os.fsdecode(b"\xff.onnx")
    Path("☃.onnx").rename(path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for wanted, command in (
        (0, ["inspect", path]),
        (0, ["convert", path, "-o", f"{path}.out"]),
        (2, ["convert", path, "-o", path]),
        (1, ["validate", path, "--expect-failure", "*", *reports]),
    ):
        code, out, err = printed("ascii", *command)
        assert code == wanted, err
        assert r"\udcff.onnx" in out + err, command
    assert all(Path(option[2:]).exists() for option in REPORTS)


def test_a_pipe_of_another_encoding(model):
    environment = {**os.environ, "PYTHONIOENCODING": ENCODING, "LC_ALL": "C"}
    done = ran("inspect ☃.onnx", env=environment, encoding=ENCODING)
    assert (done.code, done.err) == (0, "") and escaped(NAME) in done.out
