"""What a rule is, what it answers, and what is left to say of it once it is carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.operators import Dim

#: Writes a request in nodes. Raises ConversionError where that cannot be done.
Lower = Callable[[Request], Lowered]


@dataclass(frozen=True)
class Rewrite:
    """Nodes that stand for others from now on.

    Attributes:
        lowered: the new nodes, not yet in any graph.
        subjects: the spatial operators that they stand for; the new nodes go where the last is, unless
            `at` is given.
        absorbed: other nodes that go with them.
        gives: values of the nodes that go which the output of the new ones is equal to; all of them
            keep their names. None that is read elsewhere, or named elsewhere, may be left out.
        shape: of these values, as far as it is known.
        rule: what `inspect` shows in the place of a strategy; None for the strategy itself.
        at: the one of `absorbed` where the new nodes go, after which they are named, and whose
            documentation and metadata the last of them keeps.
    """

    lowered: Lowered
    subjects: tuple[MatchedOp, ...]
    absorbed: tuple[ir.Node, ...]
    gives: tuple[ir.Value, ...]
    shape: tuple[Dim, ...] | None
    rule: str | None = None
    at: ir.Node | None = None

    @classmethod
    def of(cls, lowered: Lowered, subject: MatchedOp) -> Rewrite:
        """An operator on its own."""
        shape = subject.info.output_shape
        return cls(lowered, (subject,), (), (subject.node.outputs[0],), shape)


#: Looks at an operator and what stands around it: a rewrite, a reason why there is none, or None
#: where nothing of the rule's kind stands there. Raises ConversionError where the operator cannot
#: be written at all.
Rule = Callable[[MatchedOp, Matcher, Lower], Rewrite | str | None]
