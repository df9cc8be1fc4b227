"""Operators that compute the same in any layout, and how they are written in another one.

    op(Transpose t) = Transpose op'(t)

An operator commutes with a change of layout if it looks at single elements, or along axes that its
attributes or constants name (`fusion.operators`). Operators that sum along an axis commute only with
changes that keep the order of the elements: another order rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion import operators
from onnx_spatial.fusion.layout import Array, Layout
from onnx_spatial.fusion.layouts.layout_graph import LayoutGraph
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_UNARY = op_traits.having(Trait.UNARY) - {"Dropout"}  # which may draw a mask for each place
_BROADCASTS = op_traits.having(Trait.BROADCASTS) - {"SwiGLU"}

#: The rank of a signal with a batch and channels; values of lower rank may be sizes.
LEAST_RANK = 3


@dataclass(frozen=True)
class Adapted:
    """What a node is in another layout.

    Attributes:
        inputs: the change of layout of each input that is not the same in all layouts.
        constants: inputs that are known, as they are in the layout.
        attributes: attributes that are others in the layout.
    """

    inputs: dict[int, Layout]
    constants: dict[int, Array] = field(default_factory=dict)
    attributes: dict[str, int | tuple[int, ...]] = field(default_factory=dict)


#: Adapts a node of a graph to a change of the layout of its outputs; None if it does not commute.
_Rule = Callable[[ir.Node, LayoutGraph, Layout], Adapted | None]


def rank_with_rule(node: ir.Node, graph: LayoutGraph) -> int | None:
    """Return the rank of the outputs of a node with a rule; None for others and for low ranks."""
    if node.op_type not in RULES or not op_traits.is_standard(node) or graph.is_change(node):
        return None
    if graph.matcher.is_local(node) or graph.matcher.op_type(node) is None:
        return None
    ranks = {graph.rank(value) for value in node.outputs}
    least = min((rank or 0 for rank in ranks), default=0)
    return least if len(ranks) == 1 and least >= LEAST_RANK else None


def adapt_node(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Write a node for outputs in another layout; None if it does not commute with the change."""
    if layout.removed:  # other inputs may be longer
        return None
    return RULES[node.op_type](node, graph, layout)


def _adapt_unary(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Functions of one element."""
    if len(node.outputs) != 1 or node.inputs[0] in node.inputs[1:]:
        return None
    return Adapted({0: layout})


def _adapt_broadcast(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Functions of elements of several inputs."""
    # Before opset 7 an attribute said how operands line up.
    if len(node.outputs) != 1 or graph.opset < 7:
        return None
    adapted = Adapted({})
    for index, value in enumerate(node.inputs):
        if value is None:
            return None
        known, length = graph.view.known(value), graph.rank(value)
        if known is not None and known.size == 1 and known.ndim <= layout.rank:
            continue
        if known is not None and known.dtype != object:
            wide = known.reshape((1,) * (layout.rank - known.ndim) + known.shape)
            adapted.constants[index] = layout.change_array(wide)
        elif length is None or length > layout.rank:
            return None
        elif length:
            adapted.inputs[index] = layout.of_operand(length)
    if all(change.rank < layout.rank for change in adapted.inputs.values()):
        return None  # the axes of the result are those of a constant
    trimmed = {i: _trim_axes(array) for i, array in adapted.constants.items()}
    return replace(adapted, constants=trimmed)


def _trim_axes(array: Array) -> Array:
    """Leave out the axes in front that broadcasting adds."""
    return array.reshape(tuple(dropwhile((1).__eq__, array.shape)))


def _adapt_along(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Operators along axes, which get their new places in the attribute or input that names them."""
    op_type, view = node.op_type, graph.view_of(node)
    is_elementwise = op_type in operators.QUANTIZING or op_type == "BatchNormalization"
    is_exact = is_elementwise or bool(op_traits.of(node).traits & (Trait.EXACT | Trait.BITWISE))
    if view.integer("keepdims", 1) != 1:
        return None
    axes = operators.axes_of(view, layout.rank)
    if isinstance(axes, str) or not (is_exact or layout.keeps_order):
        return None
    if op_type in operators.FLATTENING and graph.opset < 13:
        return None
    data = range(len(node.inputs)) if op_type == "Concat" else (0,)
    if any(node.inputs[i] is None for i in data) or (len(node.outputs) > 1 and op_type != "Split"):
        return None
    adapted, places = Adapted(dict.fromkeys(data, layout)), tuple(map(layout.place, axes.axes))
    if isinstance(axes.name, int):
        known = view.known(axes.name)
        assert known is not None
        adapted.constants[axes.name] = np.array(places, known.dtype).reshape(known.shape)
    elif axes.name is not None:
        adapted.attributes[axes.name] = places if axes.name == "axes" else places[0]
    elif places != axes.axes:
        return None
    return adapted


def _adapt_pad(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    view = graph.view_of(node)
    if view.has(3):
        axes = view.known(3)
        if axes is None:
            return None
        places = [layout.place(int(axis)) for axis in axes.reshape(-1)]
        return Adapted({0: layout}, {3: np.array(places, axes.dtype)})
    known = view.known(1)
    pads = view.integers("pads", () if known is None else tuple(known.reshape(-1).tolist()))
    if pads is None or len(pads) != 2 * layout.rank:
        return None
    sides = (pads[: layout.rank], pads[layout.rank :])
    moved = tuple(0 if axis is None else side[axis] for side in sides for axis in layout.axes)
    if known is None:
        return Adapted({0: layout}, {}, {"pads": moved})
    return Adapted({0: layout}, {1: np.array(moved, np.int64)})


#: The rule of each operator that commutes.
RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_UNARY, _adapt_unary),
    **dict.fromkeys(_BROADCASTS, _adapt_broadcast),
    **dict.fromkeys((*operators.NAMED, "BatchNormalization"), _adapt_along),
    "Pad": _adapt_pad,
}
