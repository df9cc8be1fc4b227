"""Import everything once and fork for each model: `python -P -m onnx_spatial.validation.workers.worker`.

Importing onnx, onnxruntime and this package takes a second; a fork takes milliseconds. Jobs come one
at a time as a line of JSON on stdin, {"folder": ..., "timeout": ...}. The answer is a line on stdout
that says how the process of the job ended: {"code": ..., "seconds": ..., "timed_out": ...,
"peak_memory": ...}. When stdin ends, a running job is killed.

With `--once FOLDER` the process runs one job itself, for systems that cannot fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

# Imported lazily by their libraries, which would happen in each fork.
import numpy.ma
import numpy.random  # noqa: F401
import onnx.reference.ops  # noqa: F401

from onnx_spatial.custom_ops import available
from onnx_spatial.validation.workers import job
from onnx_spatial.verification.process import limits


def main(arguments: list[str]) -> None:
    """Run one job, or serve jobs until stdin ends."""
    if arguments[:1] == ["--once"]:
        job.do(Path(arguments[1]))
        return
    available()  # imports onnxruntime-extensions
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # other output must not mix with the answers
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  a file descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    _say(answers, {"ready": _threads() == 1})
    Zygote(requests, answers).serve()


def _threads() -> int:
    """Count the threads of this process. A fork has one; locks that others hold stay locked."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return 1


def _say(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")


class Zygote:
    """Forks a process for each job and waits for its end.

    Args:
        requests, answers: unbuffered pipes.
    """

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._requests, self._answers = requests, answers
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve requests until there are no more."""
        while line := self._requests.readline():
            request = json.loads(line)
            folder = Path(request["folder"])
            pid = os.fork()
            if pid == 0:
                self._child(folder)
            answer = self._wait(pid, request["timeout"])
            if answer is None:
                return
            _say(self._answers, answer)

    def _child(self, folder: Path) -> None:
        """Run a job and exit the forked process."""
        code = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log = os.open(folder / job.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            for file in (self._requests, self._answers):
                file.close()
            limits.die_with_parent()
            job.do(folder)
            code = 0
        except BaseException:  # the log has the traceback, and there is no result
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # without the parent's cleanup

    def _wait(self, pid: int, timeout: float | None) -> dict[str, Any] | None:
        """Wait for a process and say how it ended; None if stdin ended first."""
        started = time.monotonic()
        deadline = None if timeout is None else started + timeout
        timed_out = False
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                _kill_helpers(pid)
                return {
                    "code": os.waitstatus_to_exitcode(status),
                    "seconds": time.monotonic() - started,
                    "timed_out": timed_out,
                    "peak_memory": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
                }
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                timed_out, deadline = True, None
                _kill(pid)
                continue
            requests = self._requests.fileno()
            readable, _, _ = select.select([requests, self._woken], [], [], left)
            if self._woken in readable:
                os.read(self._woken, 4096)
            if requests in readable:  # no request comes before the answer: stdin ended
                _kill(pid)
                os.waitpid(pid, 0)
                return None


def _kill(pid: int) -> None:
    """Kill a process that was not waited for yet, and its helpers."""
    _kill_helpers(pid)
    os.kill(pid, signal.SIGKILL)  # in case it does not lead its group yet


def _kill_helpers(pid: int) -> None:
    """Kill the group of a process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
