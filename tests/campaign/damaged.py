"""Convert damaged files in processes that may die of it, and judge what comes out.

One case again, with its files kept:  python tests/campaign/damaged.py FOLDER SEED NUMBER
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))

import mutants
import onnxruntime as ort
import seeds
from adapter import run

import onnx_spatial

#: A case takes no longer and no more than this.
MAX_SECONDS = 10.0
MAX_BYTES = 3 * 2**29  # 1.5 GiB
#: The machine's protection, not a measure: address space is cheap.
MAX_ADDRESS_SPACE = 8 * 2**30
#: A clear line is no longer, whatever the names in the file.
MAX_LINE = 2000
#: Cases that one process takes on.
CASES_OF_A_PROCESS = 1000


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    Attributes:
        seed, number: of the mutant.
        damage: what was done to the file.
        kind: "verified", "undecided", "nothing to do", or the class of the error.
        message: of the error.
        info: what should not have happened, if anything.
        seconds, peak: of the conversion; bytes beyond those held before.
    """

    seed: str
    number: int
    damage: str = ""
    kind: str = ""
    message: str = ""
    info: str = ""
    seconds: float = 0.0
    peak: int = 0


class Wrong(Exception):
    """What should not have happened."""


def convert(seed: str, number: int, folder: Path) -> Outcome:
    """Make a mutant in an empty folder, convert it, and look at all that is left."""
    mutant = mutants.make(seed, number)
    before, after = folder / "in", folder / "out"
    for name, data in mutant.files.items():
        target = before / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    after.mkdir()
    out = after / "out.onnx"
    _forget_peak()
    held = _memory("VmRSS")
    start = time.monotonic()
    info = ""
    kind, message = "", ""
    try:
        by = _by_command if mutant.by_command else _by_call
        kind, message = by(before / seeds.MODEL, out)
        _check_files(mutant.files, before, after, kind)
        if kind == "verified":
            _check_loads(out)
        if kind == "nothing to do" and out.read_bytes() != mutant.files[seeds.MODEL]:
            raise Wrong("the copy differs")
    except Wrong as wrong:
        info = str(wrong)
    except BaseException:
        info = traceback.format_exc()
    seconds, peak = time.monotonic() - start, _memory("VmHWM") - held
    if seconds > MAX_SECONDS:
        info = info or f"took {seconds:.0f} s"
    if peak > MAX_BYTES:
        info = info or f"took {peak / 2**20:.0f} MiB"
    return Outcome(
        seed, number, mutant.damage, kind, message[:MAX_LINE], info, round(seconds, 3), peak
    )


def _by_call(path: Path, out: Path) -> tuple[str, str]:
    try:
        result = onnx_spatial.convert(path, out)
    except onnx_spatial.SpatialError as error:
        _check_line(str(error))
        if error.exit_code not in (1, 2, 3):
            raise Wrong(f"exit code {error.exit_code}") from None
        return _name(error), str(error)
    json.dumps(result.to_dict())
    if not result.changed:
        return "nothing to do", ""
    assert result.verification is not None
    if result.verification:
        return "verified", result.verification.message
    if result.verification.status != "unverified":
        raise Wrong(f"written although {result.verification.message}")
    return "undecided", result.verification.message


def _name(error: Exception) -> str:
    verification = getattr(error, "verification", None)
    return f"{type(error).__name__} {getattr(verification, 'status', '')}".strip()


