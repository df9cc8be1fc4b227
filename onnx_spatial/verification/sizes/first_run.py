"""Find legal sizes for the unknown input dims of a model: a first run that goes through.

What the sites demand of a dim is known and excludes sizes at once. What the rest of the model
forces (a Reshape to a fixed size, a MatMul, a Concat) is found by running the original: how far a
run got says whether a size was a step in the right direction, what the node that failed was given
says which dims have to agree (`operand_mismatch`), and where nothing is left sizes grow (`growth`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import numpy as np

from onnx_spatial.verification.arrays import INTEGER_MODES, INTEGERS
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.growth import Growth
from onnx_spatial.verification.sizes.model_inputs import Assignment, GraphInput
from onnx_spatial.verification.sizes.operand_mismatch import matching_sizes
from onnx_spatial.verification.sizes.trial_runs import (
    MAX_ELEMENTS,
    MAX_SECONDS,
    BudgetExhausted,
    Trial,
    TrialRuns,
    most_elements,
)

#: How many likely combinations are tried before dims are varied one by one.
_COMBINATIONS = 8
#: How many sets of run-time parameters are tried.
_PARAMETER_SETS = 4
_PAIRS = 200
#: How many sizes beyond the least are tried.
_TRIES_EACH = 4
#: How often the sizes of one input are changed so that they fit, at most.
_MENDS = 3
#: Runs of which nothing was left, before larger sizes are tried.
_TOO_SMALL = 4
#: What onnxruntime says where windows do not fit, and sizes of 0 or less in what it says of others.
_NOTHING_LEFT = re.compile(
    r"Invalid input shape|[Ww]indow|pooled|[{,[(x ](?:0|-[1-9]\d*)(?=[},\])x ]|$)"
)
#: How many sizes are tried for one dim before another dim has its turn.
_WIDTHS = (8, 32, None)


#: Sizes for each group of symbols, a way to fill integers, how many combinations.
_Round = tuple[list[list[int]], str, int | None]


class FirstRun:
    """Runs of the original until one goes through on sizes that it accepts.

    Args:
        program: the original.
        inputs: its inputs.
        fixed: symbols whose size the user gave.
        candidates: sizes worth trying.
        seed: of the data.
        seconds: how long each of the methods may look.
        large: whether inputs that are large at their least sizes are run all the same.

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
        *,
        large: bool = True,
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
        pairs = zip(self._groups, self._sizes, strict=True)
        least = {symbol: min(known, default=1) for group, known in pairs for symbol in group}
        most = most_elements(inputs, {**least, **fixed}) if large else MAX_ELEMENTS
        self._least = least
        open_inputs = (i for i in inputs if i.default is None)
        dims = ([d for d in i.dims or () if d in least] for i in open_inputs)
        self._open = [[str(d) for d in symbols] for symbols in dims if symbols]
        self._order = list(dict.fromkeys(itertools.chain(*self._open)))
        #: Symbols whose size followed from that of others once.
        self._following: set[str] = set()
        self._attempts = TrialRuns(
            program, inputs, seed, progress, seconds, least, most, explain=len(self._open) > 1
        )
        self._growth = Growth(candidates, self._attempts, self._run)
        self._empty: Trial | None = None
        self._takes_empty = False
        self.forced: dict[str, int] = {}

    @property
    def last_failure(self) -> RunFailure | None:
        """Why the most promising sizes were refused."""
        return self._attempts.last_failure

    @property
    def limit(self) -> int | None:
        """Elements of one input that were the most, where more might have done."""
        return int(self._attempts.most) if self._attempts.outgrown else None

    def first(self) -> Trial | None:
        """The first run that goes through, or None.

        Raises:
            RunFailure: the model cannot be run whatever the sizes.
        """
        methods: list[Callable[[], Trial | None]] = [
            lambda: self._likely(hasty=True),
            lambda: self._grow() if self._is_too_small() else None,
            lambda: self._likely() or self._climb() or self._try_pairs(),
            self._grow,
        ]
        for number, method in enumerate(methods):
            self._attempts.begin(anew=not number)
            with suppress(BudgetExhausted):
                if found := method():
                    return found
            if number and self._empty is not None:
                break
        self._takes_empty = True
        return self._empty

    def _is_too_small(self) -> bool:
        """Whether nothing seems to be left of the sizes that were tried."""
        return self._empty is not None or _says_nothing_left(self._attempts.last_failure)

    def _run(self, assignment: Assignment, keep: Collection[str] = ()) -> Trial | None:
        """A run that goes through and tells something: an output of it has elements.

        Where a node refuses its operands, sizes but those of `keep` are changed so that they fit.
        """
        for _ in range(2 + _MENDS * len(self._open)):
            trial = self._attempts.run(assignment)
            if trial is not None:
                if self._takes_empty or _tells(trial):
                    return trial
                self._empty = self._empty or trial
                return None
            assignment, old = self._mended(assignment, keep), assignment
            if assignment is old:
                return None
        return None

    def _mended(self, assignment: Assignment, keep: Collection[str]) -> Assignment:
        failure = self._attempts.latest_failure
        if failure is None or failure.operands is None:
            return assignment
        changed = {
            symbol: size
            for symbol, size in matching_sizes(
                failure.operands, self._dims, self._order, keep
            ).items()
            if self._candidates.allows([symbol], size)
        }
        if not changed:
            return assignment
        self._following.update(changed)
        return replace(assignment, sizes={**assignment.sizes, **changed})

    @cached_property
    def _dims(self) -> Mapping[str, Sequence[object]]:
        return self._candidates.dims()

    def _likely(self, *, hasty: bool = False) -> Trial | None:
        """Likely sizes with each way to fill integers, then more of them, then small ones.

        If hasty, no more where nothing was left of some.
        """
        small = [sorted(known) for known in self._sizes]
        rounds: list[_Round] = [(self._sizes, mode, 4) for mode in self._modes]
        rounds += [(lists, self._modes[0], None) for lists in (self._sizes, small)]
        too_small = 0
        for lists, mode, count in rounds:
            for start in self._starts(override=False):
                proposals = self._proposals(replace(start, mode=mode), lists)
                for proposal in itertools.islice(proposals, count):
                    if trial := self._run(proposal):
                        return trial
                    too_small += self._is_too_small()
                    if hasty and self._groups and too_small >= _TOO_SMALL:
                        return None
        return None

    def _grow(self) -> Trial | None:
        """Larger and larger sizes.

        Which dims have to be long is not known: all but the batch, in the proportions of the sizes that
        got furthest; those of the first input, with whatever else is fed as small as it can be (states);
        each on its own.
        """
        tried = self._empty.assignment if self._empty is not None else self._attempts.furthest
        spatial = [g for g in self._groups if not self._candidates.is_batch(g)]
        if tried is None or not spatial:
            return None
        if len(self._open) == 1:  # long runs, of no more images than have to be
            batch = {s: self._least[s] for g in self._groups if g not in spatial for s in g}
            tried = replace(tried, sizes={**tried.sizes, **batch})
        ways = [(tried, spatial)]
        if len(self._open) > 1:
            data = self._of_data(spatial)
            ways += [(replace(tried, sizes={**tried.sizes, **self._least}), data)] if data else []
        if len(spatial) > 1:
            ways += [(tried, [unit]) for unit in spatial]
        for start, units in ways:
            if trial := self._growth.least(start, units):
                return self._beyond(trial, units)
        return None

    def _of_data(self, units: Iterable[Sequence[str]]) -> list[list[str]]:
        """What of some units is a dim of the first input with such dims: most likely the data."""
        for dims in self._open:
            if found := [part for unit in units if (part := [s for s in unit if s in dims])]:
                return found
        return []

    def _beyond(self, least: Trial, units: Sequence[Sequence[str]]) -> Trial:
        """A run with the usual sizes, of what is left when as much is taken away as has to be there."""
        lists = []
        for unit in units:
            self._part(unit)
            place = self._groups.index(list(unit))
            # Less the least legal size, so that what divides the usual sizes divides these.
            away = least.assignment.sizes[unit[0]] - min(self._sizes[place])
            beyond = [away + s for s in self._sizes[place]]
            self._sizes[place] = [s for s in beyond if self._candidates.allows(unit, s)]
            lists.append(self._sizes[place])
        with suppress(BudgetExhausted):
            for chosen in itertools.islice(zip(*lists, strict=False), _TRIES_EACH):
                pairs = zip(units, chosen, strict=True)
                sizes = {symbol: size for unit, size in pairs for symbol in unit}
                assignment = replace(least.assignment, sizes={**least.assignment.sizes, **sizes})
                if trial := self._run(assignment):
                    return trial
        return least

    def _part(self, unit: Sequence[str]) -> None:
        """Make a group of some symbols of one group."""
        place = next(i for i, group in enumerate(self._groups) if unit[0] in group)
        if rest := [s for s in self._groups[place] if s not in unit]:
            self._groups[place : place + 1] = [list(unit), rest]
            self._sizes[place : place + 1] = map(self._candidates.sizes, (list(unit), rest))

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
                        if trial := self._run(assignment):
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
            if trial := self._run(self._paired(current, spatial, sizes)):
                return trial
        return None

    def _paired(
        self, current: Assignment, groups: Sequence[Sequence[str]], sizes: Sequence[int]
    ) -> Assignment:
        changed = {s: n for g, n in zip(groups, sizes, strict=True) for s in g}
        return replace(current, sizes={**current.sizes, **changed})


def _tells(trial: Trial) -> bool:
    """Whether a run gave anything to compare."""
    return not trial.outputs or any(np.size(value) for value in trial.outputs.values())


def _says_nothing_left(failure: RunFailure | None) -> bool:
    """Whether a run seems to have failed because nothing was left at some node: a size of 0 or less."""
    return failure is not None and _NOTHING_LEFT.search(str(failure)) is not None
