"""Find legal sizes for the unknown input dims of a model: search until a first run succeeds.

The sites exclude sizes before any run. What the rest of the model requires (a Reshape to a fixed size, a
MatMul, a Concat) shows when the original runs: a run that gets further has better sizes (`hill_climb`),
the operands of the node that failed tell which dims must agree (`operand_mismatch`), and where nothing
is left of the data the sizes grow (`growth`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import numpy as np

from onnx_spatial.model.symbolic.symbolic_tensor import INTEGERS
from onnx_spatial.verification.run.data import INTEGER_MODES, Assignment, GraphInput
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.growth import Growth
from onnx_spatial.verification.sizes.hill_climb import HillClimb
from onnx_spatial.verification.sizes.operand_mismatch import matching_sizes
from onnx_spatial.verification.sizes.size_groups import SizeGroup, proposals, resized
from onnx_spatial.verification.sizes.trial_runs import (
    MAX_ELEMENTS,
    MAX_SECONDS,
    BudgetExhausted,
    Trial,
    TrialRuns,
    most_elements,
)

#: Sets of run-time parameters to try.
_PARAMETER_SETS = 4
#: Sizes beyond the least to try.
_TRIES_EACH = 4
#: Changes of the sizes of one input to match operands, at most.
_MATCHES = 3
#: Runs of which nothing was left, before larger sizes are tried.
_TOO_SMALL = 4
#: Messages of onnxruntime where windows do not fit, and sizes of 0 or less in its other messages.
_NOTHING_LEFT = re.compile(
    r"Invalid input shape|[Ww]indow|pooled|[{,[(x ](?:0|-[1-9]\d*)(?=[},\])x ]|$)"
)


class FirstRun:
    """Run the original until a run succeeds, with data of a seed, for some seconds by each method.

    Args:
        program, inputs: the original and its inputs.
        fixed: symbols whose size the user gave.
        candidates: sizes worth trying.
        progress: called with a line for each run.
        large: whether inputs that are large at their least sizes are run, too.

    Attributes:
        forced: symbols with only one size that runs, as far as tried, with that size.
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
        groups = ([s for s in symbols if s not in fixed] for symbols in candidates.groups())
        self._groups = [SizeGroup.of(symbols, candidates) for symbols in groups if symbols]
        integers = any(i.default is None and i.element_type in INTEGERS for i in inputs)
        self._modes = INTEGER_MODES if integers else INTEGER_MODES[:1]
        self._least = {s: min(g.sizes, default=1) for g in self._groups for s in g.symbols}
        most = most_elements(inputs, {**self._least, **fixed}) if large else MAX_ELEMENTS
        open_inputs = (i for i in inputs if i.default is None)
        dims = ([str(d) for d in i.dims or () if d in self._least] for i in open_inputs)
        self._open = [symbols for symbols in dims if symbols]
        self._order = list(dict.fromkeys(itertools.chain(*self._open)))
        #: Symbols whose size once followed from that of others.
        self._following: set[str] = set()
        explain = len(self._open) > 1
        self._trials = TrialRuns(
            program, inputs, seed, progress, seconds, self._least, most, explain
        )
        self._growth = Growth(candidates, self._trials, self._run)
        self._hill_climb = HillClimb(
            candidates, self._trials, self._run, self._groups, self._modes, seed
        )
        self._empty: Trial | None = None
        self._takes_empty = False
        self.forced: dict[str, int] = {}

    @property
    def last_failure(self) -> RunFailure | None:
        """The failure of the run that got furthest."""
        return self._trials.last_failure

    @property
    def limit(self) -> int | None:
        """The most elements of one input that were tried, where more might have succeeded."""
        return int(self._trials.most) if self._trials.outgrown else None

    def first(self) -> Trial | None:
        """Return the first run that succeeds, or None.

        Raises:
            RunFailure: the model does not run whatever the sizes.
        """
        methods: list[Callable[[], Trial | None]] = [
            lambda: self._likely(hasty=True),
            lambda: self._grow() if self._is_too_small() else None,
            lambda: self._likely() or self._hill_climb.climb() or self._hill_climb.pairs(),
            self._grow,
        ]
        for number, method in enumerate(methods):
            self._trials.begin(anew=not number)
            with suppress(BudgetExhausted):
                if trial := method():
                    return trial
            if number and self._empty is not None:
                break
        self._takes_empty = True
        return self._empty

    def _is_too_small(self) -> bool:
        """Return whether the sizes tried so far leave nothing: a size of 0 or less at some node."""
        failure = self._trials.last_failure
        nothing_left = failure is not None and _NOTHING_LEFT.search(str(failure)) is not None
        return self._empty is not None or nothing_left

    def _run(self, assignment: Assignment, keep: Collection[str] = ()) -> Trial | None:
        """Return a successful run, with elements in its outputs.

        Where a node refuses its operands, sizes are changed to match, except those of `keep`.
        """
        for _ in range(2 + _MATCHES * len(self._open)):
            trial = self._trials.run(assignment)
            if trial is not None:
                outputs = trial.outputs.values()
                if self._takes_empty or not outputs or any(np.size(value) for value in outputs):
                    return trial
                self._empty = self._empty or trial
                return None
            changes = self._matching_sizes(keep)
            if not changes:
                return None
            self._following.update(changes)
            assignment = replace(assignment, sizes={**assignment.sizes, **changes})
        return None

    def _matching_sizes(self, keep: Collection[str]) -> dict[str, int]:
        """Other sizes with which the operands of the node that failed fit each other."""
        failure = self._trials.latest_failure
        if failure is None or failure.operands is None:
            return {}
        changes = matching_sizes(failure.operands, self._dims, self._order, keep)
        return {s: size for s, size in changes.items() if self._candidates.allows([s], size)}

    @cached_property
    def _dims(self) -> Mapping[str, Sequence[object]]:
        return self._candidates.dims()

    def _likely(self, *, hasty: bool = False) -> Trial | None:
        """Try likely sizes with each way to fill integers, then more of them, then small ones.

        If hasty, stop after some sizes of which nothing was left.
        """
        usual = [group.sizes for group in self._groups]
        rounds: list[tuple[list[list[int]], str, int | None]]
        rounds = [(usual, mode, 4) for mode in self._modes]
        rounds += [(sizes, self._modes[0], None) for sizes in (usual, list(map(sorted, usual)))]
        too_small = 0
        for sizes, mode, count in rounds:
            for start in self._starts(override=False):
                likely = self._proposals(replace(start, mode=mode), sizes)
                for proposal in itertools.islice(likely, count):
                    if trial := self._run(proposal):
                        return trial
                    too_small += self._is_too_small()
                    if hasty and self._groups and too_small >= _TOO_SMALL:
                        return None
        return None

    def _grow(self) -> Trial | None:
        """Try larger and larger sizes.

        Which dims have to be long is unknown: all but the batch, in the proportions of the run that got
        furthest; those of the first input, with all others as small as possible (states); each group.
        """
        tried = self._empty.assignment if self._empty is not None else self._trials.furthest
        spatial = [group.symbols for group in self._groups if not group.is_batch]
        if tried is None or not spatial:
            return None
        if len(self._open) == 1:  # long runs, of no more images than necessary
            batch = {s: self._least[s] for g in self._groups if g.is_batch for s in g.symbols}
            tried = replace(tried, sizes={**tried.sizes, **batch})
        ways = [(tried, spatial)]
        if len(self._open) > 1:
            data = self._of_data(spatial)
            ways += [(replace(tried, sizes={**tried.sizes, **self._least}), data)] if data else []
        if len(spatial) > 1:
            ways += [(tried, [symbols]) for symbols in spatial]
        for start, groups in ways:
            if trial := self._growth.least(start, groups):
                return self._beyond(trial, groups)
        return None

    def _of_data(self, groups: Iterable[Sequence[str]]) -> list[list[str]]:
        """Return the parts of groups that are dims of the first open input: most likely the data."""
        for dims in self._open:
            if parts := [part for symbols in groups if (part := [s for s in symbols if s in dims])]:
                return parts
        return []

    def _beyond(self, least: Trial, groups: Sequence[Sequence[str]]) -> Trial:
        """Return a run that leaves the usual sizes of what the model crops, or else the least run."""
        sizes_of = []
        for symbols in groups:
            group = self._split(symbols)
            # Less the least legal size, so that these sizes have the divisors of the usual ones.
            cropped = least.assignment.sizes[symbols[0]] - min(group.sizes)
            larger = (cropped + s for s in group.sizes)
            group.sizes = self._candidates.allowed(symbols, larger)
            sizes_of.append(group.sizes)
        with suppress(BudgetExhausted):
            for chosen in itertools.islice(zip(*sizes_of, strict=False), _TRIES_EACH):
                if trial := self._run(resized(least.assignment, groups, chosen)):
                    return trial
        return least

    def _split(self, symbols: Sequence[str]) -> SizeGroup:
        """Make some symbols of one group a group of their own, and return it."""
        index = next(i for i, group in enumerate(self._groups) if symbols[0] in group.symbols)
        if rest := [s for s in self._groups[index].symbols if s not in symbols]:
            parts = [SizeGroup.of(part, self._candidates) for part in (symbols, rest)]
            self._groups[index : index + 1] = parts
        return self._groups[index]

    def _starts(self, *, override: bool) -> Iterator[Assignment]:
        """Sets of run-time parameters with their sizes; an empty one for a model without."""
        if not self._candidates.parameter_names():
            yield Assignment(self._fixed, number=int(override))
            return
        for number in range(_PARAMETER_SETS):
            rng = np.random.default_rng([self._seed, number, int(override)])
            sizes, values = self._candidates.parameters(
                self._fixed, number + int(override), rng, override
            )
            yield Assignment(sizes, values, number=int(override))

    def _proposals(self, start: Assignment, sizes: Sequence[Sequence[int]]) -> Iterator[Assignment]:
        """Likely combinations of sizes, a list for each group, beside those of the start."""
        for proposal in proposals(self._groups, sizes):
            yield replace(start, sizes={**proposal, **start.sizes})
