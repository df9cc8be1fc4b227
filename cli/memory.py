"""Take no more memory than the machine has.

A damaged or hostile model may make onnxruntime allocate without end while it is verified. Without a
limit the system ends some process, ours or another; with one the allocation fails, and the command
says so.
"""

from __future__ import annotations

import os
from pathlib import Path

from onnx_spatial.validation.workers import limits

#: Where containers find their limit (control groups, version 2 and 1).
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def limit_memory() -> None:
    """Limit this process's own memory to what the machine or the container has, where that is known.

    Mapped files do not count: weights are among them.
    """
    size = _available()
    if size is not None:
        limits.limit_memory(size)


def _available() -> int | None:
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
