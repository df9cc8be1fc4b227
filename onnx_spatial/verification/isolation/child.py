"""Run a function in a child process, and say how the process ended if it did not return.

The child is forked where that is safe, which takes milliseconds: it has the arguments and libraries
already. Elsewhere a new interpreter reads them from its stdin:
`python -P -m onnx_spatial.verification.isolation.child RECORD`. Both answer through a pipe, in a
stream of pickled pairs. What libraries print is lost.

    ("progress", text) ...    ("result", value) or ("error", exception)
"""

from __future__ import annotations

import faulthandler
import gc
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from onnx_spatial.verification.isolation import calls, limits
from onnx_spatial.verification.isolation.calls import CallRecord, FatalCall

T = TypeVar("T")
Progress = Callable[[str], None]

#: Seconds between two looks at the memory of the child.
_INTERVAL = 0.02
#: The system's own limit, against which reserved memory counts, too, is so much higher than the one
#: that is watched here: times the latter, and bytes for the stacks of threads.
_RESERVED, _STACKS = 2, 2**32


class Died(Exception):
    """The child ended without a result.

    Attributes:
        call: the call into native code that ended it; None if none was under way.
        doing: what it did, in words; "" if that is unknown.
        reason: how it ended, as the rest of a sentence about what it did.
        out_of_memory: whether it took more memory than allowed.
    """

    def __init__(
        self, call: FatalCall | None, doing: str, reason: str, *, out_of_memory: bool
    ) -> None:
        super().__init__(reason)
        self.call, self.doing, self.reason = call, doing, reason
        self.out_of_memory = out_of_memory


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
    limit: MemoryLimit,
    fatal: Sequence[FatalCall] = (),
    *,
    fork: bool | None = None,
) -> T:
    """Run a function in a child process and return its result.

    Args:
        work: gets a function that takes lines of progress. Without a fork it must be picklable.
        progress: called with these lines.
        limit: of its memory.
        fatal: calls that ended earlier children; the function must make the same ones again.
        fork: whether to fork; None: if that is safe.

    Raises:
        Died: the child ended without a result.
    """
    start = _forked if (can_fork() if fork is None else fork) else _spawned
    with start(work, limit, fatal) as (process, stream, memory), stream:
        with _watched(process, limit.size) as exceeded:
            while answer := _answer(stream):
                kind, value = answer
                if kind == "progress":
                    progress(value)
                elif kind == "result":
                    result: T = value
                    return result
                else:
                    raise value
            code = process.wait()
        raise _died(CallRecord(memory).read(), code, limit, memory=exceeded.is_set())


def _answer(stream: BinaryIO) -> tuple[str, Any] | None:
    """Read the next message of a child; None if it ended."""
    try:
        kind, value = pickle.load(stream)  # what this package wrote
        return kind, value
    except (EOFError, pickle.UnpicklingError):
        return None


def _died(state: dict[str, Any], code: int, limit: MemoryLimit, *, memory: bool) -> Died:
    """Say how a child ended by its exit code, and what it did."""
    killed = -code == getattr(signal, "SIGKILL", None)
    if memory:
        reason = limit.exceeded
    elif killed:
        reason = "was killed by the system, most likely out of memory"
    elif code < 0:
        reason = f"ends the process with {limits.signal_name(-code)}"
    else:
        reason = f"ends the process with exit code {code}"
    call = None
    if text := state["text"]:
        call = FatalCall(
            state["number"], state["model"], text, reason, memory or killed, state["node"]
        )
    doing = text or state["doing"]
    return Died(call, doing, reason, out_of_memory=memory or killed)


@contextmanager
def _watched(process: _Process, most: int) -> Iterator[threading.Event]:
    """Kill a process that takes `most` bytes more than at first; yield the event that says so."""
    exceeded, over = threading.Event(), threading.Event()
    first = limits.private_memory(process.pid)

    def watch() -> None:
        while not over.wait(_INTERVAL):
            now = limits.private_memory(process.pid)
            if now is None:
                return
            if now - (first or 0) > most:
                exceeded.set()
                process.kill()
                return

    if first is None:
        yield exceeded
        return
    thread = threading.Thread(target=watch, name="onnx-spatial-memory", daemon=True)
    thread.start()
    try:
        yield exceeded
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
    work: Callable[[Progress], Any], limit: MemoryLimit, fatal: Sequence[FatalCall]
) -> Iterator[tuple[_Process, BinaryIO, mmap.mmap]]:
    reading, writing = os.pipe()
    memory = calls.shared_memory()
    # Python runs functions after a fork, and swallows what a signal raises in them.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _interrupts())
    with warnings.catch_warnings():
        # Threads of numpy stop for a fork; those of onnxruntime belong to sessions, of which the
        # child makes its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            gc.freeze()  # sessions of the parent must not be collected: their threads are not here
            faulthandler.disable()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            _do(work, memory, os.fdopen(writing, "wb"), limit, fatal)
            code = 0
        finally:
            os._exit(code)  # without the parent's cleanup
    process = _Forked(pid)
    os.close(writing)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        yield process, os.fdopen(reading, "rb"), memory
    except BaseException:  # such as Ctrl-C
        process.kill()
        raise
    finally:
        process.wait()


@contextmanager
def _spawned(
    work: Callable[[Progress], Any], limit: MemoryLimit, fatal: Sequence[FatalCall]
) -> Iterator[tuple[_Process, BinaryIO, mmap.mmap]]:
    with tempfile.TemporaryDirectory(prefix="onnx-spatial-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "calls"
        memory = calls.shared_memory(path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(BrokenPipeError), process.stdin:
                pickle.dump((work, limit, tuple(fatal)), process.stdin, pickle.HIGHEST_PROTOCOL)
            yield process, cast(BinaryIO, process.stdout), memory
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
            with suppress(BufferError):
                memory.close()  # some systems do not delete a file that is mapped


def environment(variables: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of an interpreter that imports this copy of the package."""
    result = {**os.environ, **(variables or {})}
    package = sys.modules[__package__.partition(".")[0]]
    top = str(Path(str(package.__file__)).resolve().parent.parent)
    if top in package.__path__:  # a checkout
        result["PYTHONPATH"] = os.pathsep.join(filter(None, (top, result.get("PYTHONPATH"))))
    return result


def _do(
    work: Callable[[Progress], Any],
    memory: mmap.mmap,
    stream: BinaryIO,
    limit: MemoryLimit,
    fatal: Sequence[FatalCall],
) -> None:
    """Run the function in the child and send what comes of it."""
    for number in _interrupts():
        signal.signal(number, signal.SIG_IGN)
    limits.die_with_parent()
    limits.leave_no_core()
    if (own := limits.private_memory(os.getpid(), reserved=True)) is not None:
        limits.limit_memory(own + _RESERVED * limit.size + _STACKS)
    record = calls.current = CallRecord(memory, fatal, limit.exceeded)

    def send(kind: str, value: object) -> None:
        pickle.dump((kind, value), stream, pickle.HIGHEST_PROTOCOL)
        stream.flush()

    def progress(text: str) -> None:
        record.doing(text)
        send("progress", text)

    try:
        result = work(progress)
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


def main(path: Path) -> None:
    """Run the function that comes on stdin, and record its calls in a file."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with the answers
    work, limit, fatal = pickle.load(sys.stdin.buffer)
    _do(work, calls.shared_memory(path), answers, limit, fatal)
    os._exit(0)  # threads of libraries are not waited for


if __name__ == "__main__":
    main(Path(sys.argv[1]))
