"""Lay out a plot of errors for each output: elements by decade, the largest error and the tolerance.

elements
   |      _
   |   _ | |_     :  |
   |__|_|_|_|_____:__|____ error, relative to the largest value
   0 1e-8  1e-6   tolerance
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = Mapping[str, Any]

#: Size of the area with the bars, and the width of one.
HEIGHT, STEP = 120, 44
#: Decades that are shown at least.
_MIN_DECADES = 5


@dataclass(frozen=True)
class Bar:
    """Elements with an error of one decade: place and height in the plot, and the number as text."""

    x: float
    height: float
    label: str
    number: int


@dataclass
class OutputPlot:
    """The comparisons of one output, and the distribution of errors in the worst one.

    Attributes:
        name: of the output.
        comparisons: each an `OutputResult` as a dict, in the order of the runs.
        worst: the one that is plotted; None if every bit is equal or there are no numbers.
        bars: of the plot.
        tolerance: place of the largest error that is allowed; None if bits must be equal.
        width: of the plot.
    """

    name: str
    comparisons: list[Document] = field(default_factory=list)
    worst: Document | None = None
    bars: list[Bar] = field(default_factory=list)
    tolerance: float | None = None
    width: int = 0

    @property
    def level(self) -> str:
        """The verdict on the output: "failed", "unverified" or "passed"."""
        verdicts = [each["passed"] for each in self.comparisons]
        return "failed" if False in verdicts else "unverified" if None in verdicts else "passed"


def output_plots(outputs: Sequence[Document]) -> list[OutputPlot]:
    """Group the comparisons of a verification by output; those that differ come first."""
    plots: dict[str, OutputPlot] = {}
    for output in outputs:
        plots.setdefault(output["name"], OutputPlot(output["name"])).comparisons.append(output)
    for plot in plots.values():
        _lay_out(plot)
    order = ("failed", "unverified", "passed")
    return sorted(plots.values(), key=lambda plot: order.index(plot.level))


def _lay_out(plot: OutputPlot) -> None:
    counted = [each for each in plot.comparisons if each.get("error_decades")]
    if not counted:
        return
    worst = max(counted, key=_badness)
    counts = worst["error_decades"]
    powers = [int(key[2:]) for key in counts if key not in ("0", "inf")]
    tolerance = math.log10(worst["tolerance"]) if worst["tolerance"] else None
    ends = [*powers, *([math.floor(tolerance)] if tolerance is not None else [])] or [-8]
    first, last = min(ends), max(max(ends), min(ends) + _MIN_DECADES - 1)
    keys = ["0", *(f"1e{power:+03d}" for power in range(first, last + 1))]
    keys += ["inf"] if "inf" in counts else []
    highest = max(math.log1p(number) for number in counts.values())
    plot.bars = [
        Bar(STEP * i, HEIGHT * math.log1p(number) / highest, _label(key), number)
        for i, key in enumerate(keys)
        for number in [counts.get(key, 0)]
    ]
    plot.worst, plot.width = worst, STEP * len(keys)
    if tolerance is not None:
        plot.tolerance = STEP * (1 + tolerance - first)


def _badness(output: Document) -> tuple[bool, float]:
    # In JSON an infinite error is null.
    error = output["max_relative_error"]
    return output["passed"] is False, math.inf if error is None else error


def _label(key: str) -> str:
    """Name a decade by its lower end; NaN and infinities on one side have none."""
    return {"0": "0", "inf": "NaN, inf"}.get(key) or f"1e{int(key[2:])}"
