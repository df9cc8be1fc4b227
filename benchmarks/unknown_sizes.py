"""Time lowerings of operators whose sizes are known only in the run against those for known sizes.

    python -m benchmarks.unknown_sizes               one thread: about two minutes
    python -m benchmarks.unknown_sizes --only "NHWC 1x65x65" --worst 100

A cell of `grid.unknown` is timed in the same rounds with all sizes known and with the number of channels
alone. The model for known sizes is timed a second time, in sessions of its own: what differs there is
noise. Outputs from 256 KiB on are judged by the ratio, smaller ones by the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        again: the same, in other sessions.
        unknown: with sizes that only the run knows.
    """

    cell: Cell
    size: int
    known: float
    again: float
    unknown: float

    @property
    def ratio(self) -> float:
        """How many times longer it takes with unknown sizes."""
        return self.unknown / self.known

    @property
    def noise(self) -> float:
        """How many times longer it takes with known sizes in other sessions."""
        return self.again / self.known

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
    models["again"] = models["known"]
    profiles = timing.profile(models, {"x": x}, threads, seconds, expected)
    us = {name: each.microseconds for name, each in profiles.items()}
    return Times(cell, expected.nbytes, us["known"], us["again"], us["unknown"])


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
        passed, equal = [t.ratio <= bound for t in large], [t.noise <= bound for t in large]
        _say(f"within {bound}x", passed, equal)
    means = (
        (group, results.geometric_mean(t.ratio for t in large if t.cell.group == group))
        for group in dict.fromkeys(t.cell.group for t in large)
    )
    for group, mean in means:
        click.echo(f"{group}: {mean:.2f}x on the mean")
    passed, equal = [t.more <= MORE for t in small], [t.again - t.known <= MORE for t in small]
    _say(f"at most {MORE:.0f} us more", passed, equal)
    for t in (*large[:worst], *small[:worst]):
        click.echo(f"{t.ratio:6.2f}x {t.more:+8.1f} us  {t.known:8.1f} us known  {t.cell.name}")


def _say(what: str, passed: Sequence[bool], equal: Sequence[bool]) -> None:
    """Print the share of cells that pass, and that of equal models, the most that can be expected."""
    if passed:
        mine, most = (100 * sum(each) / len(each) for each in (passed, equal))
        click.echo(f"{what}: {mine:.1f} % of {len(passed)}; equal models {most:.1f} %")


if __name__ == "__main__":
    main()
