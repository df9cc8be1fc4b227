"""Sessions: errors of one clear line, progress before native code, and an end in any case."""

from __future__ import annotations

import time

import pytest

from onnx_spatial.verification import process


@pytest.mark.parametrize(("clock", "processor", "seconds"), [(50, 4, 4), (3, 12, 3)])
def test_neither_a_busy_machine_nor_many_threads_use_the_time_up(
    monkeypatch, clock, processor, seconds
):
    times = {"monotonic": 100, "process_time": 7}
    for name in times:
        monkeypatch.setattr(time, name, lambda name=name: times[name])
    stopwatch = process.Stopwatch()
    times.update(monotonic=100 + clock, process_time=7 + processor)
    assert stopwatch.seconds == seconds
