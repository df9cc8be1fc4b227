"""Where the command cannot write: one line, exit code 2, and every file is what it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from building import one_node

#: The superuser may write anywhere, but for this.
WITHOUT_PRIVILEGES = """
import ctypes, sys
from onnx_spatial.cli.main import main
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
if libc.capget(header, sets) == 0:
    for index in (0, 1):  # effective, permitted: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        sets[index] &= ~0b110
    libc.capset(header, sets)
main(sys.argv[1:])
"""

WITH_A_FULL_DISK = """
import resource, sys
from onnx_spatial.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
main(sys.argv[1:])
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    inputs = [np.zeros((1, 4, 4, 2), np.float32), np.array([2, 2]), np.zeros((2, 2), np.int64)]
    made = one_node("SpaceToBatchND", inputs)
    made.doc_string = "long" * 100
    path = tmp_path / "in" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(made.SerializeToString())
    return path


def run(program: str, *arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, "-c", program, "convert", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.skipif(sys.platform != "linux", reason="drops the privileges that Linux gives")
def test_a_read_only_folder(model, tmp_path, in_place):
    before = model.read_bytes()
    folder = model.parent if in_place else tmp_path / "out"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o555)
    try:
        where = ["--in-place"] if in_place else ["-o", folder / "out.onnx"]
        code, words = run(WITHOUT_PRIVILEGES, model, *where)
    finally:
        folder.chmod(0o755)
    assert code == 2
    assert "cannot be written: its folder is read-only" in words and len(words.splitlines()) == 1
    assert names(folder) == (["model.onnx"] if in_place else [])
    assert model.read_bytes() == before


@pytest.mark.parametrize("in_place", [False, True])
def test_a_full_disk(model, tmp_path, in_place):
    before = model.read_bytes()
    folder = model.parent if in_place else tmp_path / "out"
    folder.mkdir(exist_ok=True)
    where = ["--in-place"] if in_place else ["-o", folder / "out.onnx"]
    code, words = run(WITH_A_FULL_DISK, model, *where)
    assert code == 2
    assert "cannot be written: File too large" in words and len(words.splitlines()) == 1
    assert names(folder) == (["model.onnx"] if in_place else [])
    assert model.read_bytes() == before
