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
    main_graph = index.model.graph
    starts = set(starts)
    all_nodes = range(len(index.nodes))
    if len(starts) * DISTANCE >= len(main_graph.node):
        return ModelPart(all_nodes)
    flow = index.flow(main_graph)
    # The nodes inside a node follow it: those of the main graph begin at these positions.
    begins = [position for position in all_nodes if index.graph(position) is main_graph]
    end = next((p for p in all_nodes if index.place(p).function), len(all_nodes))
    ends = [*begins[1:], end]
    # From here on, nodes are given by their position in the main graph.
    near = {bisect(begins, start) - 1 for start in starts if start < end}
    farthest = near
    for _ in range(DISTANCE):
        producers = {flow.producers.get(name, n) for n in farthest for name in flow.reads[n]}
        results = (name for n in farthest for name in flow.computes[n])
        readers = (flow.readers.get(name, ()) for name in results)
        farthest = producers.union(*readers) - near
        near |= farthest
    if not flow.is_in_order or len(near) == len(flow.nodes):
        return ModelPart(all_nodes)
    positions = [position for n in sorted(near) for position in range(begins[n], ends[n])]
    values = (name for n in near for name in flow.computes[n])
    return ModelPart(
        [*positions, *range(end, len(all_nodes))],
        sorted(near),
        frozenset(v for v in values if not near.issuperset(flow.readers.get(v, ()))),
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
        self._position_of = {
            node: position
            for graph in traversal.ir_graphs(self._ir_model)
            for position, node in enumerate(graph)
        }
        #: Positions in the main graph of the nodes outside the part, the last one first.
        self._outside: list[int] = []
        if self.part.main is not None:
            self._position_of.update(zip(self._ir_model.graph, self.part.main, strict=True))
            self._outside = sorted(
                {*range(len(self._flow.nodes))}.difference(self.part.main), reverse=True
            )
        self._is_outside = frozenset(self._outside)

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
        """Write the edits of a graph and the graphs inside it into its message, in place."""
        old_nodes = list(message.node)
        old_by_name: dict[str, onnx.NodeProto] | None = None
        entries: list[int | onnx.NodeProto] = []  # the position of an old node, or a new node
        pending = self._outside.copy() if graph is self._ir_model.graph else []
        for node in graph:
            position = self._position_of.get(node)
            if pending:
                limit = self._first_place(node) if position is None else position
                while pending and pending[-1] < limit:
                    entries.append(pending.pop())
            if position is None:
                new = ir.serde.serialize_node(node)
                if old_by_name is None:
                    old_by_name = {old.name: old for old in old_nodes if old.name}
                if new.name in old_by_name and _is_same_operator(new, old_by_name[new.name]):
                    remove_where(new.metadata_props, lambda entry: entry.key == ORIGIN)
                entries.append(new)
                continue
            if node.attributes:
                inner_messages = (inner for _, inner in traversal.subgraphs(old_nodes[position]))
                inner_graphs = traversal.ir_subgraphs(node)
                for inner_message, inner in zip(inner_messages, inner_graphs, strict=True):
                    self._patch_graph(inner_message, inner)
            entries.append(position)
        _replace_nodes(message, [*entries, *reversed(pending)])
        if isinstance(message, onnx.GraphProto) and isinstance(graph, ir.Graph):
            stored = {tensor.name for tensor in message.initializer}
            for name, value in graph.initializers.items():
                if name not in stored and value.const_value is not None:
                    tensor = ir.serde.serialize_tensor(value.const_value)
                    tensor.name = name
                    message.initializer.append(tensor)

    def _first_place(self, node: ir.Node) -> int:
        """Return the first position in the main graph behind the nodes outside that a new node reads."""
        names = (value.name or "" for value in node.inputs if value is not None)
        producers = (self._flow.producers.get(name, -1) for name in names)
        return max((n + 1 for n in producers if n in self._is_outside), default=0)


def _replace_nodes(message: traversal.GraphLike, entries: Sequence[int | onnx.NodeProto]) -> None:
    """Make the nodes of a graph those of `entries`: positions of nodes in it, and new nodes."""
    kept = [entry for entry in entries if isinstance(entry, int)]
    if kept != sorted(kept):
        nodes = [message.node[entry] if isinstance(entry, int) else entry for entry in entries]
        del message.node[:]
        message.node.extend(nodes)
        return
    # Of a large model only what is edited is touched.
    for position in sorted({*range(len(message.node))}.difference(kept), reverse=True):
        del message.node[position]
    for position, entry in enumerate(entries):
        if not isinstance(entry, int):
            message.node.insert(position, entry)


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
    operators = [(node.domain, node.op_type, node.overload) for node in (one, other)]
    attributes = [{a.name: a for a in node.attribute} for node in (one, other)]
    return operators[0] == operators[1] and attributes[0] == attributes[1]
