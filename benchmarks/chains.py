"""Measure files of standard nodes before and after `optimize`, and after other simplifiers.

python -m benchmarks.chains FILE...        number of nodes, and milliseconds of a run with one thread
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module

import click
import numpy as np
import onnx
import onnxruntime as ort

import onnx_spatial

#: Size of an unknown dim: the first is the batch.
BATCH, SIZE = 1, 129

ROUNDS = 25


def simplified(path: str) -> Mapping[str, Callable[[], onnx.ModelProto]]:
    """Return what writes each form of a file; simplifiers that are not installed raise ImportError."""
    return {
        "file": lambda: onnx.load(path),
        "onnxslim": lambda: import_module("onnxslim").slim(onnx.load(path)),
        "onnxsim": lambda: import_module("onnxsim").simplify(onnx.load(path))[0],
        "optimize": lambda: onnx_spatial.optimize(path, verify=False).model,
    }


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    """Open a session with one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return random data of the declared types; unknown dims have `BATCH` and `SIZE`."""
    rng = np.random.default_rng(0)
    data = {}
    for value in model.graph.input:
        known = value.type.tensor_type
        dims = [d.dim_value or (SIZE if axis else BATCH) for axis, d in enumerate(known.shape.dim)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(known.elem_type)
        data[value.name] = rng.random(dims).astype(dtype)
    return data


def measure(path: str) -> dict[str, tuple[int, float]]:
    """Return the number of nodes and the milliseconds of the fastest run of each form."""
    models = {}
    for name, make in simplified(path).items():
        try:
            models[name] = make()
        except ImportError:
            continue
    data = feeds(models["file"])
    sessions = {name: session(model) for name, model in models.items()}
    best = dict.fromkeys(sessions, float("inf"))
    for _ in range(ROUNDS):
        for name, each in sessions.items():
            start = time.perf_counter()
            each.run(None, data)
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: (len(m.graph.node), best[name] * 1e3) for name, m in models.items()}


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.argument("files", nargs=-1, required=True)
def main(files: tuple[str, ...]) -> None:
    """Print a row for each file."""
    for path in files:
        cells = (f"{name} {nodes}, {ms:.3f} ms" for name, (nodes, ms) in measure(path).items())
        print(f"{path}: {'; '.join(cells)}")


if __name__ == "__main__":
    main()
