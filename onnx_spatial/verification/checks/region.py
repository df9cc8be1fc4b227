"""Compare a region: run both of its parts on generated data of several sizes.

    original part    operators and Conv in numpy, double precision   \\
                                                                      within a tolerance, or bit for bit
    converted part   onnxruntime, optimisations off and on           /
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property

import numpy as np

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.verification.arrays import Array, type_of
from onnx_spatial.verification.checks import region_trials
from onnx_spatial.verification.checks.findings import Proof
from onnx_spatial.verification.checks.region_judge import (
    NO_RUN,
    Compared,
    NeverRan,
    RegionJudge,
    Undecided,
)
from onnx_spatial.verification.compare import weights
from onnx_spatial.verification.compare.reference import Budget
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.runtime.both_levels import BothLevels
from onnx_spatial.verification.runtime.context import Sessions
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import rare_numbers
from onnx_spatial.verification.sizes.model_numbers import numbers_of
from onnx_spatial.verification.sizes.rare_numbers import SPREADS, Spread
from onnx_spatial.verification.sizes.size_search import Search
from onnx_spatial.verification.sizes.trial_runs import Trial
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion

_RANDOM = "it was fused with a random node"


class RegionComparison:
    """The two parts of a region, ready to be compared.

    Args:
        region: the region.
        models: the models that it was cut from.
        seed: of the data.
        budget: seconds that are left for double precision.
        proof: what is proven of it: if it is proven, one size is enough.
        analysed: the sites of its original part, if they are known.
        shared: sessions of the original parts of all regions.
    """

    def __init__(
        self,
        region: MatchingRegion,
        models: ModelPair,
        seed: int,
        budget: Budget | None = None,
        *,
        proof: Proof | None = None,
        analysed: list[OperatorInfo] | None = None,
        shared: Sessions | None = None,
    ) -> None:
        self.region = region
        self._proof = proof
        self._proven = proof is not None and proof.scope != "sampled"
        #: Why a difference that the prover found is left open, once the parts were compared.
        self.unreached: str | None = None
        self._models = models
        self._seed = seed
        self._budget = budget or Budget()
        source = models.original.holding(region.original())
        self._original = ReferenceModel(source, models.domains, analysed, shared)
        self._converted = region.converted()
        self._sessions = BothLevels(self._converted, region.output, models.converted.folder)

    def isolated(self) -> list[Compared] | str:
        """Compare on generated data; or return why that is impossible."""
        try:
            if isinstance(self._first, str):
                return self._first
            search, first = self._first
            if self._judge.reference.random:
                return _RANDOM
            if not self._proven and self._weights_differ:
                return [_of_other_weights(c) for c in self._compare(first)]
            trials = [first]
            if not self._proven:
                infos = self._original.known_infos
                found, self.unreached = region_trials.differing(search, first, self._proof)
                trials += found
                trials += region_trials.further(search, first, self.region, infos)
            compared = self._until_one_differs(trials)
        except (RunFailure, OperatorError, ModelFileError) as error:
            return str(error)
        reasons = [c.check.reason or "" for c in compared]
        if len(trials) > 1 and all(r.startswith(NO_RUN) for r in reasons):
            return NeverRan("it ran with none of the sizes that were tried")
        return self._decided(compared)

    def _decided(self, compared: list[Compared]) -> list[Compared] | str:
        """Decide what rounding leaves open by small numbers, which hardly amplify it."""
        settled = [c for c in compared if not c.undecided]
        if not all(c.check.passed for c in settled):
            return settled
        if all(c.verdict is None for c in compared):
            return compared
        small = [c for c in self.spread(("small",)) if not c.undecided]
        unclear = next((c.check for c in compared if c.undecided), None)
        if unclear is not None and all(c.check.passed and c.verdict is not None for c in small):
            return Undecided(f"undecided: rounding may explain that {unclear.reason}")
        return [*settled, *small]

    def spread(self, kinds: Sequence[Spread] | None = None) -> list[Compared]:
        """Compare on rare numbers, as far as the original accepts them."""
        try:
            if isinstance(self._first, str) or self._judge.reference.random:
                return []
            _, first = self._first
            # Where a part computes, the order in which numbers overflow is left to it.
            usual = [k for k in SPREADS if k != "largest" or not self._judge.reference.computes]
            return self._until_one_differs(self._rare(first, kinds or usual))
        except (RunFailure, OperatorError, ModelFileError):
            return []

    def trials(self) -> list[Trial] | str:
        """Return runs of the original's part on usual and rare numbers; or why there are none."""
        try:
            if isinstance(self._first, str):
                return self._first
            search, first = self._first
            usual = region_trials.further(search, first, self.region, self._original.known_infos)
            return [first, *usual, *self._rare(first, SPREADS)]
        except (RunFailure, OperatorError, ModelFileError) as error:
            return str(error)

    def _rare(self, first: Trial, kinds: Sequence[Spread]) -> Iterator[Trial]:
        """Repeat a run on rare numbers."""
        numbers = numbers_of((self._original.source.proto, self._converted))
        return rare_numbers.runs(
            self._original.program, first, kinds, numbers, self._seed, self._converted
        )

    def in_place(self, feeds: Mapping[str, Array], actual: Array) -> Compared | str:
        """Compare values of inputs and output in a run of the converted model; or return why not."""
        if not all(isinstance(a, np.ndarray) for a in (*feeds.values(), actual)):
            return "it has values that are not tensors"
        typed = replace(self.region, inputs={n: type_of(a) for n, a in feeds.items()})
        comparison = RegionComparison(typed, self._models, self._seed, self._budget)
        with closing(comparison):
            try:
                own = comparison._original.program.run(feeds)[self.region.output]
                if comparison._judge.reference.random:
                    return _RANDOM
                expected = comparison._judge.reference.expected(feeds, own)
            except (RunFailure, OperatorError, ModelFileError) as failure:
                return str(failure)
            compared = comparison._judge.judge(
                "in place", False, dict(feeds), expected, actual, actual
            )
        if compared.undecided:
            return Undecided(f"undecided: rounding may explain that {compared.check.reason}")
        return compared

    def close(self) -> None:
        """Release the sessions."""
        self._sessions.close()
        if "_judge" in self.__dict__:
            self._judge.close()

    @cached_property
    def _judge(self) -> RegionJudge:
        program, folder = self._original.program, self._models.converted.folder
        return RegionJudge(program, self._converted, folder, self.region.output, self._budget)

    @cached_property
    def _weights_differ(self) -> bool:
        """Whether the stored reals must be the same in both parts, and are not."""
        models = self._models
        before = weights.of(self._original.program.flat, models.original.folder)
        after = weights.of(self._converted, models.converted.folder)
        return before is not None and after is not None and before.differ(after)

    @cached_property
    def _first(self) -> tuple[Search, Trial] | str:
        return region_trials.find(self._original, self._seed)

    def _until_one_differs(self, trials: Iterable[Trial]) -> list[Compared]:
        """Compare run by run, up to the first with other values or another shape."""
        compared: list[Compared] = []
        for trial in trials:
            compared += self._compare(trial)
            if any(c.differs for c in compared):
                break
        return compared

    def _compare(self, trial: Trial) -> Iterator[Compared]:
        feeds, own = trial.feeds, trial.outputs[self.region.output]
        if not isinstance(own, np.ndarray):
            raise RunFailure("the output of the fused nodes is not a tensor", "load")
        # The sums of a proven region have the same terms, and the sizes of sums are not their terms:
        # double precision is for what looks wrong.
        brief = self._proven or trial.sizes_only
        expected = self._judge.reference.in_own_types(own) if brief else None
        for optimised, actual, failure in self._sessions.run(feeds):
            if failure is not None and (failure.lacks_kernel or failure.out_of_memory):
                raise failure  # the whole model will tell whether that is the conversion's fault
            if expected is None or not expected.check("isolated", optimised, own, actual).passed:
                expected = self._judge.reference.expected(feeds, own)
            yield self._judge.judge(
                "isolated", optimised, feeds, expected, actual, own, trial.spread
            )


def _of_other_weights(compared: Compared) -> Compared:
    check = compared.check
    if check.passed or compared.undecided:
        reason = "its weights are not those of the original"
        check = replace(check, mismatches=1, reason=reason)
    return Compared(check, compared.feeds, at_any_size=True)
