"""Say on which machine, when and with which versions something was measured."""

import datetime
import math
import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path


def heading() -> str:
    """Return the date, the machine and the versions, and a warning if the machine is busy."""
    said = [datetime.date.today().isoformat(), _processor(), f"{os.cpu_count()} processors"]
    said += [f"{name} {metadata.version(name)}" for name in ("onnxruntime", "onnx", "numpy")]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 0.5:
        said.append(f"other processes run (load {load:.1f}): times are too long")
    return ", ".join(said)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers; NaN if there are none."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else math.nan
