"""Conversions that are killed or interrupted at any moment, as an operating system or a person does.

Whatever the moment: under each name lies the whole old file or the whole new one, the input is what
it was, and what may be left beside them is told by its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import damaged
import numpy as np
import onnx
import onnxruntime as ort
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
        arguments, words = json.loads(line)
        os.dup2(os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(2, 1)
        try:
            main(arguments)
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code)  # a fork cannot wait for the threads that its parent has
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""

TEMPORARY = re.compile(r"\.onnx-spatial-[0-9a-f]+\.tmp")

State = dict[str, str]


class Nursery:
    """A process that converts as often as it is asked to."""

    def __init__(self, folder: Path) -> None:
        self._words = folder / "stderr"
        with heard():
            self._process = subprocess.Popen(
                [sys.executable, "-c", NURSERY],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def start(self, arguments: list[str]) -> int:
        """Begin a conversion; the process that does it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([arguments, str(self._words)]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait(self) -> tuple[int, str]:
        """How it ended: exit code, or minus the signal; and what it said."""
        assert self._process.stdout is not None
        code = os.waitstatus_to_exitcode(int(self._process.stdout.readline()))
        return code, self._words.read_text()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@dataclass
class Scene:
    """A conversion with the files that it reads and writes.

    Attributes:
        folder: holds them all.
        arguments: of the command.
        old: the files before.
        before, new: the files before and after, by their digests; filled by the first run.
        seconds: that it takes.
    """

    folder: Path
    arguments: list[str]
    old: dict[str, bytes]
    before: State = field(default_factory=dict)
    new: State = field(default_factory=dict)
    seconds: float = 0.0

    def reset(self) -> None:
        """Put everything back to what it was."""
        found = state(self.folder)
        for name in found.keys() - self.old.keys():
            (self.folder / name).unlink()
        for name, data in self.old.items():
            if name not in found or found[name] != self.before.get(name):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(data)
        self.before = self.before or state(self.folder)

    def run(self, nursery: Nursery) -> tuple[int, str]:
        nursery.start(self.arguments)
        return nursery.wait()

    def learn(self, nursery: Nursery) -> None:
        """Convert without disturbance, for the result and the time that it takes."""
        for _ in range(2):  # the first one fills the caches of the system
            self.reset()
            start = time.monotonic()
            code, words = self.run(nursery)
            self.seconds = time.monotonic() - start
            assert code == 0, words
        self.new = state(self.folder)
        assert self.new != self.before
        for name in self.new:
            if name.endswith(".onnx") and not name.startswith("in/"):
                options = ort.SessionOptions()
                options.log_severity_level = 4
                ort.InferenceSession(self.folder / name, options)

    def broken(self) -> list[str]:
        """What is wrong after an interruption."""
        found = state(self.folder)
        known = self.before.keys() | self.new.keys()
        wrong = [
            f"{name} is neither old nor new"
            for name in known
            if found.get(name) not in (self.before.get(name), self.new.get(name))
        ]
        outputs = [n for n in self.new if n.endswith(".onnx") and self.before.get(n) != self.new[n]]
        if any(found.get(name) == self.new[name] for name in outputs):
            data = [n for n in self.new if n.endswith(".bin")]
            wrong += [f"{n} is missing beside the new model" for n in data if n not in found]
        for name in found.keys() - known:
            is_backup = name.endswith(".orig") and found[name] in self.before.values()
            if not is_backup and not TEMPORARY.fullmatch(Path(name).name):
                wrong.append(f"{name} is left")
        return wrong


def state(folder: Path) -> State:
    """Every file below a folder, by its digest."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "blake2b").hexdigest()
            found[str(path.relative_to(folder))] = digest
    return found


def with_weights(mebibytes: int) -> bytes:
    model = onnx.ModelProto.FromString(damaged.files("openvino_style")["model.onnx"])
    weight = np.arange(mebibytes << 18, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "ballast"))
    return bytes(model.SerializeToString())


def external(sizes: int) -> dict[str, bytes]:
    """The seed with external data, and more of that at the end of its files."""
    files = dict(damaged.files("external data"))
    model = files.pop("model.onnx")
    return {
        "in/model.onnx": model,
        **{f"in/{name}": data + b"\1" * sizes for name, data in files.items()},
    }


OUT = ["{}/in/model.onnx", "-o", "{}/out/out.onnx"]
IN_PLACE = ["{}/in/model.onnx", "--in-place"]
#: Without it, most of the time is spent with the files.
QUICK = ["--no-verify"]
OLD = {"out/out.onnx": b"old" * 1000}


def small() -> dict[str, bytes]:
    return {"in/model.onnx": damaged.files("openvino_style")["model.onnx"]}


#: Every way to write: the files before, for weights of so many MiB, and the arguments.
SCENES: dict[str, tuple[Callable[[int], dict[str, bytes]], list[str]]] = {
    "new": (lambda _: small(), OUT + QUICK),
    "over an old one": (lambda _: small() | OLD, OUT + QUICK),
    "weights": (lambda size: {"in/model.onnx": with_weights(size)} | OLD, OUT + QUICK),
    "external data": (lambda size: external(size << 19) | OLD, OUT + QUICK),
    "in place": (lambda _: small(), IN_PLACE + QUICK),
    "weights in place": (lambda size: {"in/model.onnx": with_weights(size)}, IN_PLACE + QUICK),
    "in place, verified": (lambda _: small(), IN_PLACE),
}


def scene(name: str, mebibytes: int, folder: Path) -> Scene:
    """The files of a scene, and somebody else's, in a new folder."""
    make, arguments = SCENES[name]
    filled = [a.replace("{}", str(folder)) for a in arguments]
    old = {**make(mebibytes), "out/some.txt": b"of somebody else"}
    return Scene(folder, ["convert", *filled], old)


def interrupt(it: Scene, nursery: Nursery, number: signal.Signals, rng: random.Random) -> int | str:
    """Send a signal at a random moment of a conversion: of the whole, or as soon as it writes."""
    it.reset()
    names = _names(it.folder)
    start = time.monotonic()
    process = nursery.start(it.arguments)
    moment = start + rng.uniform(0, 1.05 * it.seconds)
    if rng.random() < 0.5:
        while time.monotonic() < start + it.seconds and _names(it.folder) == names:
            pass
        moment = time.monotonic() + rng.uniform(0, 0.5) * (time.monotonic() - start)
    while time.monotonic() < moment:
        pass
    with contextlib.suppress(ProcessLookupError):  # it was done before
        os.kill(process, number)
    code, words = nursery.wait()
    assert "Traceback" not in words, words
    return code


def _names(folder: Path) -> set[str]:
    return {*os.listdir(folder / "in"), *os.listdir(folder / "out")}


def killed(it: Scene, nursery: Nursery, turn: int, rng: random.Random) -> tuple[str, list[str]]:
    """How a conversion ended that was killed, and what was broken."""
    code = interrupt(it, nursery, signal.SIGKILL, rng)
    return "killed" if code == -signal.SIGKILL else str(code), it.broken()


def interrupted(
    it: Scene, nursery: Nursery, turn: int, rng: random.Random
) -> tuple[str, list[str]]:
    """How a conversion ended after Ctrl-C or a polite end, and what was broken or left."""
    number = (signal.SIGINT, signal.SIGTERM)[turn % 2]
    code = interrupt(it, nursery, number, rng)
    found, wrong = state(it.folder), it.broken()
    if found not in (it.before, it.new):
        wrong.append(f"left {sorted(found)}")
    # Before the command has taken over the signal, it ends the process as any other.
    if code not in (0, 130, -number):
        wrong.append(f"exit code {code}")
    if code == 0 and found != it.new:
        wrong.append("exit code 0, but nothing was written")
    return f"{number.name}: {code}", wrong


#: The MiB of weights, and how often a conversion is disturbed.
SIZES = pytest.mark.parametrize(
    ("mebibytes", "times"), [(1, 2), pytest.param(100, 40, marks=pytest.mark.slow)]
)


@SIZES
@pytest.mark.parametrize("disturb", [killed, interrupted])
@pytest.mark.parametrize("name", SCENES)
def test_whatever_the_moment_files_are_old_or_new(
    name, disturb, mebibytes, times, tmp_path, nursery
):
    it = scene(name, mebibytes, tmp_path)
    it.learn(nursery)
    rng, ends, wrong = random.Random(len(name)), Counter[str](), list[str]()
    for turn in range(times):
        end, found = disturb(it, nursery, turn, rng)
        ends[end] += 1
        wrong += [f"{turn}, {end}: {what}" for what in found]
    print(name, f"{it.seconds:.3f} s", dict(ends))
    assert not wrong, "\n".join(wrong)
    code, words = it.run(nursery)  # what was left disturbs nobody
    assert code == 0 and it.new.items() <= state(it.folder).items(), words
    if disturb is killed and times > 2:
        assert ends["killed"] >= times / 2
