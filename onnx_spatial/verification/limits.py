"""Limit what a verification takes: the time of all its runs, and the memory of a process.

Time is the last resort against a run that does not end. It is stopped between two nodes, wherever it is:
a Loop whose condition stays true, a model that is large. The verification then says at what.
macOS refuses some limits of a process, Windows all.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
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


#: The time of all runs so far, and the most that they may take together; None: any time.
_limit: ContextVar[tuple[Stopwatch, float] | None] = ContextVar("limit", default=None)


@contextmanager
def allowing_time(seconds: float | None) -> Iterator[None]:
    """Let the runs in the block take some seconds together; None: any time."""
    token = _limit.set(None if seconds is None else (Stopwatch(), seconds))
    try:
        yield
    finally:
        _limit.reset(token)


def check_time(doing: str) -> None:
    """End the verification if its time is over; `doing` says at what.

    Raises:
        TimeLimitError: it is.
    """
    stopwatch, seconds = _limit.get() or (None, math.inf)
    if stopwatch is not None and stopwatch.exceeds(seconds):
        raise TimeLimitError(
            f"the verification was stopped after {seconds:g} s, at {doing!r} (--time-limit allows more)"
        )


@contextmanager
def stopping_in_time(run: ort.RunOptions, doing: str) -> Iterator[None]:
    """Stop the run with these options when the time is over: onnxruntime reads a flag.

    Raises:
        TimeLimitError: it is.
    """
    check_time(doing)
    limit, done = _limit.get(), threading.Event()

    def watch_time(stopwatch: Stopwatch, seconds: float) -> None:
        while not done.wait(max(seconds - stopwatch.seconds, _SHORTEST_WAIT_SECONDS)):
            run.terminate = run.terminate or stopwatch.exceeds(seconds)

    if limit is not None:
        threading.Thread(target=watch_time, args=limit, daemon=True).start()
    try:
        yield
    except Exception:
        if run.terminate:
            check_time(doing)
        raise
    finally:
        done.set()
