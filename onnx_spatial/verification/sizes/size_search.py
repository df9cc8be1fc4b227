"""Find more legal sizes for the unknown input dims of a model: at least two for each that has two."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.run.data import Assignment
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.first_run import FirstRun
from onnx_spatial.verification.sizes.large_sizes import LargeSizes
from onnx_spatial.verification.sizes.size_groups import SizeGroup, resized
from onnx_spatial.verification.sizes.trial_runs import BudgetExhausted, Trial

#: Other sizes of a dim to try before it counts as forced.
_OTHERS = 12
#: How far sizes are varied, and how many tries each of them may take.
_NEAR = 16
_NEAR_BATCH = 4
_TRIES_EACH = 4


class Search(FirstRun):
    """Run the original on sizes that it accepts: a first run, and others that differ from it."""

    def others(self, first: Trial) -> list[Trial]:
        """More runs, in which every symbol that can has another size than in the first."""
        if not self._groups and not self._candidates.parameter_names():
            return []
        self._trials.begin()
        old = first.assignment.sizes
        for group in list(self._groups):  # symbols of different sizes are no group
            for size in {old[s] for s in group.symbols}:
                self._split([s for s in group.symbols if old[s] == size])
        trials: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            self._others(first, trials)
        varied = {s for t in trials for s, size in t.assignment.sizes.items() if size != old.get(s)}
        self.forced = {s: old[s] for g in self._groups for s in g.symbols if s not in varied}
        return trials

    def varied(self, trials: Sequence[Trial], count: int) -> list[Trial]:
        """More runs of sizes a little above those of the trials, odd and even in any combination."""
        if not self._groups or not trials:
            return []
        self._trials.begin()
        rng = np.random.default_rng([self._seed, len(self._groups)])
        runs: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            for _ in range(_TRIES_EACH * count):
                if len(runs) == count:
                    break
                start = trials[int(rng.integers(len(trials)))].assignment
                sizes = dict(start.sizes)
                for group in self._free():
                    if group.symbols[0] in self.forced:
                        continue
                    # No smaller ones: they leave nothing to a net of pools and strides.
                    least = sizes[group.symbols[0]]
                    near = range(least, least + (_NEAR_BATCH if group.is_batch else _NEAR))
                    if legal := self._candidates.allowed(group.symbols, near):
                        sizes.update(dict.fromkeys(group.symbols, int(rng.choice(legal))))
                number = len(trials) + len(runs)
                if trial := self._run(replace(start, sizes=sizes, number=number)):
                    runs.append(trial)
        for trial in runs:
            used = trial.assignment.sizes
            self.forced = {s: size for s, size in self.forced.items() if used[s] == size}
        return runs

    def corners(self, trial: Trial) -> list[Trial]:
        """Runs on the sizes of a trial with the smallest batch, and with all other dims equal."""
        self._trials.begin()
        batch = [[group.symbols] for group in self._free() if group.is_batch]
        others = [group.symbols for group in self._free() if not group.is_batch]
        old = trial.assignment
        runs: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            for groups in (*batch, *([others] if len(others) > 1 else [])):
                start = 1 if groups in batch else max(old.sizes[symbols[0]] for symbols in groups)
                near = range(start, start + _NEAR)
                runs += self._first_legal(replace(old, number=3), groups, near, _TRIES_EACH)
        return runs

    def larger(self, trial: Trial, size: int) -> list[Trial]:
        """Runs on the sizes of a trial, with one dim after the other of at least `size`; no batch."""
        self._trials.begin()
        old = trial.assignment
        runs: list[Trial] = []
        near = range(size, 2 * size)
        with suppress(BudgetExhausted, RunFailure):
            for group in self._groups:
                if not group.is_batch and old.sizes[group.symbols[0]] < size:
                    start = replace(old, number=2)
                    runs += self._first_legal(start, [group.symbols], near, _OTHERS)
        return runs

    def large(self) -> LargeSizes:
        """Return the search for larger sizes, once `others` found the dims that have several."""
        groups = [group for group in self._free() if group.symbols[0] not in self.forced]
        return LargeSizes(self._candidates, self._trials, self._run, groups, self._least)

    def _first_legal(
        self, start: Assignment, groups: Sequence[Sequence[str]], sizes: Iterable[int], tries: int
    ) -> list[Trial]:
        """Return the first run that succeeds, if one does, with the first legal sizes for all groups."""
        legal = (s for s in sizes if all(self._candidates.allows(g, s) for g in groups))
        for size in itertools.islice(legal, tries):
            if trial := self._run(resized(start, groups, [size] * len(groups))):
                return [trial]
        return []

    def again(self, trial: Trial, values: Mapping[str, Array]) -> Trial | None:
        """Return a run on the sizes of a trial with other data: another seed, and some values given."""
        self._trials.begin()
        values = {**trial.assignment.values, **values}
        number = trial.assignment.number + 1
        with suppress(BudgetExhausted, RunFailure):
            return self._run(replace(trial.assignment, values=values, number=number))
        return None

    def _free(self) -> list[SizeGroup]:
        """Groups whose size does not follow from that of others."""
        return [group for group in self._groups if group.symbols[0] not in self._following]

    def _others(self, first: Trial, trials: list[Trial]) -> None:
        """Add one run in which all sizes differ from the first, or runs that vary one at a time."""
        old = first.assignment
        symbols = [s for g in self._groups for s in g.symbols if s not in self._following]
        sizes = [_unlike(group.sizes, old.sizes[group.symbols[0]]) for group in self._groups]
        for start in self._starts(override=True):
            for proposal in self._proposals(replace(start, mode=old.mode), sizes):
                differs = all(proposal.sizes.get(s, old.sizes[s]) != old.sizes[s] for s in symbols)
                if differs and (trial := self._run(proposal)):
                    trials.append(trial)
                    return
        self._one_by_one(replace(old, number=1), trials)

    def _one_by_one(self, old: Assignment, trials: list[Trial]) -> None:
        varied: dict[str, int] = {}
        fixed: list[SizeGroup] = []
        for group in self._free():
            if group.symbols[0] in varied:
                continue  # together with another
            changed = self._vary(old, group)
            if changed is None:
                fixed.append(group)
            else:
                trials.append(changed)
                sizes = changed.assignment.sizes
                varied.update((s, n) for s, n in sizes.items() if n != old.sizes[s])
        if len(trials) > 1:
            joint = self._run(replace(old, sizes={**old.sizes, **varied}))
            trials[:] = [joint] if joint is not None else trials
        swapped = self._swapped(old, fixed) if len(fixed) > 1 else None
        if swapped is not None:
            trials.append(swapped)

    def _vary(self, old: Assignment, group: SizeGroup) -> Trial | None:
        """Return a run with another size of one group, or of all symbols with the same size."""
        symbols = group.symbols
        size = old.sizes[symbols[0]]
        likely = _unlike(group.sizes, size)[:_OTHERS]
        # The strides of a net that divide a size divide its double, too.
        doubled = self._candidates.allowed(symbols, (2 * size, size + 32))
        for other in (*likely, *doubled):
            trial = self._run(resized(old, [symbols], [other]), symbols)
            if trial and trial.assignment.sizes[symbols[0]] != size:
                return trial
        # Sizes that are equal in a successful run may have to be.
        equal = [s for g in self._groups for s in g.symbols if old.sizes[s] == size]
        if len(equal) > len(symbols):
            for other in (s for s in likely if self._candidates.allows(equal, s)):
                if trial := self._run(resized(old, [equal], [other])):
                    return trial
        return None

    def _swapped(self, old: Assignment, fixed: Sequence[SizeGroup]) -> Trial | None:
        """Return a run with the two dims of a forced product exchanged."""
        spatial = [group.symbols for group in fixed if not group.is_batch]
        if len(spatial) != 2:
            return None
        sizes = (old.sizes[spatial[1][0]], old.sizes[spatial[0][0]])
        return None if sizes[0] == sizes[1] else self._run(resized(old, spatial, sizes))


def _unlike(sizes: Sequence[int], old: int) -> list[int]:
    """Return the sizes that differ from an old one, alternately of other parity and of the same."""
    other = [s for s in sizes if s % 2 != old % 2]
    same = [s for s in sizes if s % 2 == old % 2 and s != old]
    pairs = itertools.zip_longest(other, same)
    return [s for pair in pairs for s in pair if s is not None]
