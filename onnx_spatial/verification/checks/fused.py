"""Check operators that were fused with other nodes, by the regions that they became part of."""

from __future__ import annotations

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.verification.checks import moved
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.checks.region_judge import Compared, Undecided, Unreached


def check(context: Context) -> None:
    """Compare the regions of each operator that `isolated` found merged with other nodes."""
    operators = context.findings.operators
    for number, operator in enumerate(operators, start=1):
        if operator.merged:
            context.request.progress(f"operator {number}/{len(operators)}: {operator.result.node}")
            # A convolution computes the same reals in another order; data that is moved keeps its bits.
            chains = moved.chains(operator, context)
            operator.merged = not chains
            if not (chains and moved.check(operator, chains, context)):
                _check(operator, context)


def _check(operator: OperatorCheck, context: Context) -> None:
    regions = context.regions.around(operator.info)
    if isinstance(regions, str):
        operator.withdraw(regions)
        return
    comparisons: list[tuple[Compared, str]] = []
    reason = None
    for region in regions:
        compared = context.region_results.checked(region)
        if isinstance(compared, str):
            reason = compared
            if isinstance(compared, (Undecided, Unreached)):
                operator.undecided = compared
            if not isinstance(compared, Unreached):  # which usual numbers do not settle
                context.watched.append((operator, context.region_results.comparison(region)))
        else:
            comparisons += ((each, region.output) for each in compared)
    if reason is not None:
        operator.withdraw(reason)
        return
    operator.result.reason = None
    nodes = [node for region in regions for node in region.before.nodes]
    operator.products = tuple(
        f"{node.op_type} node {traversal.label(node)!r}" for node in nodes if _is_product(node)
    )
    for each, value in comparisons:
        operator.record(each.check, each.feeds, value)
    operator.replaced.update(*(region.replaced for region in regions))


def _is_product(node: onnx.NodeProto) -> bool:
    """Return whether a node is a convolution or a matrix product."""
    kinds = ("Conv", "MatMul", "Gemm")
    return op_traits.is_standard(node) and any(kind in node.op_type for kind in kinds)
