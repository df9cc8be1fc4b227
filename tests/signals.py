"""Processes of tests: they hear signals, whoever runs the tests, and what they started is found."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def below(pid: int) -> list[int]:
    """Processes that a process started, and theirs, as Linux tells them."""
    found = []
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            words = child.read_text().split()
        except OSError:  # it has ended meanwhile
            continue
        for word in words:
            found += [int(word), *below(int(word))]
    return found


def is_alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
