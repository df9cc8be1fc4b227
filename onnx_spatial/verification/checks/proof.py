"""Prove operators: the nodes that replace them compute the same for all sizes, not only sampled ones."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.report import Counterexample, ProofScope


@dataclass(frozen=True)
class Proof:
    """What is proven of an operator; see `SiteResult`.

    Attributes:
        scope: sizes that it is proven for; "sampled": for none.
        assumptions: what a proof for all sizes assumes.
        reason: why it is not proven.
    """

    scope: ProofScope
    assumptions: tuple[str, ...] = ()
    reason: str | None = None


def check(context: Context) -> None:
    """Prove each operator and each refused convolution that no comparison found wrong."""
    for operator in (*context.findings.operators, *context.findings.convolutions):
        if operator.difference is not None:
            continue
        proof = _prove(operator, context)
        if isinstance(proof, Counterexample):
            operator.disprove(proof)
        else:
            result = operator.result
            result.proven, result.assumptions = proof.scope, proof.assumptions
            result.proof_reason = proof.reason


def _prove(operator: OperatorCheck, context: Context) -> Proof | Counterexample:
    """Prove an operator, or return an input for which it is wrong."""
    return Proof("sampled", reason="the prover is not there yet")
