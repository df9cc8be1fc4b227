"""Budgets of time do not shrink on a busy machine, nor with many threads."""

from __future__ import annotations

import time

import pytest

from onnx_spatial.verification.runtime.stopwatch import Stopwatch


@pytest.mark.parametrize(("clock", "processor", "seconds"), [(50, 4, 4), (3, 12, 3)])
def test_the_lesser_of_clock_and_processor_counts(
    monkeypatch: pytest.MonkeyPatch, clock: float, processor: float, seconds: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100)
    monkeypatch.setattr(time, "process_time", lambda: 7)
    stopwatch = Stopwatch()
    monkeypatch.setattr(time, "monotonic", lambda: 100 + clock)
    monkeypatch.setattr(time, "process_time", lambda: 7 + processor)
    assert stopwatch.seconds == seconds
    assert stopwatch.exceeds(seconds - 1)
    assert not stopwatch.exceeds(seconds)
