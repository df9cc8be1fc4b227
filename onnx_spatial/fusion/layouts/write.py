"""Draft nodes in other layouts, and count the changes of layout before and after."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_spatial.fusion.layouts import layout as layouts
from onnx_spatial.fusion.layouts.commuting import Adapted
from onnx_spatial.fusion.layouts.layout import Layout
from onnx_spatial.fusion.layouts.layout_graph import Forms, LayoutGraph
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import layout_marks
from onnx_spatial.model.graph.replace_nodes import Draft, GraphEdit


@dataclass(frozen=True)
class Move:
    """A node that is written in another layout: the change of its outputs, and what it is then."""

    layout: Layout
    adapted: Adapted


@dataclass
class Cost:
    """Nodes that change layouts, and the elements that their Transposes move."""

    nodes: int = 0
    moved: int = 0

    def add(self, op_type: str, size: int) -> None:
        """Add a node that reads a value of some size."""
        self.nodes += 1
        self.moved += size if op_type == "Transpose" else 0


@dataclass
class LayoutEdit(GraphEdit):
    """An edit with its costs.

    Attributes:
        before: of the changes of layout of the values that it is about.
        after: the same behind it.
        moved: the nodes that are written in another layout.
        about: the nodes that compute, change or read the values that the edit is about.
    """

    before: Cost = field(default_factory=Cost)
    after: Cost = field(default_factory=Cost)
    moved: frozenset[ir.Node] = frozenset()
    about: frozenset[ir.Node] = frozenset()

    @property
    def is_better(self) -> bool:
        """Whether there is less afterwards, and nothing more."""
        nodes = self.before.nodes - self.after.nodes
        moved = self.before.moved - self.after.moved
        return min(nodes, moved) >= 0 and max(nodes, moved) > 0


class LayoutWriter:
    """Writer of one edit.

    Args:
        graph: the graph.
        moves: the nodes that are written in another layout.
        also: further values whose changes of layout may be written anew.
        initializers: whether constants are initializers; else they are nodes, and count.
    """

    def __init__(
        self,
        graph: LayoutGraph,
        moves: Mapping[ir.Node, Move],
        also: Iterable[Forms],
        *,
        initializers: bool,
    ) -> None:
        self._graph, self._moves, self._initializers = graph, moves, initializers
        read = (n.inputs[i] for n, move in moves.items() for i in move.adapted.inputs)
        made = (value for node in moves for value in node.outputs)
        every = [*also, *(graph.forms(v) for v in (*read, *made) if v is not None)]
        self._scope = list({id(forms): forms for forms in every}.values())
        self._available: dict[ir.Value, dict[Layout, ir.Value]] = {}
        #: Values that new ones replace under their names, by producer, and those read under other names.
        self._results: dict[ir.Node, list[ir.Value]] = {}
        self._renamed: set[ir.Value] = set()
        self._copied: set[ir.Node] = set()
        self._dropped: list[ir.Node] = []
        self._taken: set[ir.Value] = set()
        self._edit = LayoutEdit(moved=frozenset(moves))

    def run(self) -> LayoutEdit:
        """Draft the edit."""
        for forms in self._scope:
            self._plan(forms)
        drafted = {*self._moves, *self._copied, *self._results}
        for node in sorted(drafted, key=self._graph.order.__getitem__):
            self._edit.drafts.append(self._draft(node))
        self._edit.removed = [node for node in self._dropped if node not in drafted]
        if not self._initializers:
            self._count_constants()
        self._edit.about = frozenset(self._about())
        return self._edit

    def _about(self) -> Iterator[ir.Node]:
        for forms in self._scope:
            for value in forms.layouts:
                if (producer := value.producer()) is not None:
                    yield producer
                yield from (node for node, _ in self._graph.matcher.readers(value))
        for draft in self._edit.drafts:
            yield draft.node
            producers = (value.producer() for value in draft.node.inputs if value is not None)
            yield from (node for node in producers if node is not None)
        yield from self._edit.removed

    # What is to be done with the forms of each value

    def _move(self, forms: Forms) -> Move | None:
        node = forms.root.producer()
        return self._moves.get(node) if node is not None else None

    def _content(self, value: ir.Value) -> tuple[Forms, Layout]:
        """Return a value as a layout of the new value that its forms are made of."""
        forms = self._graph.forms(value)
        move, layout = self._move(forms), forms.layouts[value]
        return forms, layout if move is None else move.layout.inverse.then(layout)

    def _plan(self, forms: Forms) -> None:
        move = self._move(forms)
        needed = [value for value in forms.layouts if self._is_needed(value, forms)]
        size = self._graph.size(forms.root)
        for value in self._kept(forms, self._read(forms)):
            node = value.producer()
            if node is not None and value is not forms.root:
                self._edit.before.add(node.op_type, size)
        if move is None:
            kept = self._kept(forms, needed)
            readers = self._asked(forms)
            asked = {layout for _, layout in readers}
            first = min((self._graph.order[node] for node, _ in readers), default=math.inf)
            early = [v for v in kept if v is forms.root or self._place(v) < first]
            new = _count({forms.layouts[v] for v in early}, asked)
            fresh = _count(
                {Layout.identity(len(forms.layouts[forms.root].axes))},
                asked | {forms.layouts[v] for v in needed},
            )
            named = sum(
                self._graph.is_named(value) and forms.layouts[value].is_identity
                for value in needed
                if value is not forms.root
            )
            old = len(kept) - 1
            if fresh + named >= old + new:
                self._available[forms.root] = {forms.layouts[v]: v for v in reversed(early)}
                for value in kept[1:]:
                    node = value.producer()
                    assert node is not None
                    self._edit.after.add(node.op_type, size)
                return
            self._available[forms.root] = {forms.layouts[forms.root]: forms.root}
            needed = [value for value in needed if value is not forms.root]
        else:
            self._available[forms.root] = {}
        self._dropped += forms.nodes
        self._name(needed)

    def _name(self, needed: Collection[ir.Value]) -> None:
        """Choose which values keep their names."""
        keepers: dict[Layout, ir.Value] = {}
        for value in sorted(needed, key=lambda v: not self._must_stay(v)):
            forms, content = self._content(value)
            existing = content in self._available[forms.root]
            if self._must_stay(value) or not (existing or content in keepers):
                keepers.setdefault(content, value)
                producer = value.producer()
                assert producer is not None
                self._results.setdefault(producer, []).append(value)
            else:
                self._renamed.add(value)
                self._copied.update(n for n, i in self._readers(value) if n not in self._moves)

    def _must_stay(self, value: ir.Value) -> bool:
        """Return whether a value must keep its name, also for readers that cannot be copied."""
        return self._graph.is_named(value) or not all(
            self._can_copy(node) for node, _ in self._readers(value)
        )

    def _can_copy(self, node: ir.Node) -> bool:
        if node in self._moves:
            return True
        matcher = self._graph.matcher
        if matcher.op_type(node) is None or matcher.subject(node) is not None:
            return False  # a spatial operator, or of the lowering of one
        message = matcher.message(node)
        bodies = message is not None and any(traversal.subgraphs(message))
        return node in self._graph.order and not bodies

    def _readers(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """Return the nodes that read a value as it is."""
        inner = self._graph.forms(value).nodes
        return [
            (node, index)
            for node, index in self._graph.matcher.readers(value)
            if not (node in inner and index == 0) and not self._adapts(node, index)
        ]

    def _adapts(self, node: ir.Node, index: int) -> bool:
        move = self._moves.get(node)
        if move is None:
            return False
        return index in move.adapted.inputs or index in move.adapted.constants

    def _is_needed(self, value: ir.Value, forms: Forms) -> bool:
        return self._graph.is_named(value) or bool(self._readers(value))

    def _read(self, forms: Forms) -> list[ir.Value]:
        """List the values that anything reads but changes of layout."""
        return [
            value
            for value in forms.layouts
            if self._graph.is_named(value)
            or any(
                node not in forms.nodes or index
                for node, index in self._graph.matcher.readers(value)
            )
        ]

    def _kept(self, forms: Forms, needed: Iterable[ir.Value]) -> list[ir.Value]:
        """Return the values that are made on the way to those that are needed, the root first."""
        kept = {forms.root}
        for value in needed:
            while value not in kept:
                kept.add(value)
                node = value.producer()
                assert node is not None and node.inputs[0] is not None
                value = node.inputs[0]
        return [value for value in forms.layouts if value in kept]

    def _asked(self, forms: Forms) -> list[tuple[ir.Node, Layout]]:
        """List the moved nodes that read a value, and the layouts in which they do."""
        return [
            (node, self._content(value)[1].then(self._moves[node].adapted.inputs[index]))
            for value in forms.layouts
            for node, index in self._graph.matcher.readers(value)
            if node in self._moves and index in self._moves[node].adapted.inputs
        ]

    def _place(self, value: ir.Value) -> int:
        node = value.producer()
        assert node is not None
        return self._graph.order[node]

    # Nodes

    def _draft(self, node: ir.Node) -> Draft:
        draft = Draft(node)
        move = self._moves.get(node)
        if move is not None or node in self._copied:
            copy = self._copy(node, move, draft)
            for old, new in zip(node.outputs, copy.outputs, strict=True):
                self._graph.sizes[new] = self._graph.size(old)
                if move is not None:
                    identity = Layout.identity(len(move.layout.axes))
                    self._available.setdefault(old, {})[identity] = new
                elif old.name:
                    draft.results[old] = new
        for value in self._results.get(node, ()):
            forms, content = self._content(value)
            result = self._get(forms, content, draft)
            draft.results[value] = result
            if result in self._taken or result.name is not None:
                self._edit.after.nodes += 1  # an Identity
            self._taken.add(result)
        return draft

    def _copy(self, node: ir.Node, move: Move | None, draft: Draft) -> ir.Node:
        inputs: list[ir.Value | None] = list(node.inputs)
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            if move is not None and index in move.adapted.constants:
                inputs[index] = draft.constant(move.adapted.constants[index], "constant")
            elif move is not None and index in move.adapted.inputs:
                forms, content = self._content(value)
                target = content.then(move.adapted.inputs[index])
                inputs[index] = self._get(forms, target, draft)
            elif value in self._renamed:
                inputs[index] = self._get(*self._content(value), draft)
        copy = self._graph.matcher.copy(node, inputs)
        if move is not None:
            for name, changed in move.adapted.attributes.items():
                copy.attributes[name] = ir.convenience.convert_attribute(name, changed)
            self._mark(node, copy, move)
        draft.nodes.append(copy)
        draft.successor = copy
        return copy

    def _mark(self, node: ir.Node, copy: ir.Node, move: Move) -> None:
        """Note which value of the original a new node computes, if values meet or a window reads it.

        Then no two convolutions lie between values that both models compute: a proof of several in a
        row takes far longer than one of each.
        """
        known = layout_marks.read(node.metadata_props.get(layout_marks.LAYOUT, ""))
        if known is not None:
            name, axes = known
            rank = sum(axis is not None for axis in axes)
            layout_marks.mark(copy, name, Layout(rank, axes).then(move.layout).axes)
        elif self._graph.matcher.message(node) is not None and (
            len(move.adapted.inputs) > 1 or self._graph.is_read_by_window(node.outputs[0])
        ):
            layout_marks.mark(copy, node.outputs[0].name or "", move.layout.axes)

    def _get(self, forms: Forms, layout: Layout, draft: Draft) -> ir.Value:
        """Return the value in a layout, and draft the nodes that make it of the nearest one."""
        available = self._available[forms.root]
        if layout not in available:
            base = min(available, key=lambda known: layouts.weight(known.inverse.then(layout)))
            value = available[base]
            for step in layouts.single_steps(base.inverse.then(layout)):
                value = layouts.write(step, value, draft, self._graph.opset)
                base = base.then(step)
                available.setdefault(base, value)
                self._edit.after.add(step.steps()[0][0], self._graph.size(forms.root))
            available[layout] = value
        return available[layout]

    def _count_constants(self) -> None:
        gone = {draft.node for draft in self._edit.drafts} | set(self._edit.removed)
        inputs = {v for node in gone for v in node.inputs if v is not None}
        for value in inputs:
            node = value.producer()
            readers = {n for n, _ in self._graph.matcher.readers(value)}
            if node is not None and node.op_type == "Constant" and readers <= gone:
                self._edit.before.nodes += not self._graph.is_named(value)
        self._edit.after.nodes += sum(len(draft.constants) for draft in self._edit.drafts)


def _count(available: set[Layout], asked: Iterable[Layout]) -> int:
    """Count the nodes that make the layouts that are asked for of those that are available."""
    known, nodes = set(available), 0
    for layout in sorted(asked, key=layouts.weight):
        if layout in known:
            continue
        base = min(known, key=lambda k: layouts.weight(k.inverse.then(layout)))
        for step in layouts.single_steps(base.inverse.then(layout)):
            nodes += 1
            base = base.then(step)
            known.add(base)
        known.add(layout)
    return nodes
