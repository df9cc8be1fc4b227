"""Validate one model after another, each in a process of its own.

`ProcessSlot.validate` always returns a result: a process that crashes, is killed or takes too long
fails its model.
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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from onnx_spatial.validation.result import Entry, Kind, ModelResult
from onnx_spatial.validation.workers import job as jobs
from onnx_spatial.validation.workers.job import Job
from onnx_spatial.verification.process.child import can_fork, environment
from onnx_spatial.verification.process.limits import signal_name

_WORKER = [sys.executable, "-P", "-m", "onnx_spatial.validation.workers.worker"]
#: No threads before the fork, which is not safe with them: numpy's are not needed, as there are many
#: processes, and onnxruntime's telemetry is one (1.31).
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}
#: How often a model is tried whose process ended unobserved.
_ATTEMPTS = 2
_LOG_CHARACTERS = 4000
#: Seconds that a process may take to end when it is asked to.
_PATIENCE = 10.0
#: Processes are killed by the system when memory runs out, or here (which is noted elsewhere).
_KILLED = getattr(signal, "SIGKILL", None)


class Closed(Exception):
    """The slot was closed while it was in use."""


class ProcessSlot:
    """Validates models in processes that a zygote forks, or in a new interpreter each.

    Args:
        fork: whether to fork; None: if that is safe.
    """

    def __init__(self, fork: bool | None = None) -> None:
        self._fork = can_fork() if fork is None else fork
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._closed = False

    def validate(self, job: Job) -> ModelResult:
        """Return the result of one model.

        Raises:
            Closed: `close` was called by another thread.
        """
        result = self._validate(job)
        if job.memory is None or result.kind != "crash":
            return result
        # Libraries fail in many ways when memory runs out; a run with more memory tells them apart.
        more = replace(job, memory=2 * job.memory, reproduce_to=None)
        if self._validate(more).message == result.message:
            return result
        message = "it needs more memory than the limit: with twice as much it gets further"
        entry = replace(result.entries[0], message=message, kind="memory")
        return replace(result, message=f"failed: {message}", kind="memory", entries=[entry])

    def _validate(self, job: Job) -> ModelResult:
        for attempt in range(1, _ATTEMPTS + 1):
            # Windows removes no file that a helper of the process still has open.
            with tempfile.TemporaryDirectory(
                prefix="onnx-spatial-", ignore_cleanup_errors=True
            ) as name:
                folder = Path(name)
                (folder / jobs.JOB).write_text(json.dumps(asdict(job)), "utf-8")
                ended = self._run(folder, job.timeout)
                if ended is not None or attempt == _ATTEMPTS:
                    return _conclude(job, folder, ended)
        raise AssertionError("the last attempt returns")

    def request_end(self) -> None:
        """Ask the process to end, without waiting."""
        with self._guard:
            self._closed = True
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()

    def close(self, patience: float = _PATIENCE) -> None:
        """Close the slot and end its process, which is killed after `patience` seconds."""
        with self._guard:
            self._closed = True
            self._end(patience)

    def _end(self, patience: float = _PATIENCE) -> None:
        """End the process by closing its stdin; it then ends those that it forked."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is None:  # it runs a job itself
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
        """Run the process of a job; return how it ended, None if that is unknown."""
        if self._fork:
            zygote = self._zygote()
            if zygote is not None:
                return self._request(zygote, {"folder": str(folder), "timeout": timeout})
        return self._run_interpreter(folder, timeout)

    def _zygote(self) -> subprocess.Popen[bytes] | None:
        """Return the process that forks; None if that is not safe."""
        with self._guard:
            if self._closed:
                raise Closed
            if self._process is not None and self._process.poll() is None:
                return self._process
            zygote = self._process = subprocess.Popen(
                _WORKER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**environment(), **_ENVIRONMENT},
                start_new_session=True,  # Ctrl-C must reach only the main process
            )
        hello = self._answer(zygote)
        if hello is None or not hello["ready"]:
            self._fork = False
            with self._guard:
                self._end()
            return None
        return zygote

    def _request(
        self, zygote: subprocess.Popen[bytes], request: dict[str, Any]
    ) -> dict[str, Any] | None:
        assert zygote.stdin is not None
        answer = None
        with contextlib.suppress(OSError, ValueError):  # the zygote ended, or was closed
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

    def _run_interpreter(self, folder: Path, timeout: float | None) -> dict[str, Any] | None:
        """Run a job in a new interpreter, without a fork."""
        with (folder / jobs.LOG).open("wb") as log, self._guard:
            if self._closed:
                raise Closed
            process = self._process = subprocess.Popen(
                [*_WORKER, "--once", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment(), **_ENVIRONMENT},
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


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session, and its helpers."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()


def _conclude(job: Job, folder: Path, ended: dict[str, Any] | None) -> ModelResult:
    """Return the result that a process wrote, or one that says how the process ended."""
    written = _read(folder / jobs.RESULT)
    if written is not None:
        result = ModelResult.from_dict(written)
    else:
        kind, message = _failure(job, ended)
        stage = _read(folder / jobs.STAGE) or {"source": "process", "text": "starting"}
        entry = Entry("error", str(stage["source"]), f"{message} ({stage['text']})", kind=kind)
        result = ModelResult(job.model, "failed", f"failed: {entry.message}", kind, [entry])
        result.log = _log(folder / jobs.LOG)
    if ended is not None:
        result.seconds, result.peak_memory = round(ended["seconds"], 3), ended["peak_memory"]
    return result


def _failure(job: Job, ended: dict[str, Any] | None) -> tuple[Kind, str]:
    """Return kind and message for a process that wrote no result."""
    if ended is None:
        return "crash", "its process and the process that started it were killed"
    if ended["timed_out"]:
        return "timeout", f"it took longer than {job.timeout:g} s"
    code = ended["code"]
    if code >= 0:
        return "crash", f"its process exited with code {code} before it was finished"
    if _KILLED is not None and -code == _KILLED:
        return "memory", "its process was killed by the system, most likely out of memory"
    return "crash", f"its process crashed with {signal_name(-code)}"


def _read(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file; None if it is missing or damaged."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _log(path: Path) -> str | None:
    """Read the end of a log; None if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_CHARACTERS))
            return file.read().decode("utf-8", "replace").strip() or None
    except OSError:
        return None
