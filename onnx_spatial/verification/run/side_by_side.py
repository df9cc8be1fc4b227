"""Run the original and the converted model on the same data: whole models, then the parts that changed.

    data -> original    (spatial operators in Python)        -> outputs   \
                                                                            within the tolerance
    data -> converted   (optimisations off, then on)         -> outputs   /

A difference counts, unless something else than the conversion explains it (`_accept_explained`). The
original runs with optimisations on only where that is needed to tell.

A proof leaves out a batch of zero and the bits of NaNs: so each operator runs once on them, on its own,
with optimisations off. Of a part that is not proven, the prover names sizes at which the formulas
differ: a run there decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.conversion.onnxruntime_pads import find as find_refused
from onnx_spatial.errors import Code, SpatialError, UsageError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification import pair
from onnx_spatial.verification.evidence import (
    Counterexample,
    Difference,
    OperatorResult,
    OutputResult,
    Run,
    Unproven,
)
from onnx_spatial.verification.match.matches import ChangedPart
from onnx_spatial.verification.options import Array, VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.process import CONVERTED
from onnx_spatial.verification.prove.prover import Proof, Trial
from onnx_spatial.verification.run import data
from onnx_spatial.verification.run.legal_sizes import SizeSearch
from onnx_spatial.verification.run.run_error import RunError
from onnx_spatial.verification.run.sessions import Original, Session, open_converted
from onnx_spatial.verification.values import (
    RTOL,
    Kind,
    Kinds,
    compare,
    describe_element,
    dtype_name,
    element_type_of,
    find_mismatch,
    is_float,
)

if TYPE_CHECKING:
    from onnx_spatial.verification.run.evaluator import Evaluator

# Whole models

#: Kind of inner values: whether they are moved or sums, a hint is all that is needed.
_SUMS = Kind(rtol=RTOL[onnx.TensorProto.FLOAT])
#: What to do about a run that needs too much memory.
_SMALLER = "use smaller sizes (--shape) or allow more memory (--memory)"
#: onnxruntime's optimisations in messages, by whether they are on.
_LEVELS = {False: "off", True: "on"}
#: The level of optimisation in messages, where it is not the plain one.
_WITH = {False: "", True: " with optimisations on"}

#: Data of a run, by input name, and the outputs of the original.
_OriginalRun = tuple[Mapping[str, Array], Mapping[str, Any]]


@dataclass
class ModelRuns:
    """Runs of two models that have the same inputs and outputs, and what they show.

    Attributes:
        models: the models.
        options: data, sizes, seed and tolerances.
        progress: called with lines of text.
        feeds: the data of each run.
        runs, outputs: see `Verification`.
        broken: how the converted model does not load or run; None if it does.
        loads: whether it loads.
        declarations: outputs that have another shape than they are declared with, one line each.
        warnings: what is odd but no failure.
        not_run: why nothing was compared, with what the user can give; None if something was.
    """

    models: ModelPair
    options: VerifyOptions
    progress: Callable[[str], None]
    feeds: list[Mapping[str, Array]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    broken: Difference | None = None
    loads: bool = True
    declarations: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    not_run: RunError | None = None

    def compare(self, proven: bool, watched: Sequence[str], both_optimised: bool) -> None:
        """Run the original, then the converted model with optimisations off and on.

        Args:
            proven: whether every part that differs is proven: then runs only test the runtime.
            watched: values of the main graph that are not proven.
            both_optimised: whether the original runs with optimisations on, too, before the converted
                model.

        Raises:
            UsageError: the data or shapes that were given do not fit the model, or it does not run on
                them.
        """
        self._proven, self._watched, self._both_optimised = proven, watched, both_optimised
        try:
            self._run_original()
            self._run_converted()
        except RunError as error:
            self.not_run = error if error.stage == "sizes" else self._why_not_run(error)

    # What they show

    @property
    def failed_outputs(self) -> list[OutputResult]:
        """The comparisons of outputs that failed."""
        return [output for output in self.outputs if output.passed is False]

    @property
    def difference_lines(self) -> list[str]:
        """Outputs that differ, each once, by its first run that shows it."""
        lines: dict[str, str] = {}
        for output in self.failed_outputs:
            levels = {other.optimised for other in self.failed_outputs if other.name == output.name}
            level = f" with optimisations {_LEVELS[output.optimised]}" if len(levels) == 1 else ""
            lines.setdefault(output.name, f"output {output.name!r}{level}: {output.reason}")
        return list(lines.values())

    @property
    def first_difference(self) -> Difference | None:
        """How the converted model is broken, else the first output that differs, with the data."""
        for output in self.failed_outputs if self.broken is None else ():
            message = f"output {output.name!r}{_WITH[output.optimised]}: {output.reason}"
            feeds, optimised = self.feeds[output.run], output.optimised
            return Difference("output", output.name, None, message, feeds, optimised=optimised)
        return self.broken

    @property
    def failures(self) -> list[str]:
        """Outputs that differ, and wrong declarations."""
        return [*self.difference_lines, *self.declarations]

    @cached_property
    def reused_names(self) -> frozenset[str]:
        """Names of inner values that differ though no output does: they may mean other values."""
        if self.not_run is not None or self.broken is not None or self.failures:
            return frozenset()
        named = self.models.converted.holding(self.models.readable[0])
        models = replace(self.models, converted=named)
        try:
            expected, actual = run_with_inner_values(models, self._watched, self.feeds[0])
        except RunError:
            return frozenset()
        return frozenset(
            name
            for name in expected.keys() & actual.keys() & {*self._watched}
            if find_mismatch(expected[name], actual[name], _SUMS) is not None
        )

    @property
    def may_have_grown(self) -> bool:
        """Whether all that differs is numbers, as where a deep net makes rounding grow."""
        finite = all(math.isfinite(o.max_relative_error or math.inf) for o in self.failed_outputs)
        return bool(self.failed_outputs) and finite and self.broken is None

    def accept_growth(self) -> None:
        """Accept differences of a model of which every part is proven, and agrees on its own.

        All else is identical in both models: what is left is rounding that the rest makes grow.
        """
        self.warnings += [f"{line}: rounding that grew" for line in self.difference_lines]
        self.outputs = [replace(o, passed=True) if o.passed is False else o for o in self.outputs]

    # The original

    def _run_original(self) -> None:
        """Run the original on what the user gave, or at sizes where it runs."""
        source = self.models.original
        self._prepared = Original(source, self.models.domains)
        self._original = self._prepared.open()
        runs = self._on_data_of_the_user() or self._at_legal_sizes()
        self._expected = [outputs for _, outputs in runs]
        kinds = self.models.kinds.of_values()
        self._kinds = {v.name: kinds.get(v.name, Kind()) for v in source.proto.graph.output}
        defaults = {tensor.name for tensor in source.proto.graph.initializer}
        self.feeds = [feeds for feeds, _ in runs]
        self.runs = [
            Run(
                self.options.seed,
                {name: np.shape(array) for name, array in feeds.items()},
                {name: dtype_name(array) for name, array in feeds.items()},
                tuple(name for name in feeds if name in defaults),
            )
            for feeds in self.feeds
        ]

    def _on_data_of_the_user(self) -> list[_OriginalRun]:
        """Return data and outputs of the run that the user asks for, if there is one."""
        if self.options.inputs is None:
            return []
        inputs = data.graph_inputs(self.models.original.proto)
        feeds = data.check_user_data(inputs, self.options.inputs)
        try:
            return [(feeds, self._original.run(feeds))]
        except RunError as error:
            if error.lacks_kernel or error.out_of_memory:
                raise
            raise UsageError(
                f"the original does not run on the data that was given: {error}",
                code=Code.INPUT_DATA,
            ) from None

    def _at_legal_sizes(self) -> list[_OriginalRun]:
        """Return data and outputs of a run, and of one at other sizes if there are parts to sample."""
        options, model = self.options, self.models.original.proto
        inputs, fixed = data.fixed_sizes(data.graph_inputs(model), options.shapes or {})
        search = SizeSearch(
            model,
            inputs,
            self.models.infos,
            self._original.run,
            fixed=fixed,
            seed=options.seed,
            memory=options.memory,
            progress=self.progress,
        )
        first = search.first()
        second = None if self._proven else search.another(first)
        return [(run.feeds, run.outputs) for run in (first, second) if run is not None]

    def _why_not_run(self, error: RunError) -> RunError:
        """Say why the original does not run, and what helps."""
        reason = f"the original cannot be run: {error}"
        if error.out_of_memory:
            reason += f"; {_SMALLER}"
        unaccepted = [info.node.domain for info in self.models.infos if not info.known_domain]
        if error.lacks_kernel and unaccepted:
            same = "if it means the same as TensorFlow's or OpenVINO's"
            reason += f"; use --domain {unaccepted[0]} {same}"
        # A damaged file may make onnxruntime lack an operator that it has.
        unknown = "registered" not in str(error) or self._has_foreign_operator()
        return _not_run(reason, error.lacks_kernel and unknown, error.out_of_memory)

    def _has_foreign_operator(self) -> bool:
        """Tell whether an operator is neither ONNX's, nor spatial, nor a function of the model."""
        model = self.models.original.proto
        known = {(f.domain, f.name) for f in model.functions}
        known |= {(info.node.domain, info.node.op_type) for info in self.models.infos}
        nodes = (node for _, _, node in traversal.nodes(model) if not op_traits.is_standard(node))
        return any((node.domain, node.op_type) not in known for node in nodes)

    @cached_property
    def _optimised_original(self) -> Session | Evaluator:
        return self._prepared.open(optimise=True)

    def _run_optimised_original(self, feeds: Mapping[str, Array]) -> Mapping[str, Any] | None:
        """Return the outputs of the original with optimisations on; None if it does not run so."""
        try:
            return self._optimised_original.run(feeds)
        except RunError:
            return None

    # The converted model

    def _run_converted(self) -> None:
        for optimised in (False, True):
            self._compare_level(optimised)
            if self.broken is not None:
                return
        shapes = ((output.name, output.shape) for output in self.outputs)
        self.declarations = pair.wrong_declarations(self.models, shapes)
        random = {name: kind.random for name, kind in self._kinds.items() if kind.random}
        self.warnings += [
            f"output {name!r} differs from run to run and is not compared: {source}"
            for name, source in random.items()
        ]
        if random and random.keys() == self._kinds.keys() and not self._proven:
            self.not_run = _not_run("all outputs differ from run to run")

    def _compare_level(self, optimised: bool) -> None:
        """Run the converted model with optimisations off, or on."""
        for feeds in self.feeds if optimised and self._both_optimised else ():
            self._run_optimised_original(feeds)  # or it ends this process, as is to be seen
        number = 0
        try:
            session = open_converted(self.models.converted, optimise=optimised)
            for number, feeds in enumerate(self.feeds):
                level = _LEVELS[optimised]
                self.progress(f"run {number + 1}/{len(self.feeds)}, optimisations {level}")
                outputs = session.run(self.models.as_fed(feeds))
                for name in self._kinds:
                    self._compare_output(name, number, optimised, outputs[name])
        except RunError as error:
            self._note_failure(error, number, optimised)

    def _compare_output(self, name: str, number: int, optimised: bool, actual: Any) -> None:
        """Compare an output of one run, which may be a sequence of tensors."""
        kind, tolerance = self._kinds[name], self.options.tolerances.of_output(name)
        expected = self._expected[number][name]
        for result in compare(name, number, optimised, expected, actual, kind, tolerance):
            if kind.random:
                result = replace(result, passed=None, reason="random: not compared")
            elif result.passed is False:
                result = self._accept_explained(result, name, actual)
            self.outputs.append(result)

    def _accept_explained(self, result: OutputResult, name: str, actual: Any) -> OutputResult:
        """Accept a difference that something else than the conversion explains."""
        reason = result.reason
        remark = ""
        if self._is_of_no_turns(result, actual):
            remark = "a Loop without turns gives sizes that are inferred, or 0"
        elif result.optimised and self._optimised_original_gives(result, name, actual):
            remark = "the original computes the same with optimisations on"
        if remark:
            return replace(result, passed=True, reason=f"{reason}; accepted: {remark}")
        if result.optimised and self._proven:
            self.warnings.append(
                f"output {result.name!r} with onnxruntime's optimisations on: {reason}; "
                "all parts are proven, and without them it agrees"
            )
            return replace(result, passed=True)
        if self._original.kind == "evaluator" and self._proven:
            reason = f"{reason}; but it is proven, and onnx's evaluator ran the original"
            self.not_run = _not_run(f"output {result.name!r}: {reason}")
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
        outputs = self._run_optimised_original(self.feeds[result.run])
        tolerance = self.options.tolerances.of_output(name)
        return (
            outputs is not None
            and find_mismatch(outputs[name], actual, self._kinds[name], tolerance) is None
        )

    def _note_failure(self, error: RunError, number: int, optimised: bool) -> None:
        """Note that the converted model does not load or run; no failure if the original fails, too."""
        loads = error.stage != "load"
        what = "run" if loads else "load"
        message = f"the converted model does not {what}{_WITH[optimised]}: {error}"
        if error.out_of_memory:
            self.not_run = _not_run(f"{message}; {_SMALLER}", out_of_memory=True)
        elif self._keeps_operators():
            reason = f"onnxruntime cannot run what is left: {error}"
            self.not_run = _not_run(reason, no_runtime=True)
        elif optimised and self._run_optimised_original(self.feeds[number]) is None:
            self.warnings.append(f"{message}; nor does the original")
        else:
            self.loads, feeds = loads, self.feeds[number]
            self.broken = Difference("model", "", None, message, feeds, optimised=optimised)

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


