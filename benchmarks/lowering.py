"""Time the lowerings of single operators, and the textbook form, over a grid of shapes.

    python -m benchmarks.lowering                    all cells with 1 and 2 threads: half an hour
    python -m benchmarks.lowering --quick            a few small cells with 1 thread: a minute
    python -m benchmarks.lowering --only "NCHW 1x16x" -v      each lowering of some cells

Run it on an idle machine. The table says, for each operator and layout, how many times as fast as the
textbook form the chosen lowering is and how close to the fastest lowering (geometric means), and how
many of the cells take more than 1.3 times as long as the fastest. Outputs are compared first, element
by element.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from benchmarks import forms, grid, results, timing
from benchmarks.grid import Cell

TEXTBOOK = "textbook"
#: Times the fastest lowering takes, from which the choice counts as a bad one.
BAD_CHOICE = 1.3


@dataclass(frozen=True)
class Measured:
    """The microseconds of each form of a cell, and the lowering that is chosen."""

    cell: Cell
    chosen: str
    us: dict[str, float]

    @property
    def gain(self) -> float:
        """How many times as fast as the textbook form it is."""
        return self.us[TEXTBOOK] / self.us[self.chosen]

    @property
    def loss(self) -> float:
        """How many times the time of the fastest lowering it takes."""
        return self.us[self.chosen] / min(us for name, us in self.us.items() if name != TEXTBOOK)


def measure(cell: Cell, threads: int, seconds: float) -> Measured:
    """Measure each form of a cell.

    Raises:
        DisagreementError: an output differs from the operator's.
    """
    chosen, models = forms.lowered(cell)
    x = cell.data()
    us = timing.microseconds(
        {TEXTBOOK: forms.textbook(cell), **models}, x, cell.kernel(x), threads, seconds
    )
    return Measured(cell, chosen, us)


def rows(measured: Sequence[Measured]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the table."""
    groups = dict.fromkeys(each.cell.group for each in measured)
    for group in [*groups, "all"]:
        of_group = [each for each in measured if group in (each.cell.group, "all")]
        gain = results.geometric_mean(each.gain for each in of_group)
        loss = results.geometric_mean(each.loss for each in of_group)
        bad = sum(each.loss > BAD_CHOICE for each in of_group)
        yield group, len(of_group), f"{gain:.2f}", f"{loss:.2f}", bad


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a few small cells, one thread")
@click.option("--threads", type=click.IntRange(1), multiple=True, help="default: 1 and 2")
@click.option("--seconds", default=0.5, show_default=True, help="time for each cell")
@click.option("--only", default="", help="only cells whose name contains this text")
@click.option("-v", "--verbose", is_flag=True, help="print the time of each lowering")
def main(quick: bool, threads: tuple[int, ...], seconds: float, only: str, verbose: bool) -> None:
    """Measure, and print the tables."""
    cells = [cell for cell in (grid.quick() if quick else grid.full()) if only in cell.name]
    if not cells:
        raise click.UsageError(f"no cell has a name with {only!r}")
    click.echo(results.heading())
    for count in threads or ((1,) if quick else (1, 2)):
        measured = []
        for cell in cells:
            measured.append(measure(cell, count, seconds))
            if verbose:
                us = sorted(measured[-1].us.items(), key=lambda each: each[1])
                times = ", ".join(f"{name} {time:.1f}" for name, time in us)
                click.echo(f"{cell.name}: {measured[-1].chosen} of {times} us")
        head = ("operator", "shapes", "times as fast as textbook", "of the fastest", "bad choices")
        click.echo(f"\nthreads: {count}\n\n{results.table(head, rows(measured))}")


if __name__ == "__main__":
    main()
