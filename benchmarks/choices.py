"""Compare the choice of a lowering with a choice by measurement, for random operators.

    python -m benchmarks.choices                     one thread: about five minutes
    python -m benchmarks.choices --threads 2

Every lowering of an operator is timed twice, in new sessions, inside a net. The second times judge each
choice: the package's, and the fastest of the first times. No estimate can be
expected to choose better than that last one, which tells how far the machine repeats itself.

The operators are none of the grid of `benchmarks.lowering`, and none that prices were fitted to.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click
import onnx

from benchmarks import forms, grid, results, timing
from benchmarks.grid import Cell

ESTIMATED, MEASURED = "by estimate", "fastest of the first times"
CHOICES = (ESTIMATED, MEASURED)

#: Bounds of the time of a choice, in multiples of the best.
BOUNDS = (1.1, 1.3)

#: Lowerings whose estimates are larger by this factor are not timed.
_SLOW = 4

#: Shorter times differ by fractions of a microsecond, which are large ratios. In microseconds.
_SHORT = 2.0


@dataclass(frozen=True)
class Judged:
    """The choices for one operator.

    Attributes:
        cell: the operator.
        slower: for each of `CHOICES` its second time, in multiples of the best second time.
        again: for each lowering its second time divided by the first, unless they are short.
    """

    cell: Cell
    slower: Mapping[str, float]
    again: Sequence[float]


def judge(cell: Cell, threads: int, seconds: float) -> Judged | None:
    """Time the lowerings of an operator twice; None if there is only one."""
    models: dict[str, onnx.ModelProto] = {}
    estimated = _place(models, forms.model_of(forms.chosen(cell), cell))
    candidates = list(forms.candidates(cell).values())
    for lowered in candidates:
        if lowered.cost <= _SLOW * candidates[0].cost + _SHORT:
            _place(models, forms.model_of(lowered, cell))
    if len(models) < 2:
        return None
    x = cell.data()
    expected = cell.kernel(x)
    first, second = (
        {
            name: profile.microseconds
            for name, profile in timing.profile(
                models, {"x": x}, threads, seconds, expected
            ).items()
        }
        for _ in range(2)
    )
    chosen = {ESTIMATED: estimated, MEASURED: min(first, key=first.__getitem__)}
    best = min(second.values())
    return Judged(
        cell,
        {choice: second[name] / best for choice, name in chosen.items()},
        [second[name] / us for name, us in first.items() if us > _SHORT],
    )


def _place(models: dict[str, onnx.ModelProto], model: onnx.ModelProto) -> str:
    """Add a model unless an equal one is there, and return its name."""
    for name, other in models.items():
        if other == model:
            return name
    name = str(len(models))
    models[name] = model
    return name


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--operators", default=200, show_default=True, help="Number of random operators.")
@click.option("--seconds", type=float, default=0.12, show_default=True, help="Time per operator.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random operators.")
@click.option(
    "--worst", default=0, show_default=True, help="Operators to list: worst estimated choices."
)
def main(threads: int, operators: int, seconds: float, seed: int, worst: int) -> None:
    """Measure, and print how good each choice is."""
    results.warn_of_load()
    rng = random.Random(f"choices {seed}")
    judged: list[Judged] = []
    while len(judged) < operators:
        found = judge(grid.random_cell(rng), threads, seconds)
        if found is not None:
            judged.append(found)
    click.echo(f"{len(judged)} operators, threads: {threads}, in multiples of the fastest lowering")
    for choice in CHOICES:
        slower = [each.slower[choice] for each in judged]
        shares = ", ".join(
            f"{100 * sum(s <= bound for s in slower) / len(slower):.1f} % within {bound}"
            for bound in BOUNDS
        )
        mean = results.geometric_mean(slower)
        click.echo(f"{choice}: {shares}, worst {max(slower):.1f}, {mean:.3f} on the mean")
    again = [math.exp(abs(math.log(ratio))) for each in judged for ratio in each.again]
    middle, high = statistics.median(again), statistics.quantiles(again, n=10)[-1]
    click.echo(
        f"an equal lowering, timed again: {middle:.2f} times (median), {high:.2f} (one in ten)"
    )
    for each in sorted(judged, key=lambda each: -each.slower[ESTIMATED])[:worst]:
        click.echo(f"{each.slower[ESTIMATED]:6.2f}x  {each.cell.name}")


if __name__ == "__main__":
    main()
