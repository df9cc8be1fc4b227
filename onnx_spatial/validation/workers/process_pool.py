"""Validate one model after the other, each in a process of its own.

Whatever happens there, `ProcessSlot.validate` returns a result: a process that crashes, is killed or
takes too long fails its model.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_spatial
from onnx_spatial.validation.result import Entry, Kind, ModelResult
from onnx_spatial.validation.workers import job as jobs
from onnx_spatial.validation.workers.job import Job

_WORKER = [sys.executable, "-P", "-m", "onnx_spatial.validation.workers.worker"]
#: Every lane is one of many on this machine: numpy needs no threads, a fork of a process with threads
#: is not safe, and onnxruntime's telemetry is such a thread (1.31).
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}
#: How often a model is started anew whose process could not even be watched.
_ATTEMPTS = 2
_LOG_CHARACTERS = 4000
#: Seconds that a process which is asked to end may take for it.
_PATIENCE = 10.0
#: Kills that are not ours come from the system, which does it when memory runs out.
_KILLED = getattr(signal, "SIGKILL", None)


class Closed(Exception):
    """The lane was closed while it was at work."""


class ProcessSlot:
    """Looks at models in processes that a zygote forks, or that are started each anew.

    Args:
        fork: whether to fork; None: where that is safe.
    """

    def __init__(self, fork: bool | None = None) -> None:
        # macOS's own libraries do not bear a fork, although there is one.
        safe = hasattr(os, "fork") and sys.platform != "darwin"
        self._fork = safe if fork is None else fork
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._closed = False

    def validate(self, job: Job) -> ModelResult:
        """The result of one model.

        Raises:
            Closed: `close` was called by another thread.
        """
        found = self._look(job)
        if job.memory is None or found.kind != "crash":
            return found
        # Libraries end in many ways where memory runs out: more of it tells that from other reasons.
        more = replace(job, memory=2 * job.memory, cache=None, record_to=None, reproduce_to=None)
        if self._look(more).message == found.message:
            return found
        message = "it takes more memory than it may have: with twice as much it gets further"
        entry = replace(found.entries[0], message=message, kind="memory")
        return replace(found, message=f"failed: {message}", kind="memory", entries=[entry])

    def _look(self, job: Job) -> ModelResult:
        for attempt in range(1, _ATTEMPTS + 1):
            # Windows removes no file that a helper of the process still has open.
            with tempfile.TemporaryDirectory(
                prefix="onnx-spatial-", ignore_cleanup_errors=True
            ) as name:
                folder = Path(name)
                (folder / jobs.JOB).write_text(json.dumps(job.to_dict()), "utf-8")
                ended = self._run(folder, job.timeout)
                if ended is not None or attempt == _ATTEMPTS:
                    return _conclude(job, folder, ended)
        raise AssertionError("the last attempt returns")

    def hang_up(self) -> None:
        """Have what is running end, and do not wait for it."""
        with self._guard:
            self._closed = True
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()

    def close(self, patience: float = _PATIENCE) -> None:
        """End what is running, and the lane; `patience`: seconds until it is killed."""
        with self._guard:
            self._closed = True
            self._end(patience)

    def _end(self, patience: float = _PATIENCE) -> None:
        """End the process, and with it those that it forked: its stdin ends."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is None:  # it works itself
            _kill_group(process)
            process.wait()
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(patience)
        except BaseException as error:
            _kill_group(process)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise  # Ctrl-C while it ends
        if process.stdout is not None:
            process.stdout.close()

    def _run(self, folder: Path, timeout: float | None) -> dict[str, Any] | None:
        """How the process of a job ended; None if that is not known."""
        if self._fork:
            zygote = self._zygote()
            if zygote is not None:
                return self._ask(zygote, {"folder": str(folder), "timeout": timeout})
        return self._once(folder, timeout)

    def _zygote(self) -> subprocess.Popen[bytes] | None:
        """The process that forks; None where that is not safe."""
        with self._guard:
            if self._closed:
                raise Closed
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    _WORKER,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=_environment(),
                    start_new_session=True,  # Ctrl-C is for the one that started it all
                )
                new = self._process
            else:
                return self._process
        hello = self._answer(new)
        if hello is None or not hello["ready"]:
            self._fork = False
            with self._guard:
                self._end()
            return None
        return new

    def _ask(
        self, zygote: subprocess.Popen[bytes], request: dict[str, Any]
    ) -> dict[str, Any] | None:
        assert zygote.stdin is not None
        answer = None
        with contextlib.suppress(OSError, ValueError):  # it has gone, or was closed
            zygote.stdin.write(json.dumps(request).encode() + b"\n")
            zygote.stdin.flush()
            answer = self._answer(zygote)
        if answer is None:
            with self._guard:
                if self._closed:
                    raise Closed
                self._end()
        return answer

    def _answer(self, zygote: subprocess.Popen[bytes]) -> dict[str, Any] | None:
        assert zygote.stdout is not None
        try:
            line = zygote.stdout.readline()
            answer = json.loads(line) if line else None
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def _once(self, folder: Path, timeout: float | None) -> dict[str, Any] | None:
        """The same without a fork: a new interpreter for each model."""
        with (folder / jobs.LOG).open("wb") as log, self._guard:
            if self._closed:
                raise Closed
            process = self._process = subprocess.Popen(
                [*_WORKER, "--once", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
            process.stdin = None
        timed_out, started = False, time.monotonic()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        _kill_group(process)
        code = process.wait()
        with self._guard:
            self._process = None
            if self._closed:
                raise Closed
        seconds = time.monotonic() - started
        return {"code": code, "seconds": seconds, "timed_out": timed_out, "peak_memory": None}


def _environment() -> dict[str, str]:
    """The variables of a process that runs this very package, be it installed or in a checkout."""
    found = {**os.environ, **_ENVIRONMENT}
    top = str(Path(onnx_spatial.__file__).resolve().parent.parent)
    if top in onnx_spatial.__path__:
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (top, found.get("PYTHONPATH"))))
    return found


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session of its own, and its helpers."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()


def _conclude(job: Job, folder: Path, ended: dict[str, Any] | None) -> ModelResult:
    """The result that a process left, or what its end says."""
    left = _read(folder / jobs.RESULT)
    if left is not None:
        found = ModelResult.from_dict(left)
    else:
        kind, message = _verdict(job, ended)
        stage = _read(folder / jobs.STAGE) or {"source": "process", "text": "starting"}
        entry = Entry("error", str(stage["source"]), f"{message} ({stage['text']})", kind=kind)
        found = ModelResult(job.model, "failed", f"failed: {entry.message}", kind, [entry])
        found.log = _log(folder / jobs.LOG)
    if ended is not None:
        found.seconds, found.peak_memory = round(ended["seconds"], 3), ended["peak_memory"]
    return found


def _verdict(job: Job, ended: dict[str, Any] | None) -> tuple[Kind, str]:
    if ended is None:
        return "crash", "its process was ended, and the one that watched it"
    if ended["timed_out"]:
        return "timeout", f"it was still running after {job.timeout:g} s"
    code = ended["code"]
    if code >= 0:
        return "crash", f"its process ended with code {code} and without a result"
    if _KILLED is not None and -code == _KILLED:
        return "memory", "its process was killed by the system, most likely out of memory"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return "crash", f"its process was ended by {name}"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _log(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_CHARACTERS))
            return file.read().decode("utf-8", "replace").strip() or None
    except OSError:
        return None
