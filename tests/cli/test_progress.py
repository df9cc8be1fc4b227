"""Progress in terminals only, times of steps with -v, logs with -vv, the summary of a CI step."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys

import pytest
from adapter import run
from onnx import parser
from rich.console import Console
from validating import FOREIGN

import onnx_spatial
from onnx_spatial.cli.progress import Steps, bar

S2B = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,4,6,3] x) => (y) <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}> {
    [s2b] y = com.microsoft.SpaceToBatchND(x, block, pads)
}
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(S2B).SerializeToString())
    return str(path)


@pytest.mark.parametrize(
    ("text", "fraction"),
    [("run 3/8: x 2x3", "3/8"), ("3/8 a.onnx: passed", "3/8"), ("writing: a/1/2.onnx", None)],
)
def test_a_bar_has_the_fraction_of_its_text(text, fraction):
    file = io.StringIO()
    with bar(Console(file=file, width=80, force_terminal=True, color_system=None)) as show:
        show(text)
    lines = file.getvalue()
    assert text in lines
    # A bar without a fraction pulses over its whole length.
    assert ("╸" in lines or "╺" in lines) is (fraction is not None)


def test_times_are_counted_by_step():
    steps = Steps()
    for line in ("reading", "run 1/2: x 1", "run 2/2: x 1", "writing: a.onnx"):
        steps.begin(line)
    steps.end()
    assert list(steps.seconds) == ["reading", "run", "writing"]
    assert re.fullmatch(r"time: (\w+ \d+\.\d\d s, ){3}\d+\.\d\d s in all", str(steps))


@pytest.mark.parametrize("first", [["-v", "convert"], ["convert", "-v"]])
def test_v_shows_times_before_and_after_the_command(first, model, capsys):
    assert run([*first, model, "--dry-run"]) == 0
    assert re.search(r"^time: reading .*run \d.* s in all$", capsys.readouterr().err, re.M)


@pytest.mark.parametrize("first", [["-q", "convert"], ["convert", "-q"]])
def test_q_stands_before_and_after_the_command(first, model, capsys):
    assert run([*first, model, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_no_progress_in_logs_even_with_forced_colours(model, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["convert", model, "--dry-run"]) == 0
    assert capsys.readouterr().err == ""


def test_decisions_are_logged(model, caplog):
    with caplog.at_level(logging.DEBUG, logger="onnx_spatial"):
        onnx_spatial.convert(model)
    debug = [r.message for r in caplog.records if r.levelno == logging.DEBUG]
    info = [r.message for r in caplog.records if r.levelno == logging.INFO]
    assert any("SpaceToBatchND 's2b' (main graph): lower: " in line for line in debug)
    assert any(" considered " in line for line in debug)
    assert any("1 operator became" in line for line in info)
    assert any("passed: proven: " in line for line in info)


def test_vv_prints_the_log(model):
    words = [sys.executable, "-m", "onnx_spatial", "convert", "-vv", model, "--dry-run"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "SpaceToBatchND 's2b' (main graph): lower: " in done.stderr
    words.remove("-vv")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_results_are_appended_to_the_summary_of_the_step(model, tmp_path, monkeypatch):
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    out = str(tmp_path / "o.onnx")
    assert run(["convert", model, "-o", out, "-q"]) == 0
    assert run(["verify", model, out, "-q"]) == 0
    assert run(["validate", model, "-q"]) == 0
    text = file.read_text()
    assert text.startswith("before\n**onnx-spatial convert** ")
    assert "1 operator became" in text and "**onnx-spatial verify** " in text
    assert "### onnx-spatial validate: passed" in text
    assert re.search(r"^\| passed \| .*m\.onnx \| 1 \| [\d.]+ s \|$", text, re.M)


def test_a_summary_that_cannot_be_written_changes_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "folder"))
    assert run(["convert", model, "--dry-run", "-q"]) == 0
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_run_without_a_verified_model_does_not_end_in_passed(tmp_path, capsys):
    path = tmp_path / "foreign.onnx"
    path.write_bytes(parser.parse_model(FOREIGN).SerializeToString())
    assert run(["validate", str(path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("UNVERIFIED  1 model: 1 unverified")
