"""Find more legal sizes for the unknown input dims of a model, at least two for each where it allows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from onnx_spatial.verification.arrays import Array, Spread
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.first_run import FirstRun
from onnx_spatial.verification.sizes.model_inputs import Assignment
from onnx_spatial.verification.sizes.trial_runs import BudgetExhausted, Trial

#: How many other sizes are tried for a dim before it counts as forced.
_OTHERS = 12
#: How far sizes are varied, and how many tries each of them may cost.
_NEAR = 16
_NEAR_BATCH = 4
_TRIES_EACH = 4


class Search(FirstRun):
    """Runs of the original on sizes that it accepts: a first one, and others that differ from it.

    Attributes:
        forced: symbols of which only one size was found, with that size.
    """

    def others(self, first: Trial) -> list[Trial]:
        """More runs, so that every symbol that can has another size than in the first."""
        if not self._groups and not self._candidates.parameter_names():
            return []
        self._attempts.begin()
        self._part_by_size(first.assignment.sizes)
        found: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            self._others(first, found)
        old = first.assignment.sizes
        varied = {s for t in found for s, size in t.assignment.sizes.items() if size != old.get(s)}
        self.forced = {s: old[s] for group in self._groups for s in group if s not in varied}
        return found

    def _part_by_size(self, sizes: Mapping[str, int]) -> None:
        """Symbols that have different sizes in a run that went through are no group."""
        for group in list(self._groups):
            for size in {sizes[s] for s in group}:
                self._part([s for s in group if sizes[s] == size])

    @property
    def _free(self) -> list[list[str]]:
        """Groups whose size can be chosen: not forced, and not following from that of others."""
        known = {*self.forced, *self._following}
        return [group for group in self._groups if group[0] not in known]

    def varied(self, trials: Sequence[Trial], count: int) -> list[Trial]:
        """More runs of sizes a little above those of the trials, odd and even in any combination."""
        if not self._groups or not trials:
            return []
        self._attempts.begin()
        rng = np.random.default_rng([self._seed, len(self._groups)])
        found: list[Trial] = []
        try:
            for _ in range(_TRIES_EACH * count):
                if len(found) == count:
                    break
                start = trials[int(rng.integers(len(trials)))].assignment
                sizes = dict(start.sizes)
                for unit in self._free:
                    # Not smaller ones: a net of pools and strides has nothing left to compute there.
                    batch = self._candidates.is_batch(unit)
                    least = sizes[unit[0]]
                    near = range(least, least + (_NEAR_BATCH if batch else _NEAR))
                    allowed = [s for s in near if self._candidates.allows(unit, s)]
                    if allowed:
                        sizes.update(dict.fromkeys(unit, int(rng.choice(allowed))))
                number = len(trials) + len(found)
                if trial := self._run(replace(start, sizes=sizes, number=number)):
                    found.append(trial)
        except (BudgetExhausted, RunFailure):
            pass
        for trial in found:
            met = trial.assignment.sizes
            self.forced = {s: size for s, size in self.forced.items() if met[s] == size}
        return found

    def corners(self, trial: Trial) -> list[Trial]:
        """The sizes of a trial with the smallest batch, and with all other dims alike."""
        self._attempts.begin()
        following = self._following
        free = [g for g in self._groups if g[0] not in following]
        batch = [g for g in free if self._candidates.is_batch(g)]
        others = [g for g in free if not self._candidates.is_batch(g)]
        found: list[Trial] = []
        for units in (*([g] for g in batch), *([others] if len(others) > 1 else [])):
            old = trial.assignment.sizes
            start = 1 if units[0] in batch else max(old[unit[0]] for unit in units)
            near = range(start, start + _NEAR)
            allowed = (s for s in near if all(self._candidates.allows(u, s) for u in units))
            for size in itertools.islice(allowed, _TRIES_EACH):
                sizes = {**old, **{symbol: size for unit in units for symbol in unit}}
                try:
                    other = self._run(replace(trial.assignment, sizes=sizes, number=3))
                except (BudgetExhausted, RunFailure):
                    return found
                if other is not None:
                    found.append(other)
                    break
        return found

    def larger(self, trial: Trial, size: int) -> list[Trial]:
        """The sizes of a trial with one dim after the other of at least `size`, but the batch."""
        self._attempts.begin()
        found = []
        try:
            for unit in self._groups:
                if self._candidates.is_batch(unit) or trial.assignment.sizes[unit[0]] >= size:
                    continue
                allowed = (s for s in range(size, 2 * size) if self._candidates.allows(unit, s))
                for chosen in itertools.islice(allowed, _OTHERS):
                    sizes = {**trial.assignment.sizes, **dict.fromkeys(unit, chosen)}
                    if other := self._run(replace(trial.assignment, sizes=sizes, number=2)):
                        found.append(other)
                        break
        except (BudgetExhausted, RunFailure):
            pass
        return found

    def again(
        self, trial: Trial, values: Mapping[str, Array], spread: Spread | None = None
    ) -> Trial | None:
        """The sizes of a trial with other data: other seeds, and other values where given."""
        self._attempts.begin()
        known = {**trial.assignment.values, **values}
        number = trial.assignment.number + 1
        try:
            changed = replace(trial.assignment, values=known, number=number, spread=spread)
            return self._run(changed)
        except (BudgetExhausted, RunFailure):
            return None

    def _others(self, first: Trial, found: list[Trial]) -> None:
        old = first.assignment
        symbols = [s for g in self._groups for s in g if s not in self._following]
        pairs = zip(self._groups, self._sizes, strict=True)
        lists = [_unlike(known, old.sizes[group[0]]) for group, known in pairs]
        for start in self._starts(override=True):
            for proposal in self._proposals(replace(start, mode=old.mode), lists):
                new = all(proposal.sizes.get(s, old.sizes[s]) != old.sizes[s] for s in symbols)
                if new and (trial := self._run(proposal)):
                    found.append(trial)
                    return
        self._one_by_one(first, found)

    def _one_by_one(self, first: Trial, found: list[Trial]) -> None:
        old = replace(first.assignment, number=1)
        varied: dict[str, int] = {}
        fixed: list[Sequence[str]] = []
        for unit in [g for g in self._groups if g[0] not in self._following]:
            if unit[0] in varied:
                continue  # together with another
            changed = self._vary(old, unit)
            if changed is None:
                fixed.append(unit)
            else:
                found.append(changed)
                sizes = changed.assignment.sizes
                varied.update((s, n) for s, n in sizes.items() if n != old.sizes[s])
        if len(found) > 1:
            joint = self._run(replace(old, sizes={**old.sizes, **varied}))
            found[:] = [joint] if joint is not None else found
        swapped = self._swapped(old, fixed) if len(fixed) > 1 else None
        if swapped is not None:
            found.append(swapped)

    def _vary(self, old: Assignment, unit: Sequence[str]) -> Trial | None:
        size = old.sizes[unit[0]]
        known = self._sizes[self._groups.index(list(unit))]
        likely = _unlike(known, size)[:_OTHERS]
        # What the strides of a net divide, they divide twice as well.
        doubled = [s for s in (2 * size, size + 32) if self._candidates.allows(unit, s)]
        for other in (*likely, *doubled):
            changed = {**old.sizes, **dict.fromkeys(unit, other)}
            trial = self._run(replace(old, sizes=changed), unit)
            if trial and trial.assignment.sizes[unit[0]] != size:
                return trial
        # What is as large in a run that goes through may have to be.
        alike = [s for g in self._groups for s in g if old.sizes[s] == size]
        if len(alike) > len(unit):
            for other in (s for s in likely if self._candidates.allows(alike, s)):
                changed = {**old.sizes, **dict.fromkeys(alike, other)}
                if trial := self._run(replace(old, sizes=changed)):
                    return trial
        return None

    def _swapped(self, old: Assignment, fixed: Sequence[Sequence[str]]) -> Trial | None:
        """Both dims of a forced product the other way round."""
        spatial = [g for g in fixed if not self._candidates.is_batch(g)]
        if len(spatial) != 2:
            return None
        sizes = (old.sizes[spatial[1][0]], old.sizes[spatial[0][0]])
        if sizes[0] == sizes[1]:
            return None
        return self._run(self._paired(old, spatial, sizes))


def _unlike(sizes: Sequence[int], old: int) -> list[int]:
    """The sizes that differ from an old one, in turn odd where that was even and like it."""
    other = [s for s in sizes if s % 2 != old % 2]
    like = [s for s in sizes if s % 2 == old % 2 and s != old]
    pairs = itertools.zip_longest(other, like)
    return [s for pair in pairs for s in pair if s is not None]
