"""Report operators: those of the original, chains that are one, and convolutions that are refused.

    part 1   s2b, Conv, b2s  ->  Conv, dilated     proven        s2b: proven, b2s: proven
    part 2   s2d             ->  Reshape, ..       gave up       s2d: not proven, "gave up: .."
    none                                                         other: left as it is

An operator may be in several parts, and a part may have several operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.same_padding.find import find as find_refused
from onnx_spatial.model import traversal
from onnx_spatial.verification.check.parts import PartFinding
from onnx_spatial.verification.evidence import UNCHANGED, OperatorResult, Unproven
from onnx_spatial.verification.match import Unmatched

if TYPE_CHECKING:
    from onnx_spatial.chains import Chain


@dataclass(frozen=True)
class Operator:
    """An operator of the original in reports, and positions in `traversal.nodes`.

    These are the positions of its nodes, and of the nodes around it, whose graphs hold it.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    positions: frozenset[int]
    around: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, place: traversal.Place, node: onnx.NodeProto, positions: frozenset[int]
    ) -> Operator:
        """Describe a node, which may be the last one of several."""
        return cls(traversal.label(node), str(place), node.op_type, node.domain, positions)

    @property
    def label(self) -> str:
        """The operator in messages: its type, name and graph."""
        return f"{self.op_type} node {self.node!r} ({self.graph})"


def operators(
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
        replace(
            Operator.of(place, node, frozenset({index})),
            around=frozenset(outer for outer, end in ends.items() if outer < index <= end),
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
        operator = Operator.of(
            chain.place, chain.nodes[-1], frozenset(i for i in inside if i is not None)
        )
        found.append(replace(operator, op_type=op_type_of(chain)))
    return found


def result(
    operator: Operator, findings: Sequence[PartFinding], unmatched: Sequence[Unmatched]
) -> OperatorResult:
    """Join what was found of the parts that an operator is in.

    Args:
        operator: the operator.
        findings: of all parts.
        unmatched: values that differ, and of which there are no two parts.
    """
    found = OperatorResult(operator.node, operator.graph, operator.op_type, operator.domain)
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
