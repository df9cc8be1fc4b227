"""Rules for operators that join, cut or repeat a value along axes that are neither batch nor blocked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    IDENTITY,
    Operand,
    RewrittenNode,
    Rule,
    RuleResult,
    no_border,
    of_data,
    same_border,
    zero_stays,
)
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model.symbolic.symbolic_values import Polynomial

#: A Slice up to this end or beyond keeps the rest of an axis: tf2onnx writes 10^9, others 2^31 or more.
_TO_THE_END = 10**9


def _concat(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> RuleResult | Reason:
    first = next(layout for layout in layouts if layout is not None)
    if not first.is_free(node.integer("axis", 1)):
        return "Concat joins along a blocked axis"
    if any(layout is None or not layout.aligned_with(first) for layout in layouts):
        return "Concat joins a value in blocks with others"
    return RuleResult((first,), same_border)


@of_data
def _split(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    if not layout.is_free(node.integer("axis", 0)):
        return "Split cuts a blocked axis"
    return RuleResult((layout,) * len(node.message.output), same_border)


@of_data
def _slice(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Accept a Slice of free axes, and one that keeps all of the blocked axes."""
    axes = node.axes(3)
    if axes is None and node.input(3):
        return "the axes of Slice are unknown"
    if axes is not None and layout.is_free(*axes):
        return RuleResult((layout,), same_border)
    starts, ends = _sizes(node, "starts", 1), _sizes(node, "ends", 2)
    dims, steps = node.view.dims(node.input(0)), node.known(4)
    if starts is None or ends is None or dims is None or (node.input(4) and steps is None):
        return "Slice cuts a blocked axis, or may do so"
    listed = tuple(range(len(starts))) if axes is None else axes
    forwards = steps is None or bool((steps == 1).all())
    bounds = list(zip(listed, starts, ends, strict=True))
    whole = [forwards and s.constant == 0 and _reaches(e, dims[a]) for a, s, e in bounds]
    if all(whole):
        return RuleResult((layout,), same_border, IDENTITY)
    if any(
        not layout.is_free(a) and (not w or _is_size(e))
        for w, (a, _, e) in zip(whole, bounds, strict=True)
    ):
        return "Slice cuts a blocked axis, or may do so"
    return RuleResult((layout,), same_border)


def _sizes(node: NodeView, name: str, index: int) -> tuple[Polynomial, ...] | None:
    """Return integers, an attribute of older opsets and an input of newer ones; None if unknown."""
    if name in node.attributes:
        listed = node.integers(name, ())
        return None if listed is None else tuple(map(Polynomial.of, listed))
    return node.view.sizes.entries(node.input(index))


def _is_size(end: Polynomial) -> bool:
    """Return whether the end of a Slice is a size, instead of more than any."""
    return end.constant is None or end.constant < _TO_THE_END


def _reaches(end: Polynomial, size: Polynomial) -> bool:
    return end == size or not _is_size(end)


@of_data
def _gather(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    axis = node.integer("axis", 0)
    indices = node.view.dims(node.input(1))
    if axis is None or not layout.is_free(axis):
        return "Gather takes from a blocked axis"
    if indices is None:
        return "the rank of the indices of Gather is unknown"
    axis %= layout.rank
    shift = len(indices) - 1
    places = [a if a < axis else a + shift for a in range(layout.rank)]
    return RuleResult((layout.moved(places, layout.rank + shift),), same_border)


@of_data
def _one_hot(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Accept a OneHot, which adds an axis."""
    axis = node.integer("axis", -1)
    if axis is None:
        return "the axis of OneHot is unknown"
    new = axis % (layout.rank + 1)
    places = [a if a < new else a + 1 for a in range(layout.rank)]
    layout = layout.with_types(node.view.element_types(node.input(2)))
    return RuleResult((layout.moved(places, layout.rank + 1),))


@of_data
def _pad(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Accept a Pad of free axes."""
    pads = _sizes(node, "pads", 1)
    axes = node.axes(3) if node.input(3) else tuple(range(layout.rank))
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return "the pads of Pad are unknown"
    for axis, amount in zip((*axes, *axes), pads, strict=True):
        if amount.constant != 0 and not layout.is_free(axis):
            return f"Pad pads axis {axis % layout.rank}, which is the batch or blocked, or may be"
    is_zero = node.attributes.get("value", 0.0) == 0
    if node.input(2):
        number = node.known(2)
        is_zero = number is not None and not number.any() and not np.signbit(number).any()
    mode = str(node.attributes.get("mode", "constant"))
    keeps = is_zero or mode != "constant"
    forms = _without_axes(node, axes, pads, mode, layout.rank) if node.input(3) else ()
    return RuleResult((layout,), zero_stays if keeps else no_border, forms)


def _without_axes(
    node: NodeView, axes: Sequence[int], pads: Sequence[Polynomial], mode: str, rank: int
) -> tuple[RewrittenNode, ...]:
    """Write a Pad that lists some axes with the pads of all axes, if they are known.

    onnxruntime (1.23 to 1.32) moves a Transpose across a Pad as if the Pad listed all axes, and fails.
    """
    amounts = [amount.constant or 0 for amount in pads]
    if any(amount.constant is None for amount in pads):
        return ()
    whole = np.zeros((2, rank), np.int64)
    whole[:, list(axes)] = np.reshape(amounts, (2, -1))
    value = (Operand(2),) if node.input(2) else ()
    return (RewrittenNode("Pad", {"mode": mode}, (whole.reshape(-1), *value)),)


@of_data
def _tile(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    repeats = node.view.sizes.entries(node.input(1))
    if repeats is None or len(repeats) != layout.rank:
        return "the repeats of Tile are unknown"
    if any(repeats[axis].constant != 1 for axis in layout.taken):
        return "Tile repeats the batch or a blocked axis, or may do so"
    return RuleResult((layout,), same_border)


#: The rule for each operator.
RULES: dict[str, Rule] = {
    "Concat": _concat,
    "Gather": _gather,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
}
