"""Time dilated convolutions: converted, with --no-fuse, and written by hand as a dilated Conv.

    python -m benchmarks.dilated        the table of docs/performance.md, in about two minutes

A layer is Transpose, Conv, Transpose between SpaceToBatchND and BatchToSpaceND, with the sizes of
DeepLab: 960 channels depthwise and 256 channels dense, padding "same". By hand, a dilated Conv stands in
the place of the two operators and the Conv. *Computed* layers compute pads and crops from the shape in
the run, as converters write them. Whole runs are timed in turn; all outputs are compared first.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import click
import numpy as np
import onnx
from building import TF
from chain_models import Net
from onnx import helper

import onnx_spatial
from benchmarks import results, timing

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
        computed = ", computed" if self.computed else ""
        return f"{self.channels} {kind} {self.size}x{self.size}{computed}"

    def kernel(self) -> np.ndarray:
        """Return the weights."""
        per_group = 1 if self.depthwise else self.channels
        shape = (self.channels, per_group, 3, 3)
        scale = 1 / np.sqrt(9 * per_group)
        return (np.random.default_rng(0).normal(size=shape) * scale).astype(np.float32)

    def model(self, *, native: bool) -> onnx.ModelProto:
        """Build the layer as a converter writes it, or with a dilated Conv."""
        net, rate, group = Net(), self.rate, self.channels if self.depthwise else 1
        sizes: list[int | str] = ["H", "W"] if self.computed else [self.size] * 2
        attributes = {"kernel_shape": [3, 3], "group": group}
        if native:
            attributes |= {"dilations": [rate] * 2, "pads": [rate] * 4}
            x = net("Identity", "x")
        else:
            pads, crops = self._tables(net)
            x = net("SpaceToBatchND", "x", [rate] * 2, pads, domain=TF)
        x = net("Conv", net("Transpose", x, perm=[0, 3, 1, 2]), self.kernel(), **attributes)
        x = net("Transpose", x, perm=[0, 2, 3, 1])
        if not native:
            x = net("BatchToSpaceND", x, [rate] * 2, crops, domain=TF)
        model = net.model(["N" if self.computed else 1, *sizes, self.channels], x)
        model.opset_import.append(helper.make_opsetid(TF, 1))
        return model

    def _tables(self, net: Net) -> tuple[object, object]:
        """Pads and crops, known or computed from the shape of x."""
        rate = self.rate
        if not self.computed:
            fill = -(self.size + 2 * rate) % rate
            return [[rate, rate + fill]] * 2, [[0, fill]] * 2
        wide = net("Add", net("Slice", net("Shape", "x"), [1], [3]), [2 * rate] * 2)
        lack = net("Sub", [rate] * 2, net("Mod", wide, [rate] * 2))
        fill = net("Mod", lack, [rate] * 2)
        end, low = net("Unsqueeze", net("Add", [rate] * 2, fill), [1]), net("Unsqueeze", fill, [1])
        pads = net("Concat", [[rate], [rate]], end, axis=1)
        return pads, net("Concat", [[0], [0]], low, axis=1)


def layers() -> Iterator[Layer]:
    """Yield the layers to measure."""
    for computed, (channels, depthwise), size, rate in itertools.product(
        (False, True), ((960, True), (256, False)), (65,), (2, 12)
    ):
        yield Layer(channels, depthwise, size, rate, computed)


def measure(layer: Layer, threads: int, seconds: float) -> dict[str, float]:
    """Time whole runs of a layer in each form, in microseconds.

    Raises:
        DisagreementError: an output differs.
    """
    original = layer.model(native=False)
    models = {
        "converted": onnx_spatial.convert(original, verify=False).model,
        "with blocks": onnx_spatial.convert(original, verify=False, fuse=False).model,
        "by hand": layer.model(native=True),
    }
    size = (1, layer.size, layer.size, layer.channels)
    x = np.random.default_rng(1).normal(size=size).astype(np.float32)
    runs: dict[str, Callable[[], object]] = {}
    outputs = []
    for name, model in models.items():
        session = timing.session(model.SerializeToString(), threads)
        outputs += session.run(None, {"x": x})
        if np.abs(outputs[-1] - outputs[0]).max() > TOLERANCE * np.abs(outputs[0]).max():
            raise timing.DisagreementError(f"{layer}: the output of {name} differs")
        runs[name] = timing.repeatable(session, {"x": x})
    return timing.whole_runs(runs, seconds)


def row(layer: Layer, us: Mapping[str, float]) -> tuple[object, ...]:
    """Return a row of the table: times, and how many times as long the others take."""
    converted, blocks, native = (
        us[name] / 1000 for name in ("converted", "with blocks", "by hand")
    )
    others = (f"{other:.2f} ms, {other / converted:.2f}x" for other in (blocks, native))
    return layer.name, layer.rate, f"{converted:.2f} ms", *others


@click.command(help=__doc__)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=float, default=4, show_default=True, help="time for each layer")
def main(threads: int, seconds: float) -> None:
    """Measure, and print the table."""
    click.echo(f"{results.heading()}, threads: {threads}\n")
    rows = [row(layer, measure(layer, threads, seconds)) for layer in layers()]
    head = ("layer 3x3", "rate", "converted", "with blocks (--no-fuse)", "by hand")
    click.echo(results.table(head, rows))


if __name__ == "__main__":
    main()
