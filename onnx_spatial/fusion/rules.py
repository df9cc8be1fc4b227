"""The shape of a fusion rule, which sees the graph through `views`.

rule(operator, matcher, lower)  -> None         the pattern is not there
                                -> a Reason     the pattern is there, but the rule declines
                                -> a Rewrite    drafted nodes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.fusion.views import MatchedOp, Matcher
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit
from onnx_spatial.operators import Dim

#: Lowers a request. Raises ConversionError where that cannot be done.
Lower = Callable[[Request], Lowered]

#: The same for an operator of the model.
Writer = Callable[[Request, OperatorInfo], Lowered]

#: Why a check declines, in one line: it is reported as data (`OperatorReport.declined`).
Reason = str


def describe(node: ir.Node) -> str:
    """Return the operator type and the label of a node, for reasons."""
    return f"{node.op_type} {traversal.label(node)!r}"


def blame(node: ir.Node) -> Reason:
    """Return the start of a reason that blames a node behind the operator."""
    return f"the following {describe(node)}:"


@dataclass(frozen=True)
class Rewrite:
    """Drafted nodes that replace spatial operators and their neighbours.

    Attributes:
        lowered: the new nodes, not yet in any graph.
        subjects: the spatial operators that go; the new nodes stand in the place of the last, unless
            `at` is given.
        absorbed: other nodes that go with them.
        outputs: values of these nodes that equal the output of the new ones; all of them keep their
            names. Every value that is read elsewhere, or known by name elsewhere, must be listed.
        shape: of these values, as far as it is known.
        at: the one of `absorbed` whose place, name, documentation and metadata the new nodes take.
        name: of the fusion; None if the operator is lowered, with or without its neighbours.
    """

    lowered: Lowered
    subjects: tuple[MatchedOp, ...]
    absorbed: tuple[ir.Node, ...]
    outputs: tuple[ir.Value, ...]
    shape: tuple[Dim, ...] | None
    at: ir.Node | None = None
    name: str | None = None

    @property
    def edit(self) -> GraphEdit:
        """The edit of the graph."""
        old = [*(subject.node for subject in self.subjects), *self.absorbed]
        place = self.at or self.subjects[-1].node
        output, emitted = self.lowered.output, self.lowered.emitted
        draft = Draft(place, emitted.nodes, emitted.constants, documented=output.producer())
        draft.results = dict.fromkeys(self.outputs, output)
        return GraphEdit([draft], [node for node in old if node is not place])

    @classmethod
    def lower_alone(cls, lowered: Lowered, subject: MatchedOp) -> Rewrite:
        """Lower an operator on its own."""
        shape = subject.info.output_shape
        return cls(lowered, (subject,), (), (subject.node.outputs[0],), shape)


#: A fusion rule: finds its pattern around an operator and drafts the nodes, says why not, or finds none.
#: Raises ConversionError where the operator cannot be written at all.
Rule = Callable[[MatchedOp, Matcher, Lower], Rewrite | Reason | None]
