"""Measure lowerings inside a net, and whole models.

onnxruntime's profile adds 2 to 5 us to each node, which takes 0.3 us by itself when it only computes
a size (measured on 1.31): with it a lowering for unknown shapes looks ten times as slow as it is on
small data. So whole runs are timed instead, and from each is taken what a net without the operator
took in the same round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.model.io import reader
from onnx_spatial.tuning import harness_model
from onnx_spatial.tuning.harness_model import HarnessData
from onnx_spatial.tuning.interleaved_timing import Clock, in_turn
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.sessions import RunFailure, Session


@dataclass(frozen=True)
class Effort:
    """How much to measure.

    Attributes:
        threads: that one node may use; 0 leaves that to onnxruntime, which takes every core.
        seconds: to spend on each lowering or model; a few rounds are run in any case.
        rounds: how many runs of each instead.
        clock: seconds since some moment.
    """

    threads: int = 0
    seconds: float = 0.3
    rounds: int | None = None
    clock: Clock = time.perf_counter


def lowerings(
    request: Request, ways: Sequence[Lowered], given: HarnessData, rank: int, effort: Effort
) -> list[float | None]:
    """Microseconds that each lowering of one operator takes inside a net.

    Args:
        request: on inputs of its own (`Request.apart`).
        ways: lowerings of that request.
        given: the data and parameters to measure with.
        rank: of the operator's output.
        effort: how much to measure.

    Returns:
        One figure per lowering, None where onnxruntime does not run it.
    """
    nets = [harness_model.net(request, given, None, len(given.shape))]
    nets += [harness_model.net(request, given, way, rank) for way in ways]
    arrays = harness_model.feeds(request, given)
    base, *taken = _timed([_run(model, arrays, effort) for model in nets], effort)
    return [None if t is None or base is None else _difference(t, base) for t in taken]


def models(
    sources: Sequence[reader.Source], feeds: Mapping[str, Array], effort: Effort
) -> list[float | str]:
    """Microseconds that one run of each model takes, in the median; or why it does not run.

    Raises:
        UsageError: what runs Python operators is not installed.
    """
    runs = [_run_of_model(source, feeds, effort) for source in sources]
    taken = _timed([None if isinstance(run, str) else run for run in runs], effort)
    return [
        str(run) if times is None else round(statistics.median(times) * 1e6, 3)
        for run, times in zip(runs, taken, strict=True)
    ]


def _run_of_model(
    source: reader.Source, feeds: Mapping[str, Array], effort: Effort
) -> Callable[[], None] | str:
    source = reader.resolved(source)
    data = source.data or reader.serialize(source.proto, source.name)
    try:
        session = Session(
            data, optimise=True, folder=source.folder, threads=effort.threads, spin=True
        )
        run = session.repeatable(feeds)
        run()
    except RunFailure as failure:
        return str(failure)
    return run


def _run(
    model: onnx.ModelProto, arrays: Mapping[str, Array], effort: Effort
) -> Callable[[], None] | None:
    """A run of one net; None if onnxruntime does not run it."""
    data = model.SerializeToString()
    try:
        session = Session(data, optimise=True, threads=effort.threads, spin=True)
        run = session.repeatable({v.name: arrays[v.name] for v in model.graph.input})
        run()
    except RunFailure:
        return None
    return run


def _timed(
    runs: Sequence[Callable[[], None] | None], effort: Effort
) -> list[Sequence[float] | None]:
    """Seconds of each run in each round; None for those that there are not."""
    there = [run for run in runs if run is not None]
    taken = in_turn(there, seconds=effort.seconds, rounds=effort.rounds, clock=effort.clock)
    each = iter(taken)
    return [None if run is None else next(each) for run in runs]


def _difference(mine: Sequence[float], base: Sequence[float]) -> float:
    """Microseconds that a run takes longer than another, round by round; never below 0."""
    difference = statistics.median(a - b for a, b in zip(mine, base, strict=True))
    return round(max(difference, 0.0) * 1e6, 3)
