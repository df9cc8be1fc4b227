"""Choose the nodes that are written in another layout, so that fewer changes of layout are left.

Nodes that commute with changes of layout and read each other are a *set*. At its border are nodes that
want one layout (convolutions, graph outputs), and the layouts that they want are tried for the set: the
minimum cut says which of its nodes are better off in that layout. An edit is taken if it has fewer nodes
that change layouts or moves less memory, and neither grows.

Only sets that touch a fused node are looked at, and those next to them, which read the same value or
have one convolution or pool between: the rest of a model stays as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import onnx_ir as ir

from onnx_spatial.fusion.layouts import commuting, layout
from onnx_spatial.fusion.layouts.layout import Layout
from onnx_spatial.fusion.layouts.layout_graph import Forms, LayoutGraph
from onnx_spatial.fusion.layouts.min_cut import LabelChoice
from onnx_spatial.fusion.layouts.write import LayoutEdit, LayoutWriter, Move
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: Costs of the choice, per unit of `layout.weight`; a node that moves costs 1.
_SCALE = 1024
#: More than all costs of a choice.
_NEVER = 1 << 40
#: Layouts that are tried for a set.
_MOST_TRIED = 8

#: The axes of a layout, as symbols that all nodes of a set share.
_Frame = tuple[int, ...]


@dataclass
class _Set:
    """Nodes that commute and read each other.

    Attributes:
        frames: the axes of each node's outputs.
    """

    frames: dict[ir.Node, _Frame] = field(default_factory=dict)


class Chooser:
    """Chooser of edits for one graph.

    Args:
        graph: the graph.
        fused: nodes that fusion has written.
        initializers: whether constants are initializers.
    """

    def __init__(
        self, graph: LayoutGraph, fused: Collection[ir.Node], *, initializers: bool
    ) -> None:
        self._graph, self._fused, self._initializers = graph, fused, initializers
        self._symbols = 0
        self._data: dict[ir.Node, Mapping[int, Layout]] = {}
        for node in graph.nodes:
            rank = commuting.rank(node, graph)
            if rank is None:
                continue
            adapted = commuting.adapt(node, graph, Layout.identity(rank))
            if adapted is not None and all(
                value is not None and graph.rank(value) == change.rank
                for value, change in ((node.inputs[i], c) for i, c in adapted.inputs.items())
            ):
                self._data[node] = adapted.inputs
        self._sets = self._find_sets()

    def edits(self) -> Iterator[LayoutEdit]:
        """Yield the edits that are better than nothing, the best of each set; they may overlap."""
        touched = self._touched()
        border = [forms for each in touched for forms in self._border(each) if forms.nodes]
        every = [forms for forms in self._graph.every_forms() if self._is_fused(forms)]
        for forms in {id(forms): forms for forms in (*border, *every)}.values():
            if (self._graph.rank(forms.root) or 0) >= commuting.LEAST_RANK:
                edit = self._write({}, [forms])
                if edit.is_better:
                    yield edit
        for each in touched:
            edits = [self._write(moves, ()) for moves in self._tries(each)]
            better = [edit for edit in edits if edit.is_better]
            if better:
                yield min(better, key=_left)

    def _write(self, moves: Mapping[ir.Node, Move], also: Iterable[Forms]) -> LayoutEdit:
        return LayoutWriter(self._graph, moves, also, initializers=self._initializers).run()

    # Sets

    def _inputs(self, node: ir.Node) -> Iterator[ir.Value]:
        """Yield the inputs of a node that have all axes of its outputs."""
        for index, change in self._data[node].items():
            value = node.inputs[index]
            if value is not None and change.is_identity and change.rank == self._rank(node):
                yield value

    def _rank(self, node: ir.Node) -> int:
        return self._graph.rank(node.outputs[0]) or 0

    def _readers(self, forms: Forms) -> Iterator[tuple[ir.Node, int, ir.Value]]:
        for value in forms.layouts:
            for node, index in self._graph.matcher.readers(value):
                if not (node in forms.nodes and index == 0):
                    yield node, index, value

    def _find_sets(self) -> list[_Set]:
        sets, seen = [], set[ir.Node]()
        for node in self._data:
            if node not in seen:
                sets.append(self._set(node))
                seen.update(sets[-1].frames)
        return sets

    def _new_symbol(self) -> int:
        self._symbols += 1
        return self._symbols

    def _set(self, start: ir.Node) -> _Set:
        """Find the set of a node, and the axes of its nodes."""
        each = _Set({start: tuple(self._new_symbol() for _ in range(self._rank(start)))})
        todo = deque([start])
        while todo:
            node = todo.popleft()
            frame = each.frames[node]
            for value in self._inputs(node):
                forms = self._graph.forms(value)
                back = self._frame(frame, forms.layouts[value].inverse)
                self._note(forms, back, each, todo)
            for value in node.outputs:
                self._note(self._graph.forms(value), frame, each, todo, is_output=True)
        return each

    def _note(
        self, forms: Forms, frame: _Frame, each: _Set, todo: deque[ir.Node], is_output: bool = False
    ) -> None:
        """Add the producer of a value of known axes, or its readers."""
        producer = forms.root.producer()
        if not is_output:
            if producer in self._data and producer not in each.frames:
                each.frames[producer] = frame
                todo.append(producer)
            return
        for node, index, value in self._readers(forms):
            if node in each.frames or node not in self._data:
                continue
            if not any(node.inputs[index] is v for v in self._inputs(node)):
                continue
            each.frames[node] = self._frame(frame, forms.layouts[value])
            todo.append(node)

    def _frame(self, frame: _Frame, change: Layout) -> _Frame:
        return tuple(self._new_symbol() if a is None else frame[a] for a in change.axes)

    # Which sets may be edited

    def _is_fused(self, forms: Forms) -> bool:
        """Return whether a fused node makes a value, changes its layout or reads it."""
        readers = (node for node, _, _ in self._readers(forms))
        return any(n in self._fused for n in (forms.root.producer(), *forms.nodes, *readers))

    def _border(self, each: _Set) -> list[Forms]:
        """List the values that nodes of a set read or compute."""
        values = [v for node in each.frames for i in self._data[node] if (v := node.inputs[i])]
        values += [value for node in each.frames for value in node.outputs]
        every = [self._graph.forms(value) for value in values]
        return list({id(forms): forms for forms in every}.values())

    def _touched(self) -> list[_Set]:
        touched: list[_Set] = []
        others: list[_Set] = []
        for each in self._sets:
            is_fused = any(map(self._is_fused, self._border(each)))
            (touched if is_fused else others).append(each)
        inside = {node for each in touched for node in each.frames}
        near = [*touched, *(each for each in others if self._is_next_to(each, inside))]
        return [each for each in near if any(forms.nodes for forms in self._border(each))]

    def _is_next_to(self, each: _Set, inside: Collection[ir.Node]) -> bool:
        """Return whether a set reads what others read, or one convolution or pool lies between them."""
        for forms in self._border(each):
            window = forms.root.producer()
            source = window.inputs[0] if window is not None and _is_window(window) else None
            if source is not None and self._graph.forms(source).root.producer() in inside:
                return True
            for window, index, _ in self._readers(forms):
                if window in inside:
                    return True
                if index == 0 and _is_window(window):
                    behind = self._graph.forms(window.outputs[0])
                    if any(node in inside for node, _, _ in self._readers(behind)):
                        return True
        return False

    # Layouts

    def _targets(self, each: _Set) -> list[_Frame]:
        """List the layouts that the border of a set wants, and those of its nodes."""
        targets: dict[_Frame, int] = {}
        for node, frame in each.frames.items():
            targets[frame] = targets.get(frame, 0) + 1
            for value in self._inputs(node):
                forms = self._graph.forms(value)
                if forms.root.producer() not in each.frames:
                    wanted = self._frame(frame, forms.layouts[value].inverse)
                    targets[wanted] = targets.get(wanted, 0) + 1
            for output in node.outputs:
                forms = self._graph.forms(output)
                for value, change in forms.layouts.items():
                    if value is not output:
                        wanted = self._frame(frame, change)
                        targets[wanted] = targets.get(wanted, 0) + 1
        shared: dict[tuple[int | None, ...], tuple[_Frame, int]] = {}
        common = {s for frame in each.frames.values() for s in frame}
        for frame, count in targets.items():
            key = tuple(symbol if symbol in common else None for symbol in frame)
            first, number = shared.get(key, (frame, 0))
            shared[key] = (first, number + count)
        ordered = sorted(shared.values(), key=lambda pair: -pair[1])
        return [frame for frame, _ in ordered[:_MOST_TRIED]]

    def _tries(self, each: _Set) -> Iterator[dict[ir.Node, Move]]:
        for target in self._targets(each):
            moves = dict[ir.Node, Move]()
            for node, frame in each.frames.items():
                change = _relative(frame, target)
                adapted = commuting.adapt(node, self._graph, change)
                if adapted is not None:
                    moves[node] = Move(change, adapted)
            chosen = self._choose(each, moves)
            if chosen:
                yield {node: moves[node] for node in chosen}

    def _choose(self, each: _Set, moves: Mapping[ir.Node, Move]) -> list[ir.Node]:
        """Choose which nodes of a set move."""
        choice = LabelChoice()
        for node, move in moves.items():
            choice.single(node, 0, 0 if move.layout.is_identity else 1)
        for forms in self._border(each):
            self._add_costs(choice, forms, moves)
        chosen = choice.solve()
        return [n for n, move in moves.items() if n in chosen and not move.layout.is_identity]

    def _add_costs(self, choice: LabelChoice, forms: Forms, moves: Mapping[ir.Node, Move]) -> None:
        """Add the costs of the changes between the node that computes a value and its readers."""
        producer = forms.root.producer()
        move = moves.get(producer) if producer is not None else None
        groups: dict[tuple[Layout, Layout], list[ir.Node]] = {}
        fixed = {forms.layouts[v] for v in forms.layouts if self._graph.is_named(v)}
        for node, index, value in self._readers(forms):
            reader = moves.get(node)
            if reader is not None and index in reader.adapted.inputs:
                key = forms.layouts[value], reader.adapted.inputs[index]
                groups.setdefault(key, []).append(node)
            elif reader is None or index not in reader.adapted.constants:
                fixed.add(forms.layouts[value])
        for change in fixed:
            if move is not None:
                choice.single(producer, _cost(change), _cost(move.layout.inverse.then(change)))
        for (change, wanted), nodes in groups.items():
            moved = change.then(wanted)
            back = Layout.identity(change.rank) if move is None else move.layout.inverse
            # What other readers need has its cost above.
            old, new = change not in fixed, moved not in fixed
            costs = (
                old * _cost(change),
                new * _cost(moved),
                old * _cost(back.then(change)),
                new * _cost(back.then(moved)),
            )
            if len(nodes) > 1:
                apart = (
                    costs[0] + new * _further(change, moved),
                    costs[3] + old * _further(back.then(moved), back.then(change)),
                )
                _add_readers(choice, producer if move else None, nodes, costs, apart)
            elif move is None:
                choice.single(nodes[0], costs[0], costs[1])
            else:
                choice.pair(producer, nodes[0], costs)


def _add_readers(
    choice: LabelChoice,
    producer: ir.Node | None,
    nodes: Sequence[ir.Node],
    costs: tuple[int, int, int, int],
    apart: tuple[int, int],
) -> None:
    """Add the costs of a value with several readers: what one of them needs serves the others.

    Args:
        choice: the variables.
        producer: the node that computes the value; None if it does not move.
        nodes: the readers.
        costs: if all readers or none move: producer and readers 00, 01, 10 and 11.
        apart: if some readers move, and the producer does not, or does.
    """
    first, last = ("any", *nodes), ("all", *nodes)
    some = (costs[0], apart[0], costs[2], apart[1])
    every = (0, costs[1] - apart[0], 0, costs[3] - apart[1])
    for variable, each in ((first, some), (last, every)):
        if producer is None:
            choice.single(variable, *each[:2])
        else:
            choice.pair(producer, variable, each)
    for node in nodes:
        choice.pair(first, node, (0, _NEVER, 0, 0))
        choice.pair(node, last, (0, _NEVER, 0, 0))


def _is_window(node: ir.Node) -> bool:
    return Trait.WINDOWS in op_traits.of(node).traits


def _cost(change: Layout) -> int:
    return _SCALE * layout.weight(change)


def _further(change: Layout, other: Layout) -> int:
    """Return the cost of another change of a value beside one that is there, with its steps."""
    steps = accumulate(
        layout.single_steps(change), Layout.then, initial=Layout.identity(change.rank)
    )
    return min(_cost(step.inverse.then(other)) for step in steps)


def _left(edit: LayoutEdit) -> tuple[int, int]:
    """Order edits by what is less after them."""
    nodes = edit.after.nodes - edit.before.nodes
    return nodes, edit.after.moved - edit.before.moved


def _relative(frame: _Frame, target: _Frame) -> Layout:
    """Return the change between two layouts by their axes."""
    axes = (frame.index(symbol) if symbol in frame else None for symbol in target)
    return Layout.identity(len(frame)).then(Layout(len(frame), tuple(axes)))


def improvements(
    graph: LayoutGraph, fused: Collection[ir.Node], *, initializers: bool
) -> Iterator[LayoutEdit]:
    """Yield edits after each of which there are fewer changes of layout.

    They are about different nodes, so that all may be applied once all are known. Then the graph must
    be viewed anew: there may be more.
    """
    about = set[ir.Node]()
    for edit in Chooser(graph, fused, initializers=initializers).edits():
        if about.isdisjoint(edit.about):
            about |= edit.about
            yield edit
