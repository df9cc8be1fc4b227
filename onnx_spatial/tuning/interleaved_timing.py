"""Run several things in turn, again and again, so that what slows the machine down slows all alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

#: Rounds that are run however long they take, and that are enough however short they are.
FEWEST = 5
MOST = 2000

#: Runs of each before the first round: memory is set up, threads are there.
_WARM_UP = 2

Clock = Callable[[], float]


def in_turn(
    runs: Sequence[Callable[[], None]],
    *,
    seconds: float,
    rounds: int | None = None,
    clock: Clock = time.perf_counter,
) -> list[list[float]]:
    """Time runs in rounds: each has one run that is not timed and one that is.

    The others' buffers have driven its own out of the caches by then. On 4 MB a copy takes twice as
    long so, and inside a net, where buffers are handed on from node to node, it does not.

    Args:
        runs: what to time.
        seconds: to spend on each, in all; at least `FEWEST` rounds are run.
        rounds: how many instead, whatever that takes.
        clock: seconds since some moment.

    Returns:
        For each of them the seconds that it took in each round.
    """
    taken: list[list[float]] = [[] for _ in runs]
    if not runs:
        return taken
    order = list(enumerate(runs))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(_WARM_UP):
            for run in runs:
                run()
        end = clock() + seconds * len(runs)
        done = 0
        while done < rounds if rounds is not None else _more(done, clock() < end):
            for number, run in order:
                run()
                start = clock()
                run()
                taken[number].append(clock() - start)
            # Each comes after another one than in the round before: caches and clocks are inherited.
            order.reverse()
            done += 1
    finally:
        if collecting:
            gc.enable()
    return taken


def _more(done: int, in_time: bool) -> bool:
    return done < FEWEST or (in_time and done < MOST)
