"""Conclude what a verification says: the table of docs/verification.md as code.

something differs                                       FAILED
every changed part proven, one run agrees               PASSED, proven
every changed part proven, no runtime for the model     PASSED, proven, not run
some parts not proven, the runs agree                   PASSED, sampled
no run, although one would have said something          UNVERIFIED

Operators are those of the original, chains that are one, and convolutions that are refused:

part 1   s2b, Conv, b2s  ->  Conv, dilated     proven        s2b: proven, b2s: proven
part 2   s2d             ->  Reshape, ..       gave up       s2d: not proven, "gave up: .."
none                                                         other: left as it is

An operator may be in several parts, and a part may have several operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnx_spatial.conversion.same_padding import find as find_refused
from onnx_spatial.maps.elements import FINITE_DATA
from onnx_spatial.model import traversal
from onnx_spatial.verification.check_models import ModelRuns
from onnx_spatial.verification.check_parts import PartFinding
from onnx_spatial.verification.evidence import (
    UNCHANGED,
    OperatorResult,
    OutputResult,
    Unproven,
    Verification,
    count_proofs,
    first_of,
)
from onnx_spatial.verification.match.matches import Matches
from onnx_spatial.verification.pair import Interface, ModelPair

if TYPE_CHECKING:
    from onnx_spatial.chains.find_chains import Chain

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
        return f"{not_run}; and {first_of(findings.unproven)}"
    return str(not_run)


def _clauses_of_pass(findings: Findings) -> list[str]:
    """Say in a few clauses what a pass rests on."""
    clauses = [] if findings.outputs_only else [_count_proven(findings)]
    if findings.unproven:
        clauses[0] = f"sampled, {clauses[0]}"
        clauses.append(first_of(findings.unproven))
    runs = findings.of_models
    if runs.not_run is not None:
        clauses.append(f"not run: {runs.not_run}")
    else:
        clauses.append(_say_agreement(runs.outputs, len(runs.runs)))
        clauses += [_SAME_OPERATORS] if runs.same_operators and findings.is_proven else []
    if findings.outputs_only:
        clauses.append(ONLY_OUTPUTS)
    return clauses


def _count_proven(findings: Findings) -> str:
    """Count what is proven: operators, or changed parts where no operator changes."""
    if operators := [o.proven for o in findings.operators if o.reason != UNCHANGED]:
        return count_proofs(operators)
    scopes = [finding.proof.scope for finding in findings.parts]
    if not scopes:
        return "both models have the same nodes"
    return count_proofs(scopes, "changed part")


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
    if worst.mismatches:  # a pass in spite of them: they are accepted by `check_models`
        allowed += "; more is accepted as rounding"
    error = f"{worst.max_relative_error or 0:.1e} of the largest value"
    return f"outputs agree to {error}{where} ({allowed})"


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


def operators_of(models: ModelPair, chains: Sequence[Chain]) -> list[Operator]:
    """Return the operators of the original in the order of the file, then the chains."""
    model = models.original.proto
    nodes = list(traversal.nodes(model))
    # The nodes inside a node follow it.
    insides = [
        range(i, i + 1 + len(list(traversal.inner_nodes(n)))) for i, (_, _, n) in enumerate(nodes)
    ]
    operators = []
    for index in sorted({info.index for info in models.infos} | set(find_refused(model))):
        place, _, node = nodes[index]
        result = OperatorResult(traversal.label(node), str(place), node.op_type, node.domain)
        around = frozenset(i for i, inside in enumerate(insides[:index]) if index in inside)
        operators.append(Operator(result, frozenset({index}), around))
    if not chains:
        return operators
    makers = {
        (place, name): index for index, (place, _, node) in enumerate(nodes) for name in node.output
    }
    for chain in chains:
        node, values = chain.nodes[-1], ((chain.place, n.output[0]) for n in chain.nodes)
        positions = frozenset(makers[value] for value in values if value in makers)
        label = traversal.label(node)
        result = OperatorResult(label, str(chain.place), chain.op_type, node.domain)
        operators.append(Operator(result, positions))
    return operators


def result_of(operator: Operator, findings: Findings) -> OperatorResult:
    """Join what was found of the parts that an operator is in."""
    result = operator.result
    parts = [f for f in findings.parts if operator.positions & f.part.nodes]
    parts = parts or [f for f in findings.parts if operator.around & f.part.nodes]
    unmatched = () if findings.matches is None else findings.matches.unmatched
    lost = [u.reason for u in unmatched if operator.positions & u.nodes]
    result.ran = bool(parts) and all(finding.ran for finding in parts)
    result.reason = next((f.reason for f in parts if f.reason is not None), None)
    for finding in parts:
        if finding.difference is not None:
            result.reason = finding.difference.message
            result.counterexample = finding.counterexample
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
