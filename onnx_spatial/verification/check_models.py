"""Run the original and the converted model on the same data, and compare every output.

    data -> original    (spatial operators in Python)        -> outputs   \
                                                                            within the tolerance
    data -> converted   (optimisations off, then on)         -> outputs   /

A difference counts, unless something else than the conversion explains it (`_judge`). The original runs
with optimisations on only where that is needed to tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.conversion.same_padding.find import find as find_refused
from onnx_spatial.errors import Code, UsageError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification import pair
from onnx_spatial.verification.arrays import Array, dtype_name
from onnx_spatial.verification.comparison import compare, find_mismatch
from onnx_spatial.verification.evidence import Difference, OutputResult, Run
from onnx_spatial.verification.kinds import RTOL, Kind
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.run import data
from onnx_spatial.verification.run.legal_sizes import NoLegalSizesError, SizeSearch
from onnx_spatial.verification.run.original import Original
from onnx_spatial.verification.run.sessions import RunError, Session, Stage, open_converted

if TYPE_CHECKING:
    from onnx_spatial.verification.run.evaluator import Evaluator

#: Kind of inner values: whether they are moved or sums, a hint is all that is needed.
_SUMS = Kind(rtol=RTOL[onnx.TensorProto.FLOAT])
#: What to do about a run that needs too much memory.
_SMALLER = "use smaller sizes (--shape) or allow more memory (--memory)"


@dataclass(frozen=True)
class NotRun:
    """Why the models were not compared.

    Attributes:
        reason: in one line, with what the user can give.
        no_runtime: whether no runtime has an operator of the rest of the model: nothing helps.
    """

    reason: str
    no_runtime: bool = False


@dataclass
class ModelFindings:
    """What the runs of both models show.

    Attributes:
        runs, outputs: see `Verification`.
        broken: how the converted model does not load or run where the original does; None if it does.
        broken_stage: whether it does not "load" or "run".
        differences: outputs that differ, and declarations that are wrong, one line each.
        first_difference: the first of these, with its data.
        warnings: what is odd but no failure.
        not_run: why nothing was compared; None if something was.
        other_values: inner values of one name that differ in the first run.
        same_operators: whether the converted model runs Python operators, as the original does.
    """

    runs: list[Run] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    broken: str | None = None
    broken_stage: Stage = "run"
    differences: list[str] = field(default_factory=list)
    first_difference: Difference | None = None
    warnings: list[str] = field(default_factory=list)
    not_run: NotRun | None = None
    other_values: frozenset[str] = frozenset()
    same_operators: bool = False

    @property
    def agree(self) -> bool:
        """Whether both models ran, and all outputs agree."""
        return self.not_run is None and self.broken is None and not self.differences

    @property
    def reused_names(self) -> frozenset[str]:
        """Names of inner values that differ though no output does: they may mean other values."""
        return self.other_values if self.agree else frozenset()

    @property
    def may_have_grown(self) -> bool:
        """Whether all that differs is numbers, as where a deep net makes rounding grow."""
        differing = [output for output in self.outputs if output.passed is False]
        finite = all(math.isfinite(o.max_relative_error or math.inf) for o in differing)
        return bool(differing) and finite and self.broken is None

    def accept_growth(self) -> None:
        """Accept differences of a model of which every part is proven, and agrees on its own.

        All else is identical in both models: what is left is rounding that the rest makes grow.
        """
        self.warnings += [f"{line}: rounding that grew" for line in self.differences]
        self.differences, self.first_difference = [], None
        self.outputs = [replace(o, passed=True) if o.passed is False else o for o in self.outputs]


@dataclass
class ModelRuns:
    """Runs of two models that have the same inputs and outputs.

    Attributes:
        models: the models.
        options: data, sizes, seed and tolerances.
        progress: called with lines of text.
        found: gets what is found, as far as there is time.
        proven: whether every part that differs is proven: then runs only test the runtime.
        watched: values of the main graph that are not proven, to be compared in the first run.
        both_optimised: whether the original runs with optimisations on, too, before the converted model.
    """

    models: ModelPair
    options: VerifyOptions
    progress: Callable[[str], None]
    found: ModelFindings
    proven: bool
    watched: Sequence[str] = ()
    both_optimised: bool = False

    def compare(self) -> None:
        """Run the original, then the converted model with optimisations off and on.

        Raises:
            UsageError: the data or shapes that were given do not fit the model, or it does not run on
                them.
        """
        try:
            self._run_original()
            self.found.runs = [self._describe(feeds) for feeds in self.feeds]
            self._run_converted()
        except NoLegalSizesError as error:
            self.found.not_run = NotRun(str(error))
        except RunError as error:
            self.found.not_run = self._why_not_run(error)

    # The original

    def _run_original(self) -> None:
        """Run the original on what the user gave, or at sizes where it runs."""
        nodes = traversal.nodes(self.models.converted.proto)
        self.found.same_operators = any(node.domain == DOMAIN for _, _, node in nodes)
        self.prepared = Original(
            self.models.original,
            self.models.domains,
            infos=self.models.infos,
            values=self.watched,
        )
        self.original = self.prepared.open()
        runs = self._on_data_of_the_user() or self._at_legal_sizes()
        self.feeds = [feeds for feeds, _ in runs]
        self.expected = [outputs for _, outputs in runs]
        values = self.models.kinds.of_values()
        outputs = self.models.original.proto.graph.output
        self.kinds = {value.name: values.get(value.name, Kind()) for value in outputs}
        if self._foreign:  # which may draw numbers
            again = self.original.run(self.feeds[0])
            for name, kind in self.kinds.items():
                if find_mismatch(self.expected[0][name], again[name], Kind()) is not None:
                    random = kind.random or "a random operator"
                    self.kinds[name] = replace(kind, random=random)

    def _on_data_of_the_user(self) -> list[tuple[Mapping[str, Array], Mapping[str, Any]]]:
        """Return data and outputs of the run that the user asks for, if there is one."""
        if self.options.inputs is None:
            return []
        inputs = data.graph_inputs(self.models.original.proto)
        feeds = data.check_user_data(inputs, self.options.inputs)
        try:
            return [(feeds, self.original.run(feeds))]
        except RunError as error:
            if error.lacks_kernel or error.out_of_memory:
                raise
            raise UsageError(
                f"the original does not run on the data that was given: {error}",
                code=Code.INPUT_DATA,
            ) from None

    def _at_legal_sizes(self) -> list[tuple[Mapping[str, Array], Mapping[str, Any]]]:
        """Return data and outputs of a run, and of one at other sizes if there are parts to sample."""
        options, model = self.options, self.models.original.proto
        inputs, fixed = data.fixed_sizes(data.graph_inputs(model), options.shapes or {})
        search = SizeSearch(
            model,
            inputs,
            self.models.infos,
            self.original.run,
            fixed=fixed,
            seed=options.seed,
            memory=options.memory,
            progress=self.progress,
        )
        first = search.first()
        second = None if self.proven else search.another(first)
        return [(run.feeds, run.outputs) for run in (first, second) if run is not None]

    def _describe(self, feeds: Mapping[str, Array]) -> Run:
        defaults = {t.name for t in self.models.original.proto.graph.initializer}
        return Run(
            self.options.seed,
            {name: np.shape(array) for name, array in feeds.items()},
            {name: dtype_name(array) for name, array in feeds.items()},
            tuple(name for name in feeds if name in defaults),
        )

    def _why_not_run(self, error: RunError) -> NotRun:
        """Say why the original does not run, and what helps."""
        reason = f"the original cannot be run: {error}"
        if error.out_of_memory:
            reason += f"; {_SMALLER}"
        unaccepted = [info.node.domain for info in self.models.infos if not info.known_domain]
        if error.lacks_kernel and unaccepted:
            same = "if it means the same as TensorFlow's or OpenVINO's"
            reason += f"; use --domain {unaccepted[0]} {same}"
        # A damaged file may make onnxruntime lack an operator that it has.
        unknown = "registered" not in str(error) or self._foreign
        return NotRun(reason, no_runtime=error.lacks_kernel and unknown)

    @cached_property
    def _foreign(self) -> bool:
        """Whether an operator of the original is neither ONNX's, nor spatial, nor its own function."""
        model = self.models.original.proto
        known = {(f.domain, f.name) for f in model.functions}
        known |= {(info.node.domain, info.node.op_type) for info in self.models.infos}
        nodes = (node for _, _, node in traversal.nodes(model) if not op_traits.is_standard(node))
        return any((node.domain, node.op_type) not in known for node in nodes)

    @cached_property
    def _optimised_original(self) -> Session | Evaluator:
        return self.prepared.open(optimise=True)

    def _optimised_original_fails(self, feeds: Mapping[str, Array]) -> bool:
        """Tell whether the original does not load or run with optimisations on either."""
        try:
            self._optimised_original.run(feeds)
        except RunError:
            return True
        return False

    # The converted model

    def _run_converted(self) -> None:
        found = self.found
        try:
            for optimised in (False, True):
                self._compare_level(optimised)
                if found.broken is not None:
                    return
        finally:  # what differs counts, if the time is over, too
            self._note_differences()
        shapes = ((output.name, output.shape) for output in found.outputs)
        found.differences += pair.wrong_declarations(self.models, shapes)
        random = {name: kind.random for name, kind in self.kinds.items() if kind.random}
        found.warnings += [
            f"output {name!r} differs from run to run and is not compared: {source}"
            for name, source in random.items()
        ]
        if random and random.keys() == self.kinds.keys() and not self.proven:
            found.not_run = NotRun("all outputs differ from run to run")

    def _compare_level(self, optimised: bool) -> None:
        """Run the converted model with optimisations off, or on."""
        watched = [] if optimised else self.watched
        for feeds in self.feeds if optimised and self.both_optimised else ():
            self._optimised_original_fails(feeds)  # or it ends this process, as is to be seen
        feeds = self.feeds[0]
        try:
            session = open_converted(self.models.converted, watched, optimise=optimised)
            for number, feeds in enumerate(self.feeds):
                level = _level(optimised)
                self.progress(f"run {number + 1}/{len(self.feeds)}, optimisations {level}")
                outputs = session.run(self.models.as_fed(feeds))
                for name in self.kinds:
                    self._compare_output(name, number, optimised, outputs[name])
                if not number:
                    self._watch(watched, outputs)
        except RunError as error:
            self._fail(error, feeds, optimised)

    def _compare_output(self, name: str, number: int, optimised: bool, actual: Any) -> None:
        """Compare an output of one run, which may be a sequence of tensors."""
        kind, tolerance = self.kinds[name], self.options.tolerances.of_output(name)
        expected, feeds = self.expected[number][name], self.feeds[number]
        for result in compare(name, number, optimised, expected, actual, kind, tolerance):
            if kind.random:
                result = replace(result, passed=None, reason="random: not compared")
            elif result.passed is False:
                result = self._judge(result, name, actual)
            self.found.outputs.append(result)
            if result.passed is False and self.found.first_difference is None:
                message = f"output {result.name!r}{_with(optimised)}: {result.reason}"
                self.found.first_difference = Difference(
                    "output", result.name, None, message, feeds, optimised=optimised
                )

    def _judge(self, result: OutputResult, name: str, actual: Any) -> OutputResult:
        """Accept a difference that something else than the conversion explains."""
        reason, found = result.reason, self.found
        if self._is_of_no_turns(result, actual):
            remark = "accepted: a Loop without turns gives sizes that are inferred, or 0"
            return replace(result, passed=True, reason=f"{reason}; {remark}")
        if result.optimised and self._optimised_original_gives(result, name, actual):
            remark = "accepted: the original computes the same with optimisations on"
            return replace(result, passed=True, reason=f"{reason}; {remark}")
        if result.optimised and self.proven:
            found.warnings.append(
                f"output {result.name!r} with onnxruntime's optimisations on: {reason}; "
                "all parts are proven, and without them it agrees"
            )
            return replace(result, passed=True)
        if self.original.kind == "evaluator" and self.proven:
            reason = f"{reason}; but it is proven, and onnx's evaluator ran the original"
            found.not_run = NotRun(f"output {result.name!r}: {reason}")
            return replace(result, passed=None, reason=reason)
        return result

    def _is_of_no_turns(self, result: OutputResult, actual: Any) -> bool:
        """Tell whether no turn of a Loop made an output: its sizes are inferred then, or 0."""
        if not isinstance(actual, np.ndarray) or actual.size or 0 not in result.shape:
            return False
        nodes = traversal.nodes(self.models.original.proto)
        sizes = zip(result.shape, actual.shape, strict=False)
        return (
            len(result.shape) == actual.ndim
            and all(old == new or 0 in (old, new) for old, new in sizes)
            and any(node.op_type == "Loop" for _, _, node in nodes)
        )

    def _optimised_original_gives(self, result: OutputResult, name: str, actual: Any) -> bool:
        """Tell whether an output agrees with that of the original with optimisations on."""
        try:
            expected = self._optimised_original.run(self.feeds[result.run])[name]
        except RunError:
            return False
        tolerance = self.options.tolerances.of_output(name)
        return find_mismatch(expected, actual, self.kinds[name], tolerance) is None

    def _watch(self, watched: Sequence[str], outputs: Mapping[str, Any]) -> None:
        """Note the inner values of one name that differ in the first run."""
        expected = self.expected[0]
        self.found.other_values |= {
            name
            for name in watched
            if name in expected
            and name in outputs
            and find_mismatch(expected[name], outputs[name], _SUMS) is not None
        }

    def _fail(self, error: RunError, feeds: Mapping[str, Array], optimised: bool) -> None:
        """Note that the converted model does not load or run; no failure if the original fails, too."""
        found, what = self.found, "load" if error.stage == "load" else "run"
        message = f"the converted model does not {what}{_with(optimised)}: {error}"
        if error.out_of_memory:
            found.not_run = NotRun(f"{message}; {_SMALLER}")
        elif self._keeps_operators():
            reason = f"onnxruntime cannot run what is left: {error}"
            found.not_run = NotRun(reason, no_runtime=True)
        elif optimised and self._optimised_original_fails(feeds):
            found.warnings.append(f"{message}; nor does the original")
        else:
            found.broken, found.broken_stage = message, error.stage
            found.first_difference = Difference(
                "model", "", None, message, feeds, optimised=optimised
            )

    def _keeps_operators(self) -> bool:
        """Tell whether the converted model keeps operators that onnxruntime does not run.

        One that keeps all of the spatial operators is not converted.
        """
        proto, folder = self.models.converted.proto, self.models.converted.folder
        found = analysis.find(proto, self.models.domains, folder)
        kept = [info for info in found if info.node.domain != DOMAIN]
        if any(info.known_domain for info in kept) and len(kept) >= len(self.models.infos):
            return False
        return bool(kept or find_refused(proto))

    def _note_differences(self) -> None:
        """Say which outputs differ, each once, by its first run that shows it."""
        differing: dict[str, list[OutputResult]] = {}
        for output in self.found.outputs:
            if output.passed is False:
                differing.setdefault(output.name, []).append(output)
        for name, (first, *others) in differing.items():
            once = all(other.optimised == first.optimised for other in others)
            level = f" with optimisations {_level(first.optimised)}" if once else ""
            self.found.differences.append(f"output {name!r}{level}: {first.reason}")


def _level(optimised: bool) -> str:
    return "on" if optimised else "off"


def _with(optimised: bool) -> str:
    """Name the level of optimisation where it is not the plain one."""
    return " with optimisations on" if optimised else ""
