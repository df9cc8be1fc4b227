"""Measure the processor time of `verify`, of this checkout or in turn with another one.

    python benchmarks/verification.py [--before CHECKOUT] [--pairs 5] [MODEL ...]

MODEL is a file with spatial operators; by default the nets of models/. Each is converted once. Every
measurement is a process of its own: the first verification loads the libraries, the mean of the next
ones is taken. The table has the least and the median of the measurements in milliseconds, and what
`verify` says of proofs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Prints the processor time of a verification, its verdict and its proofs.
TIMED = """
import json, sys, time
from onnx_spatial.verification import verify
verify(*sys.argv[1:])
start = time.process_time()
for _ in range(5):
    result = verify(*sys.argv[1:])
seconds = (time.process_time() - start) / 5
print(json.dumps([seconds, result.status, len(result.runs), getattr(result, "proofs", "")]))
"""


def verified(checkout: Path, original: Path, converted: Path) -> tuple[float, str, int, str]:
    """Return the seconds of one verification, its verdict, its runs and its proofs."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", TIMED, str(original), str(converted)]
    done = subprocess.run(
        command, env=environment, cwd=tempfile.gettempdir(), capture_output=True, check=True
    )
    seconds, status, runs, proofs = json.loads(done.stdout.splitlines()[-1])
    return seconds, status, runs, proofs


def converted(model: Path, folder: Path) -> Path:
    """Convert a model, and return the path of the result."""
    path = folder / f"{model.parent.name}-{model.name}"
    command = [sys.executable, "-m", "onnx_spatial", "convert", str(model), "-o", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*command, "--no-verify"], env=environment, cwd=folder, capture_output=True, check=True
    )
    return path


def rows(models: Sequence[Path], before: Path | None, pairs: int) -> Iterator[list[str]]:
    """Measure each model, the checkouts in turn, and yield the cells of its row."""
    checkouts = [ROOT] if before is None else [before, ROOT]
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            result = converted(model, Path(folder))
            measured = [[verified(c, model, result) for c in checkouts] for _ in range(pairs)]
            times = [[1e3 * each[0] for each in column] for column in zip(*measured, strict=True)]
            cells = [f"{min(t):.0f} ({statistics.median(t):.0f})" for t in times]
            if before is not None:
                cells.append(f"{min(times[0]) / min(times[1]):.1f}x")
            *_, status, runs, proofs = measured[0][-1]
            yield [model.parent.name or model.stem, *cells, f"{status}, {runs} runs", proofs]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    parser.add_argument("--pairs", type=int, default=5, help="measurements of each checkout")
    options = parser.parse_args()
    models = options.models or sorted((ROOT / "models").glob("*/model.onnx"))
    head = ["model", *(["before, ms"] if options.before else []), "ms"]
    head += [*(["faster"] if options.before else []), "verdict", "proofs"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows([m.resolve() for m in models], options.before, options.pairs):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
