"""Time converted models beside the same nets written by hand with dilated convolutions.

    python -m benchmarks.nets --build FOLDER       write large models (needs tf2onnx)
    python -m benchmarks.native --models FOLDER    updates docs/internals/fusion-measurements.md

The nets of `models/` are small: most of their time is the cost of starting a node. A FOLDER of `nets`
has the same nets at the sizes of real ones. Whole runs are timed in turn, in one process; each round
gives one ratio.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner

import onnx_spatial
from benchmarks import nets, results, timing
from benchmarks.results import Record
from models import native
from onnx_spatial.validation import data_sets

Array = npt.NDArray[Any]
Case = tuple[str, onnx.ModelProto, onnx.ModelProto, dict[str, Array]]

RESULTS = Path("docs/performance/native.json")
PAGE = Path("docs/internals/fusion-measurements.md")
BEGIN, END = "<!-- native: python -m benchmarks.native -->", "<!-- end of native -->"
MODELS = Path(native.__file__).parent


def deeplab(exported: onnx.ModelProto) -> onnx.ModelProto:
    """Return the DeepLab of `zoo`: rates 2 and 4, ASPP with rates 12, 24, 36."""
    net = native.Net(exported)
    kernels = {name: layer.kernel for name, layer in net.layers().items()}

    def relu6(x: str) -> str:
        return net.op("Clip", x, np.float32(0).reshape(()), np.float32(6).reshape(()))

    def conv(x: str, name: str, rate: int = 1, **attributes: object) -> str:
        return net.conv(x, kernels[name], rates=[rate], **attributes)

    x = net.op("Transpose", net.input, perm=[0, 3, 1, 2])
    for name in ("Conv2D", "Conv2D_1", "Conv2D_2"):
        x = relu6(conv(x, name, strides=[2, 2], auto_pad="SAME_UPPER"))
    for rate, depthwise, point in ((2, "depthwise", "Conv2D_3"), (4, "depthwise_1", "Conv2D_4")):
        y = relu6(conv(x, depthwise, rate, group=256))
        x = net.op("Add", x, relu6(conv(y, point)))
    rates = {"Conv2D_5": 1, "Conv2D_6": 12, "Conv2D_7": 24, "Conv2D_8": 36}
    branches = [net.op("Relu", conv(x, name, rate)) for name, rate in rates.items()]
    x = conv(net.op("Concat", *branches, axis=1), "Conv2D_9")
    return net.model(net.op("Transpose", x, perm=[0, 2, 3, 1]))


#: How the nets of `zoo` are written by hand.
LARGE = {"deeplab": deeplab, "wavenet": native.wavenet, "wavenet_dynamic": native.wavenet}


def cases(folders: tuple[Path, ...]) -> Iterator[Case]:
    """Yield name, exported model, net by hand and inputs."""
    for name, write in native.NETS.items():
        exported = onnx.load(MODELS / name / "model.onnx")
        data = data_sets.read(MODELS / name / "test_data_set_0", exported)
        yield f"models/{name}", exported, write(exported), dict(data.inputs)
    for path in nets.models_in(folders):
        if path.stem in LARGE:
            exported = onnx.load(path)
            with np.load(path.with_suffix(".npz")) as stored:
                data = {exported.graph.input[0].name: stored["x"]}
            yield path.stem, exported, LARGE[path.stem](exported), data


def count(model: onnx.ModelProto) -> int:
    """Count the nodes that run: those of functions at each call."""
    return len(onnx.inliner.inline_local_functions(model).graph.node)


def measure(case: Case, threads: int, seconds: float) -> Record:
    """Time runs of the net by hand and of the converted model in turn."""
    name, exported, by_hand, inputs = case
    models = {"by hand": by_hand, "converted": onnx_spatial.convert(exported, verify=False).model}
    runs: dict[str, Callable[[], object]] = {}
    expected: list[Array] = []
    for form, model in models.items():
        session = timing.session(model.SerializeToString(), threads)
        outputs = session.run(None, inputs)
        for output, y in zip(outputs, expected or outputs, strict=True):
            scale = max(1.0, float(np.abs(y).max()))
            if output.shape != y.shape or not np.abs(output - y).max() <= nets.TOLERANCE * scale:
                raise timing.DisagreementError(f"{name}: the output of {form} differs")
        expected = outputs
        runs[form] = timing.repeatable(session, inputs)
    times = timing.in_turns(runs, seconds)
    ratios = [c / h for h, c in zip(times["by hand"], times["converted"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "net": name,
        "threads": threads,
        "nodes": {form: count(model) for form, model in models.items()},
        "us": {form: round(1e6 * statistics.median(each), 1) for form, each in times.items()},
        "least": round(min(times["converted"]) / min(times["by hand"]), 4),
        "ratio": [round(low, 4), round(middle, 4), round(high, 4)],
        "rounds": len(ratios),
    }


def table(records: list[Record]) -> str:
    """Return a Markdown table of times and their ratios."""
    lines = [
        "| net | threads | nodes, by hand | nodes, converted | by hand, ms | converted, ms "
        "| converted / by hand | half of the rounds | of the fastest runs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in records:
        nodes, us, (low, middle, high) = r["nodes"], r["us"], r["ratio"]
        lines.append(
            f"| {r['net']} | {r['threads']} | {nodes['by hand']} | {nodes['converted']} "
            f"| {_ms(us['by hand'])} | {_ms(us['converted'])} | {middle:.3f} "
            f"| {low:.3f} to {high:.3f} | {r['least']:.3f} |"
        )
    return "\n".join(lines)


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000:.{max(0, 2 - math.floor(math.log10(microseconds / 1000)))}f}"


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option(
    "--models",
    "folders",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Time the models of `nets` in this folder, too.",
)
@click.option(
    "--threads", type=click.IntRange(1), multiple=True, help="Number of threads (default: 1 and 2)."
)
@click.option("--seconds", type=float, default=20, show_default=True, help="Time per net.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(folders: tuple[Path, ...], threads: tuple[int, ...], seconds: float, output: Path) -> None:
    """Measure, write the results, and update the table."""
    load = results.warn_of_load()
    records = []
    for count in threads or (1, 2):
        for case in cases(folders):
            records.append(measure(case, count, seconds))
            click.echo(str(records[-1]), err=True)
    results.write(output, records, seconds=seconds, load=load)
    results.put(PAGE, BEGIN, END, table(records))


if __name__ == "__main__":
    main()
