"""Signals, closed pipes, full disks, models that end their process; progress, times and logs."""

import io
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import S2B, in_process, ran, write
from onnx import numpy_helper
from rich.console import Console
from signals import below, heard

import onnx_spatial
from onnx_spatial.cli.output import Steps, progress_bar
from onnx_spatial.verification import process

linux = pytest.mark.skipif(sys.platform != "linux", reason="what Linux does")
#: A loop that does not end, and one that doubles a tensor 60 times.
BESIDE = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[1,4,6,3] x) => (y, e) <int32[2] block = {{2, 3}}, int32[2,2] pads = {{0, 0, 0, 0}},
 int64 n = {{{}}}, bool go = {{1}}, int64[1] minus = {{-1}}>
{{
    y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
    {} }}"""
LOOP = "e = Loop(n, go, {0}) <body = b (int64 i, bool c, {1}[k] v) => (bool d, {1}[l] w) {{"
COPY = LOOP.format("minus", "int64") + " d = Identity(c) w = Identity(v) }>"
ENDLESS = BESIDE.format(2**63 - 1, COPY)
TWICE = LOOP.format("flat", "float") + " d = Identity(c) w = Concat <axis = 0> (v, v) }>"
DOUBLING = BESIDE.format(60, f"flat = Reshape(x, minus) {TWICE}")


@pytest.fixture(autouse=True)
def model(cli):
    write(S2B, "m.onnx")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_end_the_program_cleanly(name):
    waits = """import onnx_spatial.api, time
def wait(*_, **__): print('ready', flush=True); time.sleep(60)
onnx_spatial.api.verify_conversion = wait"""
    with heard():
        process = in_process("convert m.onnx -o out.onnx", waits)
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        assert process.communicate(timeout=60)[1].strip() == "error: interrupted"
        assert process.returncode == 130
    assert os.listdir() == ["m.onnx"]


@pytest.mark.skipif(sys.platform != "linux" or not process.can_fork(), reason="reads /proc")
def test_an_interrupt_leaves_no_process():
    write(ENDLESS, "m.onnx")
    with heard():
        process = in_process("convert m.onnx -o out.onnx", start_new_session=True)
    deadline = time.monotonic() + 60
    while not (children := below(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, the child included
    assert "interrupted" in process.communicate(timeout=60)[1] and process.returncode == 130
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert os.listdir() == ["m.onnx"]


@linux
def test_a_model_that_needs_too_much_memory_ends_with_one_line():
    write(DOUBLING, "m.onnx")
    limited = (
        "from onnx_spatial.verification import process\nprocess.machine_memory = lambda: 2**30"
    )
    done = ran("convert m.onnx -o out.onnx --strict", limited)
    assert done.code == 1 and "Traceback" not in done.err
    assert done.err.count("needs more than 256 MiB of memory (--memory") == 1
    assert not Path("out.onnx").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("verify --json m.onnx other.onnx", 1),
        ("verify --json m.onnx missing.onnx", 2),
        ("inspect m.onnx", 0),
    ],
)
@pytest.mark.parametrize("stderr_too", [False, True])
def test_a_closed_pipe_changes_no_exit_code(words, code, stderr_too):
    write(S2B.replace("(y)", "(renamed)").replace(" y = ai", " renamed = ai"), "other.onnx")
    reader, closed = os.pipe()
    os.close(reader)
    done = ran(words, stdout=closed, stderr=closed if stderr_too else subprocess.PIPE)
    os.close(closed)
    assert done.code == code
    assert stderr_too or ("rror" in done.err) == bool(code)
    assert stderr_too or not re.search("Traceback|BrokenPipe|ignored", done.err)


@linux
@pytest.mark.parametrize("words", ["inspect m.onnx", "validate m.onnx --json"])
def test_a_stream_that_is_full_or_closed_is_one_line_or_nothing(words):
    write(S2B, "m.onnx")
    with Path("/dev/full").open("w") as full:
        done = ran(words, stdout=full, stderr=subprocess.PIPE)
        assert done.err.splitlines()[-1] == "error: <stdout>: No space left on device"
        assert done.code == 2 and "Traceback" not in done.err
        assert ran(words, stdout=full, stderr=full).code == 2
    for number, name in ((1, "stdout"), (2, "stderr")):
        done = ran(words, f"import os, sys; sys.{name} = None; os.close({number})")
        assert done.code == 0 and "rror" not in (done.err or "")


#: The superuser may write anywhere, but for this: no CAP_DAC_OVERRIDE, no CAP_DAC_READ_SEARCH.
UNPRIVILEGED = """
import ctypes
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
if libc.capget(header, sets) == 0:
    for index in (0, 1):
        sets[index] &= ~0b110
    libc.capset(header, sets)
"""
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))"


@linux
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("program", "mode", "reason"),
    [(UNPRIVILEGED, 0o555, "its folder is read-only"), (FULL, 0o755, "File too large")],
)
def test_where_nothing_can_be_written_files_stay(program, mode, reason, in_place):
    model = Path(write(S2B, "in/m.onnx"))
    made = onnx.load(model)
    made.doc_string = "long" * 100
    onnx.save(made, model)
    before = model.read_bytes()
    folder = model.parent if in_place else Path("out")
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)
    try:
        done = ran(f"convert {model} {'--in-place' if in_place else '-o out/out.onnx'}", program)
    finally:
        folder.chmod(0o755)
    assert done.code == 2 and f"cannot be written: {reason}" in done.error
    assert os.listdir(folder) == (["m.onnx"] if in_place else [])
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "fraction"),
    [("run 3/8: x 2x3", "3/8"), ("3/8 a.onnx: passed", "3/8"), ("writing: a/1/2.onnx", None)],
)
def test_a_bar_has_the_fraction_of_its_text(text, fraction):
    file = io.StringIO()
    with progress_bar(Console(file=file, width=80, force_terminal=True, color_system=None)) as show:
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
    assert re.fullmatch("time: reading .* s, run .* s, writing .* s, .* s in all", str(steps))
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
    for words in ("convert none.onnx -o b.onnx", "verify m.onnx none.onnx"):
        assert cli(words).code == 2
    text = Path("summary.md").read_text()
    failed = r"^\*\*onnx-spatial (\w+)\*\* none\.onnx: error: none\.onnx: cannot be read"
    assert re.findall(failed, text, re.M) == ["convert", "verify"]
    assert text.startswith("before\n**onnx-spatial convert** ") and "1 operator became" in text
    assert "### onnx-spatial validate: passed" in text
    assert re.search(r"^\| passed \| m\.onnx \| 1 \| [\d.]+ s \|$", text, re.M)
    before = sorted(os.listdir())
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/folder")  # cannot be written: changes nothing
    assert cli("convert m.onnx --dry-run -q").code == 0
    assert sorted(os.listdir()) == before
