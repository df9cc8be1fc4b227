"""Results on disk: what was measured, and on what."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

_PACKAGES = ("numpy", "onnx", "onnxruntime", "openvino", "tensorflow-cpu", "tensorflow", "tf2onnx")

#: Load average up to which a machine counts as quiet.
QUIET = 0.7

Record = dict[str, Any]


def machine() -> dict[str, Any]:
    """Processor, cores, and versions of everything that has a part in the figures."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
    }


def warn_of_load() -> float:
    """How many processes ran in the last minute, and a warning if that was not next to none.

    On two busy cores a kernel with two threads waits for the second one for whole time slices, 100
    times what it takes.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > QUIET:
        click.echo(f"the machine is busy (load {load:.1f}): figures will be too high", err=True)
    return round(load, 2)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def write(path: Path, records: Sequence[Record], **facts: object) -> None:
    """One record a line, so that two runs can be compared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"machine": machine(), **facts}, indent=1)[:-2]
    lines = ",\n".join(json.dumps(record) for record in records)
    path.write_text(f'{head},\n "records": [\n{lines}\n]}}\n', "utf-8")


def read(path: Path) -> dict[str, Any]:
    """What `write` wrote."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def rounded(figures: dict[str, float]) -> dict[str, float]:
    """Microseconds to a tenth."""
    return {name: round(value, 1) for name, value in figures.items()}


def geometric_mean(ratios: Iterable[float]) -> float:
    """Of positive numbers; not a number if there are none."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else math.nan
