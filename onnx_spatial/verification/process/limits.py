"""Measure and limit the resources of a process. macOS refuses some limits, Windows all."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

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


def default_memory() -> int:
    """Return the bytes that a verification may take: 4 GiB, or a quarter of a smaller machine."""
    machine = machine_memory()
    return MOST_MEMORY if machine is None else min(MOST_MEMORY, machine // 4)


def private_memory(pid: int, *, reserved: bool = False) -> int | None:
    """Return the bytes of private memory that a process has in use or reserved; None if unknown."""
    key = "VmData:" if reserved else "RssAnon:"
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        line = next(line for line in status.splitlines() if line.startswith(key))
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
