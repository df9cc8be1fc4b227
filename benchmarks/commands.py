"""Measure the processor time of `onnx-spatial convert` and `verify`, of two checkouts in turn.

    python benchmarks/commands.py --before CHECKOUT [--pairs 5] [MODEL ...]

By default the models are two nets of 300 operators, of which few are of one kind, and two nets of
models/. Every measurement is a process of its own: user and system time, with Python's start and all
imports. The table has the least of the measurements in seconds, and the ratio of both checkouts.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
DOMAIN = "ai.onnx.converters.tensorflow"
NETS = ("deeplab", "wavenet")
_SIZE, _OPERATORS = 12, 300


def softmax_net() -> onnx.ModelProto:
    """Build a net whose operators stay apart: Softmax along a blocked axis is between them."""
    net = _Net()
    for index in range(_OPERATORS // 2):
        block = 2 + index % 3
        pads = [[0, block * (index % 2)]] * 2
        net.add("SpaceToBatchND", block, pads)
        net.node("Softmax", axis=1)
        net.add("BatchToSpaceND", block, pads)
    return net.model()


def dilated_net() -> onnx.ModelProto:
    """Build a net of dilated convolutions with kernels, rates and channels of several sizes."""
    net, channels = _Net(), 8
    for index in range(_OPERATORS // 2):
        kernel, outputs = (3, 1, 3, 5)[index % 4], (8, 12, 16)[index % 3]
        net.dilated(kernel, channels, outputs, 2 if kernel == 5 else (2, 4, 8)[index % 3])
        channels = outputs
    return net.model()


def regions_net() -> onnx.ModelProto:
    """Build a net of 5,000 nodes, 20 dilated convolutions among them."""
    net = _Net()
    for _ in range(20):
        net.dilated(3, 8, 8, 2)
        for number in range(244):
            if number % 2:
                net.node("Tanh")
            else:
                net.node("Mul", np.array(1.1, np.float32))
    return net.model()


class _Net:
    """A chain of nodes."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._stored: list[TensorProto] = []
        self.normal = np.random.default_rng(0).standard_normal

    def add(self, kind: str, block: int, pads: Sequence[Sequence[int]]) -> None:
        """Add an operator with a block and pads or crops."""
        arrays = np.array([block, block], np.int32), np.array(pads, np.int32)
        self.node(kind, *arrays, domain=DOMAIN)

    def dilated(self, kernel: int, channels: int, outputs: int, block: int) -> None:
        """Add a convolution between two operators, and a Relu."""
        margin = kernel // 2 * block
        rest = -(_SIZE + 2 * margin) % block
        shape = (outputs, channels, kernel, kernel)
        weights = self.normal(shape) * np.sqrt(2 / (channels * kernel**2))
        self.add("SpaceToBatchND", block, [[margin, margin + rest]] * 2)
        self.node("Transpose", perm=[0, 3, 1, 2])
        self.node("Conv", weights.astype(np.float32))
        self.node("Transpose", perm=[0, 2, 3, 1])
        self.add("BatchToSpaceND", block, [[0, rest]] * 2)
        self.node("Relu")

    def node(self, kind: str, *constants: np.ndarray, **more: object) -> None:
        """Add a node behind the last one, with further inputs and attributes."""
        index = len(self._nodes)
        names = [f"c{index}_{i}" for i in range(len(constants))]
        self._stored += map(numpy_helper.from_array, constants, names)
        data = f"v{index}" if index else "x"
        node = helper.make_node(kind, [data, *names], [f"v{index + 1}"], f"n{index}", **more)
        self._nodes.append(node)

    def model(self) -> onnx.ModelProto:
        """Return the model, with a batch of any size."""
        ends = [("x", ["N", _SIZE, _SIZE, 8]), (f"v{len(self._nodes)}", None)]
        data, result = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends)
        graph = helper.make_graph(self._nodes, "g", [data], [result], self._stored)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, ir_version=8, opset_imports=imports)


def seconds(checkout: Path, arguments: Sequence[object], cache: Path) -> float:
    """Return the processor time of a command, whose compiled modules lie in `cache`."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "onnx_spatial", *map(str, arguments), "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=cache, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument(
        "--before", type=Path, default=ROOT, help="another checkout to compare with"
    )
    parser.add_argument("--pairs", type=int, default=5, help="measurements of each checkout")
    options = parser.parse_args()
    checkouts = [options.before.resolve(), ROOT]
    print("| model | command | before | now | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {m.stem: m.resolve() for m in options.models}
        if not models:
            for net in (softmax_net, dilated_net):
                models[net.__name__] = folder / f"{net.__name__}.onnx"
                onnx.save(net(), models[net.__name__])
            models |= {net: ROOT / "models" / net / "model.onnx" for net in NETS}
        for checkout in checkouts:  # compiles the modules
            seconds(checkout, ["convert", next(iter(models.values())), "--dry-run"], folder)
        for label, model in models.items():
            result = folder / "converted.onnx"
            for command in (["convert", model, "-o", result], ["verify", model, result]):
                turns = [
                    [seconds(c, command, folder) for c in checkouts] for _ in range(options.pairs)
                ]
                before, now = map(min, zip(*turns, strict=True))
                cells = [
                    label,
                    command[0],
                    f"{before:.2f} s",
                    f"{now:.2f} s",
                    f"{now / before:.2f}",
                ]
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
