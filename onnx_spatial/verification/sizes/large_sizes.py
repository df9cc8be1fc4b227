"""Find large sizes that run, and one size of each remainder: what goes wrong there shows on any data.

    usual        2 x 257 x 1025 x 3    as in use: images, thousands of steps, a batch of 17
    long         1 x 17 x 65537 x 3    a Slice that ends at 1000, sizes in 16 bits
    remainders   2 x 33..64 x 40..71   pads that are wrong for one remainder of a stride
                 2 x 33, 41, .. 281 x 40   the same for sizes behind a stride of 8

All are bounded by their work, not by time: the verdict must not depend on the machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from onnx_spatial.verification.run.data import Assignment
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.growth import Run
from onnx_spatial.verification.sizes.size_groups import SizeGroup, resized
from onnx_spatial.verification.sizes.trial_runs import BudgetExhausted, Trial, TrialRuns

#: The long and the short sides of images, sequences and volumes that people use, by the number of open
#: dims beside the batch; and a batch.
_USUAL = {1: (4096, 4096), 2: (1024, 256), 3: (256, 32)}
_BATCH = 17
#: A long size: it exceeds 16 bits, and a float16. Products of a run with one: a twentieth of a second.
_LONG, _LONG_WORK = 2**16 + 1, 2**25
#: A long size that is worth more work.
_THOUSAND = 2**10 + 1
#: Sizes are run that leave each remainder by this number, which the strides of most nets divide.
_REMAINDERS = 32
#: Products of a run, or of those at all remainders together: a second or less.
_MOST_WORK = 2**31
#: Elements of an input with one long axis, with a side of a thousand, and of any input.
_MOST_LONG, _MOST_OF_THOUSAND, _MOST_ELEMENTS = 2**18, 2**20, 2**22
#: Elements of an input where nothing sums products.
_MOST_PLAIN = 2**24
#: Elements of an input whose size was asked for (128 MiB of float32).
_MOST_AT = 2**25
#: Sizes to try from a wanted one on, until one is legal; runs for one size.
_NEXT, _TRIES = 256, 3


class TooLargeError(Exception):
    """The sizes asked for are too large to be run."""


@dataclass(frozen=True)
class LargeSizes:
    """Grow sizes that run, of some groups of dims; `least` are the least sizes of all symbols."""

    candidates: Candidates
    trials: TrialRuns
    run: Run
    groups: Sequence[SizeGroup]
    least: dict[str, int]

    def usual(self, trial: Trial) -> list[Trial]:
        """Return runs at sizes in use: with each side as the long one in turn, and with a large batch.

        Where these are too much work, at half of these sizes, or less.
        """
        sides = [group for group in self.groups if not group.is_batch]
        batch = [group for group in self.groups if group.is_batch]
        long, short = _USUAL[min(max(1, len(sides)), max(_USUAL))]
        one = replace(trial.assignment, sizes=self._with_least(trial, batch), number=4)
        wanted = [(one, sides, [long if g is side else short for g in sides]) for side in sides]
        if batch:
            wanted.append((replace(trial.assignment, number=5), batch, [_BATCH] * len(batch)))
        self._begin()
        runs: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            for start, groups, sizes in wanted:
                runs += self._up_to(start, groups, sizes)
        return runs

    def long(self, trial: Trial, *, sums: bool = True) -> list[Trial]:
        """Return runs with one dim after the other as long as the work allows, and the others small.

        Where nothing `sums` products, dims reach a thousand beside large fixed dims, too.
        """
        self._begin()
        runs: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            for group in self.groups:
                others = [g for g in self.groups if g is not group]
                small = replace(trial.assignment, sizes=self._with_least(trial, others), number=6)
                for start in (small, replace(trial.assignment, number=6)):
                    if found := self._long(start, group, sums=sums):
                        runs += found
                        break
        return runs

    def at(self, trial: Trial, shapes: Mapping[str, Sequence[int]]) -> Trial | None:
        """Return a run with some shapes of inputs; None if they are not legal.

        Raises:
            TooLargeError: the run is too much work, or its data too large.
        """
        sizes = {
            dim: size
            for known in self.trials.inputs
            for dim, size in zip(known.dims or (), shapes.get(known.name, ()), strict=False)
            if isinstance(dim, str)
        }
        if not sizes or not sizes.keys() <= self.least.keys():  # fixed by the user
            return None
        wanted = replace(trial.assignment, sizes={**trial.assignment.sizes, **sizes}, number=8)
        self.trials.begin()
        self.trials.most = max(self.trials.most, _MOST_AT)
        if self._excess(wanted, _MOST_AT, _MOST_WORK) > 1:
            raise TooLargeError
        with suppress(BudgetExhausted, RunFailure):
            run = self.run(wanted, tuple(sizes))
            return None if run is None else replace(run, sizes_only=True)
        return None

    def remainders(self, trial: Trial, strides: Collection[int] = ()) -> list[Trial]:
        """Return runs at sizes of each remainder, of all dims but the batch, if they are little work.

        The sizes behind some strides have each remainder, too: those of one dim after the other.
        """
        sides = [group for group in self.groups if not group.is_batch]
        old = trial.assignment.sizes
        if not sides or _REMAINDERS * self.candidates.work(old) > _MOST_WORK:
            return []
        self._begin()
        runs: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            sizes = [self._of_each_remainder(group, old[group.symbols[0]]) for group in sides]
            for step in range(1, max(map(len, sizes))):
                start = replace(trial.assignment, number=7)
                chosen = [legal[step % len(legal)] for legal in sizes]
                runs += self._of(resized(start, [group.symbols for group in sides], chosen))
            for group, stride in itertools.product(sides, sorted(strides)):
                self._begin()
                runs += self._behind(trial, group, stride)
        return runs

    def _behind(self, trial: Trial, group: SizeGroup, stride: int) -> list[Trial]:
        """Return runs in which a size behind a stride has each remainder."""
        start = replace(trial.assignment, number=8)
        size = start.sizes[group.symbols[0]]
        last = resized(start, [group.symbols], [size + stride * _REMAINDERS])
        if self._excess(last, _MOST_LONG, _MOST_WORK // _REMAINDERS) > 1:
            return []
        further = (self._legal(group, size + stride * step) for step in range(1, _REMAINDERS))
        sizes = [resized(start, [group.symbols], [s]) for s in dict.fromkeys(further)]
        return [run for assignment in sizes for run in self._of(assignment)]

    def beyond(self, trial: Trial, limits: Iterable[int], most: int) -> list[Trial]:
        """Return runs with one dim after the other beyond each of some limits, and the others small.

        Args:
            trial: an earlier run.
            limits: integers that the converted model may compare sizes with.
            most: a size that all dims had in an earlier run: smaller limits tell nothing more.
        """
        self._begin()
        self.trials.most = max(self.trials.most, _MOST_PLAIN)
        runs: list[Trial] = []
        with suppress(BudgetExhausted, RunFailure):
            for limit, group in itertools.product(limits, self.groups):
                if not max(most, trial.assignment.sizes[group.symbols[0]]) <= limit < _LONG:
                    continue
                others = [g for g in self.groups if g is not group]
                start = replace(trial.assignment, sizes=self._with_least(trial, others), number=9)
                wanted = resized(start, [group.symbols], [self._legal(group, limit + 1)])
                if self._excess(wanted, _MOST_PLAIN, _MOST_WORK) <= 1:
                    runs += self._of(wanted)
        return runs

    def _long(self, start: Assignment, group: SizeGroup, *, sums: bool) -> list[Trial]:
        thousand = resized(start, [group.symbols], [_THOUSAND])
        if not sums and self._excess(thousand, _MOST_LONG, _LONG_WORK) > 1:
            self.trials.most = max(self.trials.most, _MOST_PLAIN)
            return self._up_to(start, [group], [_THOUSAND], _MOST_PLAIN)
        if group.is_batch:
            return self._up_to(start, [group], [_THOUSAND], _MOST_LONG, _LONG_WORK)
        if self._excess(thousand, _MOST_LONG, _LONG_WORK) > 1:
            return self._up_to(start, [group], [_THOUSAND], _MOST_OF_THOUSAND)
        return self._up_to(start, [group], [_LONG], _MOST_LONG, _LONG_WORK)

    def _begin(self) -> None:
        self.trials.begin()
        self.trials.most = max(self.trials.most, _MOST_ELEMENTS)

    def _with_least(self, trial: Trial, groups: Sequence[SizeGroup]) -> dict[str, int]:
        """Return the sizes of a trial, the least ones for some groups."""
        small = {symbol: self.least[symbol] for group in groups for symbol in group.symbols}
        return {**trial.assignment.sizes, **small}

    def _up_to(
        self,
        start: Assignment,
        groups: Sequence[SizeGroup],
        sizes: Sequence[int],
        most_elements: int = _MOST_ELEMENTS,
        most_work: int = _MOST_WORK,
    ) -> list[Trial]:
        """Return a run with the wanted sizes of some groups, or half of them, and so on."""
        old = [start.sizes[group.symbols[0]] for group in groups]
        symbols = [group.symbols for group in groups]
        tries = 0
        while sizes and any(size > 2 * before for size, before in zip(sizes, old, strict=True)):
            # By as many strides more: most nets that run at the old sizes run at these, too.
            steps = (-(-max(0, s - b) // _REMAINDERS) for s, b in zip(sizes, old, strict=True))
            wide = [b + _REMAINDERS * step for b, step in zip(old, steps, strict=True)]
            for chosen in (sizes, wide):
                legal = [self._legal(g, s) for g, s in zip(groups, chosen, strict=True)]
                assignment = resized(start, symbols, legal)
                excess = self._excess(assignment, most_elements, most_work)
                if excess > 1:
                    break
                if trial := self._of(assignment):
                    return trial
                tries += 1
                if tries == _TRIES:
                    return []
            sizes = [int(size / max(2.0, excess ** (1 / len(sizes)))) for size in sizes]
        return []

    def _excess(self, assignment: Assignment, most_elements: int, most_work: int) -> float:
        """Return how many times too large a run is; 1 or less if it is not."""
        excess = self.trials.elements(assignment) / most_elements
        return excess if excess > 1 else self.candidates.work(assignment.sizes) / most_work

    def _legal(self, group: SizeGroup, size: int) -> int:
        """Return the next size that no operator is known to forbid."""
        near = range(size, size + _NEXT)
        return next((s for s in near if self.candidates.allows(group.symbols, s)), size)

    def _of_each_remainder(self, group: SizeGroup, size: int) -> list[int]:
        """Return legal sizes from one on: the first of each remainder."""
        near = range(size, size + _REMAINDERS**2)
        legal = (s for s in near if self.candidates.allows(group.symbols, s))
        first = {s % _REMAINDERS: s for s in reversed([size, *legal])}
        return sorted(first.values())

    def _of(self, assignment: Assignment) -> list[Trial]:
        trial = self.run(assignment, ())
        return [] if trial is None else [replace(trial, sizes_only=True)]
