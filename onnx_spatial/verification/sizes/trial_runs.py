"""Runs of the original on made-up data, within bounds, and how far those got that did not go through."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.model_inputs import Assignment, GraphInput, feeds

#: Bounds of one search: runs of the original, seconds of the processor (of a clock a busy machine has
#: fewer, and would find other sizes), elements of one input with open sizes.
MAX_TRIES = 400
MAX_SECONDS = 8.0
MAX_ELEMENTS = 2**20
#: Methods that look for the same sizes take as long as so many together, and then each a last second.
TOGETHER = 2
LAST = 1.0
#: An input that has more elements at its least sizes (a large image, an open batch) gets as many
#: times these: a batch of one and of two.
LEAST_TIMES = 2
#: Inputs whose shapes are named in a line of progress.
_SHOWN = 3
#: No data of more elements is made up, even where the model fixes the size.
LARGEST_INPUT = 2**28


@dataclass
class Trial:
    """A run of the original that went through.

    Attributes:
        assignment: what it was made of.
        feeds: what was fed.
        outputs: what came out.
        executed: which sites took part.
        any_bits: whether NaNs, infinities and extremes were fed: then only the outputs that no
            arithmetic leads to can be compared.
    """

    assignment: Assignment
    feeds: dict[str, Array]
    outputs: dict[str, Any]
    executed: set[int]
    any_bits: bool = False


class BudgetExhausted(Exception):
    """The bounds are reached, or nothing is to be found within them."""


class TrialRuns:
    """Runs the original on one assignment after the other, on none twice.

    Args:
        program: the original.
        inputs: its inputs.
        seed: of the data.
        progress: is told how many there were.
        seconds: that one method of looking may take.
        least: the least size of each symbol that is open, none of those that are given.
        most: elements of an input with such symbols.
        explain: whether failures are to tell what the node that failed was given.

    Attributes:
        reached: how far the run got that got furthest.
        furthest: what it was made of.
        last_failure: why it did not go through.
        latest_failure: why the last run did not go through; None if it did, or was not tried.
        ran: whether the last run was tried.
        outgrown: whether one was not, because an input would have had more than `most` elements.
        most: as given.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[GraphInput],
        seed: int,
        progress: Callable[[str], None],
        seconds: float,
        least: Mapping[str, int],
        most: float,
        *,
        explain: bool = False,
    ) -> None:
        self._program = program
        self._inputs = inputs
        self._seed = seed
        self._progress = progress
        self._seconds = seconds
        self._least, self.most, self._explain = least, most, explain
        self._tried: set[object] = set()
        self._tries, self._deadline, self._end = 0, 0.0, 0.0
        self.reached = -1
        self.furthest: Assignment | None = None
        self.last_failure: RunFailure | None = None
        self.latest_failure: RunFailure | None = None
        self.ran = False
        self.outgrown = False

    def begin(self, *, anew: bool = True) -> None:
        """Another method of looking begins, with bounds of its own.

        With `anew` for other sizes: what was tried before may be tried again. Without, it shares the
        time with the methods before it.
        """
        now = time.process_time()
        if anew:
            self._tried.clear()
            self._end = now + TOGETHER * self._seconds
        self._tries, self._deadline = 0, min(now + self._seconds, max(self._end, now + LAST))

    def half_spent(self) -> bool:
        """Whether half of the time is over."""
        return time.process_time() > self._deadline - self._seconds / 2

    def run(self, assignment: Assignment) -> Trial | None:
        """The run, if it goes through.

        Raises:
            Spent: it is not to be tried any more.
            RunFailure: the model does not load.
        """
        key = (
            tuple(sorted(assignment.sizes.items())),
            tuple((n, v.tobytes()) for n, v in sorted(assignment.values.items())),
            (assignment.mode, assignment.number, assignment.spread),
        )
        self.latest_failure, self.ran = None, False
        if key in self._tried or not self._is_small(assignment):
            return None
        if self._tries >= MAX_TRIES or time.process_time() > self._deadline:
            raise BudgetExhausted
        self._tried.add(key)
        self._tries += 1
        self.ran = True
        arrays = feeds(self._inputs, assignment, self._seed)
        self._progress(f"looking for legal input sizes, try {self._tries}: {_shapes(arrays)}")
        self._program.explains = self._explain
        try:
            outputs = self._program.run(arrays)
            return Trial(assignment, arrays, outputs, self._program.executed)
        except RunFailure as failure:
            if failure.stage == "load":
                raise
            self.latest_failure = failure
            if failure.progress > self.reached:
                self.reached, self.furthest = failure.progress, assignment
                self.last_failure = failure
            if failure.hopeless:
                raise BudgetExhausted from None
            return None
        finally:
            self._program.explains = False

    def _is_small(self, assignment: Assignment) -> bool:
        for wanted in self._inputs:
            if wanted.default is None and wanted.name not in assignment.values:
                symbols = [d for d in wanted.dims or () if isinstance(d, str)]
                if any(symbol not in assignment.sizes for symbol in symbols):
                    return False  # there is no legal size at all for one of them
                size = _count(wanted, assignment.sizes)
                if any(s in self._least for s in symbols) and size > self.most:
                    self.outgrown = True
                    return False
                if size > LARGEST_INPUT or not is_countable(assignment.shape(wanted)):
                    self.last_failure = self.last_failure or _too_large(wanted, assignment.sizes)
                    return False
        return True


def most_elements(inputs: Sequence[GraphInput], least: Mapping[str, int]) -> float:
    """How many elements an input with open sizes may have: some images, however large they are."""
    symbols = (d for i in inputs for d in i.dims or () if isinstance(d, str))
    sizes = {**dict.fromkeys(symbols, 1), **least}
    fed = [i for i in inputs if i.default is None and i.dims is not None]
    largest = max((_count(i, sizes) for i in fed), default=0.0)
    return max(float(MAX_ELEMENTS), LEAST_TIMES * largest)


def _count(wanted: GraphInput, sizes: Mapping[str, int]) -> float:
    """Elements of an input; a float, which has room for any product."""
    dims = wanted.dims or ()
    return float(np.prod([float(d if isinstance(d, int) else sizes[d]) for d in dims]))


def _too_large(wanted: GraphInput, sizes: Mapping[str, int]) -> RunFailure:
    size = _count(wanted, sizes)
    how_many = f"{size:.0e} elements" if size else "no elements, but other dims"
    limit = f", too many to make up (at most {LARGEST_INPUT:.0e})"
    return RunFailure(f"input {wanted.name!r} has {how_many}{limit}", "run")


def _shapes(arrays: Mapping[str, Array]) -> str:
    """The shapes of a few arrays, on one line of a terminal."""
    shown = [f"{n} {'x'.join(map(str, a.shape)) or 'scalar'}" for n, a in arrays.items()]
    return ", ".join([*shown[:_SHOWN], *(["..."] if len(shown) > _SHOWN else [])])
