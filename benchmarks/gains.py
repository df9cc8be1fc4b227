"""Say and draw what users gain: the figures and the plots of docs/performance.md.

    python -m benchmarks.gains

Everything is computed from the results in docs/performance/*.json: `benchmarks.nets`,
`benchmarks.dilated` and `benchmarks.lowering` measure them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import results
from benchmarks.results import Record, geometric_mean

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
RESULTS = PAGE.parent / "performance"

BEGIN, END = "<!-- results: python -m benchmarks.gains -->", "<!-- end of results -->"

#: The layers of the second plot.
LAYERS = ("960 depthwise 33x33", "256 dense 33x33")


def records(name: str, threads: int = 1) -> list[Record]:
    """Return the results of a benchmark with a number of threads."""
    document = results.read(RESULTS / f"{name}.json")
    return [r for r in document["records"] if r["threads"] == threads]


def ratios(chosen: list[Record], other: str, own: str) -> list[float]:
    """Return how many times longer `other` takes than `own`, in each record that has both."""
    return [r["us"][other] / r["us"][own] for r in chosen if other in r["us"]]


def layers() -> list[Record]:
    """Return the layers with constant paddings."""
    return [r for r in records("dilated") if not r["computed"]]


def groups() -> dict[str, list[float]]:
    """Return, for each operator and layout, how many times longer the form by hand takes."""
    cells = records("lowering")
    names = dict.fromkeys(r["group"] for r in cells)
    return {n: ratios([r for r in cells if r["group"] == n], "textbook", "ours") for n in names}


def render() -> str:
    """Return the part of the page that the results determine."""
    nets, dilated = records("nets"), layers()
    gained, fused = ratios(nets, "tf2onnx", "ours"), ratios(dilated, "not fused", "fused")
    two = ratios(records("nets", threads=2), "tf2onnx", "ours")
    cells = [ratio for each in groups().values() for ratio in each]
    return _TEXT.format(
        nets=geometric_mean(gained),
        count=len(gained),
        least=min(gained),
        most=max(gained),
        refused=sum("tf2onnx" in r["notes"] for r in nets),
        two=geometric_mean(two),
        behind=sum(ratio < 0.97 for ratio in two),
        worst=min(two),
        rows="\n".join(map(_row, nets)),
        native=geometric_mean(ratios(dilated, "fused", "native")),
        fused=geometric_mean(fused),
        largest=max(fused),
        cells=geometric_mean(cells),
        shapes=len(cells),
        slower=sum(ratio < 0.9 for ratio in cells),
    )


_TEXT = """
**Whole nets** are {nets:.1f} times as fast as the same nets exported by tf2onnx alone (geometric
mean of {count}; from {least:.2f} to {most:.1f} times). {refused} more are not loaded by onnxruntime
at all in that form. With two threads the mean is {two:.1f}, and {behind} nets are slower, at worst
{worst:.2f} times as fast.

![Time of tf2onnx's own export divided by the time of the converted net](performance/gain-nets.svg)

| net | input | converted | tf2onnx alone |
|---|---|---|---|
{rows}

**A dilated convolution** takes {native:.2f} times as long as one that was written by hand; without
fusion the layer takes {fused:.1f} times as long as with it (up to {largest:.1f}): the larger the
rate, the more blocks there are to move.

![Time of one layer by its rate](performance/gain-layers.svg)

**Single operators** are {cells:.1f} times as fast as Pad, Reshape, Transpose, Reshape and Slice
written by hand (geometric mean of {shapes} shapes). {slower} of them are slower by more than a
tenth.

![Time of the form by hand divided by the time of the lowering](performance/gain-operators.svg)
""".strip()


def _row(record: Record) -> str:
    size = "x".join(map(str, record["input"]))
    return f"| {record['net']} | {size} | {_time(record['us']['ours'])} | {_other(record)} |"


def _time(us: float) -> str:
    return f"{us / 1000:.1f} ms" if us >= 1000 else f"{us:.0f} us"


def _other(record: Record) -> str:
    if "tf2onnx" not in record["us"]:
        return "not loaded by onnxruntime"
    us = record["us"]["tf2onnx"]
    return f"{_time(us)}, {us / record['us']['ours']:.2f}x"


def draw(folder: Path) -> None:
    """Write the plots; they need matplotlib."""
    import matplotlib as mpl

    # Files without dates or random ids: equal results give equal files.
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "onnx-spatial", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot as plt

    def save(name: str) -> None:
        plt.savefig(folder / name, bbox_inches="tight", metadata={"Date": None})
        plt.close()

    def bars(
        name: str, lengths: dict[str, float], label: str, text: Callable[[float], str]
    ) -> None:
        _, axis = plt.subplots(figsize=(6.6, 0.34 * len(lengths) + 0.9))
        drawn = axis.barh(list(lengths), list(lengths.values()), color="#1b6ca8")
        axis.bar_label(drawn, [text(value) for value in lengths.values()], padding=3)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xlim(0, 1.15 * max(lengths.values()))
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        save(name)

    nets = {
        r["net"]: r["us"]["tf2onnx"] / r["us"]["ours"]
        for r in records("nets")
        if "tf2onnx" in r["us"]
    }
    label = "times as fast as the net that tf2onnx exports alone (1 thread)"
    bars("gain-nets.svg", nets, label, lambda value: f"{value:.2f}x")
    means = {name: geometric_mean(each) for name, each in groups().items()}
    label = "times as fast as the form by hand (1 thread, geometric mean)"
    bars("gain-operators.svg", means, label, lambda value: f"{value:.1f}x")

    figure, axes = plt.subplots(1, len(LAYERS), figsize=(7.4, 3))
    for axis, layer in zip(axes, LAYERS, strict=True):
        chosen = [r for r in layers() if r["layer"] == layer]
        for name, label, style in (
            ("not fused", "with blocks (--no-fuse)", "o-"),
            ("fused", "converted", "s-"),
            ("native", "written by hand", "^--"),
        ):
            times = [r["us"][name] / 1000 for r in chosen]
            axis.plot([r["rate"] for r in chosen], times, style, label=label, markersize=4)
        axis.set_title(f"{layer.replace(' ', ' channels, ', 1)}", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.set_xticks([r["rate"] for r in chosen])
        axis.set_xlabel("rate (dilation)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("time of one layer, ms")
    axes[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    save("gain-layers.svg")


if __name__ == "__main__":
    results.put(PAGE, BEGIN, END, render())
    draw(RESULTS)
