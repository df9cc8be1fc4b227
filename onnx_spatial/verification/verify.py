"""Verify a converted model: prove what differs from the original, run both once, say what is sampled.

1  interface   names, order, types and shapes of inputs and outputs are the same
2  match       the parts that differ are found from the definitions of both files
3  prove       each part: both formulas are the same, for all sizes
4  run         both models on the same data; the outputs agree
5  parts       operators on their own; sizes at which the prover found a difference
6  conclude    the verdict, and what explains a difference (`explain`)

something differs                                       FAILED
every changed part proven, one run agrees               PASSED, proven
every changed part proven, no runtime for the model     PASSED, proven, not run
some parts not proven, the runs agree                   PASSED, sampled
no run, although one would have said something          UNVERIFIED

"proven" rests on steps 1 to 3 alone: on what `match` takes for identical, and on the formulas that
`prove` has from `maps`. A run can only refute.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import onnx

from onnx_spatial.conversion.onnxruntime_pads import find as find_refused
from onnx_spatial.errors import OperatorError
from onnx_spatial.maps.elements import FINITE_DATA
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification import explain, process
from onnx_spatial.verification.evidence import (
    UNCHANGED,
    OperatorResult,
    OutputResult,
    Unproven,
    Verification,
    count_proofs,
    ended_early,
    first_of,
)
from onnx_spatial.verification.match.graphs import described
from onnx_spatial.verification.match.matches import Matches, find
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import Interface, ModelPair, compare_interfaces
from onnx_spatial.verification.process import Progress
from onnx_spatial.verification.prove.prover import Prover
from onnx_spatial.verification.run.side_by_side import ModelRuns, PartFinding, check_part

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
    bounds = process.Bounds(memory, _LOADED_COPIES * steps.models.weight_bytes())
    try:
        return process.run(steps, progress, bounds)
    except process.Died as death:
        last = death
    if last.status == "failed":  # unless the original ends the process with optimisations on, too
        try:
            process.run(replace(steps, both_optimised=True), progress, bounds)
        except process.Died as death:
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
        with process.allowing_time(self.options.time_limit):
            try:
                self._take_steps(progress)
            except process.TimeLimitError as over:
                self.findings.out_of_time = str(over)
            except MemoryError:
                reason = f"the verification {process.lack_of_memory()}"
                return ended_early("unverified", reason, out_of_memory=True)
            return self._reach_verdict()

    def _take_steps(self, progress: Progress) -> None:
        """Take steps 1 to 5.

        Raises:
            TimeLimitError: the time is over; what was found so far stays.
        """
        findings, compares_parts = self.findings, not self.options.outputs_only
        findings.interface = compare_interfaces(self.models, self.options.tolerances)
        operators = operators_of(self.models, self.chains)
        if compares_parts:
            self._match_and_prove(operators, progress)
        if findings.interface.blocking:
            return
        self._run_models()
        self._refuse_broken_operators()
        if compares_parts:
            self._run_parts()
            findings.operators = [result_of(each, findings) for each in operators]

    def _match_and_prove(self, operators: Iterable[Operator], progress: Progress) -> None:
        """Find the parts that differ (step 2), and prove each (step 3)."""
        matches, proofs = Prover(self.models, find(self.models)).prove_all(progress)
        self.findings.matches = matches
        for part, proof in zip(matches.changed, proofs, strict=True):
            labels = [o.result.label for o in operators if o.positions & part.nodes]
            result = result_for(part.before.nodes[-1], part.place)
            result.proven, result.assumptions = proof.scope, tuple(proof.assumptions)
            finding = PartFinding(part, proof, labels, result)
            result.unproven = next(iter(finding.unproven), None)
            self.findings.parts.append(finding)

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
        for finding in findings.parts:
            usual = may_be_rounding or bool(finding.operators)
            check_part(finding, of_models, usual=usual)
        if may_be_rounding and findings.parts and all(part.result.ran for part in findings.parts):
            of_models.accept_growth()

    def _reach_verdict(self) -> Verification:
        """Reach the verdict, and explain what differs (step 6)."""
        result = reach_verdict(self.findings)
        if result.status == "failed":
            of_run = self.findings.of_models.first_difference
            edits = [finding.edit for finding in self.findings.parts if finding.edit]
            with suppress(process.TimeLimitError):
                explain.add_explanation(
                    result, self.models, self.options, verify, of_run=of_run, edits=edits
                )
        return result


#: What is said of mode custom-op: the runs of both models are one computation.
_SAME_OPERATORS = "both models run the same Python operators, so no run of the whole adds to it"
#: What the user asked to leave out.
ONLY_OUTPUTS = "only outputs were compared, no single operators and no other nodes"


@dataclass
class Findings:
    """What the steps of a verification found so far.

    Attributes:
        of_models: runs of both models.
        interface: differences of inputs and outputs.
        matches: the parts that differ, and what else does; None if they were not looked for.
        parts: the changed parts, with proofs and runs.
        operators: results of the operators, from the parts that they are in.
        out_of_time: at what the time was over; None if it was not.
        outputs_only: whether nothing but outputs is compared.
    """

    of_models: ModelRuns
    interface: Interface = field(default_factory=Interface)
    matches: Matches | None = None
    parts: list[PartFinding] = field(default_factory=list)
    operators: list[OperatorResult] = field(default_factory=list)
    out_of_time: str | None = None
    outputs_only: bool = False

    @property
    def unproven(self) -> list[Unproven]:
        """Everything that is not proven: parts, values without two parts, and what is in no part."""
        if self.matches is None:
            return []
        others = (*self.matches.rest, *self.interface.narrowed)
        return [
            *(each for finding in self.parts for each in finding.unproven),
            *(
                Unproven(f"value {u.output!r} ({u.place})", "gave up", u.reason)
                for u in self.matches.unmatched
            ),
            *(Unproven("the model", "other formula", line) for line in others),
        ]

    @property
    def is_proven(self) -> bool:
        """Whether every part that differs is proven, and all else is identical."""
        return self.matches is not None and not self.unproven and self.out_of_time is None

    @property
    def failures(self) -> list[str]:
        """What differs, one line each; what explains most comes first."""
        runs = self.of_models
        parts = [p.difference.message for p in self.parts if p.difference is not None]
        return [
            *self.interface.blocking,
            *self.interface.types,
            *([] if runs.broken is None else [runs.broken.message]),
            *(dict.fromkeys(parts) if runs.loads else ()),
            *runs.failures,
        ]


def reach_verdict(findings: Findings) -> Verification:
    """Return the verdict on the findings, with all evidence."""
    runs = findings.of_models
    notes = [*findings.interface.notes, *runs.warnings]
    # Operators list it among their assumptions; for parts without operators a note says it.
    if any(FINITE_DATA in p.proof.assumptions for p in findings.parts if not p.operators):
        notes.append(f"the proof assumes that {FINITE_DATA}")
    if findings.outputs_only:
        notes.insert(0, ONLY_OUTPUTS)
    result = Verification(
        "unverified",
        "",
        unproven=findings.unproven,
        outputs=runs.outputs,
        operators=findings.operators,
        parts=[finding.result for finding in findings.parts if not finding.operators],
        runs=runs.runs,
        notes=list(dict.fromkeys(notes)),
        outputs_only=findings.outputs_only,
    )
    if failures := findings.failures:
        result.status, result.problems = "failed", failures
        result.message = f"failed: {first_of(failures)}"
        differing = [p.difference for p in findings.parts if p.difference is not None]
        if not differing or not runs.loads:
            result.first_difference = runs.first_difference
        else:
            result.first_difference = differing[0]
    elif (gap := _why_unverified(findings)) is not None:
        result.problems = [gap, *map(str, findings.unproven)]
        result.message = f"unverified: {gap}"
        result.out_of_memory = runs.not_run is not None and runs.not_run.out_of_memory
    else:
        result.status = "passed"
        result.evidence = "proven" if findings.is_proven else "sampled"
        result.message = f"passed: {'; '.join(_clauses_of_pass(findings))}"
    return result


def _why_unverified(findings: Findings) -> str | None:
    """Return why nothing can be concluded; None if there is a pass."""
    not_run = findings.of_models.not_run
    if findings.out_of_time is not None:
        return findings.out_of_time
    if not_run is None or (findings.is_proven and not_run.lacks_kernel):
        return None
    if findings.unproven:
        return f"{first_of(findings.unproven)}, and outputs were not compared: {not_run}"
    return f"outputs were not compared: {not_run}"


def _clauses_of_pass(findings: Findings) -> list[str]:
    """Say in a few clauses what a pass rests on."""
    clauses = [] if findings.outputs_only else [_count_proven(findings)]
    if findings.unproven:
        clauses.append(first_of(findings.unproven))
    runs = findings.of_models
    if runs.not_run is not None:
        clauses.append(f"not run: {runs.not_run}")
    else:
        clauses.append(_say_agreement(runs.outputs, len(runs.runs)))
        if runs.models.has_python_operators and findings.is_proven:
            clauses.append(_SAME_OPERATORS)
    if findings.outputs_only:
        clauses.append(ONLY_OUTPUTS)
    return clauses


def _count_proven(findings: Findings) -> str:
    """Count what is proven: operators, or changed parts where no operator changes."""
    sampled = bool(findings.unproven)
    if operators := [o.proven for o in findings.operators if o.reason != UNCHANGED]:
        return count_proofs(operators, sampled=sampled)
    scopes = [finding.proof.scope for finding in findings.parts]
    if not scopes:
        return f"{'sampled: ' if sampled else ''}both models have the same nodes"
    return count_proofs(scopes, "changed part", sampled=sampled)


def _say_agreement(outputs: Sequence[OutputResult], runs: int) -> str:
    """Say how far the outputs of all runs are apart, and how far they may be."""
    where = "" if runs == 1 else f" in {runs} runs"
    compared = [output for output in outputs if output.passed is not None]
    if not compared:
        return "no output was compared"
    if all(output.equal_bits for output in compared):
        return f"outputs are equal in every bit{where}"
    worst = max(compared, key=lambda output: output.max_relative_error or 0.0)
    allowed = f"{worst.tolerance:g} is allowed"
    if worst.mismatches:  # a pass in spite of them: they are accepted by `ModelRuns`
        allowed += "; more is accepted as rounding"
    error = f"{worst.max_relative_error or 0:.1e} of the largest value"
    plain = [output.equal_bits for output in compared if not output.optimised]
    equal = ", in every bit with optimisations off" if plain and all(plain) else ""
    return f"outputs agree to {error}{where} ({allowed}){equal}"


# Operators


@dataclass(frozen=True)
class Operator:
    """An operator of the original in reports.

    Attributes:
        result: gets what is found.
        positions: of its nodes in `traversal.nodes`.
        around: positions of the nodes whose graphs hold it.
    """

    result: OperatorResult
    positions: frozenset[int]
    around: frozenset[int] = frozenset()


def result_for(node: onnx.NodeProto, place: traversal.Place) -> OperatorResult:
    """Return a result without findings, named after a node."""
    return OperatorResult(traversal.label(node), str(place), node.op_type, node.domain)


def operators_of(models: ModelPair, chains: Sequence[Chain]) -> list[Operator]:
    """Return the operators of the original in the order of the file, then the chains."""
    model = models.original.proto
    nodes = list(traversal.nodes(model))
    operators = []
    for index in sorted({info.index for info in models.infos} | set(find_refused(model))):
        place, _, node = nodes[index]
        result = result_for(node, place)
        # The nodes inside a node follow it.
        around = frozenset(
            i
            for i, (_, _, outer) in enumerate(nodes[:index] if place.steps else ())
            if i + len(list(traversal.inner_nodes(outer))) >= index
        )
        operators.append(Operator(result, frozenset({index}), around))
    if not chains:
        return operators
    makers = {
        (place, name): index for index, (place, _, node) in enumerate(nodes) for name in node.output
    }
    for chain in chains:
        node, values = chain.nodes[-1], ((chain.place, n.output[0]) for n in chain.nodes)
        positions = frozenset(makers[value] for value in values if value in makers)
        result = replace(result_for(node, chain.place), op_type=chain.op_type)
        operators.append(Operator(result, positions))
    return operators


def result_of(operator: Operator, findings: Findings) -> OperatorResult:
    """Join what was found of the parts that an operator is in."""
    result = operator.result
    parts = [f for f in findings.parts if operator.positions & f.part.nodes]
    parts = parts or [f for f in findings.parts if operator.around & f.part.nodes]
    unmatched = () if findings.matches is None else findings.matches.unmatched
    lost = [u.reason for u in unmatched if operator.positions & u.nodes]
    result.ran = bool(parts) and all(finding.result.ran for finding in parts)
    differing = [finding for finding in parts if finding.difference is not None]
    told = (finding.result for finding in differing or parts)
    result.reason = next((each.reason for each in told if each.reason is not None), None)
    if differing:
        result.counterexample = differing[0].result.counterexample
        return result
    if lost:
        result.unproven = Unproven(result.label, "gave up", lost[0])
    elif not parts:
        result.reason = UNCHANGED
    elif unproven := [each for finding in parts for each in finding.unproven]:
        result.unproven = replace(unproven[0], node=result.label)
    else:
        static = any(f.proof.scope == "these sizes" for f in parts)
        result.proven = "these sizes" if static else "all sizes"
        result.assumptions = tuple(dict.fromkeys(a for f in parts for a in f.proof.assumptions))
    return result
