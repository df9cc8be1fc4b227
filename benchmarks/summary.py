"""Compare the results with the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.results import Record, geometric_mean

#: Names of the alternatives in the records, in the order of the tables.
PEERS = ("textbook", "tf2onnx", "openvino", "tensorflow", "numpy")
#: An alternative counts as faster if its time over ours is below this.
SLOWER = 0.9
#: Bytes of an output below which a copy takes only a microsecond or two and is no measure.
SMALL = 1 << 16


def copies(record: Record) -> float:
    """Return our time in copies of the output."""
    return float(record["us"]["ours"] / record["us"]["copy"])


def regret(record: Record) -> float:
    """Return the time of the lowering taken over that of the best known one, in a cell."""
    us = record["us"]["ours"]
    return float(us / min(us, *record["candidates"].values()))


@dataclass(frozen=True)
class Outcome:
    """The result for a target."""

    text: str
    met: bool


Measure = Callable[[Sequence[Record]], Outcome | None]


@dataclass(frozen=True)
class Target:
    """A line of the table of targets.

    Attributes:
        what: the measure and its cells.
        bound: the target, as text.
        measure: computes the outcome from records of one number of threads; None if none applies.
        nets: whether the target is for whole models.
        threads: number of threads that the bound is for; 0: any.
    """

    what: str
    bound: str
    measure: Measure
    nets: bool = False
    threads: int = 0

    def outcome(self, records: Sequence[Record], threads: int) -> str:
        """Return the result with this number of threads, marked if it misses the bound."""
        outcome = self.measure([r for r in records if r["threads"] == threads])
        if outcome is None:
            return "-"
        missed = not outcome.met and self.threads in (0, threads)
        return f"{outcome.text} (missed)" if missed else outcome.text


def _blocks(record: Record) -> bool:
    return "Patches" not in record["group"] and record["dtype"] == "float32"


def _patches(record: Record) -> bool:
    return "Patches" in record["group"] and record["dtype"] == "float32"


def _mean(
    chosen: Callable[[Record], bool], ratio: Callable[[Record], float], least: float, most: float
) -> Measure:
    """Require a geometric mean between two bounds."""

    def measure(records: Sequence[Record]) -> Outcome | None:
        ratios = [ratio(r) for r in records if chosen(r)]
        if not ratios:
            return None
        mean = geometric_mean(ratios)
        return Outcome(f"{mean:.2f}x in {len(ratios)}", least <= mean <= most)

    return measure


def _none_slower(chosen: Callable[[Record], bool], other: str, least: float) -> Measure:
    """Require that the time of another form over ours is never below a bound.

    Args:
        chosen: tells which cells count.
        other: key of the other form's time.
        least: the bound.
    """

    def measure(records: Sequence[Record]) -> Outcome | None:
        ratios = [
            r["us"][other] / r["us"]["ours"] for r in records if chosen(r) and other in r["us"]
        ]
        if not ratios:
            return None
        slower = sum(ratio < least for ratio in ratios)
        return Outcome(f"{slower} of {len(ratios)} slower, worst {min(ratios):.2f}x", not slower)

    return measure


def _share(
    ratio: Callable[[Record], float], most: float, share: float, chosen: Callable[[Record], bool]
) -> Measure:
    """Require that at least a share of the ratios is within a bound."""

    def measure(records: Sequence[Record]) -> Outcome | None:
        ratios = [ratio(r) for r in records if chosen(r)]
        if not ratios:
            return None
        within = sum(each <= most for each in ratios) / len(ratios)
        text = f"{within:.1%} of {len(ratios)}, worst {max(ratios):.2f}x"
        return Outcome(text, within >= share)

    return measure


def _against(other: str) -> Callable[[Record], float]:
    return lambda record: float(record["us"][other] / record["us"]["ours"])


def _fair_to_tf2onnx(record: Record) -> bool:
    """Return whether tf2onnx is exact: one channel and 3x3 become a fast, inexact one-hot Conv."""
    return _patches(record) and not (record["channels"] == 1 and " k3 " in record["cell"])


TARGETS = (
    Target(
        "blocks, channels first, against the textbook form",
        ">= 4x on 1 thread",
        _mean(lambda r: _blocks(r) and "NCHW" in r["group"], _against("textbook"), 4, 1e9),
        threads=1,
    ),
    Target(
        "blocks, one channel, against the textbook form",
        ">= 6x on 1 thread",
        _mean(lambda r: _blocks(r) and r["channels"] == 1, _against("textbook"), 6, 1e9),
        threads=1,
    ),
    Target(
        "blocks, channels last, against the textbook form",
        ">= 1.3x on 1 thread",
        _mean(lambda r: _blocks(r) and "NHWC" in r["group"], _against("textbook"), 1.3, 1e9),
        threads=1,
    ),
    Target(
        "all cells, against the textbook form",
        "none below 0.95x",
        _none_slower(lambda _: True, "textbook", 0.95),
    ),
    Target(
        "patches against tf2onnx's default",
        ">= 8x",
        _mean(lambda r: _patches(r) and "tf2onnx" in r["us"], _against("tf2onnx"), 8, 1e9),
    ),
    Target(
        "patches against tf2onnx's default, but one channel and 3x3",
        "none slower",
        _none_slower(_fair_to_tf2onnx, "tf2onnx", 1.0),
    ),
    Target(
        "patches of one channel against a one-hot Conv, which is exact for finite data only",
        "none slower",
        _none_slower(lambda r: "one-hot" in r["us"], "one-hot", 1.0),
    ),
    Target(
        "all cells, within 10 % of the best strategy with hindsight",
        ">= 95 %",
        _share(regret, 1.1, 0.95, lambda _: True),
    ),
    Target(
        "all cells, within 1.3 times the best strategy with hindsight",
        "all",
        _share(regret, 1.3, 1.0, lambda _: True),
    ),
    Target(
        "blocks, against one numpy copy of the output (64 KiB and more)",
        "<= 2.3x",
        _mean(lambda r: _blocks(r) and r["bytes"] >= SMALL, copies, 0, 2.3),
    ),
    Target(
        "patches, against one numpy copy of the output (64 KiB and more)",
        "<= 1.6x",
        _mean(lambda r: _patches(r) and r["bytes"] >= SMALL, copies, 0, 1.6),
    ),
    Target("blocks, against one copy, all sizes", "", _mean(_blocks, copies, 0, 1e9)),
    Target("patches, against one copy, all sizes", "", _mean(_patches, copies, 0, 1e9)),
    Target(
        "sizes known only in the run, against known ones (1 MiB and more)",
        "all within 1.3x",
        _share(
            lambda r: float(r["us"]["dynamic"] / r["us"]["ours"]),
            1.3,
            1.0,
            lambda r: "dynamic" in r["us"],
        ),
    ),
    Target(
        "whole models against tf2onnx's default",
        ">= 1.8x",
        _mean(lambda r: "tf2onnx" in r["us"], _against("tf2onnx"), 1.8, 1e9),
        nets=True,
    ),
    Target(
        "whole models against tf2onnx's default",
        "none slower",
        # The same work comes out 3 % apart from run to run.
        _none_slower(lambda _: True, "tf2onnx", 0.97),
        nets=True,
    ),
)
