"""Run the whole original and the whole converted model on the same data, and compare every output.

    data -> original    (spatial operators in Python)        -> outputs   \
                                                                            within the tolerance
    data -> converted   (optimisations off, then on)         -> outputs   /
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
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.same_padding.find import find as find_refused
from onnx_spatial.errors import Code, UsageError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification import child, pair
from onnx_spatial.verification.arrays import Array, dtype_name, same_bits
from onnx_spatial.verification.comparison import compare
from onnx_spatial.verification.evidence import Difference, OutputResult, Run
from onnx_spatial.verification.kinds import RTOL, Kind, Kinds
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.run import data
from onnx_spatial.verification.run.legal_sizes import NoLegalSizes, SizeSearch
from onnx_spatial.verification.run.original import Original
from onnx_spatial.verification.run.sessions import CONVERTED, RunError, Session, Stage, with_values

if TYPE_CHECKING:
    from onnx_spatial.verification.run.evaluator import Evaluator

#: Kind of inner values: whether they are moved or sums, a hint is all that is needed.
_SUMS = Kind(rtol=RTOL[onnx.TensorProto.FLOAT])
#: What to do about a run that needs too much memory.
_SMALLER = "use smaller sizes (--shape) or allow more memory (--memory)"


@dataclass(frozen=True)
class NotRun:
    """Why the whole models were not compared.

    Attributes:
        reason: in one line, with what the user can give.
        no_runtime: whether no runtime has an operator of the rest of the model: nothing helps.
    """

    reason: str
    no_runtime: bool = False


@dataclass(frozen=True)
class Broken:
    """How the converted model fails where the original runs.

    Attributes:
        stage: "load" or "run".
        message: in one line.
    """

    stage: Stage
    message: str


@dataclass
class Whole:
    """The runs of both models.

    Attributes:
        runs, outputs: see `Verification`.
        broken: how the converted model does not load or run.
        differences: outputs that differ, and declarations that are wrong, one line each.
        difference: the first of these, with its data.
        warnings: what is odd but no failure.
        not_run: why nothing was compared; None if something was.
        other_values: inner values of one name that differ in the first run.
        same_operators: whether the converted model runs Python operators, as the original does.
    """

    runs: list[Run] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    difference: Difference | None = None
    warnings: list[str] = field(default_factory=list)
    not_run: NotRun | None = None
    other_values: frozenset[str] = frozenset()
    same_operators: bool = False

    @property
    def may_have_grown(self) -> bool:
        """Whether all that differs is numbers, as where a deep net makes rounding grow."""
        differing = [output for output in self.outputs if output.passed is False]
        finite = all(math.isfinite(o.max_relative_error or math.inf) for o in differing)
        return bool(differing) and finite and not self.broken

    def accept_growth(self) -> None:
        """Accept differences of a model of which every part is proven, and agrees on its own.

        All else is identical in both models: what is left is rounding that the rest makes grow.
        """
        self.warnings += [f"{line}: rounding that grew" for line in self.differences]
        self.differences, self.difference = [], None
        self.outputs = [replace(o, passed=True) if o.passed is False else o for o in self.outputs]


@dataclass
class WholeRuns:
    """Runs of two models that have the same inputs and outputs.

    Attributes:
        models: the models.
        infos: the spatial operators of the original.
        kinds: how exactly its values are determined.
        options: data, sizes, seed and tolerances.
        progress: called with lines of text.
        whole: gets what is found, as far as there is time.
        proven: whether every part that differs is proven: then runs only test the runtime.
        watched: values of the main graph that are not proven, to be compared in the first run.
        both_optimised: whether the original runs with optimisations on, too, before the converted model.
    """

    models: ModelPair
    infos: Sequence[OperatorInfo]
    kinds: Kinds
    options: VerifyOptions
    progress: Callable[[str], None]
    whole: Whole
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
            self._compare()
        except RunError as error:
            self.whole.not_run = self._not_run(error)

    def _not_run(self, error: RunError) -> NotRun:
        """Say why the original does not run, and what helps."""
        reason = f"the original cannot be run: {error}"
        if error.out_of_memory:
            reason += f"; {_SMALLER}"
        unaccepted = [info.node.domain for info in self.infos if not info.known_domain]
        if error.lacks_kernel and unaccepted:
            same = "if it means the same as TensorFlow's or OpenVINO's"
            reason += f"; use --domain {unaccepted[0]} {same}"
        # A damaged file may make onnxruntime lack an operator that it has.
        unknown = "registered" not in str(error) or self._has_foreign_operators
        return NotRun(reason, no_runtime=error.lacks_kernel and unknown)

    def _compare(self) -> None:
        models, whole = self.models, self.whole
        nodes = traversal.nodes(models.converted.proto)
        whole.same_operators = any(node.domain == DOMAIN for _, _, node in nodes)
        self.prepared = Original(
            models.original,
            models.domains,
            infos=self.infos,
            values=self.watched,
            report=child.report,
        )
        original = self.prepared.open()
        found = self._data(original)
        if isinstance(found, NotRun):
            whole.not_run = found
            return
        self.feeds = [feeds for feeds, _ in found]
        self.expected = [outputs for _, outputs in found]
        self.output_kinds = self._steady(original)
        whole.runs = [self._described(feeds) for feeds in self.feeds]
        try:
            for optimised in (False, True):
                self._compare_level(original, optimised=optimised)
                if whole.broken:
                    return
        finally:  # what differs counts, if the time is over, too
            self._note_differences()
        shapes = ((output.name, output.shape) for output in whole.outputs)
        whole.differences += pair.wrong_declarations(models, shapes)
        self._note_random()

    def _data(
        self, original: Session | Evaluator
    ) -> list[tuple[Mapping[str, Array], Mapping[str, Any]]] | NotRun:
        """Run the original on what the user gave, or at sizes where it runs; return data and outputs."""
        options, model = self.options, self.models.original.proto
        inputs = data.graph_inputs(model)
        if options.inputs is not None:
            feeds = data.check_given(inputs, options.inputs)
            try:
                return [(feeds, original.run(feeds))]
            except RunError as error:
                if error.lacks_kernel or error.out_of_memory:
                    raise
                raise UsageError(
                    f"the original does not run on the data that was given: {error}",
                    code=Code.INPUT_DATA,
                ) from None
        inputs, fixed = data.fixed_sizes(inputs, options.shapes or {})
        search = SizeSearch(
            model,
            inputs,
            self.infos,
            original.run,
            fixed=fixed,
            seed=options.seed,
            memory=options.memory,
            progress=self.progress,
        )
        first = search.first()
        if isinstance(first, NoLegalSizes):
            return NotRun(first.reason)
        others = [] if self.proven else [search.another(first)]
        runs = [first, *(other for other in others if other is not None)]
        return [(run.feeds, run.outputs) for run in runs]

    def _steady(self, original: Session | Evaluator) -> dict[str, Kind]:
        """Return the kind of each output; one that changes from run to run is random."""
        values = self.kinds.of_values()
        outputs = [value.name for value in self.models.original.proto.graph.output]
        found = {name: values.get(name, Kind()) for name in outputs}
        if self._has_foreign_operators:  # which may draw numbers
            again = original.run(self.feeds[0])
            for name, kind in found.items():
                if not _same(self.expected[0][name], again[name]):
                    found[name] = replace(kind, random=True)
        return found

    def _described(self, feeds: Mapping[str, Array]) -> Run:
        defaults = {t.name for t in self.models.original.proto.graph.initializer}
        return Run(
            self.options.seed,
            {name: np.shape(array) for name, array in feeds.items()},
            {name: dtype_name(array) for name, array in feeds.items()},
            tuple(name for name in feeds if name in defaults),
        )

    def _compare_level(self, original: Session | Evaluator, *, optimised: bool) -> None:
        """Run the converted model at one level of optimisation."""
        source, watched = self.models.converted, [] if optimised else self.watched
        for feeds in self.feeds if optimised and self.both_optimised else ():
            self._original_fails(feeds)  # or it ends this process, as is to be seen
        try:
            session = Session(
                with_values(source, watched),
                of=CONVERTED,
                optimise=optimised,
                folder=source.folder,
                report=child.report,
            )
        except RunError as error:
            self._fail(error, self.feeds[0], optimised=optimised)
            return
        for number, feeds in enumerate(self.feeds):
            self.progress(f"run {number + 1}/{len(self.feeds)}, optimisations {_level(optimised)}")
            try:
                outputs = session.run(self.models.as_fed(feeds))
            except RunError as error:
                self._fail(error, feeds, optimised=optimised)
                return
            self._compare_run(original, number, outputs, optimised=optimised)
            if not number:
                self._watch(watched, outputs)

    def _compare_run(
        self,
        original: Session | Evaluator,
        number: int,
        outputs: Mapping[str, Any],
        *,
        optimised: bool,
    ) -> None:
        for name, kind in self.output_kinds.items():
            for result in self._results(name, kind, number, outputs[name], optimised=optimised):
                self._keep(result, original, outputs[name])

    def _results(
        self, name: str, kind: Kind, number: int, actual: Any, *, optimised: bool
    ) -> list[OutputResult]:
        tolerance = self.options.tolerances.of_output(name)
        wanted = self.expected[number][name]
        results = compare(name, number, optimised, wanted, actual, kind, tolerance)
        if kind.random:
            return [replace(r, passed=None, reason="random: not compared") for r in results]
        return results

    def _keep(self, result: OutputResult, original: Session | Evaluator, actual: Any) -> None:
        """Keep the comparison of an output, unless something else than the conversion explains it."""
        if result.passed is False and self._is_without_turns(result, actual):
            remark = "accepted: a Loop without turns gives sizes that are inferred, or 0"
            result = replace(result, passed=True, reason=f"{result.reason}; {remark}")
        if result.passed is False and result.optimised:
            result = self._excused(result, actual)
        if result.passed is False and original.kind == "evaluator" and self.proven:
            reason = f"{result.reason}; but it is proven, and onnx's evaluator ran the original"
            result = replace(result, passed=None, reason=reason)
            self.whole.not_run = NotRun(f"output {result.name!r}: {reason}")
        self.whole.outputs.append(result)
        if result.passed is False and self.whole.difference is None:
            message = f"output {result.name!r}{_with(result.optimised)}: {result.reason}"
            feeds = self.feeds[result.run]
            self.whole.difference = Difference(
                "output", result.name, None, message, feeds, optimised=result.optimised
            )

    def _is_without_turns(self, result: OutputResult, actual: Any) -> bool:
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

    def _excused(self, result: OutputResult, actual: Any) -> OutputResult:
        """Accept what the optimised original computes, too; of proven parts any such difference."""
        feeds, kind = self.feeds[result.run], self.output_kinds[result.name.partition("[")[0]]
        try:
            wanted = self._optimised_original.run(feeds)[result.name.partition("[")[0]]
        except RunError:
            wanted = None
        if wanted is not None:
            tolerance = self.options.tolerances.of_output(result.name)
            again = compare(result.name, result.run, True, wanted, actual, kind, tolerance)
            if all(each.passed for each in again):
                remark = "accepted: the original computes the same with optimisations on"
                return replace(result, passed=True, reason=f"{result.reason}; {remark}")
        if not self.proven:
            return result
        warning = f"output {result.name!r} with onnxruntime's optimisations on: {result.reason}"
        self.whole.warnings.append(f"{warning}; all parts are proven, and without them it agrees")
        return replace(result, passed=True)

    @cached_property
    def _has_foreign_operators(self) -> bool:
        """Whether an operator of the original is neither ONNX's, nor spatial, nor its own function."""
        model = self.models.original.proto
        known = {(f.domain, f.name) for f in model.functions}
        known |= {(info.node.domain, info.node.op_type) for info in self.infos}
        nodes = (node for _, _, node in traversal.nodes(model) if not op_traits.is_standard(node))
        return any((node.domain, node.op_type) not in known for node in nodes)

    @cached_property
    def _optimised_original(self) -> Session | Evaluator:
        return self.prepared.open(optimise=True)

    def _watch(self, watched: Sequence[str], outputs: Mapping[str, Any]) -> None:
        """Note the inner values of one name that differ in the first run."""
        wanted = self.expected[0]
        self.whole.other_values |= {
            name
            for name in watched
            if name in wanted
            and name in outputs
            and any(
                each.passed is False
                for each in compare(name, 0, False, wanted[name], outputs[name], _SUMS, None)
            )
        }

    def _fail(self, error: RunError, feeds: Mapping[str, Array], *, optimised: bool) -> None:
        """Note that the converted model does not load or run; no failure if the original fails, too."""
        what = "load" if error.stage == "load" else "run"
        message = f"the converted model does not {what}{_with(optimised)}: {error}"
        if error.out_of_memory:
            self.whole.not_run = NotRun(f"{message}; {_SMALLER}")
            return
        if self._is_left():
            reason = f"onnxruntime cannot run what is left: {error}"
            self.whole.not_run = NotRun(reason, no_runtime=True)
            return
        if optimised and self._original_fails(feeds):
            self.whole.warnings.append(f"{message}; nor does the original")
            return
        self.whole.broken.append(Broken(error.stage, message))
        self.whole.difference = Difference("model", "", None, message, feeds, optimised=optimised)

    def _is_left(self) -> bool:
        """Tell whether the converted model keeps operators that onnxruntime does not run.

        One that keeps all of the spatial operators is not converted.
        """
        proto, folder = self.models.converted.proto, self.models.converted.folder
        found = analysis.find(proto, self.models.domains, folder)
        kept = [info for info in found if info.node.domain != DOMAIN]
        if any(info.known_domain for info in kept) and len(kept) >= len(self.infos):
            return False
        return bool(kept or find_refused(proto))

    def _original_fails(self, feeds: Mapping[str, Array]) -> bool:
        """Tell whether the original does not load or run with optimisations on either."""
        try:
            self._optimised_original.run(feeds)
        except RunError:
            return True
        return False

    def _note_differences(self) -> None:
        """Say which outputs differ, each once, by its first run that shows it."""
        levels: dict[str, set[bool]] = {}
        first: dict[str, OutputResult] = {}
        for output in self.whole.outputs:
            if output.passed is False:
                levels.setdefault(output.name, set()).add(output.optimised)
                first.setdefault(output.name, output)
        for name, output in first.items():
            level = (
                "" if len(levels[name]) > 1 else f" with optimisations {_level(output.optimised)}"
            )
            self.whole.differences.append(f"output {name!r}{level}: {output.reason}")

    def _note_random(self) -> None:
        """Say which outputs were not compared because they change from run to run."""
        for name, kind in self.output_kinds.items():
            if kind.random:
                source = self.kinds.random_source(name)
                self.whole.warnings.append(
                    f"output {name!r} differs from run to run and is not compared: {source}"
                )
        if (
            self.output_kinds
            and all(k.random for k in self.output_kinds.values())
            and not self.proven
        ):
            self.whole.not_run = NotRun("all outputs differ from run to run")


def _level(optimised: bool) -> str:
    return "on" if optimised else "off"


def _with(optimised: bool) -> str:
    """Name the level of optimisation where it is not the plain one."""
    return " with optimisations on" if optimised else ""


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return same_bits(a, b)
    return bool(a == b)
