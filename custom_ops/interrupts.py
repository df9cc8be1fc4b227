"""Ctrl-C, and other signals that the program handles in Python, while Python operators run.

Python calls a handler on the main thread between any two steps, also between onnxruntime-extensions'
entry into Python and the operator's own body, where nothing can catch what the handler raises: the
process would end. So signals are kept while a run is on, and handled when it is over. Where Ctrl-C
has Python's own handler, operators that notice it end the run early.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Signals that programs are known to handle by raising an exception.
_SIGNALS = tuple(
    getattr(signal, name)
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGALRM",
        "SIGHUP",
        "SIGVTALRM",
        "SIGPROF",
        "SIGUSR1",
        "SIGUSR2",
    )
    if hasattr(signal, name)
)

_pending: list[int] = []
_ctrl_c_ends_the_run = False
_main = threading.main_thread()


def pending() -> bool:
    """Whether the run in work has been interrupted and will end in KeyboardInterrupt."""
    if not _pending or threading.current_thread() is not _main:
        return False
    return _ctrl_c_ends_the_run and signal.SIGINT in _pending


@contextmanager
def held() -> Iterator[None]:
    """Keep signals until the block is left, on the main thread; elsewhere Python handles none."""
    if threading.current_thread() is not _main:
        yield
        return
    global _ctrl_c_ends_the_run
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    previous = {n: h for n, h in handlers.items() if callable(h) and h is not _keep}
    if signal.SIGINT in previous:
        _ctrl_c_ends_the_run = previous[signal.SIGINT] is signal.default_int_handler
    for number in previous:
        signal.signal(number, _keep)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if previous:
            arrived = list(dict.fromkeys(_pending))
            _pending.clear()
            for number in arrived:
                signal.raise_signal(number)


def _keep(number: int, frame: FrameType | None) -> None:
    _pending.append(number)
