"""Measure `convert`: time by the size of the graph, memory by the size of the weights.

    python -m benchmarks.conversion [--quick] [--folder DIR]

Every row is measured in a process of its own; memory is its peak resident set as the system reports it
(Linux, macOS). Needs 13 GB of disk in DIR (default: the temporary folder), 1 GB with --quick.
"""

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
from building import TF
from onnx import TensorProto, helper

from benchmarks import results

GIB = 2**30
#: Bytes of one weight, from 1,024 to 4,096 channels or back.
WEIGHT_BYTES = 4 * 1024 * 4096


def chain(nodes: int, sites: int) -> onnx.ModelProto:
    """Build a chain of Relu nodes, with pairs of SpaceToBatchND and BatchToSpaceND spread evenly."""
    every = 2 * nodes // sites
    made, value = [], "x"
    for index in range(nodes):
        kind = {0: "SpaceToBatchND", 1: "BatchToSpaceND"}.get(index % every)
        inputs, domain = ([value, "block", "pads"], TF) if kind else ([value], "")
        value = f"v{index}"
        made.append(helper.make_node(kind or "Relu", inputs, [value], f"n{index}", domain=domain))
    return model(made, ["N", 8, 8, 3], value, [])


def with_weights(folder: Path, total: int, *, embedded: bool) -> Path:
    """Write products between spatial operators, with their weights in the file or in weights.bin.

    Returns:
        The file, with `total` bytes of weights.
    """
    nodes, value, stored = [], "x", []
    rng = np.random.default_rng(0)
    with (folder / "weights.bin").open("wb") as file:
        for index in range(total // WEIGHT_BYTES):
            shape = [4096, 1024] if index % 2 else [1024, 4096]
            data = rng.standard_normal(shape, np.float32).tobytes()
            weight = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=shape)
            if embedded:
                weight.raw_data = data
            else:
                file.write(data)
                weight.data_location = TensorProto.EXTERNAL
                place = {"location": "weights.bin", "offset": index * WEIGHT_BYTES}
                for key, number in place.items():
                    weight.external_data.add(key=key, value=str(number))
            stored.append(weight)
            kinds = ("SpaceToBatchND", "BatchToSpaceND")
            for kind in (*kinds, "MatMul"):
                inputs = [weight.name] if kind == "MatMul" else ["block", "pads"]
                domain = "" if kind == "MatMul" else TF
                name = f"{kind}{index}"
                nodes.append(helper.make_node(kind, [value, *inputs], [name], name, domain=domain))
                value = name
    path = folder / "model.onnx"
    path.write_bytes(model(nodes, [1, 4, 4, 1024], value, stored).SerializeToString())
    return path


def model(
    nodes: Sequence[onnx.NodeProto], shape: list[int | str], result: str, stored: list[TensorProto]
) -> onnx.ModelProto:
    """Build a model of one input and one output."""
    tables = {"block": np.array([2, 2], np.int32), "pads": np.zeros((2, 2), np.int32)}
    stored = [*stored, *(onnx.numpy_helper.from_array(a, n) for n, a in tables.items())]
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", shape), (result, None)))
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(TF, 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=imports)


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
