"""Measure time and memory of Python operators and of the alternatives, for docs/sessions.md.

    python benchmarks/custom_ops.py            the whole table, about two minutes
    python benchmarks/custom_ops.py --json     the same as JSON

Each value is measured in a process of its own, with one thread: the median time of a run, and the
increase of peak resident memory in a run, in multiples of the output tensor (which is one of them).
Time is measured with onnxruntime's arena, which is the default, and memory without it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import onnx_spatial
from onnx_spatial import operators

SIZES = {"256 B": 1, "64 KiB": 16, "1 MiB": 64, "64 MiB": 512}  # height and width / 2
CHANNELS = 16
OPERATORS = {"BatchToSpaceND": "crops", "SpaceToBatchND": "paddings"}
WAYS = ("numpy copy", "textbook", "lowered", "custom-op", "stock return")
SECONDS = 1.5

DOMAIN = "ai.onnx.converters.tensorflow"


def data(op_type: str, side: int) -> np.ndarray:
    """Return 4 * side * side * 16 floats: [4, side, side, 16] or [1, 2 side, 2 side, 16]."""
    shape = (
        (4, side, side, CHANNELS) if op_type == "BatchToSpaceND" else (1, 2 * side, 2 * side, 16)
    )
    return np.random.default_rng(0).random(shape, np.float32)


def model(nodes: list[onnx.NodeProto], tensors: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Build a model from x to y with symbolic dims."""
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"{n}{i}" for i in range(4)])
        for n in "xy"
    ]
    stored = [onnx.numpy_helper.from_array(a, n) for n, a in tensors.items()]
    graph = helper.make_graph(nodes, "bench", infos[:1], infos[1:], stored)
    imports = [helper.make_opsetid("", 17)]
    imports += [helper.make_opsetid(n.domain, 1) for n in nodes if n.domain]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def spatial(op_type: str) -> onnx.ModelProto:
    """Build a model of the operator as tf2onnx leaves it."""
    tensors = {"block": np.array([2, 2], np.int32), "amounts": np.zeros((2, 2), np.int32)}
    node = helper.make_node(op_type, ["x", "block", "amounts"], ["y"], "site", domain=DOMAIN)
    return model([node], tensors)


def textbook(op_type: str, x: np.ndarray) -> onnx.ModelProto:
    """Build Reshape - Transpose - Reshape with constant shapes."""
    n, h, w, c = x.shape
    if op_type == "BatchToSpaceND":
        first, perm, last = (2, 2, n // 4, h, w, c), [2, 3, 0, 4, 1, 5], (n // 4, 2 * h, 2 * w, c)
    else:
        first = (n, h // 2, 2, w // 2, 2, c)
        perm, last = [2, 4, 0, 1, 3, 5], (4 * n, h // 2, w // 2, c)
    nodes = [
        helper.make_node("Reshape", ["x", "first"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=perm),
        helper.make_node("Reshape", ["b", "last"], ["y"]),
    ]
    return model(nodes, {"first": np.array(first), "last": np.array(last)})


def stock(op_type: str, options: ort.SessionOptions) -> onnx.ModelProto:
    """Build a model of the same kernel, registered as in onnxruntime-extensions' examples."""
    from onnxruntime_extensions import PyOp, get_library_path, onnx_op

    none = ((0, 0), (0, 0))
    kernel = (
        operators.BatchToSpace((2, 2), none)
        if op_type == "BatchToSpaceND"
        else operators.SpaceToBatch((2, 2), none)
    )

    @onnx_op(op_type="bench::Stock", inputs=[PyOp.dt_float], outputs=[PyOp.dt_float])
    def run(x: np.ndarray) -> np.ndarray:
        return kernel(x)

    options.register_custom_ops_library(get_library_path())
    return model([helper.make_node("Stock", ["x"], ["y"], domain="bench")], {})


def runner(way: str, op_type: str, x: np.ndarray, *, arena: bool) -> Callable[[], object]:
    """Return a function that runs the operator once."""
    if way == "numpy copy":
        return x.copy
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = arena
    if way in ("lowered", "custom-op"):
        mode = "lower" if way == "lowered" else way
        session = onnx_spatial.InferenceSession(spatial(op_type), options, mode=mode)
    else:
        made = textbook(op_type, x) if way == "textbook" else stock(op_type, options)
        session = ort.InferenceSession(made.SerializeToString(), options)
    feeds = {"x": x}
    return lambda: session.run(None, feeds)


def resident(key: str) -> int:
    """Return VmRSS or VmHWM of this process, in bytes."""
    text = Path("/proc/self/status").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def measure(way: str, op_type: str, side: int, what: str) -> float:
    """Measure median seconds, or peak memory in output tensors."""
    x = data(op_type, side)
    run = runner(way, op_type, x, arena=what == "seconds")
    for _ in range(3):
        run()
    return seconds(run) if what == "seconds" else memory(run) / x.nbytes


def seconds(run: Callable[[], object]) -> float:
    """Measure the median time of a run."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 7 or (time.perf_counter() < end and len(times) < 20_000):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def memory(run: Callable[[], object]) -> int:
    """Measure the increase of peak resident memory in a run, in bytes."""
    peaks = []
    for _ in range(3):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = resident("VmRSS")
        run()
        peaks.append(resident("VmHWM") - before)
    return min(peaks)


def in_its_own_process(way: str, op_type: str, size: str, what: str) -> float:
    """Run `measure` in a new process."""
    command = [sys.executable, __file__, "--one", way, op_type, str(SIZES[size]), what]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def row(op_type: str, size: str) -> dict[str, dict[str, float]]:
    """Measure every way at one size; memory only at the largest, where nothing else is as large."""
    kinds = ("seconds", "memory") if size == list(SIZES)[-1] else ("seconds",)
    return {way: {k: in_its_own_process(way, op_type, size, k) for k in kinds} for way in WAYS}


def show(op_type: str, table: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print the Markdown table of one operator."""
    click.echo(f"\n{op_type} 2x2, NHWC, C = 16, float32\n")
    click.echo("| tensor | " + " | ".join(WAYS) + " | stock / custom-op | custom-op / textbook |")
    click.echo("|---|" + "---|" * (len(WAYS) + 2))
    for size, found in table.items():
        cells = []
        for way in WAYS:
            took, most = found[way]["seconds"], found[way].get("memory")
            text = f"{took * 1e6:.1f} us" if took < 1e-3 else f"{took * 1e3:.1f} ms"
            cells.append(text if most is None else f"{text}, {most:.1f}x")
        gain = found["stock return"]["seconds"] / found["custom-op"]["seconds"]
        cost = found["custom-op"]["seconds"] / found["textbook"]["seconds"]
        click.echo(f"| {size} | " + " | ".join(cells) + f" | {gain:.1f} | {cost:.2f} |")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")
@click.option("--one", nargs=4, hidden=True)
def main(as_json: bool, one: tuple[str, str, str, str] | None) -> None:
    """Measure and print the table."""
    if one:
        way, op_type, side, what = one
        click.echo(json.dumps(measure(way, op_type, int(side), what)))
        return
    found = {op_type: {size: row(op_type, size) for size in SIZES} for op_type in OPERATORS}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for op_type, table in found.items():
        show(op_type, table)


if __name__ == "__main__":
    main()
