"""Choose the layouts in which nodes are written: greedily, on labels, before any node is drafted.

    Conv -> T -> Split -> Tanh, Sigmoid -> Mul -> T' -> Conv       two changes of layout
    Conv -> Split -> T, T -> Tanh, Sigmoid -> Mul -> T' -> Conv    three: Split took the layout of Conv
    Conv -> Split -> Tanh, Sigmoid -> Mul -> Conv                  none: so did those behind it

A node that commutes with changes of layout may have a label: the layout of its outputs. The cost of a
value are the nodes that make all layouts of it that are read. A *push* starts at a value and one of its
layouts: all that commute and make or read the value do so in this layout, then those next to them, and
so on, also while it gets a little worse. The labels are kept as far as they were best, if there are
fewer changes of layout or Transposes, and no more elements to move. When no push pays, `write` writes
all labels at once.

Only values near fused nodes are looked at, so the work follows the operators, not the model.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from onnx_spatial.fusion import layout
from onnx_spatial.fusion.layout import Layout
from onnx_spatial.fusion.layouts import commuting
from onnx_spatial.fusion.layouts.commuting import Adapted
from onnx_spatial.fusion.layouts.layout_graph import Forms, LayoutGraph
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

#: Nodes that there may be more than at best before a push ends: 4 get it through a gate.
_PATIENCE_NODES = 4
#: Nodes that a push labels without a gain.
_MAX_PUSHED_NODES = 256
#: Nodes between a fused node and the changes of layout that are looked for around it: exporters write
#: them next to a convolution, or behind an activation or a gate of up to eight nodes.
_NEAR_NODES = 16

#: A node that reads a value, None for the value's name, and the index of the input.
Use = tuple[ir.Value, ir.Node | None, int]


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
    """Nodes that change layouts, the Transposes of them, and the elements that these move."""

    nodes: int = 0
    transposes: int = 0
    moved: int = 0

    def plus(self, other: Cost, times: int = 1) -> Cost:
        """Return the sum, or the difference."""
        nodes, transposes, moved = other
        return Cost(
            self.nodes + times * nodes,
            self.transposes + times * transposes,
            self.moved + times * moved,
        )

    @property
    def is_gain(self) -> bool:
        """Whether a difference has fewer nodes, and more of nothing.

        Smaller Transposes alone are no reason to move: sizes are guesses.
        """
        return max(self) <= 0 and min(self.nodes, self.transposes) < 0


class Plan:
    """Labels for the nodes of one graph.

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
        self._costs: dict[ir.Value, Cost] = {}

    # What is needed of a value

    def layout(self, value: ir.Value) -> Layout:
        """Return the layout in which the root of forms is computed."""
        move = self.moves.get(value.producer())
        return Layout.identity(self.graph.rank(value) or 0) if move is None else move.layout

    def content(self, value: ir.Value) -> Layout:
        """Return what a value is of that which is computed."""
        forms = self.graph.forms(value)
        return self.layout(forms.root).inverse.then(forms.layouts[value])

    def uses(self, forms: Forms) -> list[Use]:
        """List who reads a value in any layout."""
        if forms.root not in self._uses:
            inner = {(node, 0) for node in forms.nodes}
            names = [(value, None, 0) for value in forms.layouts if self.graph.is_named(value)]
            self._uses[forms.root] = names + [
                (value, *use)
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
                content = self.content(value).then(move.adapted.inputs[index])
                first[content] = min(first.get(content, math.inf), self.graph.order[node])
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
        if matcher.op_type(node) is None or matcher.subject(node):
            return False  # a spatial operator, or of the lowering of one
        message = matcher.message(node)
        return message is None or not any(traversal.subgraphs(message))

    # Costs

    def kept_forms(self, forms: Forms) -> list[ir.Value]:
        """Return the forms that stay as they are; [] if they are made anew."""
        return self._settle_cost(forms)[0]

    def cost(self, forms: Forms) -> Cost:
        """Return the cost of a value."""
        if forms.root not in self._costs:
            self._costs[forms.root] = self._settle_cost(forms)[1]
        return self._costs[forms.root]

    def _settle_cost(self, forms: Forms) -> tuple[list[ir.Value], Cost]:
        is_moved = forms.root.producer() in self.moves
        if not (is_moved or forms.nodes or any(n in self.moves for _, n, _ in self.uses(forms))):
            return [forms.root], Cost()  # most values of a large model
        needed, asked = self.needed_forms(forms), self.asked_forms(forms)
        contents = {value: self.content(value) for value in needed}
        names = [contents[value] for value, readers in needed.items() if self.must_stay(readers)]
        if not is_moved and forms.root not in needed:
            names.append(self.content(forms.root))
        identities = Cost(len(names) - len(set(names)))
        ways = layout.ways_to_make({*contents.values(), *asked}, len(self.layout(forms.root).axes))
        steps = (op_type for _, step in ways.values() for op_type, _ in step.steps())
        anew = self._weigh_forms(steps, forms).plus(identities)
        if is_moved:
            return [], anew
        kept = _on_the_way(forms, needed)
        producers = [value.producer() for value in kept[1:]]
        old = self._weigh_forms((node.op_type for node in producers if node is not None), forms)
        # A form serves only readers behind it.
        place = {forms.layouts[value]: self._place_of(value) for value in reversed(kept)}
        in_time = all(place.get(content, math.inf) < first for content, first in asked.items())
        return (kept, old) if in_time and old <= anew else ([], anew)

    def _place_of(self, value: ir.Value) -> int:
        node = value.producer()
        return -1 if node is None else self.graph.order.get(node, -1)

    def _weigh_forms(self, op_types: Iterable[str], forms: Forms) -> Cost:
        kinds = list(op_types)
        transposes = kinds.count("Transpose")
        axes = self._nodes_of_axes * (len(kinds) - transposes)
        return Cost(len(kinds) + axes, transposes, transposes * self.graph.size_of(forms.root))

    # Pushes

    def improve(self, near: Iterable[Forms]) -> None:
        """Push until nothing gets better."""
        todo = dict.fromkeys(forms.root for forms in near if self.cost(forms).nodes)
        while todo:
            forms = self.graph.forms(next(iter(todo)))
            del todo[forms.root]
            base = self.layout(forms.root)
            asked = [base.then(content) for content in self.asked_forms(forms)]
            for meeting in dict.fromkeys((base, *forms.layouts.values(), *asked)):
                if moved := self._push_layout(forms, meeting):
                    around = (each for node in moved for each in self.about(node))
                    todo |= dict.fromkeys(f.root for f in (forms, *around) if self.cost(f).nodes)
                    break

    def _push_layout(self, start: Forms, meeting: Layout) -> list[ir.Node]:
        """Make and read a value in a layout, and what is next to it; return the nodes that moved."""
        before: dict[ir.Node, Layout] = {}
        total, best, length = Cost(), Cost(), 0
        todo = deque(self._next_nodes(start, meeting))
        while (
            todo
            and total.nodes <= best.nodes + _PATIENCE_NODES
            and len(before) < length + _MAX_PUSHED_NODES
        ):
            node, change = todo.popleft()
            old = self.layout(node.outputs[0])
            if node in before or change == old or not self._does_commute(node, change):
                continue
            before[node] = old
            total = total.plus(self._move_node(node, change))
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

    def _does_commute(self, node: ir.Node, change: Layout) -> bool:
        return change.is_identity or commuting.adapt_node(node, self.graph, change) is not None

    def _move_node(self, node: ir.Node, change: Layout) -> Cost:
        """Write a node in a layout, and return what there is more of."""
        about = self.about(node)
        total = Cost()
        for forms in about:
            total = total.plus(self.cost(forms), -1)
        self.moves.pop(node, None)
        if not change.is_identity:
            adapted = commuting.adapt_node(node, self.graph, change)
            assert adapted is not None
            self.moves[node] = Move(change, adapted)
        for forms in about:
            del self._costs[forms.root]
            total = total.plus(self.cost(forms))
        return total

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
            rank = commuting.rank_with_rule(node, self.graph) if is_here else None
            change = None if rank is None else Layout.identity(rank)
            adapted = None if change is None else commuting.adapt_node(node, self.graph, change)
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
        readers = (node for _, node, _ in plan.uses(forms))
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
    wide = [graph.forms(v) for v in windows if (graph.rank(v) or 0) >= commuting.LEAST_RANK]
    return sorted(wide, key=lambda forms: graph.place_of(forms.root))
