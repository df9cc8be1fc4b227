"""View a graph as values and the layouts that are made of them, and say which nodes commute with these.

    s -> Squeeze -> t -> Transpose -> u      one value s, and its forms t and u
    op(Transpose t) = Transpose op'(t)       what the node is in another layout: `Adapted`

The graph is read as far as it is needed: a model may be much larger than the part around its operators.

An operator commutes with a change of layout if it looks at single elements, or along axes that its
attributes or constants name (`layout`). Operators that sum along an axis commute only with changes that
keep the order of the elements: another order rounds otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion.graph_view import GraphView, NodeView
from onnx_spatial.fusion.layout import (
    CHANGES,
    FLATTENING,
    NAMED,
    QUANTIZING,
    Array,
    Layout,
    axes_of,
    change_of,
)
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: The length that is assumed of an axis of unknown size.
_TYPICAL_LENGTH = 32
_SAME_RANK = op_traits.having(Trait.SAME_RANK) | {"Concat"}
_BROADCASTING = op_traits.having(Trait.BROADCASTS)


@dataclass
class Forms:
    """A value and what Transpose, Squeeze and Unsqueeze make of it.

    Attributes:
        root: the value.
        layouts: the layout of each value that is made of it, the root included, in order.
        nodes: the nodes between, in order.
    """

    root: ir.Value
    layouts: dict[ir.Value, Layout]
    nodes: list[ir.Node] = field(default_factory=list)


class LayoutGraph:
    """View of one graph.

    Args:
        graph: the graph.
        view: what is known of its values.

    Attributes:
        order: the place of each node.
    """

    def __init__(self, graph: ir.Graph | ir.Function, view: GraphView) -> None:
        self.view, self.matcher = view, view.matcher
        self.opset = view.opset
        self.order = {node: number for number, node in enumerate(graph)}
        self._dims: dict[ir.Value, tuple[int, ...] | None] = {}
        self._changes: dict[ir.Node, Layout | None] = {}
        self._forms: dict[ir.Value, Forms] = {}

    @property
    def is_sorted(self) -> bool:
        """Whether every node stands behind those that it reads."""
        return all(
            value is None or self.place_of(value) < place
            for node, place in self.order.items()
            for value in node.inputs
        )

    def place_of(self, value: ir.Value) -> int:
        """Return the place of the node that computes a value; -1 if no node of the graph does."""
        producer = value.producer()
        return -1 if producer is None else self.order.get(producer, -1)

    # Values

    def rank(self, value: ir.Value) -> int | None:
        """Return the rank of a value; None if it is unknown."""
        dims = self.dims(value)
        return None if dims is None else len(dims)

    def dims(self, value: ir.Value) -> tuple[int, ...] | None:
        """Return the dims of a value, with estimates of unknown ones; None if the rank is unknown.

        What a value is computed from is looked at in order: a chain may be thousands of nodes long.
        """
        found, todo = dict[ir.Value, int](), [value]
        while todo:
            each = todo.pop()
            if each in self._dims or each in found:
                continue
            found[each] = self.place_of(each)
            producer = each.producer()
            if producer in self.order and self.view.dims(each.name) is None:
                todo += [source for source in producer.inputs if source is not None]
        for each in sorted(found, key=found.__getitem__):
            self._dims[each] = self._find_dims(each)
        return self._dims[value]

    def is_named(self, value: ir.Value) -> bool:
        """Return whether a value must keep its name."""
        return self.matcher.is_named(value)

    def is_read_by_window(self, value: ir.Value) -> bool:
        """Return whether a convolution or pool reads a value, in any layout."""
        return any(
            Trait.WINDOWS in op_traits.of(node).traits
            for form in self.forms(value).layouts
            for node, _ in self.matcher.readers(form)
        )

    def _find_dims(self, value: ir.Value) -> tuple[int, ...] | None:
        known = self.view.dims(value.name)
        if known is not None:
            return tuple(_TYPICAL_LENGTH if d.constant is None else d.constant for d in known)
        if (constant := self.view.known(value)) is not None:
            return constant.shape
        node = value.producer()
        if node not in self.order or not op_traits.is_standard(node):
            return None
        rows = [self.dims(source) for source in node.inputs if source is not None]
        if not rows or None in (rows if node.op_type in _BROADCASTING else rows[:1]):
            return None
        first, *others = (row or () for row in rows)
        change = self.change_of(node)
        if change is not None:
            return tuple(1 if axis is None else first[axis] for axis in change.axes)
        if node.op_type in _BROADCASTING:
            columns = itertools.zip_longest(*(row[::-1] for row in (first, *others)), fillvalue=1)
            return tuple(map(max, columns))[::-1]
        if node.op_type not in _SAME_RANK:
            return None
        weight = op_traits.of(node).weight
        kernel = () if weight is None else self.view.dims((node.inputs[weight] or value).name)
        channels = first[1:2] if not kernel else (kernel[0].constant or 1,)
        return (*first[:1], *channels, *first[2:])

    # Changes of layout

    def forms(self, value: ir.Value) -> Forms:
        """Return the forms of the value that a value is made of."""
        if value not in self._forms:
            root = value
            while (node := root.producer()) is not None and self.is_change(node):
                assert node.inputs[0] is not None
                root = node.inputs[0]
            forms = Forms(root, {root: Layout.identity(self.rank(root) or 0)})
            todo = [root]
            while todo:
                source = todo.pop()
                self._forms[source] = forms
                for node, index in self.matcher.readers(source):
                    change = self.change_of(node) if index == 0 and node in self.order else None
                    if change is not None:
                        forms.layouts[node.outputs[0]] = forms.layouts[source].then(change)
                        forms.nodes.append(node)
                        todo.append(node.outputs[0])
            forms.nodes.sort(key=self.order.__getitem__)
            made = [node.outputs[0] for node in forms.nodes]
            forms.layouts = {each: forms.layouts[each] for each in (root, *made)}
        return self._forms[value]

    def is_change(self, node: ir.Node) -> bool:
        """Return whether a node of the graph only changes the layout of a value."""
        return node in self.order and self.change_of(node) is not None

    def change_of(self, node: ir.Node) -> Layout | None:
        """Return the layout that a node makes; None for other nodes."""
        if node not in self._changes:
            self._changes[node] = self._find_change(node)
        return self._changes[node]

    def _find_change(self, node: ir.Node) -> Layout | None:
        if node.op_type not in CHANGES or not node.inputs or node.inputs[0] is None:
            return None
        rank = self.rank(node.inputs[0])
        if not op_traits.is_standard(node) or rank is None or len(node.outputs) != 1:
            return None
        # A node without a type is of the lowering of another operator.
        if self.matcher.op_type(node) is None or self.matcher.is_local(node):
            return None
        change = change_of(self.view_of(node), rank)
        return None if isinstance(change, str) else change

    def view_of(self, node: ir.Node) -> NodeView:
        """Return a view of a node and its inputs."""
        return NodeView(node, self.view)


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
    is_elementwise = op_type in QUANTIZING or op_type == "BatchNormalization"
    is_exact = is_elementwise or bool(op_traits.of(node).traits & (Trait.EXACT | Trait.BITWISE))
    if view.integer("keepdims", 1) != 1:
        return None
    axes = axes_of(view, layout.rank)
    if isinstance(axes, str) or not (is_exact or layout.keeps_order):
        return None
    if op_type in FLATTENING and graph.opset < 13:
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
    **dict.fromkeys((*NAMED, "BatchNormalization"), _adapt_along),
    "Pad": _adapt_pad,
}
