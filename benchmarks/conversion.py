"""Measure `convert`: time by the size of the graph, memory by the size of the weights.

    python -m benchmarks.conversion [--quick] [--folder DIR]

Every row is measured in a process of its own; memory is its peak resident set as the system reports it
(Linux, macOS). Needs 13 GB of disk in DIR (default: the temporary folder), 1 GB with --quick.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks import results

DOMAIN = "ai.onnx.converters.tensorflow"
MIB, GIB = 2**20, 2**30
#: Bytes of one weight: a 1x1 convolution from 1,024 to 4,096 channels, or back.
WEIGHT = 4 * 1024 * 4096


def chain(nodes: int, sites: int) -> onnx.ModelProto:
    """Build a chain of Relu nodes, with pairs of SpaceToBatchND and BatchToSpaceND spread evenly."""
    every = 2 * nodes // sites
    made, value = [], "x"
    for index in range(nodes):
        kind = {0: "SpaceToBatchND", 1: "BatchToSpaceND"}.get(index % every)
        inputs, domain = ([value, "block", "pads"], DOMAIN) if kind else ([value], "")
        value = f"v{index}"
        made.append(helper.make_node(kind or "Relu", inputs, [value], f"n{index}", domain=domain))
    return model(made, ["N", 8, 8, 3], value, [])


def network(weights: int) -> onnx.ModelProto:
    """Build 1x1 convolutions between spatial operators, with weights that have no data yet."""
    made, value, stored = [], "x", []
    for index in range(weights):
        wide = index % 2
        w = TensorProto(name=f"w{index}", data_type=1, dims=[[4096, 1024], [1024, 4096]][wide])
        w.dims.extend([1, 1])
        stored.append(w)
        parts = [("SpaceToBatchND", [value, "block", "pads"]), ("Conv", ["", w.name])]
        parts += [("BatchToSpaceND", ["", "block", "pads"])]
        for kind, inputs in parts:
            axes = [f"{kind}{index}"]
            perm = {"SpaceToBatchND": [0, 3, 1, 2], "Conv": [0, 2, 3, 1]}.get(kind)
            domain = "" if kind == "Conv" else DOMAIN
            made.append(
                helper.make_node(kind, [inputs[0] or value, *inputs[1:]], axes, domain=domain)
            )
            value = axes[0]
            if perm:
                made.append(helper.make_node("Transpose", [value], [f"{value}_t"], perm=perm))
                value = f"{value}_t"
    return model(made, [1, 4, 4, 1024], value, stored)


def model(
    nodes: Sequence[onnx.NodeProto], shape: list[int | str], result: str, stored: list[TensorProto]
) -> onnx.ModelProto:
    """Build a model of one input and one output."""
    stored = [
        *stored,
        onnx.numpy_helper.from_array(np.array([2, 2], np.int32), "block"),
        onnx.numpy_helper.from_array(np.zeros((2, 2), np.int32), "pads"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info(result, 1, None)],
        stored,
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=imports)


def with_weights(folder: Path, total: int, *, embedded: bool) -> Path:
    """Write a model with `total` bytes of weights, in its file or in weights.bin beside it."""
    made = network(total // WEIGHT)
    rng = np.random.default_rng(0)
    path = folder / "model.onnx"
    with (folder / "weights.bin").open("wb") as file:
        for index, tensor in enumerate(made.graph.initializer[:-2]):
            data = rng.standard_normal(WEIGHT // 4, np.float32).tobytes()
            if embedded:
                tensor.raw_data = data
                continue
            file.write(data)
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": "weights.bin", "offset": index * WEIGHT, "length": WEIGHT}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
    if embedded:
        (folder / "weights.bin").unlink()
    path.write_bytes(made.SerializeToString())
    return path


CONVERT = """
onnx_spatial.convert(sys.argv[1], sys.argv[2], verify=sys.argv[3] == "verify")
"""
RUN = """
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options)
session.run(None, {i.name: np.ones(i.shape, np.float32) for i in session.get_inputs()})
"""
#: Code around the measured code. On Linux getrusage includes the memory of the parent.
FRAME = """
import json, pathlib, resource, sys, time
import numpy as np, onnxruntime, onnx_spatial
onnx_spatial.convert
start = time.perf_counter()
{code}
seconds = time.perf_counter() - start
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak = next(int(l.split()[1]) / 1024 for l in status.open() if l.startswith("VmHWM"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([seconds, peak]))
"""


def measured(what: str, code: str, *arguments: object) -> tuple[str, ...]:
    """Run code in a process; return a row of the table."""
    command = [sys.executable, "-c", FRAME.format(code=code), *map(str, arguments)]
    start = time.perf_counter()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    whole = time.perf_counter() - start
    seconds, mebibytes = json.loads(output)
    return what, f"{seconds:.2f} s", f"{whole:.2f} s", f"{mebibytes:.0f} MiB"


def graphs(folder: Path, quick: bool) -> list[tuple[str, ...]]:
    """Measure time by the number of nodes, without verification."""
    rows = []
    for nodes in (1_000, 10_000) if quick else (1_000, 10_000, 30_000, 100_000):
        path = folder / "chain.onnx"
        path.write_bytes(chain(nodes, nodes // 20).SerializeToString())
        what = f"{nodes:,} nodes, {nodes // 20:,} spatial"
        rows.append(measured(what, CONVERT, path, folder / "out.onnx", "no"))
    return rows


def weights(folder: Path, quick: bool) -> list[tuple[str, ...]]:
    """Measure time and memory by the size of the weights."""
    rows = []
    total = GIB // 4 if quick else 4 * GIB
    for embedded, size in ((False, total), (True, GIB // 4)):
        here, there = folder / f"here {embedded}", folder / f"there {embedded}"
        for made in (here, there):
            made.mkdir()
        path = with_weights(here, size, embedded=embedded)
        name = f"{size / GIB:.2f} GiB {'embedded' if embedded else 'external'}"
        jobs = [
            ("convert, output beside", CONVERT, (path, here / "out.onnx", "no")),
            ("convert, output elsewhere", CONVERT, (path, there / "out.onnx", "no")),
            ("convert and verify, beside", CONVERT, (path, here / "out.onnx", "verify")),
            ("onnxruntime loads and runs the result", RUN, (here / "out.onnx",)),
        ]
        rows += [measured(f"{name}: {what}", code, *given) for what, code, given in jobs]
        for made in (here, there):
            shutil.rmtree(made)
    return rows


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="small models only")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="write the models below this folder"
)
def main(quick: bool, folder: Path | None) -> None:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        rows = graphs(Path(name), quick) + weights(Path(name), quick)
    click.echo(f"{results.heading()}\n")
    click.echo(results.table(("model", "time", "whole process", "peak memory"), rows))


if __name__ == "__main__":
    main()
