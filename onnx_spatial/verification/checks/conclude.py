"""Conclude from the findings of all checks whether a conversion is correct."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_spatial.errors import OperatorError
from onnx_spatial.verification.checks.findings import Findings, OperatorCheck, gaps_of
from onnx_spatial.verification.report import Status, Verification
from onnx_spatial.verification.sizes.reference_runs import NAMED


def conclude(findings: Findings) -> Verification:
    """Return the verdict: failed if anything differs, unverified if anything was not compared.

    Raises:
        OperatorError: an operator breaks a rule, and no run shows that it does not.
    """
    whole = findings
    for operator in whole.operators:
        info = operator.info
        if info.known_domain and info.error is not None and info.index not in whole.executed:
            raise OperatorError(f"{operator.result.label}: {info.error}")
    nodes = sorted([*whole.operators, *whole.convolutions], key=lambda node: node.info.index)
    changed = [node.difference for node in whole.changed if node.difference is not None]
    failures = [*whole.interface, *whole.failures, *(d.message for d in changed)]
    compared = bool(whole.outputs) and not failures
    for node in nodes:
        node.result.end_to_end = compared and node.info.index in whole.executed
        ran = node.result.compared or node.result.end_to_end
        if node.difference is not None or (node.result.proven == "sampled" and not ran):
            node.result.proven, node.result.assumptions = None, ()
    differences = [node.difference for node in nodes if node.difference is not None]
    failures = [*(d.message for d in differences), *failures]
    whole_gaps = whole.gaps + gaps_of(whole.changed)
    gaps = [
        *(f"the whole model was not compared end to end: {r}" for r in whole.obstacles),
        *whole_gaps,
        *whole.undecided,
        *(
            f"{n.result.label}: {n.undecided}"
            for n in nodes
            if n.undecided is not None and not n.result.compared
        ),
        *(
            f"{n.result.label}: {n.result.reason or 'not compared'}"
            for n in nodes
            if not n.result.compared and not n.result.end_to_end
        ),
    ]
    status: Status = "failed" if failures else "unverified" if gaps else "passed"
    all_passed = all(n.result.passed for n in nodes if n.info.known_domain)
    sites_only = status == "unverified" and all_passed and not whole_gaps
    if reasons := failures or gaps:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        message = f"{status}: {reasons[0]}{more}"
    else:
        message = _passed(nodes, whole)
    if whole.rest:
        message += f"; and the rest of the model differs: {whole.rest[0]}"
    if whole.lost_metadata:
        message += f"; metadata of the model is lost: {', '.join(map(repr, whole.lost_metadata))}"
    first = next(iter(differences), whole.difference or next(iter(changed), None))
    return Verification(
        status,
        message,
        failures + gaps + whole.rest,
        whole.outputs,
        [node.result for node in nodes],
        whole.runs,
        whole.forced,
        first,
        sites_only and not whole.rest,
        unsteady=whole.unsteady,
        rest=whole.rest,
        sampled=whole.sampled,
    )


def _passed(nodes: Sequence[OperatorCheck], whole: Findings) -> str:
    """Say in one line what was compared, and how exactly."""
    names = {o.name for o in whole.outputs}
    operators = [n.result for n in nodes if not n.result.refused]
    refused = [n.result for n in nodes if n.result.refused]
    alone = sum(1 for r in operators if r.exact)
    within = sum(1 for r in operators if r.compared) - alone
    of_all = f" of {_count(len(operators), 'operator')}"
    ways = []
    if alone or not (within or refused):
        ways.append(f"{alone}{of_all} bit for bit on their own")
    if within:
        ways.append(f"{within}{'' if ways else of_all} within tolerance as parts of convolutions")
    # A convolution that is part of a region was compared with it.
    checked = sum(1 for r in refused if r.checks)
    if checked or (refused and not within):
        ways.append(f"{checked} of {_count(len(refused), 'convolution')} on their own")
    text = (
        f"passed: {', '.join(ways)}, "
        f"{_count(len(names), 'output')} in {_count(len(whole.runs), 'run')} with optimisations "
        "off and on"
    )
    errors = [o.max_relative_error for o in whole.outputs if o.max_relative_error is not None]
    if all(o.equal_bits for o in whole.outputs):
        text += ", equal in every bit"
    elif errors:
        text += f", at most {max(errors):.1e} of the largest value apart"
        if any(o.accepted is not None for o in whole.outputs):
            text += ", no more than rounding moves the original"
    if whole.forced:
        sizes = ", ".join(f"{n} = {s}" for n, s in whole.forced.items())
        if len(whole.forced) > NAMED:
            sizes = f"{len(whole.forced)} dims of the inputs"
        text += f"; only one size found for {sizes}"
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
