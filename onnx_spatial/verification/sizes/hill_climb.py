"""Change the sizes of a failed run one thing at a time, and keep each change that gets further."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from onnx_spatial.verification.run.data import Assignment
from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.growth import Run
from onnx_spatial.verification.sizes.size_groups import SizeGroup, resized
from onnx_spatial.verification.sizes.trial_runs import Trial, TrialRuns

#: Pairs of sizes with a required product to try.
_PAIRS = 200
#: Sizes to try for one dim before the next dim.
_WIDTHS = (8, 32, None)


@dataclass(frozen=True)
class HillClimb:
    """Improve the run that got furthest until one succeeds; integers are filled in some `modes`."""

    candidates: Candidates
    trials: TrialRuns
    run: Run
    groups: Sequence[SizeGroup]
    modes: Sequence[str]
    seed: int

    def climb(self) -> Trial | None:
        """Change one thing at a time, and keep the change if the run gets further."""
        for width in _WIDTHS:
            improved = True
            while improved and self.trials.furthest is not None:
                improved = False
                for change in self._changes():
                    reached, current = self.trials.reached, self.trials.furthest
                    assert current is not None
                    for assignment in itertools.islice(change(current), width):
                        if trial := self.run(assignment, ()):
                            return trial
                        if self.trials.reached > reached:
                            improved = True
                            break
        return None

    def _changes(self) -> Iterator[Callable[[Assignment], Iterator[Assignment]]]:
        yield self._other_parameters
        yield lambda a: (replace(a, mode=m) for m in self.modes)
        batch_last = sorted(self.groups, key=lambda group: group.is_batch)
        singles = ([s] for group in self.groups if len(group.symbols) > 1 for s in group.symbols)
        for symbols in (*(group.symbols for group in batch_last), *singles):
            yield lambda a, symbols=symbols: self._other_sizes(a, symbols)  # type: ignore[misc]

    def _other_parameters(self, assignment: Assignment) -> Iterator[Assignment]:
        """Other parameters for the operator that refused its data, drawn for that data."""
        failure = self.trials.last_failure
        if failure is not None and failure.refused is not None:
            site, shape = failure.refused
            for values in self.candidates.redrawn(site, shape, assignment.values, self.seed):
                yield replace(assignment, values=values)

    def _other_sizes(self, assignment: Assignment, symbols: Sequence[str]) -> Iterator[Assignment]:
        """Other sizes for some symbols, those in the last error message first."""
        hinted = self.candidates.hinted(str(self.trials.last_failure))
        allowed = self.candidates.allowed(symbols, hinted)
        for size in (*allowed, *self.candidates.sizes(symbols)):
            yield resized(assignment, [symbols], [size])

    def pairs(self) -> Trial | None:
        """Try pairs of sizes with a product that the model requires."""
        current = self.trials.furthest
        spatial = [group.symbols for group in self.groups if not group.is_batch]
        if current is None or len(spatial) != 2:
            return None
        legal = (
            sizes
            for pair in self.candidates.pairs(str(self.trials.last_failure))
            for sizes in (pair, pair[::-1])
            if all(map(self.candidates.allows, spatial, sizes))
        )
        for sizes in itertools.islice(legal, _PAIRS):
            if trial := self.run(resized(current, spatial, sizes), ()):
                return trial
        return None
