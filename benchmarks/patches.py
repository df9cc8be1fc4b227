"""Time products of patches whose sizes only the run knows: as one strided convolution, and not fused.

    python -m benchmarks.patches        about a minute; updates docs/internals/fusion-measurements.md

The product is a MatMul of four axes: its convolution may have no windows, which takes a Slice. Number,
height and width of the images are unknown. Whole runs are timed in turn; all outputs are compared first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import numpy_helper, parser

import onnx_spatial
from benchmarks import results, timing
from benchmarks.results import Record

RESULTS = Path("docs/performance/patches.json")
PAGE = Path("docs/internals/fusion-measurements.md")
BEGIN, END = "<!-- patches: python -m benchmarks.patches -->", "<!-- end of patches -->"

#: Relative to the largest value: products are summed in another order.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Layer:
    """A product of patches of [N, H, W, C].

    Attributes:
        window: size, stride and rate of the window along both axes.
        padding: VALID or SAME.
        size: height and width in the run.
        channels: channels of the image.
        outputs: output channels.
    """

    window: tuple[int, int, int]
    padding: str
    size: int
    channels: int
    outputs: int

    @property
    def name(self) -> str:
        """Name in the table."""
        return f"{self.size}x{self.size}, {self.channels} to {self.outputs} channels"

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        kernel, stride, rate = self.window
        rows = kernel * kernel * self.channels
        model = parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
            g (float[N, H, W, {self.channels}] x) => (float y) {{
            p = com.microsoft.ExtractImagePatches <ksizes = [1, {kernel}, {kernel}, 1],
                strides = [1, {stride}, {stride}, 1], rates = [1, {rate}, {rate}, 1],
                padding = "{self.padding}"> (x)
            m = MatMul (p, w)  y = Add (m, b) }}"""
        )
        model.graph.output[0].type.tensor_type.ClearField("shape")
        normal = np.random.default_rng(1).normal
        arrays = {
            "w": normal(size=(rows, self.outputs)).astype(np.float32),
            "b": normal(size=self.outputs).astype(np.float32),
        }
        for name, array in arrays.items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        return model


def layers() -> Iterator[Layer]:
    """Yield the layers to measure."""
    yield Layer((3, 1, 1), "SAME", 56, 64, 64)
    yield Layer((3, 1, 1), "VALID", 56, 64, 64)
    yield Layer((3, 2, 1), "SAME", 56, 64, 128)
    yield Layer((3, 2, 2), "SAME", 56, 64, 128)
    yield Layer((7, 2, 1), "SAME", 224, 3, 64)
    yield Layer((3, 1, 1), "SAME", 14, 256, 256)


def measure(layer: Layer, threads: int, seconds: float) -> Record:
    """Time whole runs of a layer in each form, in microseconds."""
    original = layer.model()
    models = {
        "fused": onnx_spatial.convert(original, verify=False).model,
        "not fused": onnx_spatial.convert(original, verify=False, fuse=False).model,
    }
    x = np.random.default_rng(2).normal(size=(1, layer.size, layer.size, layer.channels))
    x = x.astype(np.float32)
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
    return {
        "layer": layer.name,
        "window": layer.window,
        "padding": layer.padding,
        "threads": threads,
        "us": results.rounded(timing.wall(runs, seconds)),
        "nodes": {name: len(model.graph.node) for name, model in models.items()},
    }


def table(records: list[Record]) -> str:
    """Return a Markdown table of times and their ratios."""
    lines = [
        "| product | window, stride, rate | padding | threads | nodes, fused | nodes, not fused "
        "| fused, ms | not fused, ms | not fused / fused |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in records:
        us, nodes = r["us"], r["nodes"]
        lines.append(
            f"| {r['layer']} | {', '.join(map(str, r['window']))} | {r['padding']} | {r['threads']} "
            f"| {nodes['fused']} | {nodes['not fused']} | {us['fused'] / 1000:.2f} "
            f"| {us['not fused'] / 1000:.2f} | {us['not fused'] / us['fused']:.2f} |"
        )
    gains = [r["us"]["not fused"] / r["us"]["fused"] for r in records]
    lines += ["", f"Geometric mean: {results.geometric_mean(gains):.2f}, least {min(gains):.2f}."]
    return "\n".join(lines)


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option(
    "--threads", type=click.IntRange(1), multiple=True, help="Number of threads (default: 1)."
)
@click.option("--seconds", type=float, default=4, show_default=True, help="Time per layer.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(threads: tuple[int, ...], seconds: float, output: Path) -> None:
    """Measure, write the results, and update the table."""
    load = results.warn_of_load()
    records = []
    for count in threads or (1,):
        for layer in layers():
            records.append(measure(layer, count, seconds))
            click.echo(f"{count} t  {layer.name} {layer.window}: {records[-1]['us']}", err=True)
    results.write(output, records, seconds=seconds, load=load)
    results.put(PAGE, BEGIN, END, table(records))


if __name__ == "__main__":
    main()
