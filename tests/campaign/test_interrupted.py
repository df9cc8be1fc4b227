"""Conversions that are killed or interrupted at any moment, as an operating system or a person does.

Whatever the moment: under each name lies the whole old file or the whole new one, the input is what it
was, and what may be left beside them is told by its name. Which step leaves what is in
tests/model/test_writer.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import damaged
import numpy as np
import onnx
import pytest
from signals import heard

#: Forks a process for each conversion, so that none spends its time on imports.
NURSERY = """
import json, os, sys
from onnx_spatial.cli.main import main
import onnx_spatial.api, onnx_spatial.custom_ops  # what a conversion loads
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.dup2(2, 1)
        try:
            main(json.loads(line))
        except SystemExit as end:
            os._exit(end.code)  # a fork cannot wait for the threads that its parent has
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
TEMPORARY = re.compile(r"\.onnx-spatial-[0-9a-f]+\.tmp")

Files = dict[str, bytes]


class Nursery:
    """A process that converts as often as it is asked to."""

    def __init__(self) -> None:
        command, pipe = [sys.executable, "-c", NURSERY], subprocess.PIPE
        with heard():
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def start(self, words: list[str]) -> int:
        """Begin a conversion; return the process that does it."""
        print(json.dumps(words), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        """Return how it ended: exit code, or minus the signal."""
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.process.stdin.close()
    made.process.wait()


def state(folder: Path) -> Files:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def reset(folder: Path, files: Files) -> None:
    for name in state(folder).keys() - files.keys():
        (folder / name).unlink()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def with_weights() -> Files:
    model = onnx.ModelProto.FromString(damaged.files("openvino_style")["model.onnx"])
    weight = np.arange(1 << 18, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "ballast"))
    return {"in/model.onnx": model.SerializeToString()}


def external() -> Files:
    files = damaged.files("external data")
    return {f"in/{n}": d + b"\1" * (n != "model.onnx") * (1 << 19) for n, d in files.items()}


OUT, IN_PLACE = ["-o", "out/out.onnx", "--no-verify"], ["--in-place"]
#: Every way to write: the files before, and the options.
SCENES = {
    "over an old one": (with_weights, OUT),
    "external data": (external, OUT),
    "in place": (with_weights, [*IN_PLACE, "--no-verify"]),
    "in place, verified": (with_weights, IN_PLACE),
}


def disturb(nursery: Nursery, words: list[str], number: int, moment: float) -> int:
    """Send a signal to a conversion at a moment, in seconds; return how it ended."""
    process = nursery.start(words)
    time.sleep(moment)
    with contextlib.suppress(ProcessLookupError):  # it was done before
        os.kill(process, number)
    return nursery.wait()


@pytest.mark.parametrize("name", SCENES)
def test_whatever_the_moment_files_are_old_or_new(name, tmp_path, nursery):
    make, options = SCENES[name]
    before = {**make(), "out/out.onnx": b"old" * 1000, "out/some.txt": b"of somebody else"}
    words = ["convert", str(tmp_path / "in/model.onnx"), *options]
    words = [str(tmp_path / word) if word.endswith("out.onnx") else word for word in words]
    reset(tmp_path, before)
    start = time.monotonic()
    nursery.start(words)
    assert nursery.wait() == 0
    seconds, after = time.monotonic() - start, state(tmp_path)
    rng = random.Random(name)
    for turn, number in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGTERM) * 2):
        reset(tmp_path, before)
        code = disturb(nursery, words, number, rng.uniform(0, 1.05 * seconds))
        found, about = state(tmp_path), f"turn {turn}, signal {number}, code {code}"
        for file in before.keys() | after.keys():
            assert found.get(file) in (before.get(file), after.get(file)), f"{file}, {about}"
        for file in found.keys() - before.keys() - after.keys():
            is_backup = file.endswith(".orig") and found[file] in before.values()
            assert number == signal.SIGKILL, f"{file} is left, {about}"
            assert is_backup or TEMPORARY.fullmatch(Path(file).name), f"{file}, {about}"
        if number != signal.SIGKILL:
            # Before the command has taken over the signal, it ends the process as any other.
            assert code in (0, 130, -number) and found in (before, after), about
    nursery.start(words)  # what was left disturbs nobody
    assert nursery.wait() == 0 and after.items() <= state(tmp_path).items()
