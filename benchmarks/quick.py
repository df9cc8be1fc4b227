"""A guard against regressions: a few cells, ratios only, bounds that leave room for a noisy machine.

    python -m benchmarks.quick            about half a minute; 1 if a bound is broken

The bounds hold ratios of times taken in turns on one machine, never times. A cell that breaks one is
measured again, longer, before it counts.
"""

from __future__ import annotations

import click

from benchmarks import grid, lowering
from benchmarks.results import Record, geometric_mean

#: No cell takes longer than this many times the textbook form / the best way that is known.
WORST = {"textbook": 1.35, "best": 1.7}
#: The geometric mean over the cells of a group: ours / textbook.
GROUPS = {
    "SpaceToBatch NHWC": 1.1,
    "SpaceToBatch NCHW": 0.6,
    "BatchToSpace NHWC": 1.1,
    "BatchToSpace NCHW": 0.6,
    "ExtractPatches NHWC": 0.9,
    "ExtractPatches NCHW": 0.9,
}
#: The geometric mean over all cells: ours / best.
BEST = 1.2


def ratios(record: Record) -> dict[str, float]:
    """Ours over the textbook form, and over the best way that is known."""
    us = record["us"]
    best = min(us["ours"], *record["candidates"].values())
    return {"textbook": us["ours"] / us["textbook"], "best": us["ours"] / best}


def broken(record: Record) -> list[str]:
    """The bounds that a cell breaks, as sentences."""
    return [
        f"{record['cell']}: {record['strategy']} takes {ratio:.2f} of {against}, bound {WORST[against]}"
        for against, ratio in ratios(record).items()
        if ratio > WORST[against]
    ]


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--seconds", type=float, default=0.3, show_default=True, help="Per cell.")
def main(seconds: float) -> None:
    """Measure the quick cells and compare."""
    records = []
    failures = []
    for cell in grid.quick():
        record = lowering.measure(cell, 1, seconds)
        if broken(record):
            record = lowering.measure(cell, 1, 4 * seconds)
        failures += broken(record)
        records.append(record)
        found = "  ".join(f"{name} {ratio:5.2f}" for name, ratio in ratios(record).items())
        click.echo(f"{found}  {cell.name}  {record['strategy']}")
    for group, bound in GROUPS.items():
        mean = geometric_mean([ratios(r)["textbook"] for r in records if r["group"] == group])
        click.echo(f"{group}: {mean:.2f} of the textbook form, bound {bound}")
        if mean > bound:
            failures.append(f"{group}: {mean:.2f} of the textbook form, bound {bound}")
    mean = geometric_mean([ratios(r)["best"] for r in records])
    click.echo(f"all: {mean:.2f} of the best way, bound {BEST}")
    if mean > BEST:
        failures.append(f"all: {mean:.2f} of the best way, bound {BEST}")
    for failure in failures:
        click.echo(f"broken: {failure}", err=True)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
