"""Several nodes to fewer: what stands between spatial operators, and around each.

    SpaceToBatch -> Conv -> BatchToSpace        a dilated Conv                `regions`, `leftovers`
    BatchToSpace -> SpaceToBatch                a Pad, a Slice, or nothing    `cancel`
    ExtractPatches -> Conv 1x1, MatMul, Gemm    one strided convolution       `patches`
    Transpose -> operator -> Transpose          one movement                  `layout`

Regions come first, a graph at a time; `unblocking` carries them out. What is left is a matter of rules.
A rule is a function like `rewrite.Rule` in a module of its own and a line in `RULES`. It is given an
operator and its `Matcher` and answers with a `Rewrite`, with a reason why there is none, or
with None where nothing of its kind stands there. The first that answers with a `Rewrite` is taken; an
operator that none speaks for is lowered on its own. Rules only read: `splicing` edits.

Whatever a rule writes must be exact, bit for bit, at every size that the original runs with; only
convolutions may sum up in another order.
"""

from onnx_spatial.fusion.inverse_pair import cancel
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Rewrite, Rule
from onnx_spatial.fusion.strided_conv import stride
from onnx_spatial.fusion.transposes import absorb

#: Every rule, in the order in which they are asked.
RULES: tuple[Rule, ...] = (stride, cancel, absorb)

__all__ = ["RULES", "Lower", "Matcher", "Rewrite", "Rule", "MatchedOp"]
