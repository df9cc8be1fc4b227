"""Define executors on this machine, and the function that every executor runs.

An executor is what `concurrent.futures` defines: `submit(function, argument)` returns a future. The
function is `run`; its argument and its result are plain data, which any executor can send elsewhere.
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
    """The process slots of this process: as many as are in use at a time, each used again."""

    def __init__(self) -> None:
        self._all: list[ProcessSlot] = []
        self._idle: list[ProcessSlot] = []
        self._guard = threading.Lock()
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[ProcessSlot]:
        """Reserve a slot for the block."""
        with self._guard:
            if self._closed:
                raise Closed
            if not self._idle:
                self._idle.append(ProcessSlot())
                self._all.append(self._idle[-1])
            slot = self._idle.pop()
        try:
            yield slot
        finally:
            with self._guard:
                if slot in self._all:  # else it was closed
                    self._idle.append(slot)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close all slots and end their processes; `one` raises within the block."""
        with self._guard:
            self._closed = True
            slots, self._all, self._idle = self._all, [], []
        try:
            for slot in slots:
                slot.request_end()
            for slot in slots:
                slot.close()
            yield
        except BaseException:  # such as a second Ctrl-C: wait for nothing
            for slot in slots:
                slot.close(patience=0)
            raise
        finally:
            self._closed = False


SLOTS = ProcessSlots()


@atexit.register
def _end() -> None:
    with SLOTS.closed():
        pass


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Validate one model in a process of its own: the fields of a `Job` in, of a `ModelResult` out."""
    with SLOTS.one() as slot:
        return slot.validate(Job(**job)).to_dict()


@contextmanager
def local(jobs: int) -> Iterator[Executor]:
    """Make an executor that validates `jobs` models at a time on this machine.

    The end of the block waits for running models; an exception, such as Ctrl-C, ends them. The slots
    stay for the next time.
    """
    executor = ThreadPoolExecutor(jobs, "onnx-spatial-validate")
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        with SLOTS.closed():
            executor.shutdown(wait=True)
        raise
    executor.shutdown(wait=True)
