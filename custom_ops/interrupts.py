"""Delay Ctrl-C and other signals with Python handlers while Python operators run.

Python calls a handler on the main thread between any two steps, also between onnxruntime-extensions'
entry into Python and the body of the operator. Nothing can catch an exception there, and the process
would end. So signals are kept during a run and handled after it. If Ctrl-C has Python's own handler,
operators end the run early.
"""

from __future__ import annotations

import _signal  # whose functions take a hundredth of the time: `signal` makes enums of what they return
import signal
import threading
from types import FrameType
from typing import Any

#: Signals whose handlers may raise exceptions.
_NAMES = "SIGINT SIGTERM SIGALRM SIGHUP SIGVTALRM SIGPROF SIGUSR1 SIGUSR2"
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES.split() if hasattr(signal, name))

_main = threading.main_thread()


class Signals:
    """Signals that arrived during a run."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._ctrl_c_ends_the_run = False

    def pending(self) -> bool:
        """Return whether the current run was interrupted and will end in KeyboardInterrupt."""
        if not self._pending or threading.current_thread() is not _main:
            return False
        return self._ctrl_c_ends_the_run and signal.SIGINT in self._pending

    def hold(self) -> dict[int, Any]:
        """Delay signals until `release`, on the main thread; others handle no signals.

        Returns:
            The handlers that were replaced, by number of the signal.
        """
        if threading.current_thread() is not _main:
            return {}
        previous = {}
        for number in _SIGNALS:
            handler = _signal.getsignal(number)
            # `!=`, as each access to a bound method makes a new, equal object.
            if callable(handler) and handler != self._keep:
                previous[number] = handler
        if signal.SIGINT in previous:
            self._ctrl_c_ends_the_run = previous[signal.SIGINT] is signal.default_int_handler
        for number in previous:
            _signal.signal(number, self._keep)
        return previous

    def release(self, previous: dict[int, Any]) -> None:
        """Restore the handlers that `hold` replaced, and send the signals that arrived since."""
        for number, handler in previous.items():
            _signal.signal(number, handler)
        if previous:
            arrived = list(dict.fromkeys(self._pending))
            self._pending.clear()
            for number in arrived:
                signal.raise_signal(number)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._pending.append(number)
