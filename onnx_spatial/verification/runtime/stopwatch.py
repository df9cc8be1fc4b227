"""Measure the time of a computation so that a verdict does not depend on how busy the machine is."""

from __future__ import annotations

import time


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
        """Tell whether more than `seconds` are over. The clock is read first, which is faster."""
        if time.monotonic() - self._clock <= seconds:
            return False
        return time.process_time() - self._processor > seconds
