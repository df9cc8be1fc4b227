"""Compare a region: run both of its parts on generated data of several sizes.

    original part    operators and Conv in numpy, double precision   \\
                                                                      within a tolerance, or bit for bit
    converted part   onnxruntime, optimisations off and on           /
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.verification.arrays import Array, dtype_name, is_float, type_of
from onnx_spatial.verification.checks import region_trials
from onnx_spatial.verification.checks.findings import Proof
from onnx_spatial.verification.checks.model_pair import ModelPair
from onnx_spatial.verification.compare import overflow, to_float64, weights
from onnx_spatial.verification.compare.error_metrics import errors, largest_finite
from onnx_spatial.verification.compare.float64_outputs import WORSE
from onnx_spatial.verification.compare.outputs import RTOL
from onnx_spatial.verification.compare.reference import Budget, Expected, Reference
from onnx_spatial.verification.compare.rounding import Rounding, Verdict
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import BothLevels, RunFailure
from onnx_spatial.verification.sizes import rare_numbers
from onnx_spatial.verification.sizes.model_numbers import numbers_of
from onnx_spatial.verification.sizes.rare_numbers import BEYOND_ARITHMETIC, SPREADS, Spread
from onnx_spatial.verification.sizes.size_search import Search
from onnx_spatial.verification.sizes.trial_runs import Trial
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegion

#: In double precision a difference by rounding is this share of what it was, or less.
_VANISHES = 1e-3
#: Numbers next to those that overflow may be far less precise, as in Log(Sigmoid).
_MAY_OVERFLOW = ("large", "constants")

_NO_RUN = "it does not run"
#: Times the root of a type's unit, of the largest input: what a norm leaves of equal numbers.
_CANCELLED = 8.0
_RANDOM = "it was fused with a random node"


@dataclass(frozen=True)
class Compared:
    """A comparison, its data, and the verdict of measured rounding beyond the tolerance.

    `at_any_size` tells that a difference does not depend on the sizes of the data.
    `overflows` tells that it differs only where rare numbers exceed the range of a type.
    """

    check: Check
    feeds: dict[str, Array]
    verdict: Verdict | None = None
    at_any_size: bool = False
    overflows: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the difference may be rounding or more."""
        return self.verdict is Verdict.UNDECIDED

    @property
    def differs(self) -> bool:
        """Whether both parts run, and compute something else."""
        reason = self.check.reason
        open_question = self.undecided or self.overflows
        return reason is not None and not open_question and not reason.startswith(_NO_RUN)


class Doubt(str):
    """A reason why nothing is concluded: there is a difference that may not matter."""


class Undecided(Doubt):
    """A reason why nothing is concluded: rounding may explain the difference."""


class NeverRan(str):
    """A reason why a region cannot be compared: only the original's part runs."""


class Unreached(Doubt):
    """A reason why nothing is concluded: no run of the model reached the numbers that differ."""


class Overflows(Unreached):
    """A reason why nothing is concluded: it differs, but only where rare numbers overflow."""


