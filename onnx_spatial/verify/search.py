"""Find legal sizes for the unknown input dims of a model, at least two for each where it allows.

What the sites demand of a dim is known and excludes sizes at once. What the rest of the model
forces (a Reshape to a fixed size, a MatMul, a Concat) is found by running the original: how far a
run got says whether a size was a step in the right direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnx_spatial.verify.attempts import MAX_SECONDS, Attempts, Spent, Trial
from onnx_spatial.verify.candidates import Candidates
from onnx_spatial.verify.inputs import Assignment, GraphInput
from onnx_spatial.verify.program import Program
from onnx_spatial.verify.sessions import RunFailure
from onnx_spatial.verify.values import INTEGER_MODES, INTEGERS, Array, Spread

#: How many likely combinations are tried before dims are varied one by one.
_COMBINATIONS = 8
#: How many sets of run-time parameters are tried.
_PARAMETER_SETS = 4
#: How many other sizes are tried for a dim before it counts as forced.
_OTHERS = 12
_PAIRS = 200
#: How far sizes are varied, and how many tries each of them may cost.
_NEAR = 16
_NEAR_BATCH = 4
_TRIES_EACH = 4
#: How many sizes are tried for one dim before another dim has its turn.
_WIDTHS = (8, 32, None)


#: Sizes for each group of symbols, a way to fill integers, how many combinations.
_Round = tuple[list[list[int]], str, int | None]


class Search:
    """Runs of the original on sizes that it accepts.

    Args:
        program: the original.
        inputs: its inputs.
        fixed: symbols whose size the user gave.
        candidates: sizes worth trying.
        seed: of the data.
        seconds: how long each of the methods may look.

    Attributes:
        forced: symbols of which only one size was found, with that size.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[GraphInput],
        fixed: Mapping[str, int],
        candidates: Candidates,
        seed: int,
        progress: Callable[[str], None],
        seconds: float = MAX_SECONDS,
    ) -> None:
        self._fixed = dict(fixed)
        self._candidates = candidates
        self._seed = seed
        self._groups = [
            group for g in candidates.groups() if (group := [s for s in g if s not in fixed])
        ]
        self._sizes = [candidates.sizes(group) for group in self._groups]
        integers = any(i.default is None and i.element_type in INTEGERS for i in inputs)
        self._modes = INTEGER_MODES if integers else INTEGER_MODES[:1]
        self._attempts = Attempts(program, inputs, seed, progress, seconds, bool(self._groups))
        self.forced: dict[str, int] = {}

    @property
    def last_failure(self) -> RunFailure | None:
        """Why the most promising sizes were refused."""
        return self._attempts.last_failure

    def first(self) -> Trial | None:
        """The first run that goes through, or None.

        Raises:
            RunFailure: the model cannot be run whatever the sizes.
        """
        self._attempts.begin()
        try:
            return self._likely() or self._climb() or self._try_pairs()
        except Spent:
            return None

    def _likely(self) -> Trial | None:
        """Likely sizes with each way to fill integers, then more of them, then small ones."""
        small = [sorted(known) for known in self._sizes]
        rounds: list[_Round] = [(self._sizes, mode, 4) for mode in self._modes]
        rounds += [(lists, self._modes[0], None) for lists in (self._sizes, small)]
        for lists, mode, count in rounds:
            for start in self._starts(override=False):
                proposals = self._proposals(replace(start, mode=mode), lists)
                for proposal in itertools.islice(proposals, count):
                    if trial := self._attempts.run(proposal):
                        return trial
        return None

    def others(self, first: Trial) -> list[Trial]:
        """More runs, so that every symbol that can has another size than in the first."""
        if not self._groups and not self._candidates.parameter_names():
            return []
        self._attempts.begin()
        try:
            return self._others(first)
        except (Spent, RunFailure):
            sizes = first.assignment.sizes
            self.forced = {s: sizes[s] for group in self._groups for s in group}
            return []

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
                for unit in self._groups:
                    if unit[0] in self.forced:
                        continue
                    # Not smaller ones: a net of pools and strides has nothing left to compute there.
                    batch = self._candidates.is_batch(unit)
                    least = sizes[unit[0]]
                    near = range(least, least + (_NEAR_BATCH if batch else _NEAR))
                    allowed = [s for s in near if self._candidates.allows(unit, s)]
                    if allowed:
                        sizes.update(dict.fromkeys(unit, int(rng.choice(allowed))))
                number = len(trials) + len(found)
                if trial := self._attempts.run(replace(start, sizes=sizes, number=number)):
                    found.append(trial)
        except (Spent, RunFailure):
            pass
        return found

    def corners(self, trial: Trial) -> list[Trial]:
        """The sizes of a trial with the smallest batch, and with all other dims alike."""
        self._attempts.begin()
        batch = [g for g in self._groups if self._candidates.is_batch(g)]
        others = [g for g in self._groups if not self._candidates.is_batch(g)]
        found: list[Trial] = []
        for units in (*([g] for g in batch), *([others] if len(others) > 1 else [])):
            old = trial.assignment.sizes
            start = 1 if units[0] in batch else max(old[unit[0]] for unit in units)
            near = range(start, start + _NEAR)
            allowed = (s for s in near if all(self._candidates.allows(u, s) for u in units))
            for size in itertools.islice(allowed, _TRIES_EACH):
                sizes = {**old, **{symbol: size for unit in units for symbol in unit}}
                try:
                    other = self._attempts.run(replace(trial.assignment, sizes=sizes, number=3))
                except (Spent, RunFailure):
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
                    if other := self._attempts.run(
                        replace(trial.assignment, sizes=sizes, number=2)
                    ):
                        found.append(other)
                        break
        except (Spent, RunFailure):
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
            return self._attempts.run(changed)
        except (Spent, RunFailure):
            return None

    def _starts(self, *, override: bool) -> Iterator[Assignment]:
        """Run-time parameters with the sizes that go with them; nothing where there are none."""
        if not self._candidates.parameter_names():
            yield Assignment(self._fixed, number=int(override))
            return
        for number in range(_PARAMETER_SETS):
            rng = np.random.default_rng([self._seed, number, int(override)])
            sizes, values = self._candidates.parameters(
                self._fixed, number + int(override), rng, override
            )
            yield Assignment(sizes, values, number=int(override))

    def _proposals(self, start: Assignment, lists: Sequence[Sequence[int]]) -> Iterator[Assignment]:
        """Likely sizes, given a list for each group: each dim another one, then all the same."""
        batch = [self._candidates.is_batch(g) for g in self._groups]
        spatial = [known for known, b in zip(lists, batch, strict=True) if not b]
        common = [s for s in (spatial[0] if spatial else ()) if all(s in k for k in spatial)]
        for turn in range(_COMBINATIONS):
            sizes: dict[str, int] = {}
            at = turn
            for b, group, known in zip(batch, self._groups, lists, strict=True):
                if known:
                    sizes.update(dict.fromkeys(group, known[(turn // 2 if b else at) % len(known)]))
                at += 0 if b else 2  # another size, and in most lists again odd, or even
            yield self._with(start, sizes)
            if len(spatial) > 1 and common:
                for b, group in zip(batch, self._groups, strict=True):
                    if not b:
                        sizes.update(dict.fromkeys(group, common[turn % len(common)]))
                yield self._with(start, sizes)

    def _with(self, start: Assignment, sizes: Mapping[str, int]) -> Assignment:
        return replace(start, sizes={**sizes, **start.sizes})

    def _climb(self) -> Trial | None:
        """Change one thing at a time, and keep it if the run gets further."""
        for width in _WIDTHS:
            moved = True
            while moved and self._attempts.furthest is not None:
                moved = False
                for change in self._changes():
                    reached, current = self._attempts.reached, self._attempts.furthest
                    assert current is not None
                    for assignment in itertools.islice(change(current), width):
                        if trial := self._attempts.run(assignment):
                            return trial
                        if self._attempts.reached > reached:
                            moved = True
                            break
        return None

    def _changes(self) -> Iterator[Callable[[Assignment], Iterator[Assignment]]]:
        yield self._redrawn
        yield lambda a: (replace(a, mode=m) for m in self._modes)
        singles = [[s] for g in self._groups if len(g) > 1 for s in g]
        batch_last = sorted(self._groups, key=self._candidates.is_batch)
        for unit in (*batch_last, *singles):
            yield lambda a, u=unit: self._resized(a, u)  # type: ignore[misc]

    def _redrawn(self, assignment: Assignment) -> Iterator[Assignment]:
        """Other parameters for the operator that refused its data, which they were not drawn for."""
        failure = self.last_failure
        if failure is not None and failure.refused is not None:
            site, shape = failure.refused
            for values in self._candidates.redrawn(site, shape, assignment.values, self._seed):
                yield replace(assignment, values=values)

    def _resized(self, assignment: Assignment, unit: Sequence[str]) -> Iterator[Assignment]:
        hinted = self._candidates.hinted(str(self.last_failure))
        allowed = [s for s in hinted if self._candidates.allows(unit, s)]
        for size in (*allowed, *self._candidates.sizes(unit)):
            yield replace(assignment, sizes={**assignment.sizes, **dict.fromkeys(unit, size)})

    def _try_pairs(self) -> Trial | None:
        """Two dims of which the model forces the product."""
        current = self._attempts.furthest
        spatial = [g for g in self._groups if not self._candidates.is_batch(g)]
        if current is None or len(spatial) != 2:
            return None
        fitting = (
            sizes
            for pair in self._candidates.pairs(str(self.last_failure))
            for sizes in (pair, pair[::-1])
            if all(map(self._candidates.allows, spatial, sizes))
        )
        for sizes in itertools.islice(fitting, _PAIRS):
            if trial := self._attempts.run(self._paired(current, spatial, sizes)):
                return trial
        return None

    def _paired(
        self, current: Assignment, groups: Sequence[Sequence[str]], sizes: Sequence[int]
    ) -> Assignment:
        changed = {s: n for g, n in zip(groups, sizes, strict=True) for s in g}
        return replace(current, sizes={**current.sizes, **changed})

    def _others(self, first: Trial) -> list[Trial]:
        old = first.assignment
        symbols = [s for g in self._groups for s in g]
        pairs = zip(self._groups, self._sizes, strict=True)
        lists = [_unlike(known, old.sizes[group[0]]) for group, known in pairs]
        for start in self._starts(override=True):
            for proposal in self._proposals(replace(start, mode=old.mode), lists):
                new = all(proposal.sizes.get(s, old.sizes[s]) != old.sizes[s] for s in symbols)
                if new and (trial := self._attempts.run(proposal)):
                    return [trial]
        return self._one_by_one(first)

    def _one_by_one(self, first: Trial) -> list[Trial]:
        old = replace(first.assignment, number=1)
        found: list[Trial] = []
        varied: dict[str, int] = {}
        for unit in self._groups:
            changed = self._vary(old, unit)
            if changed is None:
                self.forced.update((s, old.sizes[s]) for s in unit)
            else:
                found.append(changed)
                varied.update((s, changed.assignment.sizes[s]) for s in unit)
        if len(found) > 1:
            joint = self._attempts.run(replace(old, sizes={**old.sizes, **varied}))
            found = [joint] if joint is not None else found
        swapped = self._swapped(old) if len(self.forced) > 1 else None
        if swapped is not None:
            found.append(swapped)
            changed_sizes = swapped.assignment.sizes
            self.forced = {s: n for s, n in self.forced.items() if changed_sizes[s] == n}
        return found

    def _vary(self, old: Assignment, unit: Sequence[str]) -> Trial | None:
        size = old.sizes[unit[0]]
        likely = _unlike(self._candidates.sizes(unit), size)[:_OTHERS]
        # What the strides of a net divide, they divide twice as well.
        doubled = [s for s in (2 * size, size + 32) if self._candidates.allows(unit, s)]
        for size in (*likely, *doubled):
            changed = {**old.sizes, **dict.fromkeys(unit, size)}
            if trial := self._attempts.run(replace(old, sizes=changed)):
                return trial
        return None

    def _swapped(self, old: Assignment) -> Trial | None:
        """Both dims of a forced product the other way round."""
        spatial = [
            g for g in self._groups if g[0] in self.forced and not self._candidates.is_batch(g)
        ]
        if len(spatial) != 2:
            return None
        sizes = (old.sizes[spatial[1][0]], old.sizes[spatial[0][0]])
        if sizes[0] == sizes[1]:
            return None
        return self._attempts.run(self._paired(old, spatial, sizes))


def _unlike(sizes: Sequence[int], old: int) -> list[int]:
    """The sizes that differ from an old one, in turn odd where that was even and like it."""
    other = [s for s in sizes if s % 2 != old % 2]
    like = [s for s in sizes if s % 2 == old % 2 and s != old]
    pairs = itertools.zip_longest(other, like)
    return [s for pair in pairs for s in pair if s is not None]
