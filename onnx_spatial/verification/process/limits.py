"""Limit the resources of a process, where the system can: macOS refuses some limits, Windows all."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

#: Memory that a verification may take beside the weights of its models, at most.
MOST_MEMORY = 4 * 2**30
#: Memory that the verification which runs here may take in its own estimate; None: the default.
_allowed: ContextVar[int | None] = ContextVar("_allowed", default=None)
#: Where containers find their limit (control groups, version 2 and 1).
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def limit_memory(size: int) -> bool:
    """Limit the bytes of private memory of this process; mapped files do not count.

    Returns:
        Whether they are limited now.
    """
    return _limit("RLIMIT_DATA", size)


def leave_no_core() -> bool:
    """Make a crash of this process leave no core file; return whether that worked."""
    return _limit("RLIMIT_CORE", 0)


def _limit(name: str, value: int) -> bool:
    """Lower a soft limit. Systems differ in the exception that they refuse with."""
    try:
        import resource

        number = getattr(resource, name)
        now, most = resource.getrlimit(number)
        lowest = min([value, *(bound for bound in (now, most) if bound != resource.RLIM_INFINITY)])
        resource.setrlimit(number, (lowest, most))
    except (ImportError, AttributeError, OSError, ValueError):
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


def default_memory() -> int:
    """Return the bytes that a verification may take: 4 GiB, or a quarter of a smaller machine."""
    machine = machine_memory()
    return MOST_MEMORY if machine is None else min(MOST_MEMORY, machine // 4)


@contextmanager
def allowing(memory: int | None) -> Iterator[None]:
    """Let verifications in the block take some bytes of memory; None: the default."""
    token = _allowed.set(memory)
    try:
        yield
    finally:
        _allowed.reset(token)


def allowed_memory() -> int:
    """Return the bytes of memory that a verification may take here."""
    memory = _allowed.get()
    return _default_here() if memory is None else memory


@cache
def _default_here() -> int:
    return default_memory()


def private_memory(pid: int, *, reserved: bool = False) -> int | None:
    """Return the bytes of private memory that a process has in use or reserved; None if unknown."""
    key = "VmData:" if reserved else "RssAnon:"
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        line = next(line for line in status.splitlines() if line.startswith(key))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def peak_memory() -> int | None:
    """Return the bytes of memory that this process had in use at most; None if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def die_with_parent() -> None:
    """Make the system kill this process when the thread that started it ends, where it can."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def signal_name(number: int) -> str:
    """Return the name of a signal: SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def show_bytes(size: float) -> str:
    """Return a number of bytes in words: 4 GiB."""
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:.3g} {name}"
