"""Several nodes to fewer: rules that look at what stands around a spatial operator.

    Transpose -> operator -> Transpose          one movement          `layout`
    SpaceToBatch -> BatchToSpace, and back      a Pad, a Slice, or nothing    `cancel`

A rule is a function like `rewrite.Rule` in a module of its own and a line in `RULES`. It is given an
operator and its `Neighbourhood` and answers with a `Rewrite`, with a reason why there is none, or
with None where nothing of its kind stands there. The first that answers with a `Rewrite` is taken; an
operator that none speaks for is lowered on its own. Rules only read: `splicing` edits.

Whatever a rule writes must be exact, bit for bit, at every size that the original runs with.
"""

from onnx_spatial.fusion.cancel import cancel
from onnx_spatial.fusion.layout import absorb
from onnx_spatial.fusion.neighbourhood import Neighbourhood, Subject
from onnx_spatial.fusion.rewrite import Lower, Rewrite, Rewritten, Rule

#: Every rule, in the order in which they are asked.
RULES: tuple[Rule, ...] = (cancel, absorb)

__all__ = ["RULES", "Lower", "Neighbourhood", "Rewrite", "Rewritten", "Rule", "Subject"]
