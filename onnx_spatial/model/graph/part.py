"""Choose the part of a large model that an edit of some nodes may concern.

    x -> a -> b -> [ c -> S -> d ] -> e -> y        S is edited, and at most 1 edge away is the part

Nodes of the main graph that are farther away stay messages: what the part reads of them is an input to
it, and what they read of it counts as an output.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal

#: Edges from an edited node to the farthest node of its part: more than any rule looks at.
DISTANCE = 100


@dataclass(frozen=True)
class Part:
    """Nodes of a model: some of the main graph, with those inside them, and those of functions.

    Attributes:
        nodes: position in `traversal.nodes`, graph and message of each, in that order.
        main: positions in the main graph of its nodes; None for all of these.
        outputs: names of values that nodes of the main graph outside the part read.
    """

    nodes: Sequence[tuple[int, traversal.GraphLike, onnx.NodeProto]]
    main: Sequence[int] | None = None
    outputs: frozenset[str] = frozenset()


def part_around(model: onnx.ModelProto, starts: Iterable[int]) -> Part:
    """Return the part of a model around nodes, which are given by position in `traversal.nodes`.

    It is the whole model if that cannot be much larger, or if the main graph is in no order.
    """
    main, starts = model.graph, set(starts)
    every = [(i, graph, node) for i, (_, graph, node) in enumerate(traversal.nodes(model))]
    if len(starts) * DISTANCE >= len(main.node):
        return Part(every)
    places = [position for position, graph, _ in every if graph is main]
    bodies = (traversal.graph_nodes(traversal.Place(), body) for body in model.functions)
    end = len(every) - sum(1 for body in bodies for _ in body)
    nodes = [every[place][2] for place in places]
    reads = [traversal.needs(node) if node.attribute else node.input for node in nodes]
    producers: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    in_order = True
    for index, node in enumerate(nodes):
        for name in reads[index]:
            readers.setdefault(name, []).append(index)
        for name in filter(None, node.output):
            in_order = in_order and name not in readers
            producers[name] = index
    near = {bisect(places, start) - 1 for start in starts if start < end}
    edge = near
    for _ in range(DISTANCE):
        sources = {producers.get(name, index) for index in edge for name in reads[index]}
        made = (name for index in edge for name in nodes[index].output if name)
        edge = sources.union(*(readers.get(name, ()) for name in made)) - near
        near |= edge
    if not in_order or len(near) == len(nodes):
        return Part(every)
    ends = [*places[1:], end]
    positions = [p for index in sorted(near) for p in range(places[index], ends[index])]
    outputs = (name for index in near for name in nodes[index].output)
    return Part(
        [every[position] for position in (*positions, *range(end, len(every)))],
        sorted(near),
        frozenset(name for name in outputs if not near.issuperset(readers.get(name, ()))),
    )