class RegionComparison:
    """The two parts of a region, ready to be compared.

    Args:
        region: the region.
        models: the models that it was cut from.
        seed: of the data.
        budget: seconds that are left for double precision.
        proof: what is proven of it: if it is proven, one size is enough.
        analysed: the sites of its original part, if they are known.
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
        self._original = ReferenceModel(source, models.domains, analysed)
        self._converted = region.converted()
        self._sessions = BothLevels(self._converted, region.output, models.converted.folder)

    def isolated(self) -> list[Compared] | str:
        """Compare on generated data; or return why that is impossible."""
        try:
            if isinstance(self._first, str):
                return self._first
            search, first = self._first
            if self._reference.random:
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
        if len(trials) > 1 and all(r.startswith(_NO_RUN) for r in reasons):
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
            if isinstance(self._first, str) or self._reference.random:
                return []
            _, first = self._first
            # Where a part computes, the order in which numbers overflow is left to it.
            usual = [k for k in SPREADS if k != "largest" or not self._reference.computes]
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
                if comparison._reference.random:
                    return _RANDOM
                expected = comparison._reference.expected(feeds, own)
            except (RunFailure, OperatorError, ModelFileError) as failure:
                return str(failure)
            compared = comparison._judged("in place", False, dict(feeds), expected, actual, actual)
        if compared.undecided:
            return Undecided(f"undecided: rounding may explain that {compared.check.reason}")
        return compared

    def _vanishes_in_float64(self, feeds: Mapping[str, Array], own: Array, actual: Array) -> bool:
        """Return whether a difference all but vanishes where both parts run in double precision."""
        before = self._reference.in_float64(feeds)
        after = None if before is None else self._converted_reference.in_float64(feeds)
        if before is None or after is None or after.shape != before.shape:
            return False
        apart, remaining = (errors(*pair)[0] for pair in ((own, actual), (before, after)))
        return bool(remaining.max(initial=0.0) <= _VANISHES * apart.max(initial=0.0))

    def _agree_in_float64(self, feeds: Mapping[str, Array], own: Array) -> npt.NDArray[np.bool_]:
        """Return the elements of which both parts in double precision agree."""
        before = self._reference.in_float64(feeds)
        after = None if before is None else self._converted_reference.in_float64(feeds)
        if before is None or after is None or not before.shape == after.shape == own.shape:
            return np.zeros(own.shape, bool)
        least = RTOL["float64"] * largest_finite(before)
        with np.errstate(all="ignore"):
            allowed = np.maximum(RTOL.get(dtype_name(own), 0.0) * np.abs(before), least)
            return np.asarray(np.abs(after - before) <= allowed)

    def close(self) -> None:
        """Release the sessions."""
        self._sessions.close()
        for name in ("_reference", "_converted_reference"):
            if name in self.__dict__:
                self.__dict__[name].close()
        if "_rounding" in self.__dict__:
            self._rounding.close()

    @cached_property
    def _reference(self) -> Reference:
        epsilon = to_float64.coarsest([self._original.source.proto, self._converted])
        return Reference(self._original.program, self.region.output, epsilon, self._budget)

    @cached_property
    def _weights_differ(self) -> bool:
        """Whether the stored reals must be the same in both parts, and are not."""
        models = self._models
        before = weights.of(self._original.program.flat, models.original.folder)
        after = weights.of(self._converted, models.converted.folder)
        return before is not None and after is not None and before.differ(after)

    @cached_property
    def _converted_reference(self) -> Reference:
        program = Program(self._converted, (), self._models.converted.folder)
        return Reference(program, self.region.output, self._reference.epsilon, self._budget)

    @cached_property
    def _rounding(self) -> Rounding:
        return Rounding(self._original.program, seconds=region_trials.SECONDS)

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
        expected = self._reference.in_own_types(own) if brief else None
        for optimised, actual, failure in self._sessions.run(feeds):
            if failure is not None and (failure.lacks_kernel or failure.out_of_memory):
                raise failure  # the whole model will tell whether that is the conversion's fault
            if expected is None or not expected.check("isolated", optimised, own, actual).passed:
                expected = self._reference.expected(feeds, own)
            yield self._judged("isolated", optimised, feeds, expected, actual, own, trial.spread)

    def _judged(
        self,
        how: Literal["isolated", "in place"],
        optimised: bool,
        feeds: dict[str, Array],
        expected: Expected,
        actual: Array | str,
        default: Array,
        spread: str | None = None,
    ) -> Compared:
        """Compare within the tolerance, then with the rounding measured in the original's part."""
        # The largest array of reals among the inputs: most likely the data.
        x = max(feeds.values(), key=lambda a: (is_float(a.dtype), a.size), default=default)

        def checked(expected: Expected, actual: Array | str) -> Check:
            return expected.check(
                how,
                optimised,
                x,
                actual,
                same_kernels=not self._original.program.substitutes,
                converted=lambda: self._converted_reference.in_float64(feeds),
                spread=spread,
            )

        if spread is not None and self._reference.computes:
            actual = overflow.unlimited(expected.own, actual)
        check = checked(expected, actual)
        own, output = expected.own, self.region.output
        is_bounded, check = check.passed, _also_plain(check, expected, spread)
        if not check.passed and spread == "shifted" and _as_inexact(check, expected):
            check = replace(check, mismatches=0, reason=None)
        if check.passed or isinstance(actual, str) or not expected.exactness.arithmetic:
            return Compared(check, feeds)
        if actual.dtype != own.dtype or actual.shape != own.shape:
            return Compared(check, feeds)
        # A tool may have stored the form that onnxruntime's optimisations give.
        optimised = optimised or spread == "shifted"
        movements = self._rounding.of(feeds, {output: own}, optimised=optimised)
        if output not in movements:
            return Compared(check, feeds)
        each = expected.has_magnitudes or spread in BEYOND_ARITHMETIC
        verdict = movements[output].verdict(actual, each=each)
        if verdict is Verdict.UNDECIDED and spread is not None:
            beyond = is_bounded or spread in BEYOND_ARITHMETIC
            if beyond or self._vanishes_in_float64(feeds, own, actual):
                verdict = Verdict.ACCEPTED
        if verdict is Verdict.ACCEPTED:
            check = replace(check, mismatches=0, reason=None, max_ulps=None, allowed_ulps=None)
        elif spread == "equal" and _is_cancellation(
            actual, own, feeds, self._reference.epsilon or 0.0
        ):
            verdict = Verdict.UNDECIDED
        elif spread is not None:
            counted = overflow.not_overflowed(feeds, own, actual)
            if spread in _MAY_OVERFLOW and not counted.all():
                counted &= ~self._agree_in_float64(feeds, own)  # close to the overflow
            rest = np.where(counted, actual, np.zeros((), own.dtype))
            if not counted.all() and checked(expected.only(counted), rest).passed:
                return Compared(check, feeds, overflows=True)
        return Compared(check, feeds, verdict)


