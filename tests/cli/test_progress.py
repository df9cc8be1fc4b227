"""Progress in terminals only, times of steps with -v, logs with -vv, the summary of a CI step."""

from __future__ import annotations

import io
import logging
import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import S2B, ran, write
from onnx import numpy_helper
from rich.console import Console

import onnx_spatial
from onnx_spatial.cli.progress import Steps, bar


@pytest.fixture(autouse=True)
def model(cli):
    write(S2B, "m.onnx")


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


@pytest.mark.parametrize("convert", [onnx_spatial.convert, onnx_spatial.optimize])
def test_every_phase_says_how_far_it_is(convert):
    weight = np.zeros((2_500_001, 1, 1, 1), np.float32)
    made = onnx.load("m.onnx")
    made.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    onnx.save(made, "large.onnx", save_as_external_data=True, location="weights")
    Path("other").mkdir()
    said: list[str] = []
    convert("large.onnx", "other/large.onnx", progress=said.append)
    phases = dict.fromkeys(text.split(":")[0] for text in said)
    steps = [f"converting {n}/3" for n in (1, 2, 3)]
    assert [phase for phase in phases if phase in steps] == steps
    numbered = [text for text in said if re.match(r"[a-z]+ \d+/\d+", text)]
    counted = {"converting", "lowering", "proof", "sizes", "run", "writing"}
    assert {text.split(" ")[0] for text in numbered} == counted
    assert phases.keys() - {text.split(":")[0] for text in numbered} <= {"converting", "writing"}
    assert said[-1] == "writing 10/10 MB of external data"


def test_times_are_counted_by_step(cli):
    steps = Steps()
    for line in ("reading", "run 1/2: x 1", "run 2/2: x 1", "writing: a.onnx"):
        steps.begin(line)
    steps.end()
    assert list(steps.seconds) == ["reading", "run", "writing"]
    assert re.fullmatch(r"time: (\w+ \d+\.\d\d s, ){3}\d+\.\d\d s in all", str(steps))
    for words in ("-v convert m.onnx --dry-run", "convert m.onnx --dry-run -v"):
        assert re.search(r"^time: reading .*run \d.* s in all$", cli(words).err, re.M)


def test_decisions_are_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="onnx_spatial"):
        onnx_spatial.convert("m.onnx")
    debug = [r.message for r in caplog.records if r.levelno == logging.DEBUG]
    info = [r.message for r in caplog.records if r.levelno == logging.INFO]
    assert any("SpaceToBatchND 's2b' (main graph): lower: " in line for line in debug)
    assert any(" considered " in line for line in debug)
    assert any("1 operator became" in line for line in info)
    assert any("passed: proven: " in line for line in info)
    assert "SpaceToBatchND 's2b' (main graph): lower: " in ran("convert -vv m.onnx --dry-run").err


def test_results_are_appended_to_the_summary_of_the_step(cli, monkeypatch):
    Path("summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    for words in ("convert m.onnx -o o.onnx", "verify m.onnx o.onnx", "validate m.onnx"):
        assert cli(f"{words} -q").code == 0
    text = Path("summary.md").read_text()
    assert text.startswith("before\n**onnx-spatial convert** ")
    assert "1 operator became" in text and "**onnx-spatial verify** " in text
    assert "### onnx-spatial validate: passed" in text
    assert re.search(r"^\| passed \| m\.onnx \| 1 \| [\d.]+ s \|$", text, re.M)
    before = sorted(os.listdir())
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/folder")  # cannot be written: changes nothing
    assert cli("convert m.onnx --dry-run -q").code == 0
    assert sorted(os.listdir()) == before
