"""Verification in a child process: what ends the child is a verdict, and nothing else is lost."""

import importlib
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import verify
from parsing import model
from verification.hand_lowered import space_to_batch, space_to_batch_lowered

import onnx_spatial
from onnx_spatial import UsageError
from onnx_spatial.verification import process
from onnx_spatial.verification.process import CONVERTED, ORIGINAL, Bounds, Died

needs_fork = pytest.mark.skipif(
    not process.can_fork(), reason="a new interpreter for each takes long"
)
pytestmark = needs_fork

BOUNDS = Bounds(memory=2**31)
WRONG = "4, 2, 0, 1, 3, 5"
#: A division of the least integer by -1 is a trap of the processor.
TEXT = """
    g (float[N,4] x) => (float[N,4] y, int64[1] e)
      <int64[1] least = {-9223372036854775808}, int64[1] minus = {-1}>
    {
        y = Relu(x)
        n = Shape<start = 0, end = 1>(x)
        nothing = Sub(n, n)
        l = Add(nothing, least)
        [d] e = DIVIDE
    }
"""
ALWAYS = "Div(l, minus)"


def pair(original: str, converted: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    return model(TEXT.replace("DIVIDE", original)), model(TEXT.replace("DIVIDE", converted))


def test_a_converted_model_that_alone_ends_the_process_fails() -> None:
    result = verify(*pair("Neg(l)", ALWAYS), isolate=True)
    assert result.status == "failed"
    (line,) = result.problems
    assert line.startswith("the process ends with SIGFPE: the converted model runs on x [")
    assert result.message == f"failed: {line}"


def test_results_come_back_complete() -> None:
    before, after = space_to_batch(), space_to_batch_lowered(perm=WRONG)
    lines: list[str] = []
    here, there = verify(before, after), verify(before, after, isolate=True, progress=lines.append)
    assert there.to_dict() == here.to_dict()
    assert here.first_difference is not None and there.first_difference is not None
    for name, array in here.first_difference.inputs.items():
        np.testing.assert_array_equal(there.first_difference.inputs[name], array)
    assert any(line.startswith("run 1/") for line in lines)


@pytest.mark.parametrize("isolate", [False, True])
def test_a_loop_without_end_is_unverified(isolate: bool) -> None:
    made = model("""
        g (float[1,4,4,1] x) => (float[A,B,C,D] z) <int32[2] block = {2, 2},
          int32[2,2] none = {0, 0, 0, 0}, int64 n = {9223372036854775807}, bool yes = {1}> {
            l = Loop (n, yes, x) <body = b (int64 i, bool on, float[?,?,?,?] v)
                => (bool go, float[?,?,?,?] w) { go = Identity(on) w = Neg(v) }>
            z = tf.SpaceToBatchND(l, block, none)
        }""")
    converted = onnx_spatial.convert(made, verify=False).model
    result = verify(made, converted, time_limit=0.5, isolate=isolate)
    assert result.status == "unverified"
    assert "stopped after 0.5 s, at 'the original runs" in result.message
    assert "(--time-limit allows more)" in result.message


def test_errors_come_back() -> None:
    with pytest.raises(UsageError, match="no input 'z'"):
        verify(space_to_batch(), space_to_batch_lowered(), shapes={"z": (1, 2, 2, 1)}, isolate=True)


@pytest.mark.parametrize(
    ("number", "model", "ending", "status", "how"),
    [
        (signal.SIGABRT, None, "crash", "unverified", "ends with SIGABRT"),
        (signal.SIGABRT, ORIGINAL, "crash", "unverified", "ends with SIGABRT"),
        (signal.SIGABRT, CONVERTED, "crash", "failed", "ends with SIGABRT"),
        (
            signal.SIGKILL,
            CONVERTED,
            "memory",
            "unverified",
            "was killed by the system, most likely ",
        ),
    ],
)
def test_a_signal(number: int, model: str | None, ending: str, status: str, how: str) -> None:
    def work(progress: process.Progress) -> None:
        progress("run 1/1: x 2x3")
        process.report("the last words", model)
        os.kill(os.getpid(), number)

    lines: list[str] = []
    with pytest.raises(Died) as died:
        process.run(work, lines.append, BOUNDS)
    assert str(died.value).startswith(f"the process {how}")
    assert ": the last words" in str(died.value)
    assert ("--shape" in str(died.value)) == (model == ORIGINAL or number == signal.SIGKILL)
    assert (died.value.ending, died.value.status) == (ending, status)
    assert lines == ["run 1/1: x 2x3"]


def test_what_libraries_print_stays_in_the_child(capfd: pytest.CaptureFixture[str]) -> None:
    def work(progress: process.Progress) -> int:
        os.write(1, b"noise")
        os.write(2, b"noise")
        return 7

    assert process.run(work, lambda _: None, BOUNDS) == 7
    assert capfd.readouterr() == ("", "")


def test_a_child_of_a_thread_waits_for_no_lock_of_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import holds a lock; a child that was forked meanwhile would wait for it without end."""
    slow = "import sys\nif hasattr(sys, 'importing'): sys.importing.set(); sys.release.wait(60)"
    (tmp_path / "slow.py").write_text(slow)
    (tmp_path / "work.py").write_text("def work(progress):\n import slow\n return slow.__name__")
    monkeypatch.syspath_prepend(tmp_path)
    importing, release = threading.Event(), threading.Event()
    monkeypatch.setattr(sys, "importing", importing, raising=False)
    monkeypatch.setattr(sys, "release", release, raising=False)
    work = importlib.import_module("work").work
    with ThreadPoolExecutor(2) as threads:
        imported = threads.submit(importlib.import_module, "slow")
        assert importing.wait(30)
        result = threads.submit(process.run, work, lambda _: None, Bounds(seconds=30))
        try:
            assert result.result() == "slow"
        finally:
            release.set()
        imported.result()


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


def test_a_bound_is_never_raised(monkeypatch):
    resource = pytest.importorskip("resource")
    most = resource.RLIM_INFINITY
    given = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: given.append(both))
    for now in ((most, most), (10, most), (most, 20), (10, 20)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, now=now: now)
        assert process.lower("RLIMIT_DATA", 15)
    assert given == [(15, most), (10, most), (15, 20), (10, 20)]