def _of_other_weights(compared: Compared) -> Compared:
    check = compared.check
    if check.passed or compared.undecided:
        reason = "its weights are not those of the original"
        check = replace(check, mismatches=1, reason=reason)
    return Compared(check, compared.feeds, at_any_size=True)


def _is_cancellation(actual: Array, own: Array, feeds: Mapping[str, Array], epsilon: float) -> bool:
    """Return whether a difference may be what is left of equal numbers where their mean is taken off.

    A norm divides the rounding of one number, which is its unit, by the root of its epsilon.
    """
    if not is_float(own.dtype):
        return False
    largest = max(
        (float(np.abs(a).max(initial=0)) for a in feeds.values() if is_float(a.dtype)), default=0.0
    )
    with np.errstate(all="ignore"):
        distance = np.abs(actual.astype(np.float64) - own.astype(np.float64))
    same = (actual == own) | (np.isnan(actual) & np.isnan(own))
    return bool((same | (distance <= _CANCELLED * np.sqrt(epsilon) * largest)).all())


def _also_plain(check: Check, expected: Expected, spread: str | None) -> Check:
    """Hold short reals, and all on shifted data, to the rtol of outputs, too.

    Their sums may be off by more, and a variance that loses its digits is far below its terms.
    """
    own = expected.own
    rtol = RTOL.get(dtype_name(own), 0.0)
    error = check.max_relative_error or 0.0
    if not check.passed or check.allowed_ulps is None or error <= rtol:
        return check
    if own.dtype.itemsize > 2 and spread != "shifted":
        return check
    if largest_finite(own) <= expected.ulps * np.max(expected.unit, initial=0.0):
        return check  # all of it is less than what rounding makes of its terms
    reason = (
        f"elements differ by at most {error:.2g} of the largest value where {rtol:g} is allowed"
    )
    return replace(check, mismatches=max(1, check.mismatches), reason=reason)


def _as_inexact(check: Check, expected: Expected) -> bool:
    """Tell whether the original's own error in double precision is about as large."""
    error = check.max_relative_error
    return error is not None and error <= WORSE * expected.own_error
