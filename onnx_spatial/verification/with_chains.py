"""Verify a result in which chains of standard nodes became operators and then other nodes.

    original -> the model with operators in the place of the chains (`NamedChains`) -> result

That each chain is its operator is proven where it is found (`chains.proof`). So the operators are
compared with the result, and the original with the result by its outputs. What is left to see is that
the chains kept the functions inside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx

from onnx_spatial import analysis, chains
from onnx_spatial.model import traversal
from onnx_spatial.model.io.source import Source
from onnx_spatial.verification import one_hot
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pipeline import verify
from onnx_spatial.verification.report import Verification

if TYPE_CHECKING:
    from onnx_spatial.conversion.rewrite_chains import KeptFunction, NamedChains

#: Operator type of a node, and names and values of its attributes.
_Definition = tuple[str, tuple[tuple[str, str], ...]]

#: The verdicts, the worst first.
_STATUSES = ("failed", "unverified", "passed")


def verify_with_chains(
    original: Source,
    converted: Source,
    named: NamedChains | None,
    options: VerifyOptions,
    domains: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare the operators of the chains with the result, and the original with the result.

    Args:
        original: the original.
        converted: the result.
        named: the chains that were rewritten; None if there are none.
        options, domains, progress: as in `verify`.
    """
    if named is None:
        return verify(original, converted, options, domains=domains, progress=progress)
    domains = (*domains, chains.DOMAIN)

    def compared(before: Source, how: VerifyOptions) -> Verification:
        return verify(before, converted, how, domains=domains, progress=progress)

    outputs_only = replace(options, outputs_only=True, strict_proof=False)
    if options.outputs_only:
        return compared(original, options)
    lost = _lost_functions(named.kept_functions, original.proto, converted.proto)
    if lost:
        return Verification("failed", f"failed: {lost[0]}", lost)
    rewritten = compared(named.source, options)
    if rewritten.status == "failed":
        return one_hot.describe(rewritten, named.chains)
    outputs = compared(original, outputs_only)
    vanished = not rewritten.operators and rewritten.status == "passed"
    if outputs.status == "failed" or vanished:
        return outputs
    worse = min(rewritten, outputs, key=lambda each: _STATUSES.index(each.status))
    with_chains = outputs.message.removeprefix(f"{outputs.status}: ").partition(";")[0]
    second = [replace(each, run=each.run + len(rewritten.runs)) for each in outputs.outputs]
    joined = replace(
        rewritten,
        status=worse.status,
        message=worse.message,
        problems=list(dict.fromkeys([*rewritten.problems, *outputs.problems])),
        outputs=[*rewritten.outputs, *second],
        runs=[*rewritten.runs, *outputs.runs],
        unsteady=list(dict.fromkeys([*rewritten.unsteady, *outputs.unsteady])),
        notes=[*rewritten.notes, f"with the chains as they are: {with_chains}"],
    )
    return one_hot.describe(joined, named.chains)


def _lost_functions(
    kept: Sequence[KeptFunction], original: onnx.ModelProto, converted: onnx.ModelProto
) -> list[str]:
    """Return a line for each function inside a chain that the result lacks, or has otherwise.

    Outputs alone do not show it: ordinary data never reaches the limits of Clip(x, -1000, 1000). Nodes
    without attributes are not counted: Add of a number may become part of a Conv.
    """
    op_types = {node.op_type for _, node in kept if node.attribute}
    before = [n for _, _, n in traversal.nodes(original) if n.op_type in op_types]
    after = [n for _, _, n in traversal.nodes(converted) if n.op_type in op_types]
    kept_ids = {id(node) for _, node in kept}
    outside = Counter((n.output[0], _definition(n)) for n in before if id(n) not in kept_ids)
    present = Counter((n.output[0], _definition(n)) for n in after)
    candidates = Counter[_Definition]()
    for (_, definition), number in (present - outside).items():
        candidates[definition] += number
    lost = []
    for place, node in kept:
        if node.attribute and candidates[_definition(node)] <= 0:
            label = f"{node.op_type} node {traversal.label(node)!r} ({place})"
            lost.append(f"{label} is not in the result with the same attributes")
        candidates[_definition(node)] -= 1
    return lost


def _definition(node: onnx.NodeProto) -> _Definition:
    known = sorted((name, repr(value)) for name, value in analysis.attributes(node).items())
    return node.op_type, tuple(known)
