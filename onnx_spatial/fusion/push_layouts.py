"""Remove changes of layout next to fused nodes: Transpose, Squeeze and Unsqueeze.

    Conv -> T -> Split -> Tanh, Sigmoid -> Mul -> T' -> Conv       two changes of layout
    Conv -> Split -> T, T -> Tanh, Sigmoid -> Mul -> T' -> Conv    three: Split took the layout of Conv
    Conv -> Split -> Tanh, Sigmoid -> Mul -> Conv                  none: so did those behind it

Converters change the layout around every spatial operator and every convolution of signals. Without the
spatial operators these changes meet, with only operators between them that do the same in any layout.

1. Moves are chosen greedily, before any node is drafted. A node that commutes with changes of layout may
   have a `Move`: the layout of its outputs. The cost of a value are the nodes that make all layouts of
   it that are read. A *push* starts at a value and one of its layouts: all that commute and make or read
   the value move to this layout, then those next to them, and so on, also while it gets a little worse.
   The moves are kept as far as they were best, if there are fewer changes of layout or Transposes. Only
   values near fused nodes are looked at, so the work follows the operators, not the model.
2. When no push pays, all moves are written at once. The forms of a value are dropped, and each layout
   is made where it is first read, in the way that was counted. Values that others need by name keep it;
   readers of doubles are copied.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from onnx_spatial.fusion.layout import (
    LEAST_RANK,
    SOURCE,
    Adapted,
    Forms,
    Layout,
    LayoutGraph,
    adapt_node,
    rank_with_rule,
    ways_to_make,
    write_change,
)
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import marks
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit
from onnx_spatial.model.op_traits import Trait

# 1. Moves

#: Nodes that there may be more than at best before a push ends: 4 get it through a gate.
_PATIENCE_NODES = 4
#: Nodes that a push moves without a gain.
_MAX_PUSHED_NODES = 256
#: Nodes between a fused node and the changes of layout that are looked for around it: exporters write
#: them next to a convolution, or behind an activation or a gate of up to eight nodes.
_NEAR_NODES = 16


class Use(NamedTuple):
    """A place where a value is read."""

    value: ir.Value
    reader: ir.Node | None  # None where the value is used by its name
    input: int  # its index among the inputs of the reader


@dataclass(frozen=True)
class Move:
    """A node that is written in another layout: the change of its outputs, and what it is then."""

    layout: Layout
    adapted: Adapted

    @property
    def changed_inputs(self) -> set[int]:
        """Inputs that are not read as they are."""
        return {*self.adapted.inputs, *self.adapted.constants}


class Cost(NamedTuple):
    """Nodes that change layouts, and the Transposes of them."""

    nodes: int = 0
    transposes: int = 0

    def plus(self, other: Cost) -> Cost:
        """Return the sum."""
        return Cost(self.nodes + other.nodes, self.transposes + other.transposes)

    def minus(self, other: Cost) -> Cost:
        """Return the difference."""
        return Cost(self.nodes - other.nodes, self.transposes - other.transposes)

    @property
    def is_gain(self) -> bool:
        """Whether a difference has fewer of the one, and not more of the other."""
        return max(self) <= 0 and min(self) < 0


class Plan:
    """Moves of the nodes of one graph.

    Args:
        graph: the graph.
        initializers: whether constants are initializers; else they are nodes, and count.

    Attributes:
        graph: the graph.
        moves: the nodes that are written in another layout.
    """

    def __init__(self, graph: LayoutGraph, *, initializers: bool) -> None:
        self.graph = graph
        self.moves: dict[ir.Node | None, Move] = {}
        self._nodes_of_axes = int(not initializers and graph.opset >= 13)
        self._data: dict[ir.Node, dict[int, bool]] = {}
        self._uses: dict[ir.Value, list[Use]] = {}
        self._settled: dict[ir.Value, tuple[list[ir.Value], Cost]] = {}

    # What is needed of a value

    def layout(self, value: ir.Value) -> Layout:
        """Return the layout in which the root of forms is computed."""
        move = self.moves.get(value.producer())
        return Layout.identity(self.graph.rank(value) or 0) if move is None else move.layout

    def form_of(self, value: ir.Value) -> Layout:
        """Return the layout of a value, seen from its root as the plan computes that."""
        forms = self.graph.forms(value)
        return self.layout(forms.root).inverse.then(forms.layouts[value])

    def uses(self, forms: Forms) -> list[Use]:
        """List who reads a value in any layout."""
        if forms.root not in self._uses:
            inner = {(node, 0) for node in forms.nodes}
            names = [
                Use(value, None, 0) for value in forms.layouts if self.graph.matcher.is_named(value)
            ]
            self._uses[forms.root] = names + [
                Use(value, *use)
                for value in forms.layouts
                for use in self.graph.matcher.readers(value)
                if use not in inner
            ]
        return self._uses[forms.root]

    def asked_forms(self, forms: Forms) -> dict[Layout, float]:
        """Return what moved nodes read of a value, and the place of the first that does."""
        first: dict[Layout, float] = {}
        for value, node, index in self.uses(forms):
            move = self.moves.get(node)
            if node is not None and move is not None and index in move.adapted.inputs:
                form = self.form_of(value).then(move.adapted.inputs[index])
                first[form] = min(first.get(form, math.inf), self.graph.order[node])
        return first

    def needed_forms(self, forms: Forms) -> dict[ir.Value, list[ir.Node | None]]:
        """Return the forms that are read as they are, and by whom."""
        readers: dict[ir.Value, list[ir.Node | None]] = {}
        for value, node, index in self.uses(forms):
            move = self.moves.get(node)
            if move is None or index not in move.changed_inputs:
                readers.setdefault(value, []).append(node)
        return readers

    def must_stay(self, readers: Iterable[ir.Node | None]) -> bool:
        """Return whether a value keeps its name, also for readers that cannot be copied."""
        return not all(node in self.moves or self._can_copy(node) for node in readers)

    def _can_copy(self, node: ir.Node | None) -> bool:
        matcher = self.graph.matcher
        if node is None or node not in self.graph.order:
            return False  # of a graph inside
        if matcher.graph(node) is None or matcher.subject(node):
            return False  # a spatial operator, or of the lowering of one
        message = matcher.message(node)
        return message is None or not any(traversal.subgraphs(message))

    # Costs

    def kept_forms(self, forms: Forms) -> list[ir.Value]:
        """Return the forms that stay as they are; [] if they are made anew."""
        return self._settle(forms)[0]

    def cost(self, forms: Forms) -> Cost:
        """Return the cost of a value."""
        return self._settle(forms)[1]

    def _settle(self, forms: Forms) -> tuple[list[ir.Value], Cost]:
        """Return what `kept_forms` and `cost` do, from the cache if no node next to the value moved."""
        if forms.root not in self._settled:
            self._settled[forms.root] = self._choose_forms(forms)
        return self._settled[forms.root]

    def _choose_forms(self, forms: Forms) -> tuple[list[ir.Value], Cost]:
        """Choose between the forms as they are and new ones; return those that stay, and the cost.

        All are made anew if the root is written in another layout. Else those that are needed stay if
        they cost no more than new ones, and give moved nodes, in time, all that these ask for.
        """
        is_moved = forms.root.producer() in self.moves
        if not (is_moved or forms.nodes or any(u.reader in self.moves for u in self.uses(forms))):
            return [forms.root], Cost()  # most values of a large model
        needed, asked = self.needed_forms(forms), self.asked_forms(forms)
        form_of = {value: self.form_of(value) for value in needed}
        named = [form_of[value] for value, readers in needed.items() if self.must_stay(readers)]
        if not is_moved and forms.root not in needed:
            named.append(self.form_of(forms.root))
        # Names beyond the first of one form are given by an Identity.
        identities = Cost(len(named) - len(set(named)))
        every = frozenset({*form_of.values(), *asked})
        ways = ways_to_make(every, len(self.layout(forms.root).axes))
        steps = (op_type for _, step in ways.values() for op_type, _ in step.steps)
        anew = self._weigh_steps(steps).plus(identities)
        if is_moved:
            return [], anew
        kept = _on_the_way(forms, needed)
        producers = [value.producer() for value in kept[1:]]
        old = self._weigh_steps(node.op_type for node in producers if node is not None)
        # A form serves only readers behind it.
        place = {forms.layouts[value]: self.graph.place_of(value) for value in reversed(kept)}
        in_time = all(place.get(form, math.inf) < first for form, first in asked.items())
        return (kept, old) if in_time and old <= anew else ([], anew)

    def _weigh_steps(self, op_types: Iterable[str]) -> Cost:
        """Return the cost of nodes that change a layout; the axes of some are nodes, too."""
        kinds = list(op_types)
        transposes = kinds.count("Transpose")
        axes = self._nodes_of_axes * (len(kinds) - transposes)
        return Cost(len(kinds) + axes, transposes)

    # Pushes

    def improve(self, near: Iterable[Forms]) -> None:
        """Push until nothing gets better."""
        todo = dict.fromkeys(forms.root for forms in near if self.cost(forms).nodes)
        while todo:
            forms = self.graph.forms(next(iter(todo)))
            del todo[forms.root]
            base = self.layout(forms.root)
            asked = [base.then(form) for form in self.asked_forms(forms)]
            for meeting in dict.fromkeys((base, *forms.layouts.values(), *asked)):
                if moved := self._push_layout(forms, meeting):
                    around = (each for node in moved for each in self.about(node))
                    todo |= dict.fromkeys(f.root for f in (forms, *around) if self.cost(f).nodes)
                    break
        self._settled.clear()  # pushes follow no costs of what moved nodes read as constants

    def _push_layout(self, start: Forms, meeting: Layout) -> list[ir.Node]:
        """Make and read a value in a layout, and what is next to it; return the nodes that moved."""
        before: dict[ir.Node, Move | None] = {}
        total, best = Cost(), Cost()
        length = 0  # of `before` when the total was best
        todo = deque(self._next_nodes(start, meeting))
        while (
            todo
            and total.nodes <= best.nodes + _PATIENCE_NODES
            and len(before) < length + _MAX_PUSHED_NODES
        ):
            node, change = todo.popleft()
            if node in before or change == self.layout(node.outputs[0]):
                continue
            adapted = None if change.is_identity else adapt_node(node, self.graph, change)
            move = None if adapted is None else Move(change, adapted)
            if move is None and not change.is_identity:
                continue
            before[node] = self.moves.get(node)
            total = total.plus(self._move_node(node, move))
            if total.is_gain and total < best:
                best, length = total, len(before)
            for value in node.outputs:
                todo += self._next_nodes(self.graph.forms(value), change)
            for source in (node.inputs[i] for i, is_whole in self.data(node).items() if is_whole):
                assert source is not None
                forms = self.graph.forms(source)
                todo += self._next_nodes(forms, forms.layouts[source].then(change))
        moved = list(before)
        for node in reversed(moved[length:]):
            self._move_node(node, before[node])
        return moved[:length]

    def _next_nodes(self, forms: Forms, meeting: Layout) -> Iterator[tuple[ir.Node, Layout]]:
        """Yield the nodes that make or read a value, and their layout if they do so in another one."""
        producer = forms.root.producer()
        if producer is not None and self.data(producer):
            yield producer, meeting
        for value, node, index in self.uses(forms):
            if node is not None and self.data(node).get(index):
                yield node, forms.layouts[value].inverse.then(meeting)

    def _move_node(self, node: ir.Node, move: Move | None) -> Cost:
        """Write a node in a layout, or as it is, and return what there is more of."""
        affected, difference = self.about(node), Cost()
        for forms in affected:
            difference = difference.minus(self.cost(forms))
        self.moves.pop(node, None)
        if move is not None:
            self.moves[node] = move
        for forms in affected:
            del self._settled[forms.root]
            difference = difference.plus(self.cost(forms))
        return difference

    def about(self, node: ir.Node) -> list[Forms]:
        """List the values that a node makes, and those of its inputs that are not constants for it."""
        inputs = [value for i, value in enumerate(node.inputs) if i in (self.data(node) or {0})]
        every = [self.graph.forms(value) for value in (*inputs, *node.outputs) if value is not None]
        return list({id(forms): forms for forms in every}.values())

    def data(self, node: ir.Node) -> dict[int, bool]:
        """Return the inputs of a node that depend on its layout; {} if no layout may pass the node.

        The value is True if the input has all axes of the outputs.
        """
        if node not in self._data:
            is_here = node in self.graph.order  # not in a graph around this one
            rank = rank_with_rule(node, self.graph) if is_here else None
            change = None if rank is None else Layout.identity(rank)
            adapted = None if change is None else adapt_node(node, self.graph, change)
            inputs = {} if adapted is None else adapted.inputs
            values = {index: node.inputs[index] for index in inputs}
            fits = all(v and self.graph.rank(v) == inputs[i].rank for i, v in values.items())
            self._data[node] = {i: c == change for i, c in inputs.items()} if fits else {}
        return self._data[node]


def _on_the_way(forms: Forms, needed: Iterable[ir.Value]) -> list[ir.Value]:
    """Return the values that are made on the way to those that are needed, the root first."""
    kept = {forms.root}
    for value in needed:
        while value not in kept:
            kept.add(value)
            node = value.producer()
            assert node is not None and node.inputs[0] is not None
            value = node.inputs[0]
    return [value for value in forms.layouts if value in kept]


def values_near(plan: Plan, fused: Collection[ir.Node]) -> list[Forms]:
    """List the values near fused nodes: past nodes that commute, and one convolution or pool.

    From node to node only data leads: by shared constants, such as the bounds of each Clip, all of a
    model would be near.
    """
    graph = plan.graph
    start = [forms for node in fused if node in graph.order for forms in plan.about(node)]
    windows = {forms.root: 1 for forms in start}  # that may still be passed
    todo = deque((graph.forms(root), 0) for root in windows)
    while todo:
        forms, steps = todo.popleft()
        readers = (use.reader for use in plan.uses(forms))
        for node in (forms.root.producer(), *forms.nodes, *readers):
            if node is None or node not in graph.order or steps == _NEAR_NODES:
                continue
            left = windows[forms.root]
            if not (plan.data(node) or graph.is_change(node)):
                left -= 1 if Trait.WINDOWS in op_traits.of(node).traits else 2
            for other in plan.about(node) if left >= 0 else ():
                if windows.get(other.root, -1) < left:
                    windows[other.root] = left
                    todo.append((other, steps + 1))
    wide = [graph.forms(v) for v in windows if (graph.rank(v) or 0) >= LEAST_RANK]
    return sorted(wide, key=lambda forms: graph.place_of(forms.root))


# 2. The nodes


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
        plan: the moves.
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
        every = frozenset({*map(self._plan.form_of, needed), *self._plan.asked_forms(forms)})
        self._ways[forms.root] = ways_to_make(every, len(self._plan.layout(forms.root).axes))
        available = self._available[forms.root] = {}
        if forms.root.producer() not in self._moved:
            available[Layout.identity(len(forms.layouts[forms.root].axes))] = forms.root
            needed.pop(forms.root, None)
        have = set(available)
        stays = {value: self._plan.must_stay(readers) for value, readers in needed.items()}
        for value in sorted(needed, key=lambda v: not stays[v]):
            form, producer = self._plan.form_of(value), value.producer()
            if stays[value] or form not in have:
                have.add(form)
                assert producer is not None
                self._results.setdefault(producer, []).append(value)
            else:
                self._renamed.add(value)
                self._copied.update(n for n in needed[value] if n and n not in self._moved)
        return forms.nodes

    def _draft_node(self, node: ir.Node) -> Draft:
        """Draft what takes the place of a node: its copy, and the forms that are made behind it."""
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
            draft.results[value] = self._get(value, self._plan.form_of(value), draft)
        return draft

    def _copy_node(self, node: ir.Node, move: Move | None, draft: Draft) -> ir.Node:
        """Copy a node for inputs in the layouts of its move, or for doubles under their other names."""
        inputs: list[ir.Value | None] = list(node.inputs)
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            if move is not None and index in move.adapted.constants:
                constant = draft.constant(move.adapted.constants[index], "constant")
                constant.meta[SOURCE] = value.meta.get(SOURCE, value)
                inputs[index] = constant
            elif move is not None and index in move.adapted.inputs:
                change = move.adapted.inputs[index]
                inputs[index] = self._get(value, self._plan.form_of(value).then(change), draft)
            elif value in self._renamed:
                inputs[index] = self._get(value, self._plan.form_of(value), draft)
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

    def _get(self, value: ir.Value, form: Layout, draft: Draft) -> ir.Value:
        """Return a value in a layout, and draft the nodes that make it."""
        root = self._graph.forms(value).root
        available = self._available[root]
        if form not in available:
            base, step = self._ways[root][form]
            source = self._get(value, base, draft)
            available[form] = write_change(step, source, draft, self._graph.opset)
        return available[form]
