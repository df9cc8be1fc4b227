"""Write and read results with a description of the machine, and put tables into pages."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

_PACKAGES = ("numpy", "onnx", "onnxruntime", "openvino", "tensorflow-cpu", "tensorflow", "tf2onnx")

#: Largest load average of a machine that counts as idle.
QUIET = 0.7

Record = dict[str, Any]


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, system, and versions of the packages measured."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "processor": _processor(),
        "cores": _cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
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


def warn_of_load() -> float:
    """Return the load average of the last minute; warn if the machine is busy.

    On two busy cores a kernel with two threads waits whole time slices for the second thread, 100
    times its own time.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > QUIET:
        click.echo(f"the machine is busy (load {load:.1f}): times will be too high", err=True)
    return round(load, 2)


def write(path: Path, records: Sequence[Record], **settings: object) -> None:
    """Write results, one record per line, so that runs can be compared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"machine": machine(), **settings}, indent=1)[:-2]
    lines = ",\n".join(json.dumps(record) for record in records)
    path.write_text(f'{head},\n "records": [\n{lines}\n]}}\n', "utf-8")


def read(path: Path) -> dict[str, Any]:
    """Read results that `write` wrote."""
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def put(page: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between two markers of a page.

    Raises:
        click.ClickException: the page lacks a marker.
    """
    before, first, rest = page.read_text("utf-8").partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise click.ClickException(f"{page} lacks the lines {begin} and {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", "utf-8")


def rounded(times: dict[str, float]) -> dict[str, float]:
    """Round microseconds to a tenth."""
    return {name: round(value, 1) for name, value in times.items()}


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers; NaN if there are none."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else math.nan
