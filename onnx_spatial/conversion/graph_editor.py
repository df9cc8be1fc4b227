"""Edit one graph step by step, and keep track of what replaced its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import onnx
import onnx_ir as ir

from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import Matcher
from onnx_spatial.fusion.dilated_conv import GraphView, RegionEdit
from onnx_spatial.fusion.layouts import LayoutGraph, with_bias, with_fewer_changes
from onnx_spatial.model.graph import replace_nodes
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.graph.replace_nodes import GraphEdit
from onnx_spatial.model.traversal import Place


class GraphEditor:
    """Editor of one graph that keeps track of what replaced its nodes.

    Attributes:
        lost: names of the values that no node computes any more, by the graph that held the node:
            sizes may be computed in a graph around this one.
        kept: names of the values that new nodes compute.
        fused: nodes that regions have written, and their successors.
    """

    def __init__(
        self, matcher: Matcher, names: Names, places: Mapping[int, Place], *, initializers: bool
    ) -> None:
        self.matcher = matcher
        self._names = names
        self._places = places
        self._initializers = initializers
        self._replacements: dict[ir.Node, list[ir.Node]] = {}
        self.lost: defaultdict[Place, set[str]] = defaultdict(set)
        self.kept: set[str] = set()
        self.fused: set[ir.Node] = set()
        self._moved: set[ir.Node] = set()

    def apply(self, edit: GraphEdit) -> None:
        """Carry out an edit, and remove the nodes that only served the removed ones."""
        kept = {value for draft in edit.drafts for value in draft.results}
        nodes = [*(draft.node for draft in edit.drafts), *edit.removed]
        for node in nodes:
            self._lose(value for value in node.outputs if value not in kept)
        results = {old: new for draft in edit.drafts for old, new in draft.results.items()}
        read = [results.get(v, v) for node in nodes for v in node.inputs if v is not None]
        self.kept.update(value.name for value in kept if value.name)
        made = replace_nodes.apply(edit, self._names, initializers=self._initializers)
        for node, new in made.items():
            self.matcher.adopt(new, node)  # Constant nodes, too
        self._replacements |= made
        for draft in edit.drafts:
            if isinstance(edit, RegionEdit) or draft.node in self.fused:
                self.fused.update(draft.nodes)
            if draft.node in self._moved:
                self._moved.update(draft.nodes)
        self._remove_dead(read)

    def improve_layouts(self, graph: ir.Graph | ir.Function, view: GraphView) -> bool:
        """Remove changes of layout next to the fused nodes, and return whether there were any."""
        layouts = LayoutGraph(graph, view, self.matcher)
        initializers = self._initializers
        if not layouts.is_sorted:
            return False
        edit = with_fewer_changes(layouts, self.fused, initializers=initializers)
        if edit is None:
            return False
        self._moved.update(edit.moved)
        self.apply(edit)
        if isinstance(graph, ir.Graph):
            for name, value in list(graph.initializers.items()):
                if not self.matcher.readers(value):  # a constant of a node that was written twice
                    del graph.initializers[name]
        return True

    def fold_biases(self, graph: ir.Graph | ir.Function, view: GraphView) -> None:
        """Fold Adds into the biases of convolutions next to the fused nodes and those that moved."""
        layouts = LayoutGraph(graph, view, self.matcher)
        if layouts.is_sorted:
            for edit in list(with_bias(layouts, self.fused | self._moved)):
                self.apply(edit)

    def _lose(self, outputs: Iterable[ir.Value]) -> None:
        for value in outputs:
            graph = self.matcher.graph(value.producer())
            assert graph is not None
            if value.name:
                self.lost[self._places[id(graph)]].add(value.name)

    def _remove_dead(self, values: Iterable[ir.Value | None]) -> None:
        """Remove the nodes that are unused now, from the producers of these values back."""
        matcher = self.matcher
        todo = [value.producer() for value in values if value is not None]
        while todo:
            node = todo.pop()
            if node is None or node.graph is None or matcher.op_type(node) is None:
                continue
            if matcher.subject(node) is not None or any(
                matcher.is_output(value) or matcher.readers(value) for value in node.outputs
            ):
                continue
            self._lose(node.outputs)
            todo += [value.producer() for value in node.inputs if value is not None]
            replace_nodes.remove(node)

    def count(self, node: ir.Node) -> int:
        """Count the nodes that replaced a node of the original."""
        new = self._replacements.get(node, ())
        return sum(1 if n.graph is not None else self.count(n) for n in new)

    def note(self, place: Place, result: EditResult) -> None:
        """Note the values of the graph at `place` that new nodes compute, and those that are gone."""
        for lost_at, names in self.lost.items():
            result.lost.setdefault(lost_at, set()).update(names)
            for name in names:
                result.types.get(lost_at, {}).pop(name, None)
        types = result.types.setdefault(place, {})
        for name in sorted(self.kept - self.lost[place]):
            types.setdefault(name, onnx.TypeProto())  # their types are what they were
