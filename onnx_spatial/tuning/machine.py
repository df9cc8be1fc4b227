"""Describe the machine that times were measured on."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

import onnxruntime as ort


@cache
def machine() -> dict[str, str | int]:
    """Return processor, cores (that this process may use), system, and onnxruntime's version."""
    return {
        "processor": _processor(),
        "cores": _cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "onnxruntime": ort.__version__,
    }


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # a container or a batch system may allow fewer
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """Return the name of the processor; Python's own answer on Linux is only its family."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown"
