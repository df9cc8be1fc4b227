"""Rules for operators on single elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView, NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    BorderValue,
    Rule,
    RuleResult,
    may_differ,
    no_border,
    of_data,
    same_border,
    zero_stays,
)
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic.symbolic_values import Polynomial

_KEEP_ZERO = op_traits.having(Trait.KEEPS_ZERO)
_BROADCASTING = op_traits.having(Trait.BROADCASTS)
_TRUTHS = op_traits.having(Trait.TRUTH)


@of_data
def _unary(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if node.op_type in _TRUTHS:
        layout = layout.with_types(frozenset({TensorProto.BOOL}))
    return RuleResult((layout,), zero_stays if node.op_type in _KEEP_ZERO else no_border)


@of_data
def _cast(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    to = node.integer("to", 0)
    types = frozenset({to}) if to else node.view.element_types(node.message.output[0])
    numeric = TensorProto.STRING not in (types | layout.element_types)
    border = zero_stays if types and numeric else no_border
    return RuleResult((layout.with_types(types),), border)


def _bound(node: NodeView, index: int, name: str) -> float | None:
    """Return a bound of Clip, an input or attribute; 0 without one, which keeps zeros."""
    known = node.known(index)
    if known is not None and known.size == 1:
        return float(known.reshape(-1)[0])
    value = None if node.input(index) else node.attributes.get(name, 0)
    return float(value) if isinstance(value, int | float) else None


@of_data
def _clip(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    least, most = _bound(node, 1, "min"), _bound(node, 2, "max")
    around_zero = least is not None and most is not None and least <= 0 <= most
    return RuleResult((layout,), zero_stays if around_zero else no_border)


@of_data
def _dropout(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    training = node.known(2)
    if node.input(2) and (training is None or training.any()):
        return "Dropout may be in training mode"
    if len(node.message.output) > 1:
        return "Dropout gives a mask as well"
    return RuleResult((layout,), same_border)


def _broadcasting(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> RuleResult | Reason:
    if node.view.opset < 7 or "axis" in node.attributes:
        return f"{node.op_type} broadcasts by the rules of opset 6"
    if node.op_type == "PRelu" and layouts[0] is None:
        return "the slope of PRelu is a value in blocks"
    known = [node.view.dims(name) for name in node.message.input]
    inputs = list(zip(node.message.input, layouts, known, strict=True))
    for name, layout, dims in inputs:
        if layout is None and dims is None:
            return f"the rank of {name!r} is unknown"
    rank = max(layout.rank if layout else len(dims or ()) for _, layout, dims in inputs)
    (result, sizes), *others = (
        (layout.broadcast(rank), dims) for _, layout, dims in inputs if layout is not None
    )
    for other, dims in others:
        if not other.aligned_with(result):
            return f"the inputs of {node.op_type} are blocked in different ways"
        if not _equal_sizes(node.view, other, sizes, dims):
            return f"the inputs of {node.op_type} may be of different sizes, which broadcast"
    for name, layout, dims in inputs:
        if layout is None and result.may_vary(dims or ()):
            return may_differ(name)
    index = 1 if node.op_type == "Where" else 0
    data = layouts[index]
    types = data.element_types if data else node.view.element_types(node.input(index))
    if node.op_type in _TRUTHS:
        types = frozenset({TensorProto.BOOL})
    return RuleResult((result.with_types(types),), _border_of(node, layouts))


def _equal_sizes(
    view: GraphView,
    layout: BlockedLayout,
    a: Sequence[Polynomial] | None,
    b: Sequence[Polynomial] | None,
) -> bool:
    """Return whether two values have provably equal sizes along the blocked axes.

    The batch axes must be equal where they are a product of blocks, else the original does not run.
    """
    if layout.rows:  # merged from axes of the same sizes, else the layouts differ
        return True
    if a is None or b is None:
        return False
    pairs = list(zip(layout.axes, layout.blocks, strict=True))
    if not layout.order:
        pairs.append((layout.batch, 1))
    return all(
        view.are_equal(a[axis - layout.rank], b[axis - layout.rank], block) for axis, block in pairs
    )


def _border_of(
    node: NodeView, layouts: Sequence[BlockedLayout | None]
) -> Callable[[Sequence[BorderValue]], BorderValue]:
    others = [i for i, layout in enumerate(layouts) if layout is None]
    keeps_zero = not others and node.op_type in _KEEP_ZERO
    if node.op_type in ("Mul", "PRelu"):
        values = [node.known(i) for i in others]
        # A negative number makes -0 of 0, which a reciprocal tells from it.
        keeps_zero |= all(
            v is not None and bool((np.isfinite(v) & ~np.signbit(v)).all()) for v in values
        )
    return zero_stays if keeps_zero else no_border


#: The rule for each operator.
RULES: dict[str, Rule] = {
    **dict.fromkeys(op_traits.having(Trait.UNARY), _unary),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    "BitCast": _cast,
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": _clip,
    "Dropout": _dropout,
}
