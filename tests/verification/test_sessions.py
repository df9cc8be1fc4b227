"""Sessions: errors of one clear line, progress before native code, and an end in any case."""

from __future__ import annotations

import time

import pytest

from onnx_spatial.verification import limits
from onnx_spatial.verification.run.sessions import first_line


@pytest.mark.parametrize(("clock", "processor", "seconds"), [(50, 4, 4), (3, 12, 3)])
def test_neither_a_busy_machine_nor_many_threads_use_the_time_up(
    monkeypatch, clock, processor, seconds
):
    times = {"monotonic": 100, "process_time": 7}
    for name in times:
        monkeypatch.setattr(time, name, lambda name=name: times[name])
    stopwatch = limits.Stopwatch()
    times.update(monotonic=100 + clock, process_time=7 + processor)
    assert stopwatch.seconds == seconds


SOURCE = "/onnxruntime_src/onnxruntime/core"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (
            f"[ONNXRuntimeError] : 1 : FAIL : {SOURCE}/graph/model.cc:256 onnxruntime::Model::Model("
            "onnx::ModelProto&&, const onnxruntime::PathString&, const onnxruntime::Options&) "
            "Unsupported model IR version: 99, max supported IR version: 13",
            "Unsupported model IR version: 99, max supported IR version: 13",
        ),
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
            f"Add node. Name:'a' Status Message: {SOURCE}/framework/bfc_arena.cc:359 void* "
            "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to "
            "allocate memory for requested buffer of size 40",
            "running Add node. Name:'a' Failed to allocate memory for requested buffer of size 40",
        ),
        ("Load model failed: nobody knows onnxruntime::Op", None),
    ],
)
def test_source_locations_and_signatures_are_left_out(said: str, kept: str | None) -> None:
    assert first_line(RuntimeError(said)) == (said if kept is None else kept)
