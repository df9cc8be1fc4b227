"""Fuse spatial operators with the nodes next to them.

    SpaceToBatch -> Conv -> BatchToSpace     a dilated Conv                `dilated_conv`
    ExtractPatches -> Conv 1x1, MatMul, ..   one strided Conv              `strided_conv`
    BatchToSpace -> SpaceToBatch             a Pad, a Slice, or nothing    `neighbours`
    Transpose -> operator -> Transpose       one permutation               `neighbours`

Every rule looks for a pattern in the graph, may decline with a reason, and drafts nodes. Rules only
read; `conversion` edits the graph.

                           pattern                                 why not  drafts
    RULES                  a spatial operator and its neighbours   Reason   Rewrite
    dilated_conv           a node between SpaceToBatch and         Reason   Commuted, Convolution
                           BatchToSpace, by operator type
    layout                 a node that is the same in any layout,  None     Adapted
                           by operator type

`layout` knows for both which axes an operator looks along, and which layout a Transpose makes.

Regions between SpaceToBatch and BatchToSpace come first, a graph at a time, and then the changes of
layout and the biases next to them (`push_layouts`, `fold_bias`). Then the rules in `RULES` are applied
to each operator that is left, in the order of the file: the first rewrite is taken, reasons are reported
in `OperatorReport.declined`, and an operator without a rewrite is lowered on its own.

Whatever a rule writes must be exact, bit for bit, at every size that the original runs with; only
convolutions may sum up in another order.
"""

from onnx_spatial.fusion import neighbours, strided_conv
from onnx_spatial.fusion.rules import Lower, Reason, Rewrite, Rule, Writer
from onnx_spatial.fusion.views import MatchedOp, Matcher

#: Every rule, in the order in which they are applied to an operator.
RULES: tuple[Rule, ...] = (
    strided_conv.fuse_product,
    neighbours.cancel_pair,
    neighbours.absorb_transposes,
)

__all__ = ["RULES", "Lower", "MatchedOp", "Matcher", "Reason", "Rewrite", "Rule", "Writer"]
