"""Limit the time of a whole verification: the last resort, where counted work was misjudged.

What is compared is bounded by counted work, so that verdicts do not depend on the machine. An estimate
may be wrong (a kernel that is slow for its size); then this limit ends the verification, which says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from onnx_spatial.verification.runtime.stopwatch import Stopwatch


class TimeLimitError(BaseException):
    """The time is over; the message says at what. Handlers of `Exception` would hide it."""


@dataclass
class _Limit:
    seconds: float
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    doing: str = "the first step"


_limit: ContextVar[_Limit | None] = ContextVar("limit", default=None)


@contextmanager
def allowing(seconds: float | None) -> Iterator[None]:
    """Let the runs in the block take some seconds together; None: any time."""
    token = _limit.set(None if seconds is None else _Limit(seconds))
    try:
        yield
    finally:
        _limit.reset(token)


def note(doing: str) -> None:
    """Note what the verification does now, a line of progress."""
    limit = _limit.get()
    if limit is not None:
        limit.doing = doing


def check() -> None:
    """End the verification if its time is over.

    Raises:
        TimeLimitError: it is.
    """
    limit = _limit.get()
    if limit is not None and limit.stopwatch.exceeds(limit.seconds):
        raise TimeLimitError(
            f"the verification was stopped after {limit.seconds:g} s, at {limit.doing!r} "
            "(--time-limit allows more)"
        )
