"""Find the paths of data through the data-movement nodes of a graph, without types or shapes.

    x -> Pad -> Reshape -> Transpose -> Reshape -> Conv        a path of four steps, from x on
    x -> Slice, Slice -> Concat -> Conv                        one step: the Concat, whose data is x

A value that a node only moves has one parent: its data input, or the nearest value that all of its data
inputs come from. Sizes, pads and indices are not data: they are computed from shapes and constants.
Which of the paths are spatial operators is for `find` to say; most graphs have no path at all, and cost
one walk over their nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

#: Operators whose output is one input (the first; all of Concat; what Where chooses from), moved.
_MOVING = frozenset(
    "Concat DepthToSpace Flatten Gather GatherND Identity Pad Reshape Slice SpaceToDepth Split Squeeze "
    "Transpose Unsqueeze Where".split()
)
#: Operators that regroup axes: a spatial operator is one of the first, or two of the second with nodes
#: between them that change the order.
_WHOLE = frozenset({"Concat", "DepthToSpace", "Gather", "GatherND", "SpaceToDepth"})
_RESHAPING = frozenset({"Flatten", "Reshape"})
REGROUPING = _RESHAPING | _WHOLE
_REORDERING = frozenset({"Transpose", *_WHOLE})

_SIZES = op_traits.having(Trait.SIZES)

#: The most steps of a path.
MAX_STEPS = 24


@dataclass(frozen=True)
class Path:
    """A path of data through a graph.

    Attributes:
        values: names of the values, from the first that nothing moves to the last that is not moved on.
        nodes: for each step from a value to the next, the nodes that compute it.
    """

    values: tuple[str, ...]
    nodes: tuple[tuple[onnx.NodeProto, ...], ...]


def paths(graph: traversal.GraphLike, local: Collection[tuple[str, str]] = ()) -> list[Path]:
    """Return the paths of a graph that may hold spatial operators.

    Args:
        graph: the graph.
        local: domains and names of the local functions, which hide ONNX's operators.
    """
    if not any(n.op_type in REGROUPING for n in graph.node):
        return []
    return [path for path in all_paths(graph, local) if may_hold_operator(path.nodes)]


def all_paths(
    graph: traversal.GraphLike,
    local: Collection[tuple[str, str]] = (),
    copying: Collection[str] = (),
) -> list[Path]:
    """Return the paths of a graph.

    Args:
        graph: the graph.
        local: domains and names of the local functions, which hide ONNX's operators.
        copying: outputs of the Convs that only copy their data (`one_hot`).
    """
    tree = _Tree(graph, local, copying)
    return [tree.path(end) for end in tree.ends()]


def may_hold_operator(steps: Sequence[Sequence[onnx.NodeProto]]) -> bool:
    """Return whether nodes may be an operator: those that split axes, reorder them, and join them."""
    kinds = [node.op_type for step in steps for node in step]
    if not _WHOLE.isdisjoint(kinds):
        return True
    places = [i for i, kind in enumerate(kinds) if kind in _RESHAPING]
    return bool(places) and not _REORDERING.isdisjoint(kinds[places[0] : places[-1]])


class _Tree:
    """The parent of each value that is only moved."""

    def __init__(
        self,
        graph: traversal.GraphLike,
        local: Collection[tuple[str, str]],
        copying: Collection[str],
    ) -> None:
        self._copying = frozenset(copying)
        self._parents: dict[str, str] = {}
        self._depths: dict[str, int] = {}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._local = local
        # What nodes compute from shapes and constants alone is no data.
        self._fixed = {t.name for t in getattr(graph, "initializer", ())}
        self._ends: dict[str, None] = {}
        read: dict[str, bool] = {}
        for node in traversal.in_order(graph):
            self._add(node, read)
        outputs = graph.output
        names = {v if isinstance(v, str) else v.name for v in outputs}
        for name in self._parents:
            # The end of a path is read by a node that does not move it, or by none.
            if name in names or read.get(name, True):
                self._ends[name] = None

    def _add(self, node: onnx.NodeProto, read: dict[str, bool]) -> None:
        standard = op_traits.is_standard(node) and (node.domain, node.op_type) not in self._local
        needs = traversal.needs(node) if node.attribute else set(filter(None, node.input))
        if standard and (node.op_type in _SIZES or needs <= self._fixed):
            self._fixed.update(node.output)
            if node.op_type not in _SIZES:
                read.update(dict.fromkeys(needs, True))
            return
        moves = node.op_type in _MOVING or not self._copying.isdisjoint(node.output)
        data = self._data(node) if standard and moves else []
        for name in needs:
            read[name] = read.get(name, False) or name not in data
        parent = self._common(data) if data else None
        if parent is None:
            read.update(dict.fromkeys(needs, True))
            return
        for name in filter(None, node.output):
            self._parents[name] = parent
            self._depths[name] = self._depths.get(parent, 0) + 1
            self._producers[name] = node

    def _data(self, node: onnx.NodeProto) -> list[str]:
        if node.op_type == "Where":
            condition, *names = node.input
            if condition not in self._fixed:  # the data itself decides
                return []
        else:
            names = list(node.input if node.op_type == "Concat" else node.input[:1])
        return [name for name in dict.fromkeys(names) if name and name not in self._fixed]

    def _common(self, names: list[str]) -> str | None:
        """Return the nearest value that all of some values are, or come from."""
        first, *others = names
        for other in others:
            while first != other:
                if self._depths.get(first, 0) < self._depths.get(other, 0):
                    first, other = other, first
                if first not in self._parents:
                    return None
                first = self._parents[first]
        return first

    def ends(self) -> list[str]:
        """Return the last value of each path."""
        return list(self._ends)

    def path(self, end: str) -> Path:
        """Return the path to a value."""
        values = [end]
        nodes: list[tuple[onnx.NodeProto, ...]] = []
        while (parent := self._parents.get(values[-1])) is not None and len(nodes) < MAX_STEPS:
            nodes.append(tuple(self._between(parent, values[-1])))
            values.append(parent)
        return Path(tuple(reversed(values)), tuple(reversed(nodes)))

    def _between(self, first: str, last: str) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that compute a value from its parent, the last one first."""
        todo, seen = [last], {first}
        done: set[int] = set()
        while todo:
            name = todo.pop()
            node = self._producers.get(name)
            if name in seen or node is None:
                continue
            seen.add(name)
            if id(node) not in done:
                done.add(id(node))
                yield node
            todo += self._data(node)
