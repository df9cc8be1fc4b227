"""Record what `convert` and `optimize` make of models, and compare two versions of the package.

    python -m benchmarks.compare_results MODELS... --python OLD/bin/python -o results.json
    python -m benchmarks.compare_results MODELS... --baseline results.json

MODELS are files, and folders with all models below. The second command prints what differs, and exits
with 1 if something is worse. Only the command line and its `--json` are used. Recorded data beside a
model is run in onnxruntime: `test_data_set_0`, `data.npz`, or `NAME.npz` with the output `y`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

Result = dict[str, Any]

ROOT = Path(__file__).parents[1]
COMMANDS = ("convert", "optimize")
#: Differences to recorded outputs, relative to the largest value: an element in a wrong place differs
#: by about 1, sums in another order by 1e-6.
TOLERANCE = 1e-4
#: Figures of which a larger one is better (1), or a smaller one (-1).
DIRECTIONS = {
    "exit code": -1,
    "nodes after": -1,
    "dilated": 1,
    "proven for all sizes": 1,
    "proven for these sizes": 1,
    "sampled": -1,
}


def models_in(paths: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each model; a name begins with the last part of its argument."""
    for path in paths:
        files = sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
        yield from (
            (str(file.resolve().relative_to(path.resolve().parent)), file) for file in files
        )


def run(python: str | None, command: str, model: Path) -> Result:
    """Run one command, of this checkout or another installation; describe what it says and writes."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if python is None:
        environment["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output.onnx"
        arguments = [command, str(model.resolve()), "-o", str(output), "--json"]
        done = subprocess.run(
            [python or sys.executable, "-m", "onnx_spatial", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=folder,  # where Python looks for the package first
        )
        document = json.loads(done.stdout or "{}")
        result = {"exit code": done.returncode, **said(document)}
        if output.exists():
            result |= written(model, output)
    return result


def said(document: Mapping[str, Any]) -> Result:
    """Describe the JSON document of a command; version 1 has other names."""
    inspection = document.get("inspection") or {}
    verification = document.get("verification") or {}
    operators = document.get("operators")
    if operators is None:
        operators = [*inspection.get("sites", ()), *inspection.get("chains", ())]
    names = Counter(o.get("lowering") or o.get("strategy") or o["action"] for o in operators)
    compared = verification.get("operators", verification.get("sites", ()))
    proofs = Counter(o.get("proven") for o in compared)
    result: Result = {
        "status": verification.get("status"),
        "lowerings": dict(sorted(names.items())),
        "proven for all sizes": proofs["all sizes"],
        "proven for these sizes": proofs["these sizes"],
        "sampled": sum(proofs.values()) - proofs["all sizes"] - proofs["these sizes"],
    }
    return result | ({"error": document["error"]} if "error" in document else {})


def written(model: Path, output: Path) -> Result:
    """Describe the written file: its nodes, and how far it is from the recorded outputs."""
    before, after = ([*nodes(onnx.load(path))] for path in (model, output))
    result: Result = {"nodes before": len(before), "nodes after": len(after)}
    result["dilated"] = sum(is_dilated(node) for node in after)
    if recorded := recorded_data(model):
        result["difference"] = difference(output, *recorded)
    return result


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of all graphs and functions but constants."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        for attribute in node.attribute:
            waiting += [inner for graph in (attribute.g, *attribute.graphs) for inner in graph.node]
        if node.op_type != "Constant":
            yield node


def is_dilated(node: onnx.NodeProto) -> bool:
    """Return whether a node is a convolution with dilations."""
    rates = (a.ints for a in node.attribute if a.name == "dilations")
    return node.op_type in ("Conv", "ConvTranspose") and any(max(r, default=1) > 1 for r in rates)


def recorded_data(model: Path) -> tuple[Mapping[str, Any], Sequence[Any]] | None:
    """Return the recorded inputs and outputs beside a model, inputs by name or by number."""
    folder = model.parent / "test_data_set_0"
    if folder.is_dir():
        read = [
            [
                numpy_helper.to_array(onnx.load_tensor(f))
                for f in sorted(folder.glob(f"{kind}_*.pb"))
            ]
            for kind in ("input", "output")
        ]
        return {str(number): array for number, array in enumerate(read[0])}, read[1]
    for path in (model.with_name(model.name.split(".")[0] + ".npz"), model.with_name("data.npz")):
        if path.exists():
            arrays = dict(np.load(path))
            expected = arrays.pop("y")
            return arrays, [expected]
    return None


def difference(path: Path, inputs: Mapping[str, Any], expected: Sequence[Any]) -> float | None:
    """Return the largest difference, relative to each output; None if the model does not run."""
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = {
            value.name: inputs[key]
            for number, value in enumerate(session.get_inputs())
            for key in (value.name, value.name.removesuffix(":0"), str(number))
            if key in inputs
        }
        outputs = session.run(None, feeds)
    except Exception:  # onnxruntime raises a class for each of its codes
        return None
    worst = 0.0
    for actual, right in zip(outputs, expected, strict=True):
        if actual.shape != right.shape:
            return float("inf")
        apart = np.abs(actual.astype(np.float64) - right).max(initial=0)
        worst = max(worst, float(apart / max(1.0, np.abs(right).max(initial=0))))
    return float(f"{worst:.1e}")


def differences(before: Result, now: Result) -> Iterator[tuple[str, object, object, str]]:
    """Yield what differs: the figure, its old and new value, and whether it is better or worse."""
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if name == "difference":
            was, right = (value is not None and value <= TOLERANCE for value in (old, new))
            if was != right:
                yield name, old, new, "better" if right else "worse"
        elif old != new and name == "status":
            yield name, old, new, "worse" if old == "passed" else "changed"
        elif old != new and name in DIRECTIONS and None not in (old, new):
            better = (new - old) * DIRECTIONS[name] > 0
            yield name, old, new, "better" if better else "worse"
        elif old != new:
            yield name, old, new, "changed"


def main() -> None:
    """Run the commands, and write or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--python", help="run the package of this Python, not of this checkout")
    parser.add_argument("-o", "--output", type=Path, help="write the results to this JSON file")
    parser.add_argument("--baseline", type=Path, help="compare with the results in this file")
    options = parser.parse_args()
    baseline = json.loads(options.baseline.read_text("utf-8")) if options.baseline else {}
    results, worse = dict[str, Result](), False
    for name, model in models_in(options.models):
        for command in COMMANDS:
            key = f"{command} {name}"
            results[key] = run(options.python, command, model)
            for what, old, new, verdict in differences(baseline.get(key, {}), results[key]):
                if key in baseline:
                    print(f"| {verdict:7} | {key} | {what} | {old} | {new} |", flush=True)
                    worse |= verdict == "worse"
    if options.output:
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in results.items())
        options.output.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    sys.exit(worse)


if __name__ == "__main__":
    main()
