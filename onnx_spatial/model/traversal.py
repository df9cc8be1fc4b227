"""Walk the nodes of a model in a fixed order, as protobuf messages or as onnx_ir objects.

Order: the main graph, then each function; in a graph each node before the graphs in its attributes.
Both walks visit the nodes in the same order, which pairs messages with objects. A model that stays as
it is is walked once: an `Index` keeps its nodes, and a `Flow` what those of one graph read and compute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, TypeVar

import onnx
import onnx_ir as ir

GraphLike = onnx.GraphProto | onnx.FunctionProto
IrGraph = ir.Graph | ir.Function
Key = TypeVar("Key", bound=Hashable)
#: Kinds of attributes that hold graphs: protobuf looks a name up at each use.
_GRAPH, _GRAPHS = int(onnx.AttributeProto.GRAPH), int(onnx.AttributeProto.GRAPHS)


class Place(NamedTuple):
    """Location of a graph, as text "main graph", "main graph > Loop loop_out.body", ..."""

    function: tuple[str, str, str] | None = None  # domain, name, overload
    steps: tuple[str, ...] = ()

    def inside(self, step: str) -> Place:
        """Return the place of a graph inside a node of this one."""
        return Place(self.function, (*self.steps, step))

    @property
    def outer(self) -> Place:
        """The place of the graph around this one."""
        return Place(self.function, self.steps[:-1])

    def __str__(self) -> str:
        if self.function is None:
            root = "main graph"
        else:
            domain, name, overload = self.function
            root = f"function {domain}:{name}" + (f":{overload}" if overload else "")
        return " > ".join((root, *self.steps))


def label(node: onnx.NodeProto | ir.Node) -> str:
    """Return the label of a node in messages: its name, else its first named output."""
    if node.name:
        return str(node.name)
    names = [v.name for v in node.outputs] if isinstance(node, ir.Node) else list(node.output)
    return next((f"<{n}>" for n in names if n), "<unnamed>")


def step(op_type: str, outputs: Sequence[str | None], attribute: str) -> str:
    """Return the text for a graph inside a node: "Loop loop_out.body"."""
    # Output names are unique in their scope; a node may have no name.
    return f"{op_type} {next((o for o in outputs if o), '?')}.{attribute}"


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yield (attribute name, graph) for each graph inside a node message, but for references."""
    for attribute in node.attribute:
        kind = attribute.type
        if kind == _GRAPH and not attribute.ref_attr_name:
            yield attribute.name, attribute.g
        elif kind == _GRAPHS and not attribute.ref_attr_name:
            for index, graph in enumerate(attribute.graphs):
                yield f"{attribute.name}[{index}]", graph


def ir_subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield each graph inside an onnx_ir node, in the order of `subgraphs`."""
    # onnx_ir's own iterators fail at references to graph attributes of a function.
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _outer_graphs(model: onnx.ModelProto) -> Iterator[tuple[Place, GraphLike]]:
    """Yield the main graph and the functions of a model."""
    yield Place(), model.graph
    for function in model.functions:
        yield Place((function.domain, function.name, function.overload)), function


def graphs(model: onnx.ModelProto) -> Iterator[tuple[Place, GraphLike]]:
    """Yield every graph and function body of a model, outer before inner."""
    for place, graph in _outer_graphs(model):
        yield from _graphs_inside(place, graph)


def _graphs_inside(place: Place, graph: GraphLike) -> Iterator[tuple[Place, GraphLike]]:
    yield place, graph
    for node in graph.node:
        if not node.attribute:  # most nodes of a large model; protobuf makes each list anew
            continue
        for name, inner in subgraphs(node):
            yield from _graphs_inside(place.inside(step(node.op_type, node.output, name)), inner)


def nodes(model: onnx.ModelProto) -> Iterator[tuple[Place, GraphLike, onnx.NodeProto]]:
    """Yield every node message of a model with the place and graph that contain it."""
    for place, graph in _outer_graphs(model):
        yield from graph_nodes(place, graph)


def value_names(values: Iterable[str | onnx.ValueInfoProto]) -> list[str]:
    """Return the names of inputs or outputs of a graph or a function."""
    return [value if isinstance(value, str) else value.name for value in values]


def stored_names(graph: GraphLike) -> set[str]:
    """Return the names of the initializers of a graph; a function has none."""
    if isinstance(graph, onnx.FunctionProto):
        return set()
    sparse = (pair.values.name for pair in graph.sparse_initializer)
    return {tensor.name for tensor in graph.initializer}.union(sparse)


def declared_values(graph: GraphLike) -> list[onnx.ValueInfoProto]:
    """Return the values that a graph declares, its inputs last; those of a function have no types."""
    if isinstance(graph, onnx.FunctionProto):
        return list(graph.value_info)
    return [*graph.value_info, *graph.output, *graph.input]


def has_defaults(model: onnx.ModelProto) -> bool:
    """Tell whether an initializer of the name of an input is its default, which can be overridden.

    Files older than IR 4 list every initializer as an input too, and none of them can be fed.
    """
    return model.ir_version >= 4


def required_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs of a model that have no default."""
    stored = stored_names(model.graph)
    return [value for value in model.graph.input if value.name not in stored]


