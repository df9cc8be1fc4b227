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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.same_padding.find import find as find_refused
from onnx_spatial.maps.elements import FINITE_DATA
from onnx_spatial.model import traversal
from onnx_spatial.verification.check_parts import PartFinding
from onnx_spatial.verification.check_whole import Whole
from onnx_spatial.verification.evidence import (
    UNCHANGED,
    OperatorResult,
    OutputResult,
    Unproven,
    Verification,
    count_proofs,
    first_of,
)
from onnx_spatial.verification.match.matches import Unmatched
from onnx_spatial.verification.pair import Interface

if TYPE_CHECKING:
    from onnx_spatial.chains import Chain

#: What is said of mode custom-op: the runs of both models are one computation.
_SAME_OPERATORS = "both models run the same Python operators, so no run of the whole adds to it"
#: What the user asked to leave out.
ONLY_OUTPUTS = "only outputs were compared, no single operators and no other nodes"


@dataclass
class Findings:
    """What the steps of a verification found so far.

    Attributes:
        interface: differences of inputs and outputs.
        parts: the changed parts, with proofs and runs.
        operators: results of the operators, from the parts that they are in.
        unproven: everything that is not proven: parts, and what is not in two parts.
        whole: runs of both models; None if there was none yet.
        out_of_time: at what the time was over; None if it was not.
        outputs_only: whether nothing but outputs is compared.
    """

    interface: Interface = field(default_factory=Interface)
    parts: list[PartFinding] = field(default_factory=list)
    operators: list[OperatorResult] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    whole: Whole = field(default_factory=Whole)
    out_of_time: str | None = None
    outputs_only: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether every part that differs is proven, and all else is identical."""
        return not self.unproven and not self.outputs_only and self.out_of_time is None

    @property
    def failures(self) -> list[str]:
        """What differs, one line each; what explains most comes first."""
        loads = not any(failure.stage == "load" for failure in self.whole.broken)
        parts = [p.difference.message for p in self.parts if p.difference is not None and loads]
        return [
            *self.interface.blocking,
            *self.interface.types,
            *(failure.message for failure in self.whole.broken),
            *dict.fromkeys(parts),
            *self.whole.differences,
        ]


def conclude(findings: Findings) -> Verification:
    """Return the verdict on the findings, with all evidence."""
    whole = findings.whole
    notes = [*findings.interface.notes, *whole.warnings]
    # Of operators it is among their assumptions; other parts have no place of their own.
    if any(FINITE_DATA in p.proof.assumptions for p in findings.parts if not p.operators):
        notes.append(f"the proof assumes that {FINITE_DATA}")
    if findings.outputs_only:
        notes.insert(0, ONLY_OUTPUTS)
    result = Verification(
        "unverified",
        "",
        unproven=findings.unproven,
        outputs=whole.outputs,
        operators=findings.operators,
        runs=whole.runs,
        notes=list(dict.fromkeys(notes)),
        outputs_only=findings.outputs_only,
    )
    differing = [p.difference for p in findings.parts if p.difference is not None]
    failures = findings.failures
    if failures:
        result.status, result.problems = "failed", failures
        result.message = f"failed: {first_of(failures)}"
        result.first_difference = next(iter([*differing, whole.difference]), None)
        if any(failure.stage == "load" for failure in whole.broken):
            result.first_difference = whole.difference
        return result
    if (gap := _gap(findings)) is not None:
        result.problems = [gap, *map(str, findings.unproven)]
        result.message = f"unverified: {gap}"
        return result
    result.status = "passed"
    result.evidence = "proven" if findings.is_proven else "sampled"
    result.message = f"passed: {'; '.join(_passed(findings))}"
    return result


def _gap(findings: Findings) -> str | None:
    """Return why nothing can be concluded; None if there is a pass."""
    not_run = findings.whole.not_run
    if findings.out_of_time is not None:
        return findings.out_of_time
    if not_run is None:
        return None
    if findings.is_proven and not_run.no_runtime:
        return None
    if findings.unproven:
        return f"{not_run.reason}; and {first_of(findings.unproven)}"
    return not_run.reason


def _passed(findings: Findings) -> list[str]:
    """Say in a few clauses what a pass rests on."""
    clauses = [] if findings.outputs_only else [_proofs(findings)]
    if findings.unproven:
        clauses[0] = f"sampled, {clauses[0]}"
        clauses.append(first_of(findings.unproven))
    whole = findings.whole
    if whole.not_run is not None:
        clauses.append(f"not run: {whole.not_run.reason}")
    else:
        clauses.append(_agreement(whole.outputs, len(whole.runs)))
        clauses += [_SAME_OPERATORS] if whole.same_operators and findings.is_proven else []
    if findings.outputs_only:
        clauses.append(ONLY_OUTPUTS)
    return clauses


def _proofs(findings: Findings) -> str:
    """Count what is proven: operators, or changed parts where no operator changes."""
    if operators := [o.proven for o in findings.operators if o.reason != UNCHANGED]:
        return count_proofs(operators)
    scopes = [finding.proof.scope for finding in findings.parts]
    if not scopes:
        return "both models have the same nodes"
    return count_proofs(scopes).replace("operator", "changed part")


def _agreement(outputs: Sequence[OutputResult], runs: int) -> str:
    """Say how far the outputs of all runs are apart, and how far they may be."""
    where = "" if runs == 1 else f" in {runs} runs"
    compared = [output for output in outputs if output.passed is not None]
    if not compared:
        return "no output was compared"
    if all(output.equal_bits for output in compared):
        return f"outputs are equal in every bit{where}"
    worst = max(compared, key=lambda output: output.max_relative_error or 0.0)
    allowed = f"{worst.tolerance:g} is allowed"
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

    @classmethod
    def of(
        cls,
        place: traversal.Place,
        node: onnx.NodeProto,
        positions: frozenset[int],
        around: Iterable[int] = (),
        op_type: str = "",
    ) -> Operator:
        """Describe a node, which may be the last one of several."""
        label = traversal.label(node)
        result = OperatorResult(label, str(place), op_type or node.op_type, node.domain)
        return cls(result, positions, frozenset(around))


def operators_of(
    model: onnx.ModelProto, infos: Sequence[OperatorInfo], chains: Sequence[Chain]
) -> list[Operator]:
    """Return the operators of the original in the order of the file, then the chains."""
    nodes = list(traversal.nodes(model))
    positions = {info.index for info in infos} | set(find_refused(model))
    # The nodes inside a node follow it.
    ends = {
        index: index + sum(1 for _ in traversal.inner_nodes(node))
        for index, (_, _, node) in enumerate(nodes)
        if any(traversal.subgraphs(node))
    }
    found = [
        Operator.of(
            place,
            node,
            frozenset({index}),
            (outer for outer, end in ends.items() if outer < index <= end),
        )
        for index, (place, _, node) in enumerate(nodes)
        if index in positions
    ]
    if not chains:
        return found
    from onnx_spatial.chains import op_type_of  # a file without chains loads no lowering

    makers = {
        (place, name): index for index, (place, _, node) in enumerate(nodes) for name in node.output
    }
    for chain in chains:
        inside = {makers.get((chain.place, n.output[0])) for n in chain.nodes} - {None}
        own = frozenset(i for i in inside if i is not None)
        operator = Operator.of(chain.place, chain.nodes[-1], own, op_type=op_type_of(chain))
        found.append(operator)
    return found


def result_of(
    operator: Operator, findings: Sequence[PartFinding], unmatched: Sequence[Unmatched]
) -> OperatorResult:
    """Join what was found of the parts that an operator is in.

    Args:
        operator: the operator.
        findings: of all parts.
        unmatched: values that differ, and of which there are no two parts.
    """
    found = operator.result
    parts = [f for f in findings if operator.positions & f.part.nodes]
    parts = parts or [f for f in findings if operator.around & f.part.nodes]
    lost = [u for u in unmatched if operator.positions & u.nodes]
    found.ran = bool(parts) and all(finding.ran for finding in parts)
    found.reason = next((f.reason for f in parts if f.reason is not None), None)
    for finding in parts:
        if finding.difference is not None:
            found.reason = finding.difference.message
            found.counterexample = finding.counterexample
            return found
    if lost:
        found.unproven = Unproven(found.label, "gave up", lost[0].reason)
        return found
    if not parts:
        found.reason = UNCHANGED
        return found
    for finding in parts:
        if finding.proof.found is not None:
            found.unproven = Unproven(found.label, finding.proof.found, finding.proof.reason)
            return found
    static = any(f.proof.scope == "these sizes" for f in parts)
    found.proven = "these sizes" if static else "all sizes"
    found.assumptions = tuple(dict.fromkeys(a for f in parts for a in f.proof.assumptions))
    return found
