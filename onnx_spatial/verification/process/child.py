"""Run a function in a child process, and say how the process ended if it did not return.

The child is forked where that is safe, which takes milliseconds: it has the arguments and libraries
already. Elsewhere a new interpreter runs `main`, which reads them from its stdin. Both answer through a
pipe, in a stream of pickled pairs. What libraries print is lost, or goes to a log.

    ("progress", text) ...    ("result", value) or ("error", exception)

A thread of the parent watches the child: it kills it when it takes too much memory or time, or when
somebody asks for that.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TypeVar, cast

from onnx_spatial.verification.process import limits

T = TypeVar("T")
Progress = Callable[[str], None]
#: How a child ended: "memory" also if the system killed it, which it does when memory runs out.
Ending = Literal["crash", "memory", "timeout", "stopped"]

#: Seconds between two looks at the child.
_INTERVAL = 0.02
#: The system's own limit, against which reserved memory counts, too, is so much higher than the one
#: that is watched here: times the latter, and bytes for the stacks of threads.
_RESERVED, _STACKS = 2, 2**32
#: Held while a child starts: another one would inherit the pipe of the first, and keep it open.
_starting = threading.Lock()


class Died(Exception):
    """The child ended without a result.

    Attributes:
        ending: how it ended.
        reason: the same as the rest of a sentence about what it did.
        doing: its last line of progress; "" if there was none.
    """

    def __init__(self, ending: Ending, reason: str, doing: str) -> None:
        super().__init__(reason)
        self.ending, self.reason, self.doing = ending, reason, doing


@dataclass(frozen=True)
class MemoryLimit:
    """Limit of the memory of a child.

    Attributes:
        size: bytes of private memory that it may take beside what it has from the start.
        named: what the user calls that limit: "4 GiB".
    """

    size: int
    named: str

    @property
    def exceeded(self) -> str:
        """What is said of a node that takes more, as the rest of a sentence."""
        return f"needs more than {self.named} of memory (--memory)"


@dataclass(frozen=True)
class Bounds:
    """What ends a child.

    Attributes:
        memory: limit of its memory; None: that of the system.
        seconds: time that it may take; None: any time.
        stop: ends it when it is set.
    """

    memory: MemoryLimit | None = None
    seconds: float | None = None
    stop: threading.Event | None = None


def _interrupts() -> list[signal.Signals]:
    """Return the signals that end the parent, which then ends the child."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def can_fork() -> bool:
    """Tell whether a fork is safe: macOS has it, but its system libraries are not safe after one."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def run(
    work: Callable[[Progress], T],
    progress: Progress,
    bounds: Bounds,
    *,
    log: IO[bytes] | None = None,
    fork: bool | None = None,
) -> T:
    """Run a function in a child process and return its result.

    Args:
        work: gets a function that takes lines of progress. Without a fork it must be picklable.
        progress: called with these lines.
        bounds: what ends the child.
        log: file that gets what libraries print, and where a crash happened; None: that is lost.
        fork: whether to fork; None: if that is safe.

    Raises:
        Died: the child ended without a result.
    """
    start = _forked if (can_fork() if fork is None else fork) else _spawned
    doing = ""
    with start(work, bounds.memory, log) as (process, stream), stream:
        with _watched(process, bounds) as killed:
            while answer := _answer(stream):
                kind, value = answer
                if kind == "progress":
                    doing = value
                    progress(value)
                elif kind == "result":
                    result: T = value
                    return result
                else:
                    raise value
            code = process.wait()
        ending, reason = killed[0] if killed else _ending(code)
        raise Died(ending, reason, doing)


def _answer(stream: BinaryIO) -> tuple[str, Any] | None:
    """Read the next message of a child; None if it ended."""
    try:
        kind, value = pickle.load(stream)  # what this package wrote
        return kind, value
    except (EOFError, pickle.UnpicklingError):
        return None


def _ending(code: int) -> tuple[Ending, str]:
    """Say how a child ended by its exit code."""
    if -code == getattr(signal, "SIGKILL", None):
        return "memory", "was killed by the system, most likely out of memory"
    if code < 0:
        return "crash", f"ends the process with {limits.signal_name(-code)}"
    return "crash", f"ends the process with exit code {code}"


@contextmanager
def _watched(process: _Process, bounds: Bounds) -> Iterator[list[tuple[Ending, str]]]:
    """Kill a process that leaves its bounds; yield a list that then says how it ended, and why."""
    killed: list[tuple[Ending, str]] = []
    over = threading.Event()
    started = time.monotonic()
    first = limits.private_memory(process.pid) or 0

    def left() -> tuple[Ending, str] | None:
        if bounds.stop is not None and bounds.stop.is_set():
            return "stopped", "was stopped"
        if bounds.seconds is not None and time.monotonic() - started > bounds.seconds:
            return "timeout", f"takes longer than {bounds.seconds:g} s (--timeout)"
        now = None if bounds.memory is None else limits.private_memory(process.pid)
        if bounds.memory is not None and now is not None and now - first > bounds.memory.size:
            return "memory", bounds.memory.exceeded
        return None

    def watch() -> None:
        while not over.wait(_INTERVAL):
            if (reason := left()) is not None:
                killed.append(reason)
                process.kill()
                return

    thread = threading.Thread(target=watch, name="onnx-spatial-watch", daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


class _Forked:
    """A forked process, with the methods of `subprocess.Popen` that are used here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)


