"""Write the results into docs/internals: tables between two markers, and plots.

    python -m benchmarks.report [LOWERING.json] [NETS.json]

Text outside of the markers is not changed. `summary` computes, `plots` draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import lowering, nets, results, summary
from benchmarks.results import Record

PAGE = Path("docs/internals/lowering-measurements.md")
BEGIN, END = "<!-- results: python -m benchmarks.report -->", "<!-- end of results -->"
WORST = 10


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(facts: dict[str, Any], load: float) -> str:
    """Describe the machine in one sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    text = f"{facts['processor']}, {facts['cores']} cores, {facts['system']}; {versions}."
    if load > results.QUIET:
        text += f" **The machine was busy (load {load:.1f}): not to be relied on.**"
    return text


def targets(records: Sequence[Record], net_records: Sequence[Record]) -> str:
    """Return a table of targets and results."""
    rows = []
    counts = sorted({r["threads"] for r in [*records, *net_records]})
    for target in summary.TARGETS:
        cells = [target.what, target.bound]
        source = net_records if target.nets else records
        cells += [target.outcome(source, threads) for threads in counts]
        rows.append(cells)
    return table(["", "target", *map(_threads, counts)], rows)


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def peers(records: Sequence[Record]) -> str:
    """Return a table of every alternative against ours, by group."""
    names = [n for n in summary.PEERS if any(n in r["us"] for r in records)]
    rows = []
    for threads in sorted({r["threads"] for r in records}):
        for group in dict.fromkeys(r["group"] for r in records):
            mine = [r for r in records if r["group"] == group and r["threads"] == threads]
            copies = results.geometric_mean(
                summary.copies(r) for r in mine if r["bytes"] >= summary.SMALL
            )
            cells = [group, str(threads), str(len(mine)), f"{copies:.1f}"]
            for name in names:
                ratios = [r["us"][name] / r["us"]["ours"] for r in mine if name in r["us"]]
                faster = sum(ratio < summary.SLOWER for ratio in ratios)
                mean = results.geometric_mean(ratios)
                where = "" if len(ratios) == len(mine) else f" in {len(ratios)}"
                lost = f", {faster} faster" if faster else ""
                cells.append(f"{mean:.1f}{where}{lost}" if ratios else "-")
            rows.append(cells)
    return table(["", "threads", "cells", "ours, in copies", *names], rows)


def worst(records: Sequence[Record]) -> str:
    """Return a table of the cells furthest from a copy, with the kernels that take their time."""
    ordered = sorted(records, key=lambda r: -summary.copies(r))
    rows = []
    for r in ordered[:WORST]:
        us = r["us"]
        kinds = sorted(r["kinds"].items(), key=lambda item: -item[1])
        where = ", ".join(f"{kind} {took / us['ours']:.0%}" for kind, took in kinds[:3])
        others = {n: us[n] for n in summary.PEERS if n in us}
        name = min(others, key=lambda n: others[n])
        rows.append(
            [
                r["cell"],
                str(r["threads"]),
                f"{us['ours']:.0f}",
                f"{summary.copies(r):.1f}",
                r["strategy"],
                where,
                f"{name} {others[name] / us['copy']:.1f}",
            ]
        )
    head = ["cell", "threads", "us", "copies", "strategy", "where", "best alternative, in copies"]
    return table(head, rows)


def misjudged(records: Sequence[Record]) -> str:
    """Return a table of the cells whose lowering is furthest from the best one."""
    ordered = sorted(records, key=lambda r: -summary.regret(r))
    rows = []
    for r in ordered[:WORST]:
        best = min(r["candidates"], key=lambda name: r["candidates"][name])
        rows.append(
            [
                r["cell"],
                str(r["threads"]),
                f"{r['strategy']} {r['us']['ours']:.0f} us",
                f"{best} {r['candidates'][best]:.0f} us",
                f"{summary.regret(r):.2f}",
            ]
        )
    return table(["cell", "threads", "taken", "best", "ratio"], rows)


