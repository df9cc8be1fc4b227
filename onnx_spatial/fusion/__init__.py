"""Fuse spatial operators with the nodes next to them.

    SpaceToBatch -> Conv -> BatchToSpace        a dilated Conv                `dilated_conv`
    ExtractPatches -> Conv 1x1, MatMul, ..      one strided Conv              `strided_conv`
    Transpose -> operator -> Transpose          one permutation               `transposes`

Every rule looks for a pattern in the graph, checks it, and drafts nodes, or says why not. Rules only
read; `conversion` edits the graph.

                           looks at                                drafts                   or
    RULES                  a spatial operator and its neighbours   Rewrite                  Reason
    dilated_conv           a node between SpaceToBatch and         Commuted, Convolution    Reason
                           BatchToSpace, by operator type
    layouts.commuting      a node that is the same in any layout,  Adapted                  None
                           by operator type

`operators` knows for both which axes an operator looks along, and which layout a Transpose makes.

Regions between SpaceToBatch and BatchToSpace come first, a graph at a time, and then the changes of
layout next to them (`layouts`). Then the rules in `RULES` are applied to each operator that is left, in
the order of the file: the first rewrite is taken, reasons are reported in `OperatorReport.declined`,
and an operator without a rewrite is lowered on its own.

Whatever a rule writes must be exact, bit for bit, at every size that the original runs with; only
convolutions may sum up in another order.
"""

from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Reason, Rewrite, Rule, Writer
from onnx_spatial.fusion.strided_conv import fuse_product
from onnx_spatial.fusion.transposes import absorb_transposes

#: Every rule, in the order in which they are applied to an operator.
RULES: tuple[Rule, ...] = (fuse_product, absorb_transposes)

__all__ = ["RULES", "Lower", "MatchedOp", "Matcher", "Reason", "Rewrite", "Rule", "Writer"]
