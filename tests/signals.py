"""Start processes that hear signals, whoever runs the tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heard() -> Iterator[None]:
    """Processes that are started within hear Ctrl-C and its like, as on a terminal.

    Below nohup, behind `trap '' INT` and in the background of a script they are ignored, and that is
    inherited.
    """
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    deaf = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in deaf:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in deaf:
            signal.signal(number, signal.SIG_IGN)