_Process = _Forked | subprocess.Popen[bytes]


@contextmanager
def _forked(
    work: Callable[[Progress], Any], memory: MemoryLimit | None, log: IO[bytes] | None
) -> Iterator[tuple[_Process, BinaryIO]]:
    with _starting:
        reading, writing = os.pipe()
        # Python runs functions after a fork, and swallows what a signal raises in them.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _interrupts())
        with warnings.catch_warnings():
            # Threads of numpy stop for a fork; those of onnxruntime belong to sessions, of which the
            # child makes its own; those that wait for other children hold no lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _in_fork(work, memory, log, writing)
        os.close(writing)
    process = _Forked(pid)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        yield process, os.fdopen(reading, "rb")
    except BaseException:  # such as Ctrl-C
        process.kill()
        raise
    finally:
        process.wait()


def _in_fork(
    work: Callable[[Progress], Any], memory: MemoryLimit | None, log: IO[bytes] | None, writing: int
) -> None:
    """Run the function in a forked child, and exit without the parent's cleanup."""
    code = 1
    try:
        gc.freeze()  # sessions of the parent must not be collected: their threads are not here
        faulthandler.disable()
        printed = os.open(os.devnull, os.O_WRONLY) if log is None else log.fileno()
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        _do(work, memory, os.fdopen(writing, "wb"))
        code = 0
    finally:
        os._exit(code)


@contextmanager
def _spawned(
    work: Callable[[Progress], Any], memory: MemoryLimit | None, log: IO[bytes] | None
) -> Iterator[tuple[_Process, BinaryIO]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if log is None else log,
        env=environment(),
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            pickle.dump((work, memory), process.stdin, pickle.HIGHEST_PROTOCOL)
        yield process, cast(BinaryIO, process.stdout)
    except BaseException:
        process.kill()
        raise
    finally:
        process.wait()


def environment() -> dict[str, str]:
    """Return the environment of an interpreter that imports this copy of the package."""
    result = dict(os.environ)
    package = sys.modules[__package__.partition(".")[0]]
    top = str(Path(str(package.__file__)).resolve().parent.parent)
    if top in package.__path__:  # a checkout
        result["PYTHONPATH"] = os.pathsep.join(filter(None, (top, result.get("PYTHONPATH"))))
    return result


def _do(work: Callable[[Progress], Any], memory: MemoryLimit | None, stream: BinaryIO) -> None:
    """Run the function in the child and send what comes of it."""
    for number in _interrupts():
        signal.signal(number, signal.SIG_IGN)
    limits.die_with_parent()
    limits.leave_no_core()
    faulthandler.enable(2)  # the log of a crash says where it happened
    own = limits.private_memory(os.getpid(), reserved=True)
    if memory is not None and own is not None:
        limits.limit_memory(own + _RESERVED * memory.size + _STACKS)

    def send(kind: str, value: object) -> None:
        pickle.dump((kind, value), stream, pickle.HIGHEST_PROTOCOL)
        stream.flush()

    try:
        result = work(lambda text: send("progress", text))
    except Exception as error:
        send("error", _portable(error))
    else:
        send("result", result)


def _portable(error: Exception) -> Exception:
    """Return an exception that can be pickled and still tells what happened."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of any type
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def main() -> None:
    """Run the function that comes on stdin."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with the answers
    work, memory = pickle.load(sys.stdin.buffer)
    _do(work, memory, answers)
    os._exit(0)  # threads of libraries are not waited for
