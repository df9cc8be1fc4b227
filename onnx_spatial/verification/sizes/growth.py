"""Find the least input sizes that run: double them until a run succeeds, then halve the gap.

a net that crops 5,000 positions at each end, run on    33  66  132 ..  16896   doubled
                                                        15000  10000  10001     between
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from onnx_spatial.verification.run.data import Assignment
from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.trial_runs import BudgetExhausted, Trial, TrialRuns

#: Doublings of a size, and runs between the last that failed and the first that succeeded.
_DOUBLINGS = 20
_BETWEEN = 16
#: Sizes to try from a wanted one on, until one is legal.
_NEXT = 256

#: Runs the original on some sizes, where some symbols must keep theirs; None if it fails.
Run = Callable[[Assignment, Sequence[str]], Trial | None]


@dataclass(frozen=True)
class Growth:
    """Grow the sizes of some dims together."""

    candidates: Candidates
    trials: TrialRuns
    run: Run

    def least(self, start: Assignment, groups: Sequence[Sequence[str]]) -> Trial | None:
        """Find the successful run with the least sizes, in the proportions of a start that is too small.

        The symbols of each group grow together and have the same size.
        """
        low = start.sizes[groups[0][0]]
        keep = [symbol for group in groups for symbol in group]
        for power in range(1, _DOUBLINGS):
            sizes = self._scaled(start, groups, low * 2**power)
            if sizes is None:
                return None
            if trial := self.run(replace(start, sizes=sizes), keep):
                return self._between(start, groups, keep, low * 2 ** (power - 1), trial)
            if not self.trials.ran:
                return None  # too large
        return None

    def _between(
        self,
        start: Assignment,
        groups: Sequence[Sequence[str]],
        keep: Sequence[str],
        low: int,
        best: Trial,
    ) -> Trial:
        """Halve the gap between a size that fails and one that succeeds, while there is time."""
        symbol = groups[0][0]
        bounds = self.candidates.bounds()
        self.trials.begin(anew=False)
        with suppress(BudgetExhausted):
            for _ in range(_BETWEEN):
                high = best.assignment.sizes[symbol]
                # What a net crops is mostly one of its constants.
                likely = [b for b in bounds if low < b < high]
                middle = likely[len(likely) // 2] if likely else (low + high) // 2
                sizes = self._scaled(start, groups, middle)
                if sizes is None or not low < sizes[symbol] < high or self.trials.half_spent():
                    break
                trial = self.run(replace(start, sizes=sizes), keep)
                if trial is None:
                    low = sizes[symbol]
                else:
                    best = trial
        return best

    def _scaled(
        self, start: Assignment, groups: Sequence[Sequence[str]], size: int
    ) -> Mapping[str, int] | None:
        """Return sizes with `size` or the next legal one for the first group, others in proportion."""
        sizes = dict(start.sizes)
        first = start.sizes[groups[0][0]]
        for group in groups:
            least = -(-start.sizes[group[0]] * size // first)
            near = range(least, least + _NEXT)
            legal = next((s for s in near if self.candidates.allows(group, s)), None)
            if legal is None:
                return None
            sizes.update(dict.fromkeys(group, legal))
        return sizes
