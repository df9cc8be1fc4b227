"""Verify a converted model: prove what differs from the original, run both once, say what is sampled.

1  interface   names, order, types and shapes of inputs and outputs are the same
2  match       the parts that differ are found from the definitions of both files
3  prove       each part: both formulas are the same, for all sizes
4  run         both models on the same data; the outputs agree
5  parts       operators on their own; sizes at which the prover found a difference
6  conclude    the verdict (`verdict`), and what explains a difference (`explain`)

"proven" rests on steps 1 to 3 alone: on what `match` takes for identical, and on the formulas that
`prove` has from `maps`. A run can only refute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification import child, explain, limits, pair, verdict
from onnx_spatial.verification.check_parts import PartFinding, PartRuns
from onnx_spatial.verification.check_whole import WholeRuns
from onnx_spatial.verification.evidence import Unproven, Verification, undecided
from onnx_spatial.verification.kinds import Kinds
from onnx_spatial.verification.match.graphs import described
from onnx_spatial.verification.match.matches import find
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.prover import Prover
from onnx_spatial.verification.run import data
from onnx_spatial.verification.verdict import Findings

if TYPE_CHECKING:
    from onnx_spatial.chains import Chain

Model = reader.Model | reader.Source

#: Copies of the weights that onnxruntime may hold at a time: as read, and packed for its kernels.
_LOADED_COPIES = 2


def verify(
    original: Model,
    converted: Model,
    options: VerifyOptions | None = None,
    *,
    domains: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
    chains: Iterable[Chain] = (),
) -> Verification:
    """Compare a converted model with its original, and report the first difference.

    Args:
        original: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        converted: likewise.
        options: how they are compared; what is good enough (`strict`) is for the caller to check.
        domains: operator domains of the user's own that hold spatial operators.
        progress: called with a line of text now and then.
        chains: chains of standard nodes of the original to report like operators. What is proven does
            not depend on them.

    Raises:
        UsageError: `inputs`, `shapes` or a tolerance do not fit the model.
        ModelFileError: a model cannot be read.
        OperatorError: an operator of the original breaks its own rules on any data.
    """
    options = options or VerifyOptions()
    models = ModelPair.read(original, converted, domains)
    options.tolerances.check_names([value.name for value in models.original.proto.graph.output])
    work, progress = _Work(models, options, tuple(chains)), progress or _silent
    if options.memory is None:
        return work(progress)
    bounds = child.Bounds(options.memory, _LOADED_COPIES * models.weight_bytes())
    try:
        return child.run(work, progress, bounds)
    except child.Died as death:
        last = death
    if last.status == "failed":  # unless the original ends the process with optimisations on, too
        try:
            child.run(replace(work, both_optimised=True), progress, bounds)
        except child.Died as death:
            last = death
    return Verification(last.status, f"{last.status}: {last}", problems=[str(last)])


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class _Work:
    """The comparison of two models, with the arguments of `verify`.

    With `both_optimised` the original runs with optimisations on before the converted model does.
    """

    models: ModelPair
    options: VerifyOptions
    chains: tuple[Chain, ...]
    both_optimised: bool = False

    def __call__(self, progress: Callable[[str], None]) -> Verification:
        """Take all steps, conclude, and explain what differs (step 6)."""
        models = self.models.resolved().without_earlier_form()
        steps = _Steps(models, self.options, progress, self.both_optimised)
        with limits.allowing_time(self.options.time_limit):
            try:
                steps.take(self.chains)
            except limits.TimeLimitError as over:
                steps.findings.out_of_time = str(over)
            except MemoryError:
                return undecided(f"the verification {child.lack_of_memory()}")
            result = verdict.conclude(steps.findings)
            if result.status == "failed":
                with suppress(limits.TimeLimitError):
                    explain.add(
                        result,
                        steps.models,
                        steps.infos,
                        steps.kinds,
                        self.options,
                        child.report,
                        of_run=steps.findings.whole.difference,
                    )
        return result


class _Steps:
    """The steps of a verification, and what they found so far."""

    def __init__(
        self,
        models: ModelPair,
        options: VerifyOptions,
        progress: Callable[[str], None],
        both_optimised: bool,
    ) -> None:
        self.models, self.options, self.progress = models, options, progress
        self.both_optimised = both_optimised
        self.findings = Findings(outputs_only=options.outputs_only)
        self.infos: list[OperatorInfo] = []

    def take(self, chains: Sequence[Chain]) -> None:
        """Take steps 1 to 5.

        Raises:
            TimeLimitError: the time is over; what was found so far stays.
        """
        models, findings, options = self.models, self.findings, self.options
        findings.interface = pair.compare_interfaces(models, options.tolerances)
        original = models.original
        named = data.named_dims(original.proto, data.graph_inputs(original.proto))
        self.infos = analysis.find(named, models.domains, original.folder)
        self.facts = analysis.graph_facts(named, self.infos)
        self.kinds = Kinds(named, self.infos, self.facts)
        operators = verdict.operators_of(original.proto, self.infos, chains)
        if not options.outputs_only:
            self._prove(operators)
        if findings.interface.blocking:
            return
        self._run_whole()
        if not options.outputs_only:
            self._run_parts()
            parts, unmatched = findings.parts, self._unmatched
            findings.operators = [verdict.result_of(o, parts, unmatched) for o in operators]

    def _prove(self, operators: Sequence[verdict.Operator]) -> None:
        """Find the parts that differ (step 2), and prove each (step 3)."""
        matches = find(self.models, self.infos, self.facts)
        prover = Prover(self.models, self.infos, matches)
        for number, part in enumerate(matches.changed, start=1):
            self.progress(f"proof {number}/{len(matches.changed)}: {part.output}")
            inside = {i: o.result.label for o in operators for i in o.positions & part.nodes}
            label = described(part.before.nodes[-1], part.place)
            self.findings.parts.append(PartFinding(part, inside, label, prover.prove(part)))
        self._unmatched = matches.unmatched
        self.findings.unproven = [
            *(each for finding in self.findings.parts for each in finding.unproven),
            *(
                Unproven(f"value {u.output!r} ({u.place})", "gave up", u.reason)
                for u in matches.unmatched
            ),
            *(Unproven("the model", "other formula", line) for line in matches.rest),
            *(
                Unproven("the model", "other formula", line)
                for line in self.findings.interface.narrowed
            ),
        ]

    def _run_whole(self) -> None:
        """Run both whole models (step 4).

        Raises:
            OperatorError: the original does not run, as an operator breaks its own rules on any data.
        """
        findings = self.findings
        watched = [
            finding.part.output
            for finding in findings.parts
            if finding.proof.scope is None and finding.part.place == traversal.Place()
        ]
        WholeRuns(
            self.models,
            self.infos,
            self.kinds,
            self.options,
            self.progress,
            findings.whole,
            proven=findings.is_proven,
            watched=watched,
            both_optimised=self.both_optimised,
        ).compare()
        if findings.whole.not_run is None:
            return
        for info in self.infos:
            if info.known_domain and info.error is not None:
                raise OperatorError(f"{described(info.node, info.place)}: {info.error}")

    def _run_parts(self) -> None:
        """Run operators, and parts that are not proven, on their own (step 5)."""
        findings = self.findings
        runs = PartRuns(self.models, self.infos, self.kinds, self.options)
        whole = findings.whole
        outputs_agree = whole.not_run is None and not (whole.broken or whole.differences)
        may_be_rounding = findings.is_proven and whole.may_have_grown
        for finding in findings.parts:
            usual = may_be_rounding or bool(finding.operators)
            runs.check(finding, whole.other_values, outputs_agree=outputs_agree, usual=usual)
        if may_be_rounding and findings.parts and all(part.ran for part in findings.parts):
            whole.accept_growth()