def number_of_nodes(model: onnx.ModelProto) -> int:
    """Return the number of nodes in all graphs and functions of a model."""
    return sum(len(graph.node) for _, graph in graphs(model))


def graph_nodes(
    place: Place, graph: GraphLike
) -> Iterator[tuple[Place, GraphLike, onnx.NodeProto]]:
    """Yield every node message of one graph and of the graphs inside it."""
    for node in graph.node:
        yield place, graph, node
        if not node.attribute:  # see `_graphs_inside`
            continue
        for name, inner in subgraphs(node):
            yield from graph_nodes(place.inside(step(node.op_type, node.output, name)), inner)


def inner_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield every node message of the graphs inside a node."""
    for _, graph in subgraphs(node):
        yield from (inner for _, _, inner in graph_nodes(Place(), graph))


def ir_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node object of a model, in the order of `nodes`."""
    yield from _ir_graph_nodes(model.graph)
    for function in model.functions.values():
        yield from _ir_graph_nodes(function)


def _ir_graph_nodes(graph: IrGraph) -> Iterator[ir.Node]:
    for node in graph:
        yield node
        for inner in ir_subgraphs(node):
            yield from _ir_graph_nodes(inner)


def ir_graphs(model: ir.Model) -> Iterator[IrGraph]:
    """Yield every graph and function of an onnx_ir model, in the order of `graphs`."""
    yield from _ir_graphs(model.graph)
    for function in model.functions.values():
        yield from _ir_graphs(function)


def _ir_graphs(graph: IrGraph) -> Iterator[IrGraph]:
    yield graph
    for node in graph:
        for inner in ir_subgraphs(node):
            yield from _ir_graphs(inner)


def captured_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a graph reads from its outer graphs; its own names shadow theirs."""
    own = stored_names(graph).union(value_names(graph.input))
    names = set(value_names(graph.output))
    for node in graph.node:
        names |= needs(node)
        own.update(node.output)
    return names - own


def needs(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, with those that the graphs inside it capture."""
    names = set(node.input)
    names.discard("")
    if node.attribute:  # see `_graphs_inside`
        for _, body in subgraphs(node):
            names |= captured_names(body)
    return names


