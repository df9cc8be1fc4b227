"""What macOS and Windows lack, refuse, or do otherwise: taken away here, everything works without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from building import one_node
from onnx import helper, numpy_helper

from onnx_spatial import ModelFileError
from onnx_spatial.model.io import reader
from onnx_spatial.verification import process

X = np.zeros((1, 4, 6, 3), np.float32)

MACOS = """
import resource
def refuse(number, limits): raise ValueError("current limit exceeds maximum limit")
resource.setrlimit = refuse
del os.copy_file_range, os.sched_getaffinity
"""
WINDOWS = """
sys.modules["resource"] = sys.modules["fcntl"] = None
for name in ("fork", "killpg", "setpgid", "wait4", "sysconf", "copy_file_range",
             "sched_getaffinity", "getuid", "geteuid", "link", "O_NOFOLLOW"):
    delattr(os, name)
for name in ("SIGKILL", "SIGCHLD", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPROF", "SIGVTALRM",
             "pthread_sigmask", "set_wakeup_fd"):
    delattr(signal, name)
opened = os.open
def open_no_folder(path, *arguments, **named):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return opened(path, *arguments, **named)
os.open = open_no_folder
shutil._use_fd_functions = False  # as there: folders are removed by their paths
"""
COMMANDS = """
import os, signal, sys
# These of the standard library look at the system while they are loaded.
import multiprocessing, pathlib, shutil, subprocess, tempfile, uuid
{system}
from onnx_spatial.cli.main import main
from onnx_spatial.validation.run import Examination, validate_model
from onnx_spatial.validation import Options
def run(*arguments):
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
folder, model = map(pathlib.Path, sys.argv[1:])
assert run("--version") == 0
assert run("convert", str(model), "-o", str(folder / "out.onnx")) == 0
assert run("convert", str(model), "--in-place", "--no-verify", "--mode", "custom-op") == 0
assert (folder / "model.onnx.orig").exists()
examination = Examination("out.onnx", str(folder), Options())
print(validate_model(examination, 100.0, 2**33).status)
print(examination(print).status)  # in this process
"""


def model_at(path: Path, *, weights: int = 4) -> Path:
    """A model with a weight that stays in the file, if it is large."""
    model = one_node("SpaceToBatchND", (X, np.array([2, 2]), np.zeros((2, 2), np.int64)))
    inner = model.graph.node[0]
    name = inner.output[0]
    inner.output[0] = "inner"
    stored = numpy_helper.from_array(np.ones(weights, np.float32), "w")
    model.graph.initializer.append(stored)
    model.graph.node.append(helper.make_node("ReduceMax", ["w"], ["m"], keepdims=0))
    model.graph.node.append(helper.make_node("Add", ["inner", "m"], [name]))
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("system", [MACOS, WINDOWS], ids=["macOS", "Windows"])
def test_commands_do_without_what_a_system_lacks(tmp_path, system):
    code = COMMANDS.format(system=system)
    model = model_at(tmp_path / "model.onnx")
    command = [sys.executable, "-P", "-c", code, str(tmp_path), str(model)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("passed") == 2, done.stdout


def test_a_bound_is_never_raised(monkeypatch):
    resource = pytest.importorskip("resource")
    most = resource.RLIM_INFINITY
    given = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: given.append(both))
    for now in ((most, most), (10, most), (most, 20), (10, 20)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, now=now: now)
        assert process.lower("RLIMIT_DATA", 15)
    assert given == [(15, most), (10, most), (15, 20), (10, 20)]


def test_a_folder_is_said_to_be_one_whatever_the_system_says_of_it(tmp_path, monkeypatch):
    real = Path.open

    def denied(self: Path, *arguments: str, **named: object) -> object:
        if self.is_dir():
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ModelFileError, match="is a folder, not a model file"):
        reader.read(tmp_path)
