"""The shape of a fusion rule: it looks for a pattern around an operator, checks it, and rewrites it.

    rule(operator, matcher, lower) -> None         the pattern is not there
                                   -> a Reason     it is there, but a check declines, or it does not pay
                                   -> a Rewrite    drafted nodes

`fusion.RULES` lists the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.replace_nodes import Draft, GraphEdit
from onnx_spatial.operators import Dim

#: Lowers a request. Raises ConversionError where that cannot be done.
Lower = Callable[[Request], Lowered]

#: The same for an operator of the model.
Writer = Callable[[Request, OperatorInfo], Lowered]

#: Why a check declines, in one line: it is reported as data (`OperatorReport.declined`).
Reason = str


def blame(node: ir.Node) -> Reason:
    """Return the start of a reason that blames a node behind the operator."""
    return f"the following {node.op_type} {traversal.label(node)!r}:"


@dataclass(frozen=True)
class Rewrite:
    """Drafted nodes that replace a spatial operator and its neighbours.

    Attributes:
        subject: the spatial operator; the new nodes stand in its place, unless `at` is given.
        lowered: the new nodes, not yet in any graph.
        absorbed: other nodes that go with it.
        outputs: values of these nodes that equal the output of the new ones; all of them keep their
            names. Every value that is read elsewhere, or known by name elsewhere, must be listed.
        shape: of these values, as far as it is known.
        at: the one of `absorbed` whose place, name, documentation and metadata the new nodes take.
        name: reported in the place of the lowering's strategy; None to report the strategy.
    """

    subject: MatchedOp
    lowered: Lowered
    absorbed: tuple[ir.Node, ...]
    outputs: tuple[ir.Value, ...]
    shape: tuple[Dim, ...] | None
    at: ir.Node | None = None
    name: str | None = None

    @property
    def edit(self) -> GraphEdit:
        """The edit of the graph."""
        old = [self.subject.node, *self.absorbed]
        place = self.at or self.subject.node
        output, emitted = self.lowered.output, self.lowered.emitted
        draft = Draft(place, emitted.nodes, emitted.constants, documented=output.producer())
        draft.results = dict.fromkeys(self.outputs, output)
        return GraphEdit([draft], [node for node in old if node is not place])

    @classmethod
    def of(cls, lowered: Lowered, subject: MatchedOp) -> Rewrite:
        """Lower an operator on its own."""
        return cls(subject, lowered, (), (subject.node.outputs[0],), subject.info.output_shape)


#: A fusion rule. It raises ConversionError where the operator cannot be written at all.
Rule = Callable[[MatchedOp, Matcher, Lower], Rewrite | Reason | None]
