"""Rounds: everything in turn, warm, for as long as asked."""

from __future__ import annotations

import gc

import pytest

from onnx_spatial.tuning import interleaved_timing


class Clock:
    """Time that only goes by while something runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, seconds: float):
        def run() -> None:
            self.ran.append(name)
            self.now += seconds

        return run


def test_each_runs_in_every_round_and_not_always_behind_the_same():
    clock = Clock()
    runs = [clock.work("a", 1.0), clock.work("b", 3.0)]
    taken = interleaved_timing.time_rounds(runs, seconds=0, rounds=3, clock=clock)
    assert taken == [[1.0] * 3, [3.0] * 3]
    assert "".join(clock.ran) == "abab" + "aabb" + "bbaa" + "aabb"


def test_a_time_to_spend_and_its_bounds():
    def count(seconds: float, each: float) -> int:
        clock = Clock()
        (taken,) = interleaved_timing.time_rounds(
            [clock.work("a", each)], seconds=seconds, clock=clock
        )
        return len(taken)

    assert count(20, 1) == 10
    assert count(0, 1) == interleaved_timing.FEWEST
    assert count(1e9, 1) == interleaved_timing.MOST


def test_nothing_to_run():
    assert interleaved_timing.time_rounds([], seconds=1) == []


def test_the_garbage_collector_waits_and_comes_back():
    seen = []
    interleaved_timing.time_rounds([lambda: seen.append(gc.isenabled())], seconds=0)
    assert seen and not any(seen)
    assert gc.isenabled()

    def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        interleaved_timing.time_rounds([fail], seconds=0)
    assert gc.isenabled()
