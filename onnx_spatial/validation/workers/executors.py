"""Where the work list runs: threads here, each with a lane; or an engine for many machines.

An executor is what `concurrent.futures` has: `submit(function, argument)` gives a future. The function
is `run`, its argument and result are plain data, so that any engine can carry them elsewhere.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from onnx_spatial.validation.workers.job import Job
from onnx_spatial.validation.workers.process_pool import Closed, ProcessSlot


class ProcessSlots:
    """The lanes of this process; as many as are at work at the same time, each used again."""

    def __init__(self) -> None:
        self._all: list[ProcessSlot] = []
        self._idle: list[ProcessSlot] = []
        self._guard = threading.Lock()
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[ProcessSlot]:
        """A lane for the block."""
        with self._guard:
            if self._closed:
                raise Closed
            if not self._idle:
                self._idle.append(ProcessSlot())
                self._all.append(self._idle[-1])
            lane = self._idle.pop()
        try:
            yield lane
        finally:
            with self._guard:
                if lane in self._all:  # else it was closed
                    self._idle.append(lane)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """End all lanes and whatever runs in them; nobody gets another one within the block."""
        with self._guard:
            self._closed = True
            lanes, self._all, self._idle = self._all, [], []
        try:
            for lane in lanes:
                lane.hang_up()
            for lane in lanes:
                lane.close()
            yield
        except BaseException:  # as a second Ctrl-C, which waits for nothing
            for lane in lanes:
                lane.close(patience=0)
            raise
        finally:
            self._closed = False


LANES = ProcessSlots()


@atexit.register
def _end() -> None:
    with LANES.closed():
        pass


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Look at one model in a process of its own; `Job.to_dict` in, `ModelResult.to_dict` out."""
    with LANES.one() as lane:
        return lane.validate(Job.from_dict(job)).to_dict()


@contextmanager
def local(jobs: int) -> Iterator[Executor]:
    """An executor on this machine that looks at `jobs` models at a time.

    Leaving the block waits for what still runs; an exception, such as Ctrl-C, ends it. Lanes stay
    for the next time.
    """
    executor = ThreadPoolExecutor(jobs, "onnx-spatial-validate")
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        with LANES.closed():
            executor.shutdown(wait=True)
        raise
    executor.shutdown(wait=True)
