"""Check that the package's lowerings of a few cells are not much slower than other lowerings.

    python -m benchmarks.quick            about a minute; exit code 1 if a bound is exceeded

A ratio is the time of the lowering that the package chooses, divided by the time of another lowering
of the same cell, measured in the same rounds. The bounds leave room for a noisy machine, and a cell
that exceeds a bound is measured again, for four times as long, before it counts.
"""

from __future__ import annotations

import click

from benchmarks import custom_ops, grid, lowering, unknown_sizes
from benchmarks.results import Record, geometric_mean

#: Largest ratio of a cell to the textbook form, to the fastest lowering of the package, and to the
#: one-hot Conv of patches of one channel, which is exact for finite data only.
WORST = {"textbook": 1.35, "best": 1.7, "one-hot": 2.0}
#: Largest geometric mean of the ratios to the textbook form, by group of cells.
GROUPS = {
    "SpaceToBatch NHWC": 0.95,
    "SpaceToBatch NCHW": 0.6,
    "BatchToSpace NHWC": 0.95,
    "BatchToSpace NCHW": 0.6,
    "ExtractPatches NHWC": 0.9,
    "ExtractPatches NCHW": 0.9,
}
#: Largest geometric mean of the ratios to the fastest lowering, over all cells.
BEST = 1.2
#: Largest ratio of a lowering for unknown sizes to that for known ones, and their geometric mean.
UNKNOWN, UNKNOWN_MEAN = 2.5, 1.5
#: Largest ratio of a SpaceToBatch as a Python operator to other ways, by the size of its tensor.
PYTHON = {("256 B", "stock return"): 2.0, ("64 MiB", "textbook"): 1.9}


def ratios(record: Record) -> dict[str, float]:
    """Return the ratios of a cell to other forms, by the names in `WORST`."""
    us = record["us"]
    others = {"best": min(us["ours"], *record["candidates"].values()), **us}
    return {name: us["ours"] / others[name] for name in WORST if name in others}


def broken(record: Record) -> list[str]:
    """Return a sentence for each bound that a cell exceeds."""
    return [
        f"{record['cell']}: {record['strategy']} / {against} {ratio:.2f}, bound {WORST[against]}"
        for against, ratio in ratios(record).items()
        if ratio > WORST[against]
    ]


def unknown(seconds: float) -> list[str]:
    """Compare lowerings for unknown sizes with those for known ones; return what exceeds a bound."""
    failures, measured = [], []
    for cell in grid.quick():
        times = unknown_sizes.measure(cell, seconds)
        if times.ratio > UNKNOWN and times.more > unknown_sizes.MORE:
            times = unknown_sizes.measure(cell, 4 * seconds)
        text = f"unknown sizes {times.ratio:5.2f}  {cell.name}"
        click.echo(text)
        if times.ratio > UNKNOWN and times.more > unknown_sizes.MORE:
            failures.append(f"{text}, bound {UNKNOWN}")
        measured.append(times.ratio)
    mean = geometric_mean(measured)
    text = f"unknown sizes: mean ratio to known ones {mean:.2f}, bound {UNKNOWN_MEAN}"
    click.echo(text)
    return failures if mean <= UNKNOWN_MEAN else [*failures, text]


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--seconds", type=float, default=0.3, show_default=True, help="Time per cell.")
def main(seconds: float) -> None:
    """Measure the cells and compare the ratios with the bounds."""
    records = []
    failures = []
    for cell in grid.quick():
        record = lowering.measure(cell, 1, seconds)
        if broken(record):
            record = lowering.measure(cell, 1, 4 * seconds)
        failures += broken(record)
        records.append(record)
        shown = "  ".join(f"{name} {ratio:5.2f}" for name, ratio in ratios(record).items())
        click.echo(f"{shown}  {cell.name}  {record['strategy']}")
    means = [
        (group, "the textbook form", bound, [r for r in records if r["group"] == group])
        for group, bound in GROUPS.items()
    ]
    for name, against, bound, some in [*means, ("all", "the fastest lowering", BEST, records)]:
        key = "best" if name == "all" else "textbook"
        mean = geometric_mean(ratios(r)[key] for r in some)
        text = f"{name}: mean ratio to {against} {mean:.2f}, bound {bound}"
        click.echo(text)
        if mean > bound:
            failures.append(text)
    failures += unknown(seconds)
    for (size, against), bound in PYTHON.items():
        ours, other = (
            custom_ops.in_its_own_process(way, "SpaceToBatchND", size, "seconds")
            for way in ("custom-op", against)
        )
        text = f"Python operator, {size}: ratio to {against} {ours / other:.2f}, bound {bound}"
        click.echo(text)
        if ours / other > bound:
            failures.append(text)
    for failure in failures:
        click.echo(f"exceeded: {failure}", err=True)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
