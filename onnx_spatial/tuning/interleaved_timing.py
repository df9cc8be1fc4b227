"""Time several functions in turn, round by round, so that a slow moment slows all of them alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

#: Least and largest number of rounds, however long or short they are.
FEWEST = 5
MOST = 2000

#: Runs of each function before the first round, which allocate memory and start threads.
_WARM_UP = 2

Clock = Callable[[], float]


def time_rounds(
    runs: Sequence[Callable[[], None]],
    *,
    seconds: float,
    rounds: int | None = None,
    clock: Clock = time.perf_counter,
) -> list[list[float]]:
    """Time functions in rounds. In a round each is run twice, and the second run is timed.

    After the runs of the others the processor's caches hold their buffers. A copy of 4 MB takes twice
    as long then, which it does not inside a model, where buffers are passed from node to node.

    Args:
        runs: functions to time.
        seconds: time to spend on each, in all; at least `FEWEST` rounds are run.
        rounds: number of rounds, in place of `seconds`.
        clock: returns seconds since some moment.

    Returns:
        For each function its seconds in each round.
    """
    times: list[list[float]] = [[] for _ in runs]
    if not runs:
        return times
    order = list(enumerate(runs))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(_WARM_UP):
            for run in runs:
                run()
        end = clock() + seconds * len(runs)
        done = 0
        while done < (rounds if rounds is not None else MOST if clock() < end else FEWEST):
            for number, run in order:
                run()
                start = clock()
                run()
                times[number].append(clock() - start)
            # Each follows another one than in the last round, whose caches and clock speed it inherits.
            order.reverse()
            done += 1
    finally:
        if collecting:
            gc.enable()
    return times
