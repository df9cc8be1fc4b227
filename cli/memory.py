"""Limit the memory of the command line to what the machine has.

A damaged or hostile model may make onnxruntime allocate without end while it is verified. Without a
limit the system kills some process, this one or another. With a limit the allocation fails, and the
command says so.
"""

from __future__ import annotations

from onnx_spatial.verification import limits


def limit_memory() -> None:
    """Limit this process's own memory to what the machine or container has, if that is known.

    Mapped files, such as weights, do not count.
    """
    size = limits.machine_memory()
    if size is not None:
        limits.lower("RLIMIT_DATA", size)
