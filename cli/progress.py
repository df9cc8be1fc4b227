"""Show the progress of a command in a line of a terminal, and measure its steps.

Steps tell what they do in lines such as "run 3/8: image 2x33x17x3".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_FRACTION = re.compile(r"(?:[a-z]+ )?(\d+)/(\d+)\b")


class Steps:
    """The time that each step of a command takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name = ""
        self._start = time.perf_counter()

    def begin(self, text: str) -> None:
        """Begin the step that a line of progress names, or go on with it."""
        self.end()
        name = re.match(r"[^\d:,]*", text)
        self._name = name[0].strip() if name is not None else ""

    def end(self) -> None:
        """Count the time until now for the step that runs."""
        now = time.perf_counter()
        if self._name:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._start
        self._start = now

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        parts = [f"{name} {seconds:.2f} s" for name, seconds in self.seconds.items()]
        return f"time: {', '.join(parts)}, {total:.2f} s in all"


@contextmanager
def bar(console: Console) -> Iterator[Callable[[str], None]]:
    """Show a bar while the block runs; yield a function that changes its text and its fraction."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    spinner = "line" if console.options.ascii_only else "dots"
    columns = [
        SpinnerColumn(spinner),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
    ]
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("reading", total=None)

        def show(text: str) -> None:
            fraction = _FRACTION.match(text)
            room = max(console.width - 34, 10)
            line = Text(text)
            line.truncate(room, overflow="ellipsis")
            if fraction is None:
                progress.update(task, description=str(line), total=None)
            else:
                done, total = int(fraction[1]), int(fraction[2])
                progress.update(task, description=str(line), completed=done, total=total)

        yield show
