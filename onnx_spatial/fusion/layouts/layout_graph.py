"""View a graph as values, and the layouts that Transpose, Squeeze and Unsqueeze make of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.graph_view import Array, GraphView
from onnx_spatial.fusion.layouts.layout import Layout
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: The length that is assumed of an axis of unknown size.
_USUAL = 32
_CHANGES = frozenset({"Transpose", "Squeeze", "Unsqueeze", "Reshape"})
_SAME_RANK = op_traits.having(Trait.SAME_RANK) | {"Concat"}
_BROADCASTS = op_traits.having(Trait.BROADCASTS)


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
        view: sizes and known values, by the names of the original.
        matcher: the nodes.
        sizes: numbers of elements, about, of values that were looked at before. Those that are computed
            are added.
    """

    def __init__(
        self,
        graph: ir.Graph | ir.Function,
        view: GraphView,
        matcher: Matcher,
        sizes: dict[ir.Value, int] | None = None,
    ) -> None:
        self.view, self.matcher = view, matcher
        self.sizes = {} if sizes is None else sizes
        self.opset = view.opset
        self.nodes = list(graph)
        self.order = {node: number for number, node in enumerate(self.nodes)}
        self._ranks: dict[ir.Value, int | None] = {}
        self._forms: dict[ir.Value, Forms] = {}
        for node in self.nodes:
            layout = self._change(node)
            for value in node.outputs:
                self._ranks[value] = self._rank(node, value, layout)
                self.size(value)
            if layout is not None:
                self._add(node, layout)

    @property
    def is_sorted(self) -> bool:
        """Whether every node stands behind those that it reads."""
        last = len(self.nodes)
        return all(
            self.order.get(producer, -1) < self.order.get(node, last)
            for node in self.nodes
            for value in node.inputs
            if value is not None and (producer := value.producer()) is not None
        )

    def rank(self, value: ir.Value) -> int | None:
        """Return the rank of a value; None if it is unknown."""
        if value not in self._ranks:
            dims = self.view.dims(value.name) if value.name else None
            known = self.known(value) if dims is None else None
            self._ranks[value] = len(dims) if dims is not None else getattr(known, "ndim", None)
        return self._ranks[value]

    def known(self, value: ir.Value | None) -> Array | None:
        """Return the elements of a small tensor that is known before the model runs."""
        if value is None:
            return None
        if value.const_value is not None:
            return value.const_value.numpy()
        node = value.producer()
        if node is not None and self.matcher.message(node) is None:
            if node.op_type != "Constant" or "value" not in node.attributes:
                return None
            tensor = node.attributes["value"].value
            return None if tensor is None else tensor.numpy()
        return self.view.value(value.name) if value.name else None

    def channels(self, kernel: ir.Value | None) -> int | None:
        """Return the number of output channels of the weight of a Conv; None if it is unknown."""
        dims = self.view.dims(kernel.name) if kernel is not None and kernel.name else None
        if dims:
            return dims[0].constant
        known = self.known(kernel)
        return None if known is None else known.shape[0]

    def is_named(self, value: ir.Value) -> bool:
        """Return whether a value must keep its name."""
        return self.matcher.is_named(value)

    def forms(self, value: ir.Value) -> Forms:
        """Return the forms of the value that a value is made of."""
        if value not in self._forms:
            rank = self.rank(value)
            self._forms[value] = Forms(value, {value: Layout.identity(rank or 0)})
        return self._forms[value]

    def is_read_by_window(self, value: ir.Value) -> bool:
        """Return whether a convolution or pool reads a value, in any layout."""
        return any(
            Trait.WINDOWS in op_traits.of(node).traits
            for form in self.forms(value).layouts
            for node, _ in self.matcher.readers(form)
        )

    def changes(self, node: ir.Node) -> bool:
        """Return whether a node only changes the layout of a value of the graph."""
        return any(node in self._forms[v].nodes for v in node.outputs[:1] if v in self._forms)

    def every_forms(self) -> Iterable[Forms]:
        """Return the forms of all values that are read in several layouts."""
        return {id(forms): forms for forms in self._forms.values() if forms.nodes}.values()

    def _add(self, node: ir.Node, layout: Layout) -> None:
        source = node.inputs[0]
        assert source is not None
        forms = self.forms(source)
        forms.nodes.append(node)
        forms.layouts[node.outputs[0]] = forms.layouts[source].then(layout)
        self._forms[node.outputs[0]] = forms

    def _rank(self, node: ir.Node, value: ir.Value, layout: Layout | None) -> int | None:
        if layout is not None:
            return len(layout.axes)
        dims = self.view.dims(value.name) if value.name else None
        if dims is not None:
            return len(dims)
        if not op_traits.is_standard(node) or not node.inputs or node.inputs[0] is None:
            return None
        if node.op_type in _BROADCASTS:
            ranks = [self.rank(v) for v in node.inputs if v is not None]
            return None if None in ranks else max(rank for rank in ranks if rank is not None)
        return self.rank(node.inputs[0]) if node.op_type in _SAME_RANK else None

    def _change(self, node: ir.Node) -> Layout | None:
        """Return the layout that a node makes; None for other nodes."""
        if node.op_type not in _CHANGES or not node.inputs:
            return None
        source = node.inputs[0]
        rank = self._rank_before(node, source) if source is not None else None
        if not op_traits.is_standard(node) or rank is None or len(node.outputs) != 1:
            return None
        if self.matcher.op_type(node) is None:  # of the lowering of another operator
            return None
        if node.op_type == "Transpose":
            perm = self.matcher.perm(node, rank)
            return None if perm is None else Layout(rank, perm)
        if node.op_type == "Reshape":
            return self._reshaped(node, source)
        axes = self.axes(node, 1)
        if axes is None:
            return None
        if node.op_type == "Squeeze":
            removed = {axis % rank for axis in axes} if rank else set()
            return Layout(rank, tuple(axis for axis in range(rank) if axis not in removed))
        added = {axis % (rank + len(axes)) for axis in axes}
        if len(added) != len(axes):
            return None
        old = iter(range(rank))
        places = range(rank + len(axes))
        return Layout(rank, tuple(None if place in added else next(old) for place in places))

    def size(self, value: ir.Value) -> int:
        """Return the number of elements of a value, about: some of its axes may be unknown."""
        if value not in self.sizes:
            dims = self.view.dims(value.name) if value.name else None
            node = value.producer()
            if dims is not None:
                known = (dim.constant for dim in dims)
                self.sizes[value] = math.prod(_USUAL if n is None else n for n in known)
            elif node not in self.order:
                self.sizes[value] = 1
            else:
                self.sizes[value] = self._size_behind(node)
        return self.sizes[value]

    def _size_behind(self, node: ir.Node) -> int:
        sizes = [self.size(v) for v in node.inputs if v is not None and v.producer() is not None]
        weight = op_traits.of(node).weight
        if weight is not None and (kernel := node.inputs[weight]) is not None:
            source, dims = node.inputs[0], self.view.dims(kernel.name) if kernel.name else None
            if dims is not None and source is not None:
                group = self.matcher.attributes(node).get("group", 1)
                assert isinstance(group, int)
                outputs, inputs = (dim.constant or 1 for dim in dims[:2])
                return self.size(source) * outputs // max(1, inputs * group)
        return max(sizes, default=1)

    def _reshaped(self, node: ir.Node, source: ir.Value | None) -> Layout | None:
        """Return the layout that a Reshape makes that only adds and removes axes of size 1."""
        shape = self.known(node.inputs[1]) if len(node.inputs) > 1 else None
        dims = self.view.dims(source.name) if source is not None and source.name else None
        if shape is None or dims is None or self.matcher.attributes(node).get("allowzero"):
            return None
        axes: list[int | None] = []
        left = list(range(len(dims)))
        for place, size in enumerate(shape.reshape(-1).tolist()):
            while left and size != 1 and dims[left[0]].constant == 1 and (size or left[0] != place):
                left.pop(0)
            known = dims[left[0]].constant if left else None
            if size == 1 and known != 1:
                axes.append(None)
            elif left and (size in (-1, known) or (size == 0 and left[0] == place)):
                axes.append(left.pop(0))
            else:
                return None
        return Layout(len(dims), tuple(axes)) if all(dims[a].constant == 1 for a in left) else None

    def _rank_before(self, node: ir.Node, source: ir.Value) -> int | None:
        """Return the rank of what a node reads; the perm of a Transpose says it, too."""
        rank = self.rank(source)
        perm = self.matcher.attributes(node).get("perm")
        if rank is None and node.op_type == "Transpose" and isinstance(perm, tuple):
            self._ranks[source] = rank = len(perm)
        return rank

    def axes(self, node: ir.Node, index: int) -> tuple[int, ...] | None:
        """Return the axes of a node: an attribute, later input `index`; None if unknown or missing."""
        axes = self.matcher.attributes(node).get("axes")
        if axes is None and index < len(node.inputs):
            known = self.known(node.inputs[index])
            axes = None if known is None else tuple(int(axis) for axis in known.reshape(-1))
        if not isinstance(axes, tuple) or not all(isinstance(axis, int) for axis in axes):
            return None
        return tuple(int(axis) for axis in axes)