def slower(records: Sequence[Record], name: str) -> str:
    """Return a table of the cells in which an alternative is faster by more than 10 %, or "None."."""
    lost = [
        r for r in records if name in r["us"] and r["us"][name] / r["us"]["ours"] < summary.SLOWER
    ]
    if not lost:
        return "None."
    lost.sort(key=lambda r: r["us"][name] / r["us"]["ours"])
    rows = [
        [r["cell"], str(r["threads"]), r["strategy"], f"{r['us'][name] / r['us']['ours']:.2f}"]
        for r in lost[:WORST]
    ]
    more = f"\n\nand {len(lost) - WORST} more." if len(lost) > WORST else ""
    return table(["cell", "threads", "strategy", f"{name} / ours"], rows) + more


def whole_models(records: Sequence[Record]) -> str:
    """Return a table of whole models, in milliseconds."""
    rows = []
    for r in records:
        us = r["us"]
        cells = [r["net"], "x".join(map(str, r["input"])), str(r["threads"])]
        cells += [
            f"{us[name] / 1000:.2f}" if name in us else "-"
            for name in ("ours", "ours, not fused", "tf2onnx")
        ]
        if "tf2onnx" in us:
            cells.append(f"{us['tf2onnx'] / us['ours']:.2f}")
        else:
            cells.append("not loaded by onnxruntime")
        rows.append(cells)
    head = ["net", "input", "threads", "ours, ms", "not fused", "tf2onnx", "tf2onnx / ours"]
    return table(head, rows)


def render(measured: dict[str, Any], measured_nets: dict[str, Any] | None) -> str:
    """Return the text between the markers."""
    records = [r for r in measured["records"] if "error" not in r]
    failed = [r for r in measured["records"] if "error" in r]
    net_records = measured_nets["records"] if measured_nets else []
    large = [r for r in records if r["bytes"] >= summary.SMALL]
    cells = len({r["cell"] for r in records})
    parts = [
        f"Measured on {machine(measured['machine'], measured['load'])} {cells} cells.",
        "### Against the targets",
        targets(records, net_records),
        "### Against the alternatives",
        "How many times longer each takes, as geometric means, and in how many cells it is faster by "
        "more than 10 %. A number after `in` says how many cells it can do, if not all.",
        peers(records),
        "![Geometric means in copies of the output](performance/peers.svg)",
        "![Each cell against the textbook form](performance/cells.svg)",
        "### The ten cells furthest from a copy",
        worst(large),
        "### The ten cells with the worst choice of strategy",
        misjudged(records),
        "### Cells in which the textbook form is faster",
        slower(records, "textbook"),
        "### Cells in which tf2onnx's own form is faster",
        slower(records, "tf2onnx"),
    ]
    if failed:
        rows = [[r["cell"], str(r["threads"]), r["error"]] for r in failed]
        parts += ["### Cells that failed", table(["cell", "threads", "why"], rows)]
    if net_records:
        parts += ["### Whole models", whole_models(net_records)]
        parts += ["![Whole models](performance/nets.svg)"]
    return "\n\n".join(parts)


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.argument("measured", type=click.Path(path_type=Path), default=lowering.RESULTS)
@click.argument("measured_nets", type=click.Path(path_type=Path), default=nets.RESULTS)
@click.option("--page", type=click.Path(path_type=Path), default=PAGE, show_default=True)
def main(measured: Path, measured_nets: Path, page: Path) -> None:
    """Update the page and its plots."""
    if not measured.exists():
        raise click.UsageError(f"{measured} does not exist: run python -m benchmarks.lowering")
    found = results.read(measured)
    found_nets = results.read(measured_nets) if measured_nets.exists() else None
    results.put(page, BEGIN, END, render(found, found_nets))
    try:
        from benchmarks import plots
    except ModuleNotFoundError as error:
        click.echo(f"no plots: {error.name} is not installed", err=True)
        return
    records = [r for r in found["records"] if "error" not in r]
    folder = page.parent / "performance"
    plots.draw(records, found_nets["records"] if found_nets else [], folder)
    click.echo(f"{page}, {folder}", err=True)


if __name__ == "__main__":
    main()
