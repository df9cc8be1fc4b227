"""Rules for matrices: a Reshape [-1, C] has merged all axes but the channels into rows.

    Reshape [-1, C] -> MatMul -> Add -> Relu -> Reshape [N, H, W, M]        MatMul -> Add -> Relu

u keeps its axes. What treats all rows alike is the same for the last axis of u, whatever its rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    Operand,
    RewrittenNode,
    Rule,
    RuleResult,
    of_data,
)
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_ROWWISE = op_traits.having(Trait.UNARY, Trait.BROADCASTS) | {"Gemm", "MatMul", "Reshape"}
#: Operators along an axis, which must be given as the last: u has another rank.
_ALONG = {
    *("Concat", "Hardmax", "LayerNormalization", "LogSoftmax", "LpNormalization"),
    *("RMSNormalization", "Softmax", "Split"),
}


def refusal(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> Reason | None:
    """Say why a node with rows among its inputs cannot work on u, whatever its rule says; else None."""
    for index, (name, layout) in enumerate(zip(node.message.input, layouts, strict=True)):
        is_factor = node.op_type in ("Gemm", "MatMul") and index == 1
        if layout is not None or not name or is_factor or node.op_type == "Reshape":
            continue
        dims = node.view.dims(name)
        if dims is None or len(dims) > 2 or (len(dims) == 2 and dims[0].constant != 1):
            return f"{name!r} may differ between rows"
    if node.op_type in _ROWWISE:
        return None
    default = -1 if node.view.opset >= 13 and node.op_type not in ("Concat", "Split") else 0
    if node.op_type in _ALONG and node.integer("axis", default) == -1:
        return None
    return f"{node.op_type} is not known to treat all rows alike"


@of_data
def _gemm(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Write a Gemm as MatMul and Add, which take more axes."""
    if not layout.rows:
        return "the rows of Gemm are the batch or a blocked axis"
    plain = node.attributes.get("alpha", 1.0) == node.attributes.get("beta", 1.0) == 1.0
    if node.integer("transA", 0) != 0 or not plain:
        return "Gemm transposes or scales its input"
    transposed = node.integer("transB", 0)
    if transposed is None:
        return "attributes of Gemm depend on the callers of its function"
    forms = [RewrittenNode("MatMul", {}, (Operand(1, transposed != 0),))]
    if node.input(2):
        forms.append(RewrittenNode("Add", {}, (Operand(2),)))
    return RuleResult((layout,), forms=tuple(forms))


#: The rule for each operator.
RULES: dict[str, Rule] = {"Gemm": _gemm}
