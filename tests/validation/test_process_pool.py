"""Whatever a model does to its process is what is wrong with that model, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from validating import CRASHING, HANGING, HUNGRY, PLAIN, S2B, save

from onnx_spatial.validation import ModelResult, Options
from onnx_spatial.validation.workers import process_pool
from onnx_spatial.validation.workers.job import Job
from onnx_spatial.validation.workers.process_pool import Closed, ProcessSlot

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module", params=["fork", "spawn"])
def place(request):
    """A lane of each kind."""
    if request.param == "fork" and sys.platform in ("win32", "darwin"):
        pytest.skip("processes are not forked here")
    found = ProcessSlot(fork=request.param == "fork")
    yield found
    found.close()


@pytest.fixture(scope="module")
def forking():
    """A lane that forks."""
    if sys.platform in ("win32", "darwin"):
        pytest.skip("processes are not forked here")
    found = ProcessSlot(fork=True)
    yield found
    found.close()


def look(place: ProcessSlot, folder, text: str, **more: object) -> ModelResult:
    save(folder / "m.onnx", text)
    return place.validate(Job("m.onnx", str(folder), Options().to_dict(), **more))  # type: ignore[arg-type]


def test_a_result_comes_back(place, tmp_path):
    result = look(place, tmp_path, S2B)
    assert result.status == "passed"
    assert result.model == "m.onnx"
    assert 0 < result.seconds < 60


@posix
def test_a_crash_is_the_models_result(place, tmp_path):
    result = look(place, tmp_path, CRASHING)
    assert (result.status, result.kind) == ("failed", "crash")
    assert "crashed with SIGFPE (loading)" in result.message
    assert result.entries[0].source == "run"
    assert "Floating point exception" in (result.log or "")
    assert look(place, tmp_path, PLAIN).status == "passed"


def test_a_hang_ends_in_time(forking, tmp_path):
    result = look(forking, tmp_path, HANGING, timeout=2.0)
    assert 2 <= result.seconds < 20
    assert (result.status, result.kind) == ("failed", "timeout")
    assert "longer than 2 s (looking for legal input sizes" in result.message
    assert look(forking, tmp_path, PLAIN).status == "passed"


def test_the_time_to_start_counts_without_a_fork(tmp_path):
    result = look(ProcessSlot(fork=False), tmp_path, PLAIN, timeout=0.1)
    assert (result.status, result.kind) == ("failed", "timeout")


@linux
def test_too_much_memory_is_the_models_result(forking, tmp_path):
    result = look(forking, tmp_path, HUNGRY, memory=2**31)
    assert (result.status, result.kind) == ("failed", "memory")
    assert "ran out of memory" in result.message


#: A worker whose jobs end as a process does that runs out of memory where nothing checks for it, and
#: one that ends like that with any memory.
CRASHES = """
import json, os, signal
from onnx_spatial.validation.workers import job, worker
from onnx_spatial.validation.result import ModelResult

def do(folder):
    asked = json.loads((folder / job.JOB).read_text())
    if asked["model"] == "broken" or asked["memory"] < 3 << 20:
        os.kill(os.getpid(), signal.SIGSEGV)
    (folder / job.RESULT).write_text(json.dumps(ModelResult("m", "passed", "yes").to_dict()))

job.do = do
worker.main([])
"""


@linux
@pytest.mark.parametrize(("model", "kind"), [("hungry", "memory"), ("broken", "crash")])
def test_a_crash_that_more_memory_mends_is_a_want_of_memory(monkeypatch, tmp_path, model, kind):
    monkeypatch.setattr(process_pool, "_WORKER", [sys.executable, "-P", "-c", CRASHES])
    place = ProcessSlot(fork=True)
    result = place.validate(Job(model, str(tmp_path), Options().to_dict(), memory=2 << 20))
    place.close()
    assert (result.status, result.kind) == ("failed", kind)
    assert ("SIGSEGV" in result.message) == (kind == "crash")


def test_a_worker_of_another_version_is_not_trusted(forking, tmp_path):
    result = look(forking, tmp_path, PLAIN, version="0.0.1")
    assert (result.status, result.kind) == ("failed", "lost")


def test_a_folder_that_is_not_there_is_told(forking, tmp_path):
    result = forking.validate(Job("m.onnx", str(tmp_path / "gone"), Options().to_dict()))
    assert result.status == "failed"


def children(pid: int) -> list[int]:
    """Processes that a process started and that have not ended."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listed.stdout.split()]


def child_at_work(place: ProcessSlot) -> int:
    """The process of the model that the lane looks at now."""
    for _ in range(400):
        if place._process is not None and (found := children(place._process.pid)):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("nothing was forked")


@pytest.fixture
def at_work(tmp_path):
    """A fresh lane that looks at a model which hangs, and what comes of it."""
    place, outcome = ProcessSlot(fork=True), []

    def work() -> None:
        try:
            outcome.append(look(place, tmp_path, HANGING, timeout=120.0))
        except Closed:
            outcome.append("closed")

    thread = threading.Thread(target=work)
    thread.start()
    yield place, thread, outcome
    place.close()
    thread.join(30)
    assert not thread.is_alive()


def gone(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@linux
def test_a_process_that_the_system_kills_ran_out_of_memory(at_work):
    place, thread, outcome = at_work
    os.kill(child_at_work(place), signal.SIGKILL)
    thread.join(30)
    assert (outcome[0].status, outcome[0].kind) == ("failed", "memory")
    assert "killed by the system" in outcome[0].message


@linux
def test_closing_a_lane_ends_what_runs_in_it(at_work):
    place, thread, outcome = at_work
    child, zygote = child_at_work(place), place._process.pid
    place.close()
    thread.join(30)
    assert outcome == ["closed"]
    assert gone(child) and gone(zygote)


@linux
def test_a_model_is_started_anew_when_its_watcher_is_killed(at_work):
    place, thread, outcome = at_work
    first = child_at_work(place)
    for _ in range(process_pool._ATTEMPTS):
        child, zygote = child_at_work(place), place._process.pid
        os.kill(zygote, signal.SIGKILL)
        assert gone(child)
        while place._process is not None and place._process.pid == zygote:
            time.sleep(0.02)
    thread.join(30)
    assert gone(first)
    assert (outcome[0].status, outcome[0].kind) == ("failed", "crash")


@linux
def test_a_fork_has_no_threads_to_lose(forking, tmp_path):
    look(forking, tmp_path, PLAIN)
    assert forking._fork, "the zygote said that it has threads"
    assert len(os.listdir(f"/proc/{forking._process.pid}/task")) == 1


#: A worker whose jobs start a helper, and then hang or come to an end.
WITH_HELPER = """
import json, subprocess, sys, time
from pathlib import Path
from onnx_spatial.validation.workers import job, worker

def do(folder):
    asked = json.loads((folder / job.JOB).read_text())
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    (Path(asked["folder"]) / "helper").write_text(str(helper.pid))
    time.sleep(300 if asked["model"] == "hanging" else 0)

job.do = do
worker.main([])
"""


@linux
@pytest.mark.parametrize(("model", "kind"), [("hanging", "timeout"), ("ending", "crash")])
def test_helpers_of_a_process_end_with_it(tmp_path, monkeypatch, model, kind):
    monkeypatch.setattr(process_pool, "_WORKER", [sys.executable, "-P", "-c", WITH_HELPER])
    place = ProcessSlot(fork=True)
    result = place.validate(Job(model, str(tmp_path), Options().to_dict(), timeout=2.0))
    place.close()
    assert result.kind == kind
    assert gone(int((tmp_path / "helper").read_text()))