def _not_run(reason: str, no_runtime: bool = False, out_of_memory: bool = False) -> RunError:
    """Say why the models were not compared; without a runtime for an operator nothing helps."""
    return RunError(reason, "run", lacks_kernel=no_runtime, out_of_memory=out_of_memory)


def run_with_inner_values(
    models: ModelPair, names: Sequence[str], feeds: Mapping[str, Array], *, optimise: bool = False
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Run both models with inner values of the main graph as outputs, and return what they compute.

    Args:
        models: the models.
        names: of the values.
        feeds: data.
        optimise: whether the converted model runs with optimisations.

    Raises:
        RunError: one of them does not run so.
    """
    expected = Original(models.original, models.domains, values=names).open().run(feeds)
    session = open_converted(models.converted, names, optimise=optimise)
    return expected, session.run(models.as_fed(feeds))


# Changed parts

#: Elements of the largest input of a part that runs on its own: 128 MiB of float32.
_MAX_ELEMENTS = 2**25
#: Type of values whose type is not known.
_FLOAT = onnx.TensorProto.FLOAT

#: onnxruntime refuses a -1 in the shape of a Reshape next to a 0: it could be any number.
_REQUESTED_SHAPE = re.compile(r"requested shape:\{([^}]*)\}")


@dataclass
class PartFinding:
    """What was found of one changed part.

    Attributes:
        part: the part.
        proof: what is proven of it.
        operators: labels of its operators.
        result: what is reported of it; it is named after the node that computes its output.
        difference: how it differs, if that counts.
    """

    part: ChangedPart
    proof: Proof
    operators: Sequence[str]
    result: OperatorResult
    difference: Difference | None = None

    @property
    def labels(self) -> list[str]:
        """Labels of its operators; without any, of the node that computes its output."""
        return list(self.operators) or [self.result.label]

    @property
    def edit(self) -> str:
        """How somebody edited its only node or a constant of it; "" if that is not known."""
        sides = self.part.before.nodes, self.part.after.nodes
        counts = {sum(node.op_type != "Constant" for node in nodes) for nodes in sides}
        of_constant = self.proof.reason.startswith("reads another constant")
        is_single = counts == {1} and not self.operators
        if self.proof.found != "other formula" or not (is_single or of_constant):
            return ""
        label = self.result.label
        where = label if is_single else f"a node at or before {label}"
        return f"{where} was changed: it {self.proof.reason}"

    @property
    def unproven(self) -> list[Unproven]:
        """What is not proven, a line for each label."""
        if self.proof.found is None:
            return []
        return [Unproven(label, self.proof.found, self.proof.reason) for label in self.labels]


def check_part(finding: PartFinding, runs: ModelRuns, *, usual: bool) -> None:
    """Run a part on usual data, and where the prover names sizes.

    Args:
        finding: gets what is found.
        runs: of both models, which show what names mean.
        usual: whether it runs on usual data.
    """
    part, result = finding.part, finding.result
    try:
        for compared, shown in _find_differences(finding, runs, usual):
            if not runs.reused_names.isdisjoint({part.output, *part.inputs}):
                result.reason = "a name may mean another value there: no output differs"
                continue
            occurs = compared.may_be_fed(values=bool(shown.parameters))
            if occurs or (finding.operators and shown.element is not None):
                _add_difference(finding, shown)
                return
            result.reason = f"{shown.message}: these sizes may not occur in the model"
    except (RunError, SpatialError) as error:
        result.reason = str(error)
        return
    result.ran = usual and result.reason is None


def _find_differences(
    finding: PartFinding, runs: ModelRuns, usual: bool
) -> Iterator[tuple[ChangedPart, Counterexample]]:
    """Yield the first difference on usual data, and the first where the prover names sizes.

    Raises:
        RunError: the original does not run on its own.
    """
    part, proof = finding.part, finding.proof
    if usual:
        sides = _Sides(part, runs.models, runs.options)
        if (shown := sides.first_difference(sides.usual_data())) is not None:
            yield part, shown
    if proof.trials:
        part = proof.wider or part
        sides = _Sides(part, runs.models, runs.options)
        if (shown := sides.first_difference(sides.data_of(proof.trials))) is not None:
            yield part, shown


def _add_difference(finding: PartFinding, shown: Counterexample) -> None:
    """Note how a part differs: what the prover found says more than that numbers do."""
    label, part, place = finding.labels[0], finding.part, finding.part.place
    if finding.operators:
        message = f"{label}: {shown.message}"
        if finding.proof.found == "other formula" and not shown.names_values:
            message += f"; it {finding.proof.reason}"
    else:
        message = finding.edit or f"{label} was changed: {shown.message}"
    finding.result.reason, finding.result.counterexample = message, shown
    finding.difference = Difference(
        "operator" if finding.operators else "value",
        label if finding.operators else part.output,
        str(place),
        message,
        shown.inputs,
        part.output,
        place,
    )


class _Sides:
    """Both sides of a part, ready to run. What optimisations do is seen in the run of the whole.

    Args:
        part: the part.
        models: the models.
        options: seed of the data, and memory that it may take.
    """

    def __init__(self, part: ChangedPart, models: ModelPair, options: VerifyOptions) -> None:
        self._part, self._models, self._options = part, models, options
        source = models.original.holding(part.original())
        self._inputs = data.graph_inputs(source.proto)
        self._named = data.named_dims(source.proto, self._inputs, source.folder)
        self._infos = analysis.find(self._named, models.domains, source.folder)
        # Else both sides would run the same Python operators.
        evaluated = models.has_python_operators
        self._original = Original(source, models.domains, evaluated=evaluated).open()
        #: Names of what the operators of the part move.
        self._moved = [info.node.input[0] for info in self._infos]
        kind = Kinds(self._named, self._infos, self._infos.facts).of_values()[part.output]
        outputs = {info.node.output[0] for info in self._infos}
        others = [node for node in part.before.nodes if outputs.isdisjoint(node.output)]
        # Errors of sums behind each other add up; the operators make none.
        rounding = sum(not op_traits.is_bitwise(node) for node in others)
        self._kind = replace(kind, rtol=kind.rtol * max(1, rounding))
        self._rng = np.random.default_rng(options.seed)

    def usual_data(self) -> Iterator[Mapping[str, Array]]:
        """Yield data of a usual size for an operator: any bits where it is only moved; then no batch.

        Raises:
            RunError: there are no sizes at which the original runs.
        """
        search = SizeSearch(
            self._named,
            self._inputs,
            self._infos,
            self._original.run,
            seed=self._options.seed,
            memory=self._options.memory,
        )
        feeds = search.first().feeds
        yield {name: self._any_bits(name, array) for name, array in feeds.items()}
        if (empty := self._without_batch(feeds)) is not None:
            yield empty

    def data_of(self, trials: Sequence[Trial]) -> Iterator[Mapping[str, Array]]:
        """Yield data of the sizes at which the prover found a difference."""
        types = {name: shape_inference.element_type(t) for name, t in self._part.inputs.items()}
        for trial in trials:
            sizes = [math.prod(shape) for shape in trial.shapes.values()]
            if trial.shapes.keys() >= types.keys() and max(sizes, default=0) <= _MAX_ELEMENTS:
                yield {
                    name: trial.values[name]
                    if name in trial.values
                    else self._any_bits(
                        name, data.usual(element_type or _FLOAT, trial.shapes[name], self._rng)
                    )
                    for name, element_type in types.items()
                }

    def first_difference(self, samples: Iterable[Mapping[str, Array]]) -> Counterexample | None:
        """Run both sides on data until they differ, and return how; None if they do not."""
        return next(filter(None, map(self._compare_sides, samples)), None)

    def _compare_sides(self, feeds: Mapping[str, Array]) -> Counterexample | None:
        """Run both sides, and return how they differ; None if they agree, or the original fails."""
        name, read = self._part.output, self._part.after.read
        integers = {n: a.tolist() for n, a in feeds.items() if a.dtype.kind in "iu" and a.ndim <= 2}
        try:
            expected = self._original.run(feeds)[name]
        except RunError:
            return None
        try:
            actual = self._converted_session.run({n: a for n, a in feeds.items() if n in read})[
                name
            ]
        except RunError as error:
            if error.out_of_memory or _is_ambiguous(str(error)):
                return None
            return Counterexample(feeds, integers, None, f"cannot be computed: {error}", name)
        mismatch = find_mismatch(expected, actual, self._kind)
        if mismatch is None:
            return None
        element, reason = mismatch.element, str(mismatch.reason)
        if element is not None and not self._kind.rtol:
            reason = describe_element(expected, actual, element, feeds)
        return Counterexample(feeds, integers, element, reason, name)

    @cached_property
    def _converted_session(self) -> Session:
        return Session(
            self._part.converted().SerializeToString(),
            of=CONVERTED,
            folder=self._models.converted.folder,
        )

    def _any_bits(self, name: str, array: Array) -> Array:
        """Return any bits in the place of reals, and of data of an operator, that are only moved."""
        if self._kind != Kind() or not (is_float(array.dtype) or name in self._moved):
            return array
        return data.patterns(element_type_of(array), array.shape, self._rng)

    def _without_batch(self, feeds: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the data without any element of the batch; None where the batch is fixed."""
        dims = {n: shape_inference.dims(known) for n, known in self._part.inputs.items()}
        batches = ((name, sizes[0]) for name in self._moved if (sizes := dims.get(name)))
        name, batch = next(batches, ("", 1))
        if isinstance(batch, int):
            return None
        return {
            n: array[:0] if n == name or (dims.get(n) or (None,))[0] == batch else array
            for n, array in feeds.items()
        }


def _is_ambiguous(message: str) -> bool:
    """Tell whether a Reshape refuses a -1 because another size is 0: it could be any number."""
    requested = _REQUESTED_SHAPE.search(message)
    return requested is not None and {"0", "-1"} <= set(requested[1].split(","))
