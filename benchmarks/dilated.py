"""Time dilated convolutions: fused, not fused, and written as a dilated Conv.

    python -m benchmarks.dilated        about 5 minutes; `gains` makes the page of it

A layer is Transpose, Conv, Transpose between SpaceToBatchND and BatchToSpaceND, with the sizes of
DeepLab: 960 channels depthwise and 256 channels dense, padding "same". *native* is the same layer with a
dilated Conv in place of the two operators and the Conv. *computed* layers compute pads and crops from
the run-time shape, as converters write them. Whole runs are timed in turn; all outputs are compared
first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial
from benchmarks import results, timing
from benchmarks.results import Record

RESULTS = Path("docs/performance/dilated.json")

DOMAIN = "ai.onnx.converters.tensorflow"
#: Relative to the largest value: products are summed in another order.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Layer:
    """A dilated convolution, 3x3, padding "same", channels last.

    Attributes:
        channels: channels of input and output.
        depthwise: whether each channel has a kernel of its own.
        size: height and width.
        rate: dilation rate.
        computed: whether pads and crops are computed from the run-time shape.
    """

    channels: int
    depthwise: bool
    size: int
    rate: int
    computed: bool

    @property
    def name(self) -> str:
        """Name in the table."""
        kind = "depthwise" if self.depthwise else "dense"
        return f"{self.channels} {kind} {self.size}x{self.size}"

    def kernel(self) -> np.ndarray:
        """Return the weights."""
        per_group = 1 if self.depthwise else self.channels
        shape = (self.channels, per_group, 3, 3)
        scale = 1 / np.sqrt(9 * per_group)
        return (np.random.default_rng(0).normal(size=shape) * scale).astype(np.float32)

    def model(self, *, native: bool) -> onnx.ModelProto:
        """Build the layer as a converter writes it, or with a dilated Conv."""
        node, rate = helper.make_node, self.rate
        attributes = {"kernel_shape": [3, 3], "group": self.channels if self.depthwise else 1}
        if native:
            attributes |= {"dilations": [rate] * 2, "pads": [rate] * 4}
        tables = {} if native else self._tables()
        ends = [] if native else ["block", "pads"], [] if native else ["block", "crops"]
        nodes = [] if native or not self.computed else _computed()
        first, last = ("Identity", "Identity") if native else ("SpaceToBatchND", "BatchToSpaceND")
        domain = "" if native else DOMAIN
        nodes += [
            node(first, ["x", *ends[0]], ["s"], "first", domain=domain),
            node("Transpose", ["s"], ["t"], "before", perm=[0, 3, 1, 2]),
            node("Conv", ["t", "w"], ["c"], "conv", **attributes),
            node("Transpose", ["c"], ["b"], "behind", perm=[0, 2, 3, 1]),
            node(last, ["b", *ends[1]], ["y"], "last", domain=domain),
        ]
        dims = [1, self.size, self.size, self.channels]
        known = ["N", "H", "W", self.channels] if self.computed else dims
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "layer",
            [value("x", TensorProto.FLOAT, known)],
            [value("y", TensorProto.FLOAT, known)],
            [numpy_helper.from_array(a, n) for n, a in (tables | {"w": self.kernel()}).items()],
        )
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def _tables(self) -> dict[str, np.ndarray]:
        rate = self.rate
        block = {"block": np.array([rate] * 2, np.int64)}
        if self.computed:
            return block | {
                "one": np.array([1], np.int64),
                "three": np.array([3], np.int64),
                "both": np.array([2 * rate] * 2, np.int64),
                "half": np.array([rate] * 2, np.int64),
                "none": np.zeros(2, np.int64),
            }
        fill = -(self.size + 2 * rate) % rate
        return block | {
            "pads": np.array([[rate, rate + fill]] * 2, np.int64),
            "crops": np.array([[0, fill]] * 2, np.int64),
        }


def _computed() -> list[onnx.NodeProto]:
    """Return nodes that compute pads and crops from the shape of x."""
    node = helper.make_node
    return [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "one", "three"], ["sizes"]),
        node("Add", ["sizes", "both"], ["wide"]),
        node("Mod", ["wide", "block"], ["rest"]),
        node("Sub", ["block", "rest"], ["lack"]),
        node("Mod", ["lack", "block"], ["fill"]),
        node("Add", ["half", "fill"], ["end"]),
        *(node("Unsqueeze", [name, "one"], [f"{name}_c"]) for name in ("half", "end")),
        *(node("Unsqueeze", [name, "one"], [f"{name}_c"]) for name in ("none", "fill")),
        node("Concat", ["half_c", "end_c"], ["pads"], axis=1),
        node("Concat", ["none_c", "fill_c"], ["crops"], axis=1),
    ]


def layers() -> Iterator[Layer]:
    """Yield the layers to measure."""
    for computed, (channels, depthwise), size, rate in itertools.product(
        (False, True), ((960, True), (256, False)), (33, 65), (2, 4, 12, 18)
    ):
        yield Layer(channels, depthwise, size, rate, computed)


def measure(layer: Layer, threads: int, seconds: float) -> Record:
    """Time whole runs of a layer in each form, in microseconds."""
    original = layer.model(native=False)
    models = {
        "native": layer.model(native=True),
        "fused": onnx_spatial.convert(original, verify=False).model,
        "not fused": onnx_spatial.convert(original, verify=False, fuse=False).model,
    }
    size = (1, layer.size, layer.size, layer.channels)
    x = np.random.default_rng(1).normal(size=size).astype(np.float32)
    runs: dict[str, Callable[[], object]] = {}
    expected: np.ndarray | None = None
    for name, model in models.items():
        session = timing.session(model.SerializeToString(), threads)
        (output,) = session.run(None, {"x": x})
        expected = output if expected is None else expected
        if (
            output.shape != expected.shape
            or np.abs(output - expected).max() > TOLERANCE * np.abs(expected).max()
        ):
            raise timing.DisagreementError(f"{layer}: the output of {name} differs")
        runs[name] = timing.repeatable(session, {"x": x})
    us = results.rounded(timing.wall(runs, seconds))
    return {
        "layer": layer.name,
        "rate": layer.rate,
        "computed": layer.computed,
        "threads": threads,
        "us": us,
        "nodes": {name: len(model.graph.node) for name, model in models.items()},
    }


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option(
    "--threads", type=click.IntRange(1), multiple=True, help="Number of threads (default: 1 and 2)."
)
@click.option("--seconds", type=float, default=4, show_default=True, help="Time per layer.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(threads: tuple[int, ...], seconds: float, output: Path) -> None:
    """Measure, and write the results."""
    load = results.warn_of_load()
    records = []
    for count in threads or (1, 2):
        for layer in layers():
            records.append(measure(layer, count, seconds))
            click.echo(f"{count} t  {layer.name} rate {layer.rate}: {records[-1]['us']}", err=True)
    results.write(output, records, seconds=seconds, load=load)


if __name__ == "__main__":
    main()
