"""Prove a region: run both of its parts on made-up data of several sizes, and compare what comes out.

    original part    sites and Conv in numpy, in double precision     \\
                                                                       within a tolerance, or bit for bit
    converted part   onnxruntime, optimisations off and on            /

Sizes are looked for as for a whole model (`size_search`), and larger ones than are likely to be found: a
convolution whose outer taps only ever meet padding could have any weights there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators.spellings import BlockCall
from onnx_spatial.verification.arrays import (
    SPREADS,
    Array,
    Spread,
    element_type_of,
    is_float,
)
from onnx_spatial.verification.compare import to_float64
from onnx_spatial.verification.compare.reference import Budget, Expected, Reference
from onnx_spatial.verification.compare.rounding import Rounding, Verdict
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session
from onnx_spatial.verification.sizes import reference_runs
from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.model_inputs import (
    GraphInput,
    graph_inputs,
    named_dims,
)
from onnx_spatial.verification.sizes.size_search import Search
from onnx_spatial.verification.sizes.trial_runs import Trial
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegion

#: Seconds that looking for sizes may take, each time.
_SECONDS = 2.0
#: No size beyond this is asked for so that windows fit.
_LARGEST = 2048
#: What goes in may have this many elements (128 MiB of float32); more is compared in the model only.
_MOST_ELEMENTS = 2**25


@dataclass(frozen=True)
class Compared:
    """A comparison, and what went in.

    Attributes:
        check: it.
        feeds: what went in.
        verdict: of measured rounding, where the tolerance was not enough.
    """

    check: Check
    feeds: dict[str, Array]
    verdict: Verdict | None = None

    @property
    def undecided(self) -> bool:
        """Whether it is not known if the difference is more than rounding."""
        return self.verdict is Verdict.UNDECIDED


class Undecided(str):
    """A reason to know nothing: a difference that may be rounding, or not."""


class Proof:
    """The two parts of a region, ready to be compared.

    Args:
        region: it.
        before, after: the models that it was cut from.
        domains: further domains of spatial operators.
        seed: of the data.
        budget: what is left for double precision.

    Attributes:
        region: as given.
    """

    def __init__(
        self,
        region: MatchingRegion,
        before: reader.Source,
        after: reader.Source,
        domains: Iterable[str],
        seed: int,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget or Budget()
        self.region = region
        self._before, self._after = before, after
        self._source = before.holding(region.original())
        self._converted = region.converted()
        self._folder = after.folder or before.folder
        self._domains = domains
        self._seed = seed
        self._sessions: dict[bool, Session] = {}

    def isolated(self) -> list[Compared] | str:
        """Comparisons on made-up data; or why there are none."""
        try:
            sizes = self._sizes
            if isinstance(sizes, str):
                return sizes
            found = sizes[1]
            if self._reference.random:
                return "what it was merged with is random"
            compared = [c for trial in found for c in self._compare(trial)]
        except RunFailure as failure:
            return str(failure)
        except (OperatorError, ModelFileError) as error:
            return str(error)
        if len(found) > 1 and all(self._never_ran(c) for c in compared):
            return "it runs at none of the sizes that seem legal here"
        return self._decided(compared)

    def _decided(self, compared: list[Compared]) -> list[Compared] | str:
        """What rounding left open, decided on small numbers: there hardly anything amplifies it."""
        if any(not c.check.passed and not c.undecided for c in compared):
            return [c for c in compared if not c.undecided]
        if all(c.verdict is None for c in compared):
            return compared
        small = self.spread(("small",))
        if any(not c.check.passed for c in small):
            return [*(c for c in compared if not c.undecided), *small]
        strict = [c for c in small if c.verdict is None]
        unclear = next((c.check for c in compared if c.undecided), None)
        if unclear is not None and not strict:
            return Undecided(f"it may be rounding or not that {unclear.reason}")
        return [*(c for c in compared if not c.undecided), *small]

    def spread(self, kinds: Sequence[Spread] | None = None) -> list[Compared]:
        """Comparisons on numbers that are seldom, as far as the original takes them."""
        try:
            found = self._sizes
            if isinstance(found, str) or self._reference.random:
                return []
            search, (first, *_) = found
            trials = (search.again(first, {}, how) for how in kinds or SPREADS)
            compared = [c for trial in trials if trial is not None for c in self._compare(trial)]
            return [c for c in compared if not c.undecided]
        except (RunFailure, OperatorError, ModelFileError):
            return []

    def in_place(self, feeds: Mapping[str, Array], actual: Array) -> Compared | str:
        """A comparison of what a run of the whole converted model gave; or why there is none.

        Args:
            feeds: values of the inputs there.
            actual: value of the output there.
        """
        if not all(isinstance(a, np.ndarray) for a in (*feeds.values(), actual)):
            return "not everything is a tensor there"
        types = {n: _type_of(a) for n, a in feeds.items()}
        typed = replace(self.region, inputs=types)
        given = (self._domains, self._seed, self._budget)
        proof = Proof(typed, self._before, self._after, *given)
        try:
            return proof._in_run(feeds, actual)
        finally:
            proof.close()

    def _in_run(self, feeds: Mapping[str, Array], actual: Array) -> Compared | str:
        try:
            own = self._program.run(feeds)[self.region.output]
            if self._reference.random:
                return "what it was merged with is random"
            expected = self._reference.expected(feeds, own)
        except (RunFailure, OperatorError, ModelFileError) as failure:
            return str(failure)
        same_kernels = not self._program.substitutes
        x = _data(feeds, actual)
        check = expected.check("in place", False, x, actual, same_kernels=same_kernels)
        found = self._weighed(Compared(check, dict(feeds)), expected, actual)
        if found.undecided:
            return Undecided(f"it may be rounding or not that {check.reason}")
        return found

    def close(self) -> None:
        """Let go of the sessions."""
        self._sessions.clear()
        if "_reference" in self.__dict__:
            self._reference.close()
        if "_rounding" in self.__dict__:
            self._rounding.close()

    @cached_property
    def _inputs(self) -> list[GraphInput]:
        inputs = graph_inputs(self._source.proto)
        return [reference_runs.with_rank(i, self._infos) for i in inputs]

    @cached_property
    def _infos(self) -> list[OperatorInfo]:
        model = self._source.proto
        found = analysis.find(
            named_dims(model, graph_inputs(model)), self._domains, self._source.folder
        )
        return [f for f in found if f.known_domain]

    @cached_property
    def _program(self) -> Program:
        return reference_runs.program_of(self._source, self._infos, self._inputs)

    @cached_property
    def _reference(self) -> Reference:
        epsilon = to_float64.coarsest([self._source.proto, self._converted])
        return Reference(self._program, self.region.output, epsilon, self._budget)

    @cached_property
    def _rounding(self) -> Rounding:
        return Rounding(self._program, seconds=_SECONDS)

    @cached_property
    def _sizes(self) -> tuple[Search, list[Trial]] | str:
        if unknown := [i.name for i in self._inputs if i.dims is None and i.default is None]:
            return f"the rank of {unknown[0]!r} is not known here"
        sizes = [math.prod(d for d in i.dims or () if isinstance(d, int)) for i in self._inputs]
        if max(sizes, default=0) > _MOST_ELEMENTS:
            return "what goes into it is very large"
        candidates = Candidates(self._source.proto, self._inputs, self._infos, self._source.folder)
        search = Search(
            self._program,
            self._inputs,
            {},
            candidates,
            self._seed,
            lambda _: None,
            _SECONDS,
            large=False,  # that is compared in the model only
        )
        first = search.first()
        if first is None:
            reason = f": {search.last_failure}" if search.last_failure is not None else ""
            return f"no sizes were found for what it was merged with{reason}"
        found = [first, *search.others(first), *search.corners(first)]
        return search, [*found, *search.larger(first, self._enough())]

    def _enough(self) -> int:
        """A size at which all taps of all windows meet data."""
        step = 1
        for info in self._infos:
            if isinstance(info.call, BlockCall) and info.call.block.values is not None:
                step = math.lcm(step, *info.call.block.values)
        shapes_of = {t.name: t.dims for t in self.region.before.stored}
        reach = 2 + sum(_reach(node, shapes_of) for node in self.region.before.nodes)
        return min(_LARGEST, step * reach)

    def _compare(self, trial: Trial) -> Iterator[Compared]:
        feeds, own = trial.feeds, trial.outputs[self.region.output]
        if not isinstance(own, np.ndarray):
            raise RunFailure("what it was merged with gives no tensor", "load")
        expected = self._reference.expected(feeds, own)
        for optimised in (False, True):
            yield self._run(feeds, expected, optimised)

    def _run(self, feeds: dict[str, Array], expected: Expected, optimised: bool) -> Compared:
        actual: Array | str
        try:
            session = self._session(optimised)
            fed = {n: a for n, a in feeds.items() if n in {*session.inputs, *session.overridable}}
            actual = session.run(fed)[self.region.output]
        except RunFailure as failure:
            if failure.lacks_kernel:
                raise  # the whole model will tell whether that is the conversion's fault
            actual = f"it does not {failure.stage}: {failure}"
        x = _data(feeds, expected.own)
        same_kernels = not self._program.substitutes
        check = expected.check("isolated", optimised, x, actual, same_kernels=same_kernels)
        return self._weighed(Compared(check, feeds), expected, actual)

    def _weighed(self, found: Compared, expected: Expected, actual: Array | str) -> Compared:
        """A comparison that failed, judged by what rounding does to the original's part."""
        check = found.check
        if check.passed or isinstance(actual, str) or not expected.exactness.arithmetic:
            return found
        own, output = expected.own, self.region.output
        if actual.dtype != own.dtype or actual.shape != own.shape:
            return found
        moved = self._rounding.of(found.feeds, {output: own}, optimised=check.optimised)
        if output not in moved:
            return found
        verdict = moved[output].verdict(actual, each=expected.has_magnitudes)
        if verdict is Verdict.ACCEPTED:
            passed = replace(check, mismatches=0, reason=None, max_ulps=None, allowed_ulps=None)
            return replace(found, check=passed, verdict=verdict)
        return replace(found, verdict=verdict)

    def _session(self, optimised: bool) -> Session:
        if optimised not in self._sessions:
            self._sessions[optimised] = Session(
                self._converted.SerializeToString(),
                optimise=optimised,
                folder=self._folder,
                threads=1,
            )
        return self._sessions[optimised]

    @staticmethod
    def _never_ran(compared: Compared) -> bool:
        return (compared.check.reason or "").startswith("it does not run")


def _type_of(array: Array) -> onnx.TypeProto:
    element_type = element_type_of(array)
    return onnx.helper.make_tensor_type_proto(element_type, [None] * array.ndim)


def _data(feeds: Mapping[str, Array], default: Array) -> Array:
    """Of what goes in, the largest array of reals: by all likelihood the data."""
    return max(feeds.values(), key=lambda a: (is_float(a.dtype), a.size), default=default)


def _reach(node: onnx.NodeProto, stored: Mapping[str, Iterable[int]]) -> int:
    """How many elements lie between the first and the last that one window of a node meets."""
    known = op_traits.of(node)
    if Trait.WINDOWS not in known.traits:
        return 0
    given = {a.name: list(a.ints) for a in node.attribute}
    name = "" if known.weight is None else (*node.input, *[""] * 4)[known.weight]
    kernel = given.get("kernel_shape") or list(stored.get(name, ()))[2:]
    dilations = given.get("dilations") or [1] * len(kernel)
    return max(((k - 1) * d for k, d in zip(kernel, dilations, strict=False)), default=0)
