"""Find how large an input must be at least: double its sizes until a run tells, then halve the gap.

a net that crops 5,000 positions at each end, run on    33  66  132 ..  16896   doubled
                                                        15000  10000  10001     between
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.model_inputs import Assignment
from onnx_spatial.verification.sizes.trial_runs import BudgetExhausted, Trial, TrialRuns

#: Doublings of a size, and runs between the last that failed and the first that did not.
_DOUBLINGS = 20
_BETWEEN = 16
#: A size that is next to one that was asked for, and legal, is found among so many.
_NEXT = 256

#: A run of the original on some sizes, of which some symbols keep theirs; None if it does not go
#: through or tells nothing.
Run = Callable[[Assignment, Sequence[str]], Trial | None]


class Growth:
    """Sizes of some dims that grow together.

    Args:
        candidates: says which sizes are legal.
        attempts: for its bounds, and whether the last run was within them.
        run: see `Run`.
    """

    def __init__(self, candidates: Candidates, attempts: TrialRuns, run: Run) -> None:
        self._candidates = candidates
        self._attempts = attempts
        self._run = run

    def least(self, start: Assignment, units: Sequence[Sequence[str]]) -> Trial | None:
        """The run with the least sizes that were found to do, in the ratio of those at the start.

        Args:
            start: sizes that do not do.
            units: symbols that grow; those of one unit have the same size.
        """
        low = start.sizes[units[0][0]]
        keep = [symbol for unit in units for symbol in unit]
        for power in range(1, _DOUBLINGS):
            sizes = self._scaled(start, units, low * 2**power)
            if sizes is None:
                return None
            if trial := self._run(replace(start, sizes=sizes), keep):
                return self._between(start, units, keep, low * 2 ** (power - 1), trial)
            if not self._attempts.ran:
                return None  # too large
        return None

    def _between(
        self,
        start: Assignment,
        units: Sequence[Sequence[str]],
        keep: Sequence[str],
        low: int,
        best: Trial,
    ) -> Trial:
        """Halve the gap between a size that does not do and one that does, while there is time."""
        symbol = units[0][0]
        bounds = self._candidates.bounds()
        self._attempts.begin(anew=False)
        with suppress(BudgetExhausted):
            for _ in range(_BETWEEN):
                high = best.assignment.sizes[symbol]
                # What a net cuts away stands in it as a number, more often than not.
                likely = [b for b in bounds if low < b < high]
                middle = likely[len(likely) // 2] if likely else (low + high) // 2
                sizes = self._scaled(start, units, middle)
                if sizes is None or not low < sizes[symbol] < high or self._attempts.half_spent():
                    break
                trial = self._run(replace(start, sizes=sizes), keep)
                if trial is None:
                    low = sizes[symbol]
                else:
                    best = trial
        return best

    def _scaled(
        self, start: Assignment, units: Sequence[Sequence[str]], size: int
    ) -> Mapping[str, int] | None:
        """Sizes with that of the first unit, or the next that is legal, and the others in proportion."""
        sizes = dict(start.sizes)
        first = start.sizes[units[0][0]]
        for unit in units:
            wanted = -(-start.sizes[unit[0]] * size // first)
            legal = next(self._legal(unit, wanted), None)
            if legal is None:
                return None
            sizes.update(dict.fromkeys(unit, legal))
        return sizes

    def _legal(self, unit: Sequence[str], wanted: int) -> Iterator[int]:
        near = range(wanted, wanted + _NEXT)
        return (s for s in near if self._candidates.allows(unit, s))
