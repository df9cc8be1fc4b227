"""Time lowerings of operators whose sizes are known only in the run against those for known sizes.

    python -m benchmarks.unknown_sizes               one thread: about two minutes
    python -m benchmarks.unknown_sizes --only "NHWC 1x65x65" --worst 100

A cell of `grid.unknown` is timed twice in the same rounds: with all sizes known, and with the number of
channels alone. Outputs from 256 KiB on are judged by the ratio, smaller ones by the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from benchmarks import forms, grid, results, timing
from benchmarks.grid import Cell

#: Bytes of an output from which on the ratio is judged.
LARGE = 1 << 18
#: Bounds of the ratio, and of the difference in microseconds.
RATIOS, MORE = (1.3, 1.6), 12.0


@dataclass(frozen=True)
class Times:
    """Times of a cell, in microseconds.

    Attributes:
        cell: the cell.
        size: bytes of its output.
        known: with known sizes.
        unknown: with sizes that only the run knows.
    """

    cell: Cell
    size: int
    known: float
    unknown: float

    @property
    def ratio(self) -> float:
        """How many times longer it takes with unknown sizes."""
        return self.unknown / self.known

    @property
    def more(self) -> float:
        """Additional microseconds."""
        return self.unknown - self.known


def measure(cell: Cell, seconds: float, threads: int = 1) -> Times:
    """Time a cell with known and with unknown sizes; both outputs must be the operator's.

    Raises:
        DisagreementError: an output differs.
    """
    x = cell.data()
    expected = cell.kernel(x)
    models = {
        name: forms.model_of(forms.chosen(cell, dynamic=dynamic), cell, dynamic=dynamic)
        for name, dynamic in (("known", False), ("unknown", True))
    }
    profiles = timing.profile(models, {"x": x}, threads, seconds, expected)
    us = {name: each.microseconds for name, each in profiles.items()}
    return Times(cell, expected.nbytes, us["known"], us["unknown"])


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=float, default=0.2, show_default=True, help="Time per cell.")
@click.option("--only", default="", help="Measure only cells whose name contains this text.")
@click.option("--worst", default=12, show_default=True, help="Cells to list of each kind.")
def main(threads: int, seconds: float, only: str, worst: int) -> None:
    """Measure the cells, and print how many are within the bounds and the worst ones."""
    cells = [cell for cell in grid.unknown() if only in cell.name]
    if not cells:
        raise click.UsageError(f"no cell has a name with {only!r}")
    results.warn_of_load()
    times = [measure(cell, seconds, threads) for cell in cells]
    large = sorted((t for t in times if t.size >= LARGE), key=lambda t: -t.ratio)
    small = sorted((t for t in times if t.size < LARGE), key=lambda t: -t.more)
    for bound in RATIOS:
        _say(f"within {bound}x", sum(t.ratio <= bound for t in large), len(large))
    means = (
        (group, results.geometric_mean(t.ratio for t in large if t.cell.group == group))
        for group in dict.fromkeys(t.cell.group for t in large)
    )
    for group, mean in means:
        click.echo(f"{group}: {mean:.2f}x on the mean")
    _say(f"at most {MORE:.0f} us more", sum(t.more <= MORE for t in small), len(small))
    for t in (*large[:worst], *small[:worst]):
        click.echo(f"{t.ratio:6.2f}x {t.more:+8.1f} us  {t.known:8.1f} us known  {t.cell.name}")


def _say(what: str, count: int, among: int) -> None:
    if among:
        click.echo(f"{what}: {100 * count / among:.1f} % of {among}")


if __name__ == "__main__":
    main()