class Flow:
    """What each node of one graph reads and computes, read once; the graph must not change.

    Attributes:
        graph: the graph.
        nodes: its nodes.
        bodies: the graphs inside a node, by its position; not those without any.
        reads: the names that each node reads, with those that the graphs inside it capture.
        computes: the names of the outputs of each node.
    """

    def __init__(self, graph: GraphLike) -> None:
        self.graph = graph
        self.nodes = list(graph.node)
        self.bodies: dict[int, list[onnx.GraphProto]] = {}
        self.reads: list[Collection[str]] = [tuple(node.input) for node in self.nodes]
        self.computes = [tuple(node.output) for node in self.nodes]
        for position, node in enumerate(self.nodes):
            if node.attribute and (bodies := [body for _, body in subgraphs(node)]):
                self.bodies[position] = bodies
                self.reads[position] = needs(node)

    @cached_property
    def producers(self) -> dict[str, int]:
        """The position of the node that computes each value."""
        producers = {name: i for i, names in enumerate(self.computes) for name in names}
        producers.pop("", None)
        return producers

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """The positions of the nodes that read each value."""
        readers: dict[str, list[int]] = {}
        for position, names in enumerate(self.reads):
            for name in names:
                readers.setdefault(name, []).append(position)
        readers.pop("", None)
        return readers

    @cached_property
    def is_in_order(self) -> bool:
        """Whether no node reads what it computes itself, or what a later one does."""
        first = {name: positions[0] for name, positions in self.readers.items()}
        end = len(self.nodes)
        return all(first.get(name, end) > position for name, position in self.producers.items())

    @cached_property
    def order(self) -> Sequence[int]:
        """The positions of the nodes in topological order; those in or behind a cycle come last."""
        if self.is_in_order:
            return range(len(self.nodes))
        pending, ordered, later = set(self.producers), list[int](), list[int]()
        for position, names in enumerate(self.reads):
            if pending.isdisjoint(names):
                ordered.append(position)
                pending.difference_update(self.computes[position])
            else:
                later.append(position)
        sorter = sort_waiting([self.nodes[i] for i in later], [self.reads[i] for i in later])
        with suppress(CycleError):
            sorter.prepare()
        done: set[int] = set()
        while ready := sorter.get_ready():
            ordered.extend(later[index] for index in ready)
            done.update(ready)
            sorter.done(*ready)
        return ordered + [i for index, i in enumerate(later) if index not in done]

    def downstream(self, starts: set[str]) -> set[str]:
        """Return the names in the graph and its subgraphs whose shapes may depend on `starts`."""
        reached = starts - {""}
        for position in self.order:
            reads, computes = self.reads[position], self.computes[position]
            if position not in self.bodies:
                if not reached.isdisjoint(reads):
                    reached.update(computes)
                    reached.discard("")
                continue
            inner = self.bodies[position]
            bodies = [n for g in inner for _, _, n in graph_nodes(Place(), g)]
            # `starts` may be in the bodies.
            if any(not reached.isdisjoint(each) for each in (reads, *(n.output for n in bodies))):
                # The outputs of a loop body are its inputs in the next iteration: all depends.
                reached.update(computes, *(value_names(body.input) for body in inner))
                reached.update(*(n.output for n in bodies))
                reached.discard("")
        return reached


