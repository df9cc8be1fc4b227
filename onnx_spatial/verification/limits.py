"""Limit what a verification takes: the time of all its runs, and the memory of a process.

Time is the last resort against a run that does not end. It is stopped between two nodes, wherever it is:
a Loop whose condition stays true, a model that is large. The verification then says at what.
macOS refuses some limits of a process, Windows all.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort

#: Bytes that a verification may take beside the weights of its models, at most.
MOST_MEMORY = 4 * 2**30
#: Where containers find their limit (control groups, version 2 and 1).
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def lower(name: str, value: int) -> bool:
    """Lower a soft limit of this process, and return whether that worked.

    Args:
        name: "RLIMIT_DATA" for its private memory, without mapped files; "RLIMIT_CORE" for the file that
            a crash leaves.
        value: bytes.
    """
    try:
        import resource

        number = getattr(resource, name)
        now, most = resource.getrlimit(number)
        lowest = min([value, *(bound for bound in (now, most) if bound != resource.RLIM_INFINITY)])
        resource.setrlimit(number, (lowest, most))
    except (ImportError, AttributeError, OSError, ValueError):  # systems differ in what they raise
        return False
    return True


def machine_memory() -> int | None:
    """Return the bytes of memory that the machine or container has, if that is known."""
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    for path in _CONTAINER_LIMITS:
        try:
            text = path.read_text("utf-8").strip()
        except (OSError, ValueError):
            continue
        if text.isdecimal():
            size = min(size, int(text))
    return size


def limit_to_machine() -> None:
    """Limit this process's private memory to what the machine or container has, if that is known.

    A damaged or hostile model may make onnxruntime allocate without end. Without a limit the system
    kills some process, this one or another. With a limit the allocation fails, and the command says so.
    """
    size = machine_memory()
    if size is not None:
        lower("RLIMIT_DATA", size)


def default_memory() -> int:
    """Return the bytes that a verification may take: 4 GiB, or a quarter of a smaller machine."""
    machine = machine_memory()
    return MOST_MEMORY if machine is None else min(MOST_MEMORY, machine // 4)


def private_memory(pid: int) -> int | None:
    """Return the bytes of private memory that a process has in use; None if unknown."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def die_with_parent() -> None:
    """Make the system kill this process when the thread that started it ends, where it can."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def show_bytes(size: float) -> str:
    """Return a number of bytes in words: 4 GiB."""
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:.3g} {name}"


# Time

#: Shortest time between two looks at the clock, in seconds: a late end costs no more than that.
_SHORTEST_WAIT_SECONDS = 0.01


class TimeLimitError(BaseException):
    """The time is over; the message says at what. Handlers of `Exception` would hide it."""


class Stopwatch:
    """Seconds since it was made, by the clock or of the processor, whichever is less.

    A busy machine takes longer by the clock; several threads take more of the processor.
    """

    def __init__(self) -> None:
        self._clock, self._processor = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        """The time so far."""
        return min(time.monotonic() - self._clock, time.process_time() - self._processor)

    def exceeds(self, seconds: float) -> bool:
        """Tell whether more time is over. The clock is read first, which is a thousand times faster."""
        return time.monotonic() - self._clock > seconds and self.seconds > seconds


@dataclass
class _Limit:
    """The time that all runs may take together, and the run that is under way."""

    seconds: float
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    run: ort.RunOptions | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    watcher: threading.Thread | None = None

    def check(self, doing: str) -> None:
        if self.stopwatch.exceeds(self.seconds):
            raise TimeLimitError(
                f"the verification was stopped after {self.seconds:g} s, at {doing!r} "
                "(--time-limit allows more)"
            )

    def watch(self) -> None:
        """Stop the run that is under way when the time is over: onnxruntime reads the flag."""
        while not self.closed.wait(
            max(self.seconds - self.stopwatch.seconds, _SHORTEST_WAIT_SECONDS)
        ):
            if self.stopwatch.exceeds(self.seconds) and (run := self.run) is not None:
                run.terminate = True


_limit: ContextVar[_Limit | None] = ContextVar("limit", default=None)


@contextmanager
def allowing_time(seconds: float | None) -> Iterator[None]:
    """Let the runs in the block take some seconds together; None: any time."""
    limit = None if seconds is None else _Limit(seconds)
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
        if limit is not None:
            limit.closed.set()


def check_time(doing: str) -> None:
    """End the verification if its time is over; `doing` says at what.

    Raises:
        TimeLimitError: it is.
    """
    if (limit := _limit.get()) is not None:
        limit.check(doing)


@contextmanager
def stopping_in_time(run: ort.RunOptions, doing: str) -> Iterator[None]:
    """Stop the run with these options when the time is over.

    Raises:
        TimeLimitError: it is.
    """
    limit = _limit.get()
    if limit is None:
        yield
        return
    limit.check(doing)
    if limit.watcher is None:
        limit.watcher = threading.Thread(target=limit.watch, daemon=True)
        limit.watcher.start()
    limit.run = run
    try:
        yield
    except Exception:
        if run.terminate:
            limit.check(doing)
        raise
    finally:
        limit.run = None
