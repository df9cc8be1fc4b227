"""Edit the part of a model around some nodes in onnx_ir, and write the edit as a patch of its message.

    x -> a -> b -> [ c -> S -> d ] -> e -> y        S is edited, and at most 1 edge away is the part

Nodes of the main graph that are farther away stay messages: what the part reads of them is an input to
it, and what they read of it counts as an output.

A round trip through onnx_ir is not lossless: sparse initializers, training info, quantization
annotations, unknown fields and more come back changed. So every message that the edit does not
concern is kept, and only new nodes and initializers are serialized.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from onnx_spatial.errors import Code, ModelFileError, innermost_message
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.new_nodes import ORIGIN, GraphEdit, Names, apply_edit
from onnx_spatial.model.graph.remove_unused import remove_where
from onnx_spatial.model.graph.strip import strip_types

#: Edges from an edited node to the farthest node of its part: more than any rule looks at.
DISTANCE = 100


@dataclass(frozen=True)
class ModelPart:
    """Nodes of a model: some of the main graph, with those inside them, and those of functions.

    Attributes:
        nodes: their positions in `traversal.nodes`, in that order.
        main: positions in the main graph of its nodes; None for all of these.
        outputs: names of values that nodes of the main graph outside the part read.
    """

    nodes: Sequence[int]
    main: Sequence[int] | None = None
    outputs: frozenset[str] = frozenset()


def part_around(index: traversal.Index, starts: Iterable[int]) -> ModelPart:
    """Return the part of a model around nodes, which are given by position in `traversal.nodes`.

    It is the whole model if that cannot be much larger, or if the main graph is in no order.
    """
    main, starts = index.model.graph, set(starts)
    every = range(len(index.nodes))
    if len(starts) * DISTANCE >= len(main.node):
        return ModelPart(every)
    flow = index.flow(main)
    places = [position for position in every if index.graph(position) is main]
    end = next((p for p in every if index.place(p).function), len(every))
    near = {bisect(places, start) - 1 for start in starts if start < end}
    edge = near
    for _ in range(DISTANCE):
        sources = {
            flow.producers.get(n, position) for position in edge for n in flow.reads[position]
        }
        made = (name for position in edge for name in flow.computes[position])
        edge = sources.union(*(flow.readers.get(name, ()) for name in made)) - near
        near |= edge
    if not flow.is_in_order or len(near) == len(flow.nodes):
        return ModelPart(every)
    ends = [*places[1:], end]
    positions = [p for position in sorted(near) for p in range(places[position], ends[position])]
    outputs = (name for position in near for name in flow.computes[position])
    return ModelPart(
        [*positions, *range(end, len(every))],
        sorted(near),
        frozenset(n for n in outputs if not near.issuperset(flow.readers.get(n, ()))),
    )


class Patch:
    """The part of a model around some nodes in onnx_ir, whose edits become a patch of the message.

    An edit must replace nodes, never change one: nodes that stay keep their messages. A node that was
    written again only to read another value, under its old name, does not say where it comes from.

    Attributes:
        model: the model, which stays as it is.
        part: which nodes these are.
        nodes: the nodes by position in `traversal.nodes`.
        names: names that are free.
    """

    def __init__(self, index: traversal.Index, starts: Iterable[int] | None = None) -> None:
        """Read the part.

        Args:
            index: the model.
            starts: positions of the nodes that are edited; None to read all nodes.

        Raises:
            ModelFileError: a graph contradicts itself.
        """
        every = ModelPart(range(len(index.nodes)))
        self.part = every if starts is None else part_around(index, starts)
        self.names = Names(index)
        self.model = index
        self._flow = index.flow(index.model.graph)
        self._ir_model = _read_graphs(index.model, self.part.main)
        self.nodes = dict(zip(self.part.nodes, traversal.ir_nodes(self._ir_model), strict=True))
        #: Position of each node in its graph.
        self._index = {
            node: place
            for graph in traversal.ir_graphs(self._ir_model)
            for place, node in enumerate(graph)
        }
        self._far: list[int] = []
        if self.part.main is not None:
            self._index.update(zip(self._ir_model.graph, self.part.main, strict=True))
            self._far = sorted(
                {*range(len(self._flow.nodes))}.difference(self.part.main), reverse=True
            )

    def edit(self, edit: GraphEdit, place: traversal.Place) -> dict[ir.Node, list[ir.Node]]:
        """Edit the graph at a place; return the new nodes in the place of each draft's node."""
        return apply_edit(edit, self.names, initializers=self.model.may_store(place))

    def apply(self) -> onnx.ModelProto:
        """Return a copy of the message with the edits.

        Raises:
            ModelFileError: a graph cannot be written.
        """
        copy = deepcopy(self.model.model)
        try:
            self._patch_graph(copy.graph, self._ir_model.graph)
            for message, function in zip(
                copy.functions, self._ir_model.functions.values(), strict=True
            ):
                self._patch_graph(message, function)
        except ir.serde.SerdeError as error:
            raise ModelFileError(
                f"the graph cannot be written: {innermost_message(error)}", code=Code.INVALID_GRAPH
            ) from None
        return copy

    def _patch_graph(self, message: traversal.GraphLike, graph: traversal.IrGraph) -> None:
        far = self._far.copy() if graph is self._ir_model.graph else []
        before, outside = list(message.node), frozenset(far)
        entries: list[int | onnx.NodeProto] = []  # a position, or a new node
        named: dict[str, onnx.NodeProto] | None = None
        for node in graph:
            index = self._index.get(node)
            # Nodes outside the model keep their places, and stand in front of those that read them.
            sources = () if index is not None or not far else node.inputs
            read = (self._flow.producers.get(v.name or "", -1) for v in sources if v is not None)
            behind = max((place + 1 for place in read if place in outside), default=0)
            limit = behind if index is None else index
            while far and far[-1] < limit:
                entries.append(far.pop())
            if index is None:
                new = ir.serde.serialize_node(node)
                if named is None:
                    named = {old.name: old for old in before if old.name}
                if new.name in named and _is_same_operator(new, named[new.name]):
                    remove_where(new.metadata_props, lambda entry: entry.key == ORIGIN)
                entries.append(new)
                continue
            if node.attributes:
                graphs = (inner for _, inner in traversal.subgraphs(before[index]))
                for inner, kept_inner in zip(traversal.ir_subgraphs(node), graphs, strict=True):
                    self._patch_graph(kept_inner, inner)
            entries.append(index)
        entries += reversed(far)
        kept = [entry for entry in entries if isinstance(entry, int)]
        if kept != sorted(kept):
            nodes = [before[entry] if isinstance(entry, int) else entry for entry in entries]
            del message.node[:]
            message.node.extend(nodes)
        else:  # of a large model only what is edited is touched
            for position in sorted({*range(len(before))}.difference(kept), reverse=True):
                del message.node[position]
            for position, entry in enumerate(entries):
                if not isinstance(entry, int):
                    message.node.insert(position, entry)
        if isinstance(message, onnx.GraphProto) and isinstance(graph, ir.Graph):
            known = {t.name for t in message.initializer}
            for name, value in graph.initializers.items():
                if name not in known and value.const_value is not None:
                    tensor = ir.serde.serialize_tensor(value.const_value)
                    tensor.name = name
                    message.initializer.append(tensor)


def _read_graphs(proto: onnx.ModelProto, main: Sequence[int] | None) -> ir.Model:
    try:
        return ir.from_proto(strip_types(proto, main))
    except UnicodeDecodeError:
        raise  # `conversion.pipeline` reports it
    except Exception as error:  # onnx_ir raises many types for graphs that contradict themselves
        raise ModelFileError(
            f"the graph cannot be read: {innermost_message(error)}", code=Code.INVALID_GRAPH
        ) from None



def _is_same_operator(one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    """Tell whether two nodes have the same operator and attributes."""
    operators = [(each.domain, each.op_type, each.overload) for each in (one, other)]
    attributes = [{a.name: a for a in each.attribute} for each in (one, other)]
    return operators[0] == operators[1] and attributes[0] == attributes[1]
