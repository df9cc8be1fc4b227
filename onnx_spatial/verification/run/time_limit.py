"""Limit the time of a whole verification: the last resort against a run that does not end.

A run is stopped between two nodes, wherever it is: a Loop whose condition stays true, a model that is
large. The verification then says that it was stopped, and at what.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import onnxruntime as ort

#: Shortest time between two looks at the clock, in seconds: a late end costs no more than that.
_SHORTEST_WAIT_SECONDS = 0.01


class TimeLimitError(BaseException):
    """The time is over; the message says at what. Handlers of `Exception` would hide it."""


class Stopwatch:
    """Seconds since it was made, by the clock or of the processor, whichever is less.

    A busy machine takes longer by the clock; several threads take more of the processor.
    """

    def __init__(self) -> None:
        self._clock, self._processor = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        """The time so far."""
        return min(time.monotonic() - self._clock, time.process_time() - self._processor)

    def exceeds(self, seconds: float) -> bool:
        """Tell whether more time is over. The clock is read first, which is a thousand times faster."""
        return time.monotonic() - self._clock > seconds and self.seconds > seconds


@dataclass
class _Limit:
    """The time that all runs may take together, and the run that is under way."""

    seconds: float
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    run: ort.RunOptions | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    watcher: threading.Thread | None = None

    def check(self, doing: str) -> None:
        if self.stopwatch.exceeds(self.seconds):
            raise TimeLimitError(
                f"the verification was stopped after {self.seconds:g} s, at {doing!r} "
                "(--time-limit allows more)"
            )

    def watch(self) -> None:
        """Stop the run that is under way when the time is over: onnxruntime reads the flag."""
        while not self.closed.wait(
            max(self.seconds - self.stopwatch.seconds, _SHORTEST_WAIT_SECONDS)
        ):
            if self.stopwatch.exceeds(self.seconds) and (run := self.run) is not None:
                run.terminate = True


_limit: ContextVar[_Limit | None] = ContextVar("limit", default=None)


@contextmanager
def allowing(seconds: float | None) -> Iterator[None]:
    """Let the runs in the block take some seconds together; None: any time."""
    limit = None if seconds is None else _Limit(seconds)
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
        if limit is not None:
            limit.closed.set()


def check(doing: str) -> None:
    """End the verification if its time is over; `doing` says at what.

    Raises:
        TimeLimitError: it is.
    """
    if (limit := _limit.get()) is not None:
        limit.check(doing)


@contextmanager
def stopping(run: ort.RunOptions, doing: str) -> Iterator[None]:
    """Stop the run with these options when the time is over.

    Raises:
        TimeLimitError: it is.
    """
    limit = _limit.get()
    if limit is None:
        yield
        return
    limit.check(doing)
    if limit.watcher is None:
        limit.watcher = threading.Thread(target=limit.watch, daemon=True)
        limit.watcher.start()
    limit.run = run
    try:
        yield
    except Exception:
        if run.terminate:
            limit.check(doing)
        raise
    finally:
        limit.run = None
