"""Conclude from the findings of all checks whether a conversion is correct."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from onnx_spatial.errors import OperatorError
from onnx_spatial.verification.checks.findings import Findings, OperatorCheck, gaps_of
from onnx_spatial.verification.report import Difference, OutputResult, Status, Verification
from onnx_spatial.verification.sizes.reference_runs import NAMED

#: How the converted model, and a part of it, fail.
NOT_LOADED, _PART_NOT_LOADED = "does not load", "it does not load"
#: What the user asked to leave out.
ONLY_OUTPUTS = "only outputs were compared, no single operators and no other nodes"


def conclude(findings: Findings) -> Verification:
    """Return the verdict: failed if anything differs, unverified if anything was not compared.

    Problems are in the order of how much they explain: inputs and outputs that do not fit, a model that
    does not load, nodes with another weight or attribute, operators, other nodes, runs, outputs.

    Raises:
        OperatorError: an operator breaks a rule, and no run shows that it does not.
    """
    whole = findings
    for operator in whole.operators:
        info = operator.info
        if info.known_domain and info.error is not None and info.index not in whole.executed:
            raise OperatorError(f"{operator.result.label}: {info.error}")
    nodes = sorted([*whole.operators, *whole.convolutions], key=lambda node: node.info.index)
    wrong = [node for node in nodes if node.difference is not None]
    changed = [node for node in whole.changed if node.difference is not None]
    if not_loaded := any(what == NOT_LOADED for what, _ in whole.aborted):  # nor any part of it
        wrong = [node for node in wrong if not node.cause.startswith(_PART_NOT_LOADED)]
        changed = [node for node in changed if not node.cause.startswith(_PART_NOT_LOADED)]
    changed.sort(key=lambda node: not node.explained)
    explained = [node for node in changed if node.explained]
    of_model = [
        *whole.interface,
        *whole.types,
        *_aborted(whole),
        *_grouped((node.message, node.cause) for node in explained),
    ]
    of_values = [
        *_grouped((node.message, _kind(node.cause)) for node in changed[len(explained) :]),
        *_grouped(_outputs(whole.outputs)),
        *whole.failures,
    ]
    compared = bool(whole.outputs) and not of_model and not of_values
    for node in nodes:
        node.result.end_to_end = compared and node.info.index in whole.executed
        ran = node.result.checks or node.result.end_to_end
        if node.difference is not None or (node.result.proven == "sampled" and not ran):
            node.result.proven, node.result.assumptions = None, ()
    operators = _grouped((node.result.reason or "", _kind(node.cause)) for node in wrong)
    failures = [*of_model, *operators, *of_values]
    whole_gaps = gaps_of([] if not_loaded else whole.changed) + whole.gaps
    gaps = [
        *whole_gaps,
        *(f"the whole model was not compared end to end: {r}" for r in whole.obstacles),
        *whole.undecided,
        *_not_compared(nodes, whole),
    ]
    status: Status = "failed" if failures else "unverified" if gaps else "passed"
    all_passed = all(n.result.passed for n in nodes if n.info.known_domain)
    operators_only = (
        status == "unverified" and all_passed and not whole_gaps and not whole.outputs_only
    )
    if reasons := failures or gaps:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        message = f"{status}: {reasons[0]}{more}"
    else:
        message = _passed(nodes, whole)
    if whole.rest:
        message += f"; and the rest of the model differs: {whole.rest[0]}"
    if whole.lost_metadata:
        message += f"; metadata of the model is lost: {', '.join(map(repr, whole.lost_metadata))}"
    differences: list[Difference | None] = [whole.difference] if not_loaded else []
    differences += [n.difference for n in explained] + [n.difference for n in wrong]
    differences += [whole.difference, *(n.difference for n in changed)]
    return Verification(
        status,
        message,
        failures + gaps + whole.rest,
        whole.outputs,
        [node.result for node in nodes],
        whole.runs,
        whole.forced,
        next((difference for difference in differences if difference is not None), None),
        operators_only and not whole.rest,
        unsteady=whole.unsteady,
        rest=whole.rest,
        sampled=whole.sampled,
        notes=[*([ONLY_OUTPUTS] if whole.outputs_only else []), *whole.notes],
        outputs_only=whole.outputs_only,
    )


def _grouped(problems: Iterable[tuple[str, str]]) -> list[str]:
    """Return the first message of each cause, with the number of the others."""
    messages: dict[str, list[str]] = {}
    for message, cause in problems:
        messages.setdefault(cause, []).append(message)
    return [
        first + (f" (and {len(others)} more for the same reason)" if others else "")
        for first, *others in messages.values()
    ]


def _kind(cause: str) -> str:
    """Return a cause without its figures, if it is how many elements differ, and by how much."""
    if "elements differ" not in cause:
        return cause
    return re.sub(r"\d[\d.,e+-]*|\binf\b|\bnan\b", "", cause)


def _aborted(whole: Findings) -> Iterator[str]:
    """Yield one line for each way in which the converted model does not load or run.

    Messages that differ in numbers only are those of one mistake at several sizes.
    """
    failures: dict[tuple[str, str], str] = {}
    modes: dict[tuple[str, str], set[bool]] = {}
    for (what, failure), optimised in whole.aborted.items():
        key = (what, re.sub(r"\d+", "", failure))
        failures.setdefault(key, failure)
        modes.setdefault(key, set()).update(optimised)
    for key, failure in failures.items():
        yield f"the converted model {key[0]}{_modes(modes[key])}: {failure}"


def _outputs(results: Sequence[OutputResult]) -> Iterator[tuple[str, str]]:
    """Yield message and cause of each output that differs, by its first run that shows it."""
    failed: dict[str, list[OutputResult]] = {}
    for result in results:
        if result.passed is False:
            failed.setdefault(result.name, []).append(result)
    for name, (first, *others) in failed.items():
        modes = _modes({first.optimised, *(result.optimised for result in others)})
        reason = str(first.reason)
        yield f"output {name!r}{modes}: {reason}", reason


def _modes(optimised: set[bool]) -> str:
    """Name the optimisation level of what happens in one of them only."""
    if len(optimised) > 1:
        return ""
    return f" with optimisations {'on' if True in optimised else 'off'}"


def _not_compared(nodes: Sequence[OperatorCheck], whole: Findings) -> list[str]:
    """Name the operators that were compared neither on their own nor end to end."""
    undecided = [
        f"{n.result.label}: {n.undecided}"
        for n in nodes
        if n.undecided is not None and not n.result.checks
    ]
    if whole.outputs_only:
        return undecided
    reasons = ((n, n.result.reason or "not compared") for n in nodes)
    return undecided + _grouped(
        (f"{n.result.label}: {reason}", reason)
        for n, reason in reasons
        if not n.result.checks and not n.result.end_to_end
    )


def _passed(nodes: Sequence[OperatorCheck], whole: Findings) -> str:
    """Say in one line what was compared, and how exactly."""
    names = {o.name for o in whole.outputs}
    runs = (
        f"{_count(len(names), 'output')} in {_count(len(whole.runs), 'run')} with optimisations "
        "off and on"
    )
    if whole.outputs_only:
        text = f"{_errors(whole.outputs, equivalent=True)}: {runs}; {ONLY_OUTPUTS}"
    else:
        text = f"{', '.join([*_ways(nodes), runs])}{_errors(whole.outputs)}"
    if whole.forced:
        sizes = ", ".join(f"{n} = {s}" for n, s in whole.forced.items())
        if len(whole.forced) > NAMED:
            sizes = f"{len(whole.forced)} dims of the inputs"
        text += f"; only one size found for {sizes}"
    return f"passed: {text}"


def _errors(outputs: Sequence[OutputResult], *, equivalent: bool = False) -> str:
    """Say how far the outputs are apart."""
    errors = [o.max_relative_error for o in outputs if o.max_relative_error is not None]
    if all(o.equal_bits for o in outputs):
        return "equal in every bit" if equivalent else ", equal in every bit"
    if not errors:
        return "equivalent" if equivalent else ""
    largest = f"{max(errors):.1e} of the largest value"
    text = f"equivalent within {largest}" if equivalent else f", at most {largest} apart"
    if any(o.accepted is not None for o in outputs):
        text += ", no more than rounding moves the original"
    return text


def _ways(nodes: Sequence[OperatorCheck]) -> list[str]:
    """Count operators and convolutions by the way in which they were compared."""
    operators = [n for n in nodes if not n.result.refused]
    refused = [n.result for n in nodes if n.result.refused]
    alone = sum(1 for n in operators if n.result.exact)
    within = [n for n in operators if n.result.checks and not n.result.exact]
    convolved = sum(1 for n in within if n.convolved)
    of_all = f" of {_count(len(operators), 'operator')}"
    ways = []
    if alone or (operators and not within and not refused):
        ways.append(f"{alone}{of_all} bit for bit on their own")
    if convolved:
        what = "within tolerance as parts of convolutions"
        ways.append(f"{convolved}{'' if ways else of_all} {what}")
    if others := len(within) - convolved:
        what = "within tolerance together with other nodes"
        ways.append(f"{others}{'' if ways else of_all} {what}")
    # A convolution that is part of a region was compared with it.
    checked = sum(1 for r in refused if r.checks)
    if checked or (refused and not within):
        ways.append(f"{checked} of {_count(len(refused), 'convolution')} on their own")
    return ways


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
