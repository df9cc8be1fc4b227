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

_main = threading.main_thread()


class Signals:
    """The signals of a process that arrived during a run."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._ctrl_c_ends_the_run = False

    def pending(self) -> bool:
        """Whether the run in work has been interrupted and will end in KeyboardInterrupt."""
        if not self._pending or threading.current_thread() is not _main:
            return False
        return self._ctrl_c_ends_the_run and signal.SIGINT in self._pending

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep signals until the block is left, on the main thread; elsewhere Python handles none."""
        if threading.current_thread() is not _main:
            yield
            return
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        # Bound methods of one object are equal, and never the same object.
        previous = {n: h for n, h in handlers.items() if callable(h) and h != self._keep}
        if signal.SIGINT in previous:
            self._ctrl_c_ends_the_run = previous[signal.SIGINT] is signal.default_int_handler
        for number in previous:
            signal.signal(number, self._keep)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if previous:
                arrived = list(dict.fromkeys(self._pending))
                self._pending.clear()
                for number in arrived:
                    signal.raise_signal(number)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._pending.append(number)
