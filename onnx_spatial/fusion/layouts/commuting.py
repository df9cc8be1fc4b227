"""Operators that compute the same in any layout, and how they are written in another one.

    op(Transpose t) = Transpose op'(t)

An operator commutes with a change of layout if it works on single elements, or along axes that
attributes or constants name: the table of `dilated_conv.operators` says which do. Operators that sum
along an axis commute only with changes that keep the order of the elements: another order rounds
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.graph_view import Array
from onnx_spatial.fusion.dilated_conv.operators import ALONG, FLATTENING, Along
from onnx_spatial.fusion.layouts.layout import Layout
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


def rank(node: ir.Node, graph: LayoutGraph) -> int | None:
    """Return the rank of the outputs of a node with a rule; None for others and for low ranks."""
    if node.op_type not in RULES or not op_traits.is_standard(node) or graph.changes(node):
        return None
    if graph.matcher.is_local(node) or graph.matcher.op_type(node) is None:
        return None
    ranks = {graph.rank(value) for value in node.outputs}
    least = min((rank or 0 for rank in ranks), default=0)
    return least if len(ranks) == 1 and least >= LEAST_RANK else None


def adapt(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Write a node for outputs in another layout; None if it does not commute with the change."""
    if layout.removed:  # other inputs may be longer
        return None
    return RULES[node.op_type](node, graph, layout)


def _unary(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Functions of one element."""
    if len(node.outputs) != 1 or node.inputs[0] in node.inputs[1:]:
        return None
    return Adapted({0: layout})


def _broadcasts(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Functions of elements of several inputs."""
    # Before opset 7 an attribute said how operands line up.
    if len(node.outputs) != 1 or graph.opset < 7:
        return None
    adapted = Adapted({})
    for index, value in enumerate(node.inputs):
        if value is None:
            return None
        known, length = graph.known(value), graph.rank(value)
        if known is not None and known.size == 1 and known.ndim <= layout.rank:
            continue
        if known is not None and known.dtype != object:
            wide = known.reshape((1,) * (layout.rank - known.ndim) + known.shape)
            adapted.constants[index] = layout.array(wide)
        elif length is None or length > layout.rank:
            return None
        elif length:
            adapted.inputs[index] = layout.of_operand(length)
    if all(change.rank < layout.rank for change in adapted.inputs.values()):
        return None  # the axes of the result are those of a constant
    trimmed = {i: _trimmed(array) for i, array in adapted.constants.items()}
    return replace(adapted, constants=trimmed)


def _trimmed(array: Array) -> Array:
    """Leave out the axes in front that broadcasting adds."""
    return array.reshape(tuple(dropwhile((1).__eq__, array.shape)))


def _along(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Operators along axes, which get their new places in the attribute or input that names them."""
    row, attributes = _ROWS[node.op_type], graph.matcher.attributes(node)
    is_exact = bool(op_traits.of(node).traits & (Trait.EXACT | Trait.BITWISE))
    if not (is_exact or layout.keeps_order) or attributes.get("keepdims", 1) != 1:
        return None
    if row.to_the_end or (node.op_type in FLATTENING and graph.opset < 13):
        return None
    if node.op_type == "Gather" and (not node.inputs[1] or graph.rank(node.inputs[1]) != 1):
        return None
    data = range(len(node.inputs)) if node.op_type == "Concat" else (0,)
    if any(node.inputs[i] is None for i in data):
        return None
    inputs = dict.fromkeys(data, layout)
    if not row.by_input:
        axis = attributes.get("axis", row.axis)
        return Adapted(inputs, {}, {"axis": layout.place(axis)}) if isinstance(axis, int) else None
    axes = graph.axes(node, 1)
    if not axes:
        return None
    places = tuple(map(layout.place, axes))
    if "axes" in attributes:
        return Adapted(inputs, {}, {"axes": places})
    known = graph.known(node.inputs[1])
    assert known is not None
    return Adapted(inputs, {1: np.array(places, known.dtype).reshape(known.shape)})


def _quantize(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """QuantizeLinear and DequantizeLinear, per tensor or along an axis."""
    attributes, scale = graph.matcher.attributes(node), node.inputs[1]
    length = graph.rank(scale) if scale is not None else None
    axis = attributes.get("axis", 1)
    if attributes.get("block_size") or length is None or length > 1 or not isinstance(axis, int):
        return None
    is_per_tensor = length == 0 or graph.opset < 13
    return Adapted({0: layout}, {}, {} if is_per_tensor else {"axis": layout.place(axis)})


def _normalize(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """BatchNormalization of one output: the channels are axis 1."""
    attributes = graph.matcher.attributes(node)
    is_training = attributes.get("training_mode", 0) or not attributes.get("spatial", 1)
    if is_training or len(node.outputs) != 1 or layout.axes[1] != 1:
        return None
    return Adapted({0: layout})


def _pad(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    attributes = graph.matcher.attributes(node)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = graph.known(node.inputs[3])
        if axes is None:
            return None
        places = [layout.place(int(axis)) for axis in axes.reshape(-1)]
        return Adapted({0: layout}, {3: np.array(places, axes.dtype)})
    pads = attributes.get("pads")
    if pads is None and len(node.inputs) > 1:
        known = graph.known(node.inputs[1])
        pads = None if known is None else tuple(int(pad) for pad in known.reshape(-1))
    if not isinstance(pads, tuple) or len(pads) != 2 * layout.rank:
        return None
    sides = (pads[: layout.rank], pads[layout.rank :])
    moved = tuple(0 if axis is None else int(side[axis]) for side in sides for axis in layout.axes)
    if "pads" in attributes:
        return Adapted({0: layout}, {}, {"pads": moved})
    return Adapted({0: layout}, {1: np.array(moved, np.int64)})


def _slice(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    known = graph.known(node.inputs[3]) if len(node.inputs) > 3 else None
    axes = graph.axes(node, 3)
    if axes is None:
        return None
    places = tuple(layout.place(axis) for axis in axes)
    if known is None:
        return Adapted({0: layout}, {}, {"axes": places})
    return Adapted({0: layout}, {3: np.array(places, known.dtype)})


#: The operators of `ALONG`, but those along fixed axes, and those that the regions write otherwise.
_ROWS = {name: row for name, row in ALONG.items() if not row.axes} | {"Gather": Along()}

#: The rule of each operator that commutes.
RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BROADCASTS, _broadcasts),
    **dict.fromkeys(_ROWS, _along),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    "BatchNormalization": _normalize,
    "Pad": _pad,
    "Slice": _slice,
}
