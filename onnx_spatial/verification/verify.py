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

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification import child, explain, limits, verdict
from onnx_spatial.verification.check_models import ModelRuns
from onnx_spatial.verification.check_parts import PartFinding, PartRuns
from onnx_spatial.verification.child import Progress
from onnx_spatial.verification.evidence import Verification, ended_early
from onnx_spatial.verification.match.graphs import described
from onnx_spatial.verification.match.matches import find
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair, compare_interfaces
from onnx_spatial.verification.prove.prover import Prover
from onnx_spatial.verification.verdict import Findings

if TYPE_CHECKING:
    from onnx_spatial.chains.find_chains import Chain

Model = reader.Model | reader.Source

#: Copies of the weights that onnxruntime may hold at a time: as read, and packed for its kernels.
_LOADED_COPIES = 2


def verify(
    original: Model,
    converted: Model,
    options: VerifyOptions | None = None,
    *,
    domains: Iterable[str] = (),
    progress: Progress | None = None,
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
    steps, progress = Steps(models, options, tuple(chains)), progress or (lambda text: None)
    return steps(progress) if options.memory is None else _in_child(steps, progress, options.memory)


def _in_child(steps: Steps, progress: Progress, memory: int) -> Verification:
    """Take the steps in a child process; what ends it is a verdict."""
    bounds = child.Bounds(memory, _LOADED_COPIES * steps.models.weight_bytes())
    try:
        return child.run(steps, progress, bounds)
    except child.Died as death:
        last = death
    if last.status == "failed":  # unless the original ends the process with optimisations on, too
        try:
            child.run(replace(steps, both_optimised=True), progress, bounds)
        except child.Died as death:
            last = death
    return ended_early(last.status, str(last), out_of_memory=last.ending == "memory")


@dataclass
class Steps:
    """The steps of one verification, and what they find.

    Attributes:
        models, options, chains: see `verify`.
        both_optimised: whether the original runs with optimisations on before the converted model does.
        findings: of the steps that were taken.
    """

    models: ModelPair
    options: VerifyOptions
    chains: tuple[Chain, ...]
    both_optimised: bool = False
    findings: Findings = field(init=False)

    def __call__(self, progress: Progress) -> Verification:
        """Take all steps, as far as there is time and memory, and conclude."""
        self.models = self.models.prepared()
        runs = ModelRuns(self.models, self.options, progress)
        self.findings = Findings(runs, outputs_only=self.options.outputs_only)
        with limits.allowing_time(self.options.time_limit):
            try:
                self._take_steps(progress)
            except limits.TimeLimitError as over:
                self.findings.out_of_time = str(over)
            except MemoryError:
                reason = f"the verification {child.lack_of_memory()}"
                return ended_early("unverified", reason, out_of_memory=True)
            return self._reach_verdict()

    def _take_steps(self, progress: Progress) -> None:
        """Take steps 1 to 5.

        Raises:
            TimeLimitError: the time is over; what was found so far stays.
        """
        findings, compares_parts = self.findings, not self.options.outputs_only
        findings.interface = compare_interfaces(self.models, self.options.tolerances)
        operators = verdict.operators_of(self.models, self.chains)
        if compares_parts:
            self._match_and_prove(operators, progress)
        if findings.interface.blocking:
            return
        self._run_models()
        self._refuse_broken_operators()
        if compares_parts:
            self._run_parts()
            findings.operators = [verdict.result_of(each, findings) for each in operators]

    def _match_and_prove(self, operators: Iterable[verdict.Operator], progress: Progress) -> None:
        """Find the parts that differ (step 2), and prove each (step 3)."""
        matches, proofs = Prover(self.models, find(self.models)).prove_all(progress)
        self.findings.matches = matches
        for part, proof in zip(matches.changed, proofs, strict=True):
            labels = [o.result.label for o in operators if o.positions & part.nodes]
            label = described(part.before.nodes[-1], part.place)
            self.findings.parts.append(PartFinding(part, labels, label, proof))

    def _run_models(self) -> None:
        """Run both models (step 4), with the values that are not proven as outputs, too."""
        main = traversal.Place()
        unproven = [f.part for f in self.findings.parts if f.proof.scope is None]
        self.findings.of_models.compare(
            self.findings.is_proven,
            [part.output for part in unproven if part.place == main],
            self.both_optimised,
        )

    def _refuse_broken_operators(self) -> None:
        """Refuse an original that does not run because an operator breaks its own rules.

        Raises:
            OperatorError: it does, on any data.
        """
        for info in self.models.infos if self.findings.of_models.not_run is not None else ():
            if info.known_domain and info.error is not None:
                raise OperatorError(f"{described(info.node, info.place)}: {info.error}")

    def _run_parts(self) -> None:
        """Run operators, and parts that are not proven, on their own (step 5).

        Where all is proven, and outputs differ by numbers, all parts run: if each agrees, rounding grew.
        """
        findings, of_models = self.findings, self.findings.of_models
        may_be_rounding = findings.is_proven and of_models.may_have_grown
        runs = PartRuns(self.models, self.options)
        for finding in findings.parts:
            usual = may_be_rounding or bool(finding.operators)
            runs.check_part(finding, of_models.reused_names, usual=usual)
        if may_be_rounding and findings.parts and all(part.ran for part in findings.parts):
            of_models.accept_growth()

    def _reach_verdict(self) -> Verification:
        """Reach the verdict, and explain what differs (step 6)."""
        result = verdict.reach_verdict(self.findings)
        if result.status == "failed":
            of_run = self.findings.of_models.first_difference
            with suppress(limits.TimeLimitError):
                explain.add_explanation(result, self.models, self.options, verify, of_run=of_run)
        return result