class Index:
    """The graphs and nodes of a model, read once; the model must not change.

    Attributes:
        model: the model.
        graphs: as `graphs` yields them.
        nodes: the nodes in the order of `nodes`.
    """

    def __init__(self, model: onnx.ModelProto, like: Index | None = None) -> None:
        """Read a model; `like` is a model whose nodes have the same inputs and outputs."""
        self.model = model
        self._like = like
        self.graphs: list[tuple[Place, GraphLike]] = []
        self.nodes: list[onnx.NodeProto] = []
        self._graph_of: list[int] = []
        self._flows: dict[int, Flow] = {}
        for place, graph in _outer_graphs(model):
            self._read(place, graph)

    def _read(self, place: Place, graph: GraphLike) -> None:
        number = len(self.graphs)
        self.graphs.append((place, graph))
        for node in graph.node:
            self.nodes.append(node)
            self._graph_of.append(number)
            if not node.attribute:  # see `_graphs_inside`
                continue
            for name, inner in subgraphs(node):
                self._read(place.inside(step(node.op_type, node.output, name)), inner)

    @classmethod
    def of(cls, model: onnx.ModelProto | Index) -> Index:
        """Return the index of a model; `model` itself if it is one."""
        return model if isinstance(model, Index) else cls(model)

    def place(self, position: int) -> Place:
        """Return the place of the graph that holds the node at a position."""
        return self.graphs[self._graph_of[position]][0]

    def graph(self, position: int) -> GraphLike:
        """Return the graph that holds the node at a position."""
        return self.graphs[self._graph_of[position]][1]

    def may_store(self, place: Place) -> bool:
        """Tell whether new constants of a graph may be initializers.

        Functions have none, and in files older than IR 4 each is an input too, see `has_defaults`.
        """
        return has_defaults(self.model) and place.function is None

    @cached_property
    def kinds(self) -> dict[tuple[str, str], list[int]]:
        """The positions of the nodes with each domain and operator type."""
        kinds: dict[tuple[str, str], list[int]] = {}
        for position, node in enumerate(self.nodes):
            kinds.setdefault((node.domain, node.op_type), []).append(position)
        return kinds

    def having(self, *op_types: str) -> list[int]:
        """Return the positions of the nodes of ONNX's own domain with some operator types."""
        kinds = [(domain, op_type) for op_type in op_types for domain in ("", "ai.onnx")]
        return sorted(position for kind in kinds for position in self.kinds.get(kind, ()))

    def flow(self, graph: GraphLike) -> Flow:
        """Return what the nodes of one of the graphs read and compute."""
        if id(graph) not in self._flows:
            number = next(n for n, (_, own) in enumerate(self.graphs) if own is graph)
            like = self._like
            flow = Flow(graph) if like is None else like.flow(like.graphs[number][1])
            self._flows[id(graph)] = flow
        return self._flows[id(graph)]


def in_order(graph: GraphLike) -> list[onnx.NodeProto]:
    """Return the nodes of one graph in topological order, which files need not have.

    Nodes in or behind a cycle, which no valid graph has, come last.
    """
    flow = Flow(graph)
    return [flow.nodes[position] for position in flow.order]


def sort_waiting(
    nodes: Sequence[onnx.NodeProto], reads: Iterable[Collection[str]]
) -> TopologicalSorter[int]:
    """Make a topological sorter of the positions of nodes, by the names that each one reads.

    The order of positions that are ready at the same time depends on the order of nodes and outputs
    only.
    """
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, []).append(index)
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(nodes)), ()))
    for index, node in enumerate(nodes):
        for name in node.output:
            for reader in readers.pop(name, ()):
                sorter.add(reader, index)
    return sorter


def depth_first(
    start: Key, sources: Callable[[Key], Iterable[Key]], is_known: Callable[[Key], bool]
) -> Iterator[Key]:
    """Yield the unknown keys that `start` depends on, sources first, then `start`, if unknown.

    There is no recursion: chains may be long. In a cycle one key comes before its sources.

    Args:
        start: a key.
        sources: returns the keys on which a key depends directly.
        is_known: tells whether a key is known; the caller makes each yielded key known.
    """
    stack, in_work = [start], set[Key]()
    while stack:
        current = stack[-1]
        if is_known(current):
            stack.pop()
        elif current in in_work:
            yield current
            in_work.discard(current)
        else:
            in_work.add(current)
            stack.extend(s for s in sources(current) if s not in in_work and not is_known(s))


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor message of a model, also of sparse tensors and training graphs."""
    training = (g for t in model.training_info for g in (t.initialization, t.algorithm))
    for graph in (model.graph, *model.functions, *training):
        yield from _graph_tensors(graph)


def _graph_tensors(graph: GraphLike) -> Iterator[onnx.TensorProto]:
    is_function = isinstance(graph, onnx.FunctionProto)
    sparse = [] if is_function else list(graph.sparse_initializer)
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    for attribute in (*attributes, *(graph.attribute_proto if is_function else ())):
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("g"):
            yield from _graph_tensors(attribute.g)
        if attribute.HasField("sparse_tensor"):
            sparse.append(attribute.sparse_tensor)
        sparse.extend(attribute.sparse_tensors)
        yield from attribute.tensors
        for inner in attribute.graphs:
            yield from _graph_tensors(inner)
    if isinstance(graph, onnx.GraphProto):
        yield from graph.initializer
    for pair in sparse:
        yield from (pair.values, pair.indices)
