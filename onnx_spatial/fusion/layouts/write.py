"""Draft the nodes of a graph in the layouts that `push` chose.

    s -> T -> a, s -> T -> T' -> b       before: three nodes make two forms of s
    s -> T -> a', b'                     behind: what reads them moved to one layout

The forms of a value are dropped, and each layout is made where it is first read, in the way that `push`
counted. Values that others need by name keep it; readers of doubles are copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnx_spatial.fusion import layout as layouts
from onnx_spatial.fusion.layout import Layout
from onnx_spatial.fusion.layouts.layout_graph import Forms, LayoutGraph
from onnx_spatial.fusion.layouts.push import Move, Plan, values_near
from onnx_spatial.model.graph import marks
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit


@dataclass
class LayoutEdit(GraphEdit):
    """An edit that changes layouts.

    Attributes:
        moved: the nodes that are written in another layout.
    """

    moved: frozenset[ir.Node] = frozenset()


def with_fewer_changes(
    graph: LayoutGraph, fused: Collection[ir.Node], *, initializers: bool
) -> LayoutEdit | None:
    """Draft the edit after which there are fewer changes of layout near fused nodes.

    Args:
        graph: the graph.
        fused: nodes that fusion has written.
        initializers: whether constants are initializers; else they are nodes, and count.
    """
    plan = Plan(graph, initializers=initializers)
    values = values_near(plan, fused)
    plan.improve(values)
    anew = [forms for forms in values if not plan.kept_forms(forms)]
    return _Writer(plan, anew).run() if plan.moves or anew else None


class _Writer:
    """Writer of the edit.

    Args:
        plan: the labels.
        anew: values whose forms are made anew, besides those that moved nodes read and make.
    """

    def __init__(self, plan: Plan, anew: list[Forms]) -> None:
        self._plan, self._graph = plan, plan.graph
        moved = {node: move for node, move in plan.moves.items() if node is not None}
        inputs = (node.inputs[i] for node, move in moved.items() for i in move.adapted.inputs)
        values = [*inputs, *(value for node in moved for value in node.outputs)]
        every = [*anew, *(self._graph.forms(value) for value in values if value is not None)]
        self._scope = list({id(forms): forms for forms in every}.values())
        self._moved = frozenset(moved)
        #: The layouts that were made of each value so far, and how the others are made.
        self._available: dict[ir.Value, dict[Layout, ir.Value]] = {}
        self._ways: dict[ir.Value, Mapping[Layout, tuple[Layout, Layout]]] = {}
        #: Values that new ones replace under their names, by producer, and those read under others.
        self._results: dict[ir.Node, list[ir.Value]] = {}
        self._renamed: set[ir.Value] = set()
        self._copied: set[ir.Node] = set()

    def run(self) -> LayoutEdit:
        """Draft the edit."""
        dropped = [node for forms in self._scope for node in self._prepare_value(forms)]
        drafted = {*self._moved, *self._copied, *self._results}
        edit = LayoutEdit(moved=self._moved)
        for node in sorted(drafted, key=self._graph.order.__getitem__):
            edit.drafts.append(self._draft_node(node))
        edit.removed = [node for node in dropped if node not in drafted]
        return edit

    def _prepare_value(self, forms: Forms) -> list[ir.Node]:
        """Note what there is of a value, choose what keeps its name, and return what is dropped."""
        if kept := self._plan.kept_forms(forms):
            self._available[forms.root] = {forms.layouts[v]: v for v in reversed(kept)}
            return []
        needed = self._plan.needed_forms(forms)
        contents = {*map(self._plan.content, needed), *self._plan.asked_forms(forms)}
        self._ways[forms.root] = layouts.ways_to_make(
            contents, len(self._plan.layout(forms.root).axes)
        )
        available = self._available[forms.root] = {}
        if forms.root.producer() not in self._moved:
            available[Layout.identity(len(forms.layouts[forms.root].axes))] = forms.root
            needed.pop(forms.root, None)
        have = set(available)
        stays = {value: self._plan.must_stay(readers) for value, readers in needed.items()}
        for value in sorted(needed, key=lambda v: not stays[v]):
            content, producer = self._plan.content(value), value.producer()
            if stays[value] or content not in have:
                have.add(content)
                assert producer is not None
                self._results.setdefault(producer, []).append(value)
            else:
                self._renamed.add(value)
                self._copied.update(n for n in needed[value] if n and n not in self._moved)
        return forms.nodes

    def _draft_node(self, node: ir.Node) -> Draft:
        draft = Draft(node)
        move = self._plan.moves.get(node)
        if move is not None or node in self._copied:
            copy = self._copy_node(node, move, draft)
            for old, new in zip(node.outputs, copy.outputs, strict=True):
                if move is not None:
                    self._available[old][Layout.identity(len(move.layout.axes))] = new
                elif old.name:
                    draft.results[old] = new
        for value in self._results.get(node, ()):
            draft.results[value] = self._get(value, self._plan.content(value), draft)
        return draft

    def _copy_node(self, node: ir.Node, move: Move | None, draft: Draft) -> ir.Node:
        inputs: list[ir.Value | None] = list(node.inputs)
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            if move is not None and index in move.adapted.constants:
                inputs[index] = draft.constant(move.adapted.constants[index], "constant")
            elif move is not None and index in move.adapted.inputs:
                change = move.adapted.inputs[index]
                inputs[index] = self._get(value, self._plan.content(value).then(change), draft)
            elif value in self._renamed:
                inputs[index] = self._get(value, self._plan.content(value), draft)
        copy = self._graph.matcher.copy(node, inputs)
        if move is not None:
            for name, changed in move.adapted.attributes.items():
                copy.attributes[name] = ir.convenience.convert_attribute(name, changed)
            self._mark_copy(node, copy, move)
        draft.nodes.append(copy)
        draft.successor = copy
        return copy

    def _mark_copy(self, node: ir.Node, copy: ir.Node, move: Move) -> None:
        """Note which value of the original a new node computes, if values meet or a window reads it.

        Then no two convolutions lie between values that both models compute: a proof of several in a
        row takes far longer than one of each.
        """
        known = marks.read_mark(node.metadata_props.get(marks.LAYOUT, ""))
        if known is not None:
            name, axes = known
            rank = sum(axis is not None for axis in axes)
            marks.mark_layout(copy, name, Layout(rank, axes).then(move.layout).axes)
        elif self._graph.matcher.message(node) is not None and (
            len(move.adapted.inputs) > 1 or self._graph.is_read_by_window(node.outputs[0])
        ):
            marks.mark_layout(copy, node.outputs[0].name or "", move.layout.axes)

    def _get(self, value: ir.Value, content: Layout, draft: Draft) -> ir.Value:
        """Return a value in a layout, and draft the nodes that make it."""
        root = self._graph.forms(value).root
        available = self._available[root]
        if content not in available:
            base, step = self._ways[root][content]
            source = self._get(value, base, draft)
            available[content] = layouts.write_change(step, source, draft, self._graph.opset)
        return available[content]
