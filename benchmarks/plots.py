"""Draw the results as small SVG files without dates, so that equal results give equal files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from benchmarks import summary
from benchmarks.results import Record, geometric_mean

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "onnx-spatial", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402  after the choice of the backend
from matplotlib.figure import Figure  # noqa: E402

_COLOURS = {
    "ours": "#1b6ca8",
    "textbook": "#d1495b",
    "tf2onnx": "#edae49",
    "openvino": "#66a182",
    "tensorflow": "#8d6a9f",
    "numpy": "#9a9a9a",
}


def draw(records: Sequence[Record], nets: Sequence[Record], folder: Path) -> None:
    """Write peers.svg, cells.svg and nets.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    save(_peers(records), folder / "peers.svg")
    save(_cells(records), folder / "cells.svg")
    if nets:
        save(_nets(nets), folder / "nets.svg")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a file without a date."""
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _peers(records: Sequence[Record]) -> Figure:
    """Draw bars of geometric means by group, in copies of the output, for each number of threads."""
    counts = sorted({r["threads"] for r in records})
    groups = list(dict.fromkeys(r["group"] for r in records))
    names = [n for n in _COLOURS if any(n in r["us"] for r in records)]
    figure, axes = plt.subplots(
        1, len(counts), figsize=(5.2 * len(counts), 5), sharey=True, squeeze=False
    )
    for axis, threads in zip(axes[0], counts, strict=True):
        for offset, name in enumerate(names):
            for place, group in enumerate(groups):
                ratios = [
                    r["us"][name] / r["us"]["copy"]
                    for r in records
                    if r["group"] == group and r["threads"] == threads and name in r["us"]
                    if r["bytes"] >= summary.SMALL
                ]
                if ratios:
                    axis.barh(
                        place + (offset - len(names) / 2) * 0.13,
                        geometric_mean(ratios),
                        0.12,
                        color=_COLOURS[name],
                        label=name if place == 0 else None,
                    )
        axis.set_xscale("log")
        axis.set_yticks(range(len(groups)), groups)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.grid(axis="x", which="both", alpha=0.3)
        axis.set_xlabel("copies of the output (geometric mean, less is better)")
        axis.set_title(f"{threads} thread{'s' if threads > 1 else ''}")
    axes[0][0].invert_yaxis()  # the others share it
    figure.tight_layout()
    bars, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(bars, labels, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(names))
    return figure


def _cells(records: Sequence[Record]) -> Figure:
    """Draw a point for every cell with one thread: textbook and ours, in copies of the output."""
    least = min(r["threads"] for r in records)
    figure, axis = plt.subplots(figsize=(6, 5))
    large = [r for r in records if r["threads"] == least and r["bytes"] >= summary.SMALL]
    for number, group in enumerate(dict.fromkeys(r["group"] for r in large)):
        cells = [r for r in large if r["group"] == group]
        axis.scatter(
            [r["us"]["textbook"] / r["us"]["copy"] for r in cells],
            [summary.copies(r) for r in cells],
            s=14,
            marker="os^vD*"[number % 6],
            label=group,
            alpha=0.75,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    largest = max((r["us"]["textbook"] / r["us"]["copy"] for r in large), default=10.0)
    axis.plot([1, largest], [1, largest], color="black", linewidth=0.8)
    axis.grid(which="major", alpha=0.3)
    axis.set_xlabel("textbook form, in copies of the output")
    axis.set_ylabel("ours, in copies of the output")
    axis.set_title("below the line: ours is faster")
    axis.legend(fontsize=8)
    return figure


def _nets(records: Sequence[Record]) -> Figure:
    """Draw bars of tf2onnx's time over ours."""
    both = [r for r in records if "tf2onnx" in r["us"]]
    counts = sorted({r["threads"] for r in both})
    names = list(dict.fromkeys(r["net"] for r in both))
    figure, axis = plt.subplots(figsize=(6, 0.4 * len(names) + 1))
    for offset, threads in enumerate(counts):
        ratios = {
            r["net"]: r["us"]["tf2onnx"] / r["us"]["ours"] for r in both if r["threads"] == threads
        }
        axis.barh(
            [names.index(net) + (offset - 0.5) * 0.38 for net in ratios],
            list(ratios.values()),
            0.36,
            color=("#1b6ca8", "#8fbbda")[offset % 2],
            label=f"{threads} thread{'s' if threads > 1 else ''}",
        )
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel("time of tf2onnx's own conversion / ours (more is better)")
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8)
    return figure