def _by_command(path: Path, out: Path) -> tuple[str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run(["convert", str(path), "-o", str(out), "--json"])
    try:
        document = json.loads(stdout.getvalue())
    except ValueError:
        raise Wrong(f"stdout is no JSON: {stdout.getvalue()[:200]!r}") from None
    if code:
        lines = stderr.getvalue().splitlines()
        if len(lines) != 1 or not lines[0].startswith("error: ") or "please report" in lines[0]:
            raise Wrong(f"stderr is not one clear line: {stderr.getvalue()[:500]!r}")
        _check_line(lines[0])
        if document["exit_code"] != code or code not in (1, 2, 3):
            raise Wrong(f"exit code {code}, in the document {document['exit_code']}")
        verdict = (document.get("verification") or {}).get("status", "")
        return f"exit code {code} {verdict}".strip(), lines[0]
    if stderr.getvalue():
        raise Wrong(f"stderr after success: {stderr.getvalue()[:500]!r}")
    if not document["changed"]:
        return "nothing to do", ""
    kind = "verified" if document["verification"]["status"] == "passed" else "undecided"
    return kind, document["verification"]["message"]


def _check_line(line: str) -> None:
    if not line or len(line) > MAX_LINE or not line.isprintable():
        raise Wrong(f"no clear line ({len(line)} characters): {line[:300]!r}")


def _check_files(files: seeds.Files, before: Path, after: Path, kind: str) -> None:
    found = {str(p.relative_to(before)): p.read_bytes() for p in before.rglob("*") if p.is_file()}
    if found != dict(files):
        raise Wrong(f"the input was changed: {sorted(found)}")
    names = {str(p.relative_to(after)) for p in after.rglob("*") if p.is_file()}
    done = kind in ("verified", "undecided", "nothing to do")
    allowed = {"out.onnx", *files} - {seeds.MODEL} if done else set()
    if not names <= allowed or ("out.onnx" in names) != done:
        raise Wrong(f"files left after {kind!r}: {sorted(names)}")
    if not done and any(after.iterdir()):
        raise Wrong("a folder is left")


def _check_loads(path: Path) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Wrong(f"verified, but does not load: {error}") from None


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(which: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{which}:")[1].split()[0]) * 1024


# The processes


def serve(folder: Path) -> None:
    """Take cases from stdin, one a line, and answer on stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        seed, number = line.split()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        outcome = convert(seed, int(number), folder)
        answers.write(json.dumps(asdict(outcome)) + "\n")
        answers.flush()


class _Process:
    """One that converts, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: subprocess.Popen[str] | None = None
        self._done = 0

    def convert(self, seed: str, number: int) -> Outcome:
        if self._started is None or self._done >= CASES_OF_A_PROCESS:
            self._start()
        process = self._started
        assert process is not None and process.stdin is not None and process.stdout is not None
        self._done += 1
        process.stdin.write(f"{seed} {number}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], 3 * MAX_SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            return Outcome(**json.loads(line))
        damage = mutants.make(seed, number).damage
        if not ready:
            process.kill()
        code = process.wait()
        words = (self._folder / "stderr").read_text(errors="replace")[-2000:]
        what = f"died with {code}" if ready else "hangs"
        self._started = None
        return Outcome(seed, number, damage, "", "", f"the process {what}\n{words}")

    def _start(self) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(str(p) for p in (Path(__file__).parent, Path(__file__).parents[1]))
        with (self._folder / "stderr").open("w") as stderr:
            self._started = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", __file__, str(self._folder / "files")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        assert self._started.stdout is not None
        assert self._started.stdout.readline() == "ready\n"
        self._done = 0

    def close(self) -> None:
        if self._started is not None and self._started.stdin is not None:
            self._started.stdin.close()
            self._started.wait()
            self._started = None


def outcomes(
    cases: Iterable[tuple[str, int]], folder: Path, processes: int = 1
) -> Iterator[Outcome]:
    """Convert mutants, given by seed and number; they come in any order."""
    waiting: SimpleQueue[tuple[str, int]] = SimpleQueue()
    for case in cases:
        waiting.put(case)
    total = waiting.qsize()
    done: SimpleQueue[Any] = SimpleQueue()

    def work(place: Path) -> None:
        process = _Process(place)
        try:
            while True:
                done.put(process.convert(*waiting.get_nowait()))
        except Empty:
            pass
        except BaseException as error:
            done.put(error)
        finally:
            process.close()

    for i in range(processes):
        threading.Thread(target=work, args=(folder / str(i),), daemon=True).start()
    for _ in range(total):
        outcome = done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        yield outcome


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(Path(sys.argv[1]))
    else:
        place = Path(sys.argv[1])
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(json.dumps(asdict(convert(sys.argv[2], int(sys.argv[3]), place)), indent=2))
