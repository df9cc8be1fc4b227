"""Load everything once and fork for each model: `python -P -m onnx_spatial.validation.workers.worker`.

Loading onnx, onnxruntime and this package takes a second; a fork takes milliseconds. One job at a
time comes as a line of JSON on stdin, {"folder": ..., "timeout": ...}, and one line of what became
of its process goes to stdout: {"code": ..., "seconds": ..., "timed_out": ...,
"peak_memory": ...}. When stdin ends,
whatever still runs is ended.

With `--once FOLDER` the process does one job itself, for systems that cannot fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

import numpy.random  # noqa: F401  numpy loads it late, which would be in each fork anew

from onnx_spatial.custom_ops import available
from onnx_spatial.validation.workers import job


def main(arguments: list[str]) -> None:
    """Do one job, or one after the other."""
    if arguments[:1] == ["--once"]:
        job.do(Path(arguments[1]))
        return
    available()  # loads what it needs
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing else may get among the answers
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  a file descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    _say(answers, {"ready": _threads() == 1})
    Zygote(requests, answers).serve()


def _threads() -> int:
    """Threads of this process: a fork has only the one that called it, and others' locks for good."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return 1


def _say(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")


class Zygote:
    """Forks a process for each job and sees it to its end.

    Args:
        requests, answers: unbuffered.
    """

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._requests, self._answers = requests, answers
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until there are no more requests."""
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
        """Never returns."""
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
            _die_with_parent()
            job.do(folder)
            code = 0
        except BaseException:  # it goes to the log, and the missing result says the rest
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # nothing of the parent's is to be cleaned up here

    def _wait(self, pid: int, timeout: float | None) -> dict[str, Any] | None:
        """What became of a process; None if nobody wants to know any more."""
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
            if requests in readable:  # no request comes before the answer: it is the end
                _kill(pid)
                os.waitpid(pid, 0)
                return None


def _kill(pid: int) -> None:
    """End a process that was not waited for yet, and its helpers."""
    _kill_helpers(pid)
    os.kill(pid, signal.SIGKILL)  # it may not have got as far as to lead a group


def _kill_helpers(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _die_with_parent() -> None:
    """Have the system end this process when its parent is killed."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
