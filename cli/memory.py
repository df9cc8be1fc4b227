"""Limit the memory of the command line to what the machine has.

A damaged or hostile model may make onnxruntime allocate without end while it is verified. Without a
limit the system kills some process, this one or another. With a limit the allocation fails, and the
command says so.
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
    """Limit this process's own memory to what the machine or container has, if that is known.

    Mapped files, such as weights, do not count.
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
