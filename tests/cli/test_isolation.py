"""`convert` and `verify` outlive a model that ends its process, and leave no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from onnx import parser
from signals import heard

from onnx_spatial.verification import child

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>'
SITE = """
    <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0},
     int64[1] least = {-9223372036854775808}, int64[1] minus = {-1},
     int64 forever = {9223372036854775807}, bool go = {1}>
    { [site] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads) REST }
"""
#: A division that traps, and a loop that does not end.
TRAP = (
    "n = Shape<start = 0, end = 1>(x) zero = Sub(n, n) l = Add(zero, least) [d] e = Div(l, minus)"
)
ENDLESS = """
    e = Loop(forever, go, minus) <body = b (int64 i, bool c, int64[k] v) => (bool c2, int64[k] w)
        { c2 = Identity(c) w = Identity(v) }>
"""


def model_at(path: Path, rest: str) -> Path:
    text = f"{HEAD} g (float[N,4,6,3] x) => (float[P,Q,R,S] y, int64[1] e) {SITE}"
    path.write_bytes(parser.parse_model(text.replace("REST", rest)).SerializeToString())
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnx_spatial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(sys.platform == "win32", reason="other codes for traps")
def test_a_trap_is_unverified(tmp_path: Path) -> None:
    model, out = model_at(tmp_path / "model.onnx", TRAP), tmp_path / "out.onnx"
    done = run("convert", model, "-o", out, "--json")
    assert (done.returncode, out.exists()) == (0, True), done.stderr
    verification = json.loads(done.stdout)["verification"]
    assert verification["status"] == "unverified"
    assert "the process ends with SIGFPE" in verification["message"]
    done = run("verify", model, out)
    assert done.returncode == 1
    assert "UNVERIFIED" in done.stdout


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except (OSError, IndexError):
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux" or not child.can_fork(), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process(tmp_path: Path, number: int) -> None:
    model = model_at(tmp_path / "model.onnx", ENDLESS)
    command = [sys.executable, "-m", "onnx_spatial", "convert", str(model), "-o", "out.onnx"]
    with heard():
        process = subprocess.Popen(
            command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    deadline = time.monotonic() + 60
    while not (children := children_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children
    os.killpg(process.pid, number)  # as a terminal does, the child included
    assert process.wait(60) == 130
    assert process.stderr is not None and "interrupted" in process.stderr.read()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert not (tmp_path / "out.onnx").exists()
