"""Time lowerings inside a small model, and whole models.

Whole runs are timed, and the time of a model without the operator in the same round is subtracted.
onnxruntime's profiler adds 2 to 5 us to each node, and a node that computes a size takes 0.3 us
(measured on 1.31): with it, a lowering for unknown shapes seems ten times as slow on small data.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.model.io import reader
from onnx_spatial.tuning import harness_model
from onnx_spatial.tuning.harness_model import HarnessData
from onnx_spatial.tuning.interleaved_timing import Clock, time_rounds
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.sessions import RunFailure, Session

Run = Callable[[], None]


@dataclass(frozen=True)
class Effort:
    """The amount of measuring: rounds, seconds and threads.

    Attributes:
        threads: number of threads of a node; 0: onnxruntime's choice, which is every core.
        seconds: time to spend on each lowering or model; a few rounds are run in any case.
        rounds: number of rounds, in place of `seconds`.
        clock: returns seconds since some moment.
    """

    threads: int = 0
    seconds: float = 0.3
    rounds: int | None = None
    clock: Clock = time.perf_counter


def lowerings(
    request: Request,
    candidates: Sequence[Lowered],
    data: HarnessData,
    rank: int,
    effort: Effort,
) -> list[float | None]:
    """Measure the lowerings of an operator inside a small model.

    Args:
        request: request with inputs of its own (`Request.apart`).
        candidates: lowerings of that request.
        data: data and parameters to measure with.
        rank: rank of the operator's output.
        effort: how much to measure.

    Returns:
        Microseconds of each lowering; None if onnxruntime does not run it.
    """
    models = [harness_model.build(request, data, None, len(data.shape))]
    models += [harness_model.build(request, data, candidate, rank) for candidate in candidates]
    feeds = harness_model.feeds(request, data)
    runs = [
        _open(m.SerializeToString(), {v.name: feeds[v.name] for v in m.graph.input}, effort)
        for m in models
    ]
    base, *times = _time(runs, effort)
    return [None if t is None or base is None else _difference(t, base) for t in times]


def models(
    sources: Sequence[reader.Source], feeds: Mapping[str, Array], effort: Effort
) -> list[float | str]:
    """Measure whole models.

    Returns:
        Microseconds of a run of each model, in the median; or why it does not run.

    Raises:
        UsageError: a model has Python operators, and onnxruntime-extensions is not installed.
    """
    runs = []
    for source in map(reader.resolved, sources):
        data = source.data or reader.serialize(source.proto, source.name)
        runs.append(_open(data, feeds, effort, source.folder))
    return [
        str(run) if times is None else round(statistics.median(times) * 1e6, 3)
        for run, times in zip(runs, _time(runs, effort), strict=True)
    ]


def _open(
    data: bytes, feeds: Mapping[str, Array], effort: Effort, folder: Path | None = None
) -> Run | str:
    """Load a model and run it once; return a function that runs it again, or why it does not run."""
    try:
        session = Session(data, optimise=True, folder=folder, threads=effort.threads, spin=True)
        run = session.repeatable(feeds)
        run()
    except RunFailure as failure:
        return str(failure)
    return run


def _time(runs: Sequence[Run | str], effort: Effort) -> list[Sequence[float] | None]:
    """Time each run in each round, in seconds; None for those that fail."""
    working = [run for run in runs if not isinstance(run, str)]
    times = iter(
        time_rounds(working, seconds=effort.seconds, rounds=effort.rounds, clock=effort.clock)
    )
    return [None if isinstance(run, str) else next(times) for run in runs]


def _difference(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median difference of two runs in the same round, in microseconds; at least 0."""
    difference = statistics.median(a - b for a, b in zip(times, base, strict=True))
    return round(max(difference, 0.0) * 1e6, 3)
