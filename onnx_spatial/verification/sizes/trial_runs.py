"""Run the original on made-up data within a budget, and measure how far failed runs got."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.process import limits
from onnx_spatial.verification.run.data import Assignment, GraphInput, feeds
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure

#: Budget of one search method: runs of the original, and seconds of processor time (by the clock a busy
#: machine would find other sizes). Elements of one input with open sizes.
MAX_TRIES = 400
MAX_SECONDS = 8.0
MAX_ELEMENTS = 2**20
#: All methods that look for the same sizes get as much time as so many of them, and each the last
#: second in any case.
TOGETHER = 2
LAST = 1.0
#: An input that has more elements at its least sizes (a large image, an open batch) may have so many
#: times these: a batch of one and of two.
LEAST_TIMES = 2
#: Inputs whose shapes a line of progress shows.
_SHOWN = 3
#: Elements of an input beyond which no data is made up, even where the model fixes the size.
LARGEST_INPUT = 2**28
#: Bytes that an element takes while it is made up: twice in double precision.
_MADE_OF = 16


@dataclass
class Trial:
    """A successful run of the original.

    Attributes:
        assignment, feeds, outputs: what its inputs were made of, inputs and outputs.
        executed: sites that took part.
        any_bits: whether the inputs hold NaNs, infinities and extremes: then only outputs that do not
            depend on arithmetic can be compared.
        spread: kind of unusual numbers in the inputs (`rare_numbers.Spread`), if they hold any.
        sizes_only: whether it tests sizes: what is wrong there shows on any data, by any tolerance.
    """

    assignment: Assignment
    feeds: dict[str, Array]
    outputs: dict[str, Any]
    executed: set[int]
    any_bits: bool = False
    spread: str | None = None
    sizes_only: bool = False


class BudgetExhausted(Exception):
    """The search budget is exhausted, or no sizes can succeed."""


@dataclass
class TrialRuns:
    """Run the original on one assignment after the other, on none twice.

    Attributes:
        program, inputs: the original and its inputs.
        seed: of the data.
        progress: called with a line for each run.
        seconds: for one search method.
        least: the least size of each open symbol, without those that the user gave.
        most: elements that an input with such symbols may have.
        explain: whether failures hold the operands of the node that failed.
        outgrown: whether an input had more elements than that.
        reached: nodes that ran in the failed run that got furthest.
        furthest: the assignment of that run.
        last_failure: its failure.
        latest_failure: the failure of the latest run.
        ran: whether the latest assignment was run.
    """

    program: Program
    inputs: Sequence[GraphInput]
    seed: int
    progress: Callable[[str], None]
    seconds: float
    least: Mapping[str, int]
    most: float
    explain: bool
    outgrown: bool = False
    reached: int = -1
    furthest: Assignment | None = None
    last_failure: RunFailure | None = None
    latest_failure: RunFailure | None = None
    ran: bool = False
    _tried: set[object] = field(default_factory=set)
    _tries: int = 0
    _deadline: float = 0.0
    _end: float = 0.0

    def begin(self, *, anew: bool = True) -> None:
        """Begin a search method, with a budget of its own.

        If `anew` it looks for other sizes, and may try earlier assignments again; else it shares the
        time with the methods before.
        """
        now = time.process_time()
        if anew:
            self._tried.clear()
            self._end = now + TOGETHER * self.seconds
        self._tries, self._deadline = 0, min(now + self.seconds, max(self._end, now + LAST))

    def half_spent(self) -> bool:
        """Return whether half of the time is over."""
        return time.process_time() > self._deadline - self.seconds / 2

    def run(self, assignment: Assignment) -> Trial | None:
        """Run the original; None if it fails, or the assignment was tried before or is too large.

        Raises:
            BudgetExhausted: no further run is allowed, or none can succeed.
            RunFailure: the model does not load.
        """
        key = (
            tuple(sorted(assignment.sizes.items())),
            tuple((n, v.tobytes()) for n, v in sorted(assignment.values.items())),
            (assignment.mode, assignment.number),
        )
        self.latest_failure, self.ran = None, False
        if key in self._tried or not self._is_small(assignment):
            return None
        if self._tries >= MAX_TRIES or time.process_time() > self._deadline:
            raise BudgetExhausted
        self._tried.add(key)
        self._tries += 1
        self.ran = True
        arrays = feeds(self.inputs, assignment, self.seed)
        self.progress(f"looking for legal input sizes, try {self._tries}: {shapes(arrays, _SHOWN)}")
        self.program.explains = self.explain
        try:
            outputs = self.program.run(arrays)
            return Trial(assignment, arrays, outputs, self.program.executed)
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
            self.program.explains = False

    def elements(self, assignment: Assignment) -> float:
        """Return the elements of the largest input to be made up."""
        free = (i for i in self.inputs if i.default is None and i.name not in assignment.values)
        return max((_count(i, assignment.sizes) for i in free), default=0.0)

    def _is_small(self, assignment: Assignment) -> bool:
        for graph_input in self.inputs:
            if graph_input.default is not None or graph_input.name in assignment.values:
                continue
            symbols = [d for d in graph_input.dims or () if isinstance(d, str)]
            if any(symbol not in assignment.sizes for symbol in symbols):
                return False  # one of them has no legal size at all
            size = _count(graph_input, assignment.sizes)
            if any(s in self.least for s in symbols) and size > self.most:
                self.outgrown = True
                return False
            most = min(LARGEST_INPUT, limits.default_memory() // _MADE_OF)
            if size > most or not is_countable(assignment.shape(graph_input)):
                how_many = f"{size:.0e} elements" if size else "no elements, but very large dims"
                limit = f", too many to generate (at most {most:.0e})"
                reason = f"input {graph_input.name!r} has {how_many}{limit}"
                self.last_failure = self.last_failure or RunFailure(reason, "run")
                return False
        return True


def most_elements(inputs: Sequence[GraphInput], least: Mapping[str, int]) -> float:
    """Return the most elements of an input with open sizes: some images, however large these are."""
    symbols = (d for i in inputs for d in i.dims or () if isinstance(d, str))
    sizes = {**dict.fromkeys(symbols, 1), **least}
    counts = (_count(i, sizes) for i in inputs if i.default is None and i.dims is not None)
    return max(float(MAX_ELEMENTS), LEAST_TIMES * max(counts, default=0.0))


def _count(graph_input: GraphInput, sizes: Mapping[str, int]) -> float:
    """Return the elements of an input; a float, which has room for any product."""
    dims = graph_input.dims or ()
    return float(np.prod([float(d if isinstance(d, int) else sizes[d]) for d in dims]))


def shapes(arrays: Mapping[str, Array], most: int | None = None) -> str:
    """Return the shapes of arrays in words, or of some of them."""
    texts = [f"{n} {'x'.join(map(str, a.shape)) or 'scalar'}" for n, a in arrays.items()]
    more = ["..."] if most is not None and len(texts) > most else []
    return ", ".join([*texts[:most], *more])
