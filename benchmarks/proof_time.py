"""Measure the processor time of `convert` with its proof, maybe in turn with another installation.

Every measurement is a process of its own, which first converts a small net, so that all libraries are
loaded. Behind the nets of models/ come 300 operators that become 150 dilated convolutions, and 20 such
regions in 5,000 nodes. The table has the least of all rounds: with the proof, without, and the ratio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx

from benchmarks import commands

ROOT = Path(__file__).resolve().parent.parent
#: Net that is converted first.
FIRST = ROOT / "models" / "chains" / "conv2d" / "model.onnx"
#: How much slower than the other installation a net may be.
ALLOWED_RATIO = 1.05
#: Models that are built here, with the seconds that they may take.
BUILT = {"dilated_net": (commands.dilated_net, 2), "regions_net": (commands.regions_net, 20)}

#: Prints the seconds of a conversion with its proof, and of one without.
TIMED = """
import sys, time, onnx_spatial
onnx_spatial.convert(sys.argv[1])
times = [time.process_time()]
for verify in (True, False):
    onnx_spatial.convert(sys.argv[2], verify=verify)
    times.append(time.process_time())
print([times[1] - times[0], times[2] - times[1]])
"""


def seconds(python: Path | None, model: Path) -> list[float]:
    """Return the seconds with and without the proof; of this checkout if no Python is given."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if python is None:
        environment["PYTHONPATH"] = str(ROOT)
    command = [str(python or sys.executable), "-c", TIMED, str(FIRST), str(model)]
    done = subprocess.run(
        command, env=environment, cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, check=True
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(against: Path | None, rounds: int) -> Iterator[str]:
    """Yield the lines of the table; models that are built here are measured once."""
    yield "| model | with proof, s | without, s | against: with proof, s | ratio | allowed |"
    yield "|---|---:|---:|---:|---:|---|"
    with tempfile.TemporaryDirectory() as folder:
        models = {path.parent.name: path for path in sorted(ROOT.glob("models/*/model.onnx"))}
        for name, (build, _) in BUILT.items():
            models[name] = Path(folder) / f"{name}.onnx"
            onnx.save(build(), models[name])
        for name, path in models.items():
            allowed = BUILT[name][1] if name in BUILT else None
            yield _row(name, path, against, rounds if allowed is None else 1, allowed)


def _row(name: str, path: Path, against: Path | None, rounds: int, allowed: int | None) -> str:
    here, there = [], []
    for _ in range(rounds):
        here.append(seconds(None, path))
        if against is not None:
            there.append(seconds(against, path))
    proof, plain = map(min, zip(*here, strict=True))
    cells = [name, f"{proof:.2f}", f"{plain:.2f}", "", ""]
    ratio = None
    if there:
        other = min(there)[0]
        ratio = proof / other
        cells[3:] = f"{other:.2f}", f"{ratio:.2f}"
    if allowed is not None:
        cells.append(f"{allowed} s{': TOO SLOW' if proof > allowed else ''}")
    else:
        slow = ratio is not None and ratio > ALLOWED_RATIO
        cells.append(f"ratio {ALLOWED_RATIO}{': TOO SLOW' if slow else ''}")
    return f"| {' | '.join(cells)} |"
