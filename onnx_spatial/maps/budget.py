"""Bound the work of proofs by counted steps, and by time where a step takes far too long.

A step is an evaluation of a map's value, a decision on sizes, or a sum of facts that a search tries.
Steps are the same on every machine, and so is what is proven within a number of them.
"""

from __future__ import annotations

import math
from time import thread_time


class Budget:
    """Steps and processor seconds that are left for a computation, see `within` for parts of it."""

    def __init__(
        self, steps: float = math.inf, seconds: float = math.inf, *, within: Budget | None = None
    ) -> None:
        """Begin now.

        Args:
            steps: number of steps.
            seconds: of processor time of this thread.
            within: a budget that this one is a part of: what is spent of one is spent of both.
        """
        self._spent: list[int] = [0] if within is None else within._spent
        self._last = self._spent[0] + steps
        self._deadline = thread_time() + seconds
        if within is not None:
            self._last = min(self._last, within._last)
            self._deadline = min(self._deadline, within._deadline)

    def spend(self, steps: int = 1) -> None:
        """Count some steps."""
        self._spent[0] += steps

    @property
    def spent(self) -> int:
        """Steps that were counted, of all budgets that it is a part of too."""
        return self._spent[0]

    @property
    def is_exhausted(self) -> bool:
        """Whether no steps or no time are left."""
        return self._spent[0] >= self._last or self.is_timed_out

    @property
    def is_timed_out(self) -> bool:
        """Whether no time is left: another machine may have had enough."""
        return self._deadline < math.inf and thread_time() >= self._deadline
