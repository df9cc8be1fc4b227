"""What fusion rules see: the graphs as earlier edits left them.

    MatchedOp    a spatial operator
    Matcher      producers, readers, names and Transposes around a node, in all graphs
    GraphView    what is known of the values of one graph, by the names of the original
    NodeInfo     a node, and what is known of its inputs before the model runs

Views only read. The graph is onnx_ir's. It has no types and attributes (`strip_types`), so attributes
are read from the message of a node. New nodes have no message; the rules of `RULES` leave them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx
import onnx_ir as ir

from onnx_spatial.analysis import Analysis, OperatorInfo, read_attributes
from onnx_spatial.lowering import Request
from onnx_spatial.lowering.nodes import SINCE
from onnx_spatial.maps.elements import Array
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.sizes import SymbolicValues
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.new_nodes import copy_node
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.operators.spellings import Conflict
from onnx_spatial.operators.spellings.call import AttributeValue

#: Operators with windows that onnxruntime runs on blocked channels.
_WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool", "GlobalAveragePool"})
#: Operators that onnxruntime fuses into these, or runs on blocked channels too.
_ELEMENTWISE = frozenset(
    {"Add", "BatchNormalization", "Clip", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Sum", "Tanh"}
)


@dataclass(frozen=True)
class MatchedOp:
    """A spatial operator in the graph.

    Attributes:
        info: its analysis.
        node: its node.
        request: the request for its lowering.
    """

    info: OperatorInfo
    node: ir.Node
    request: Request

    @property
    def sizes(self) -> list[int]:
        """The shape of the data, of known rank; unknown dims are guessed."""
        shape = self.request.shape or ()
        return [
            d if isinstance(d, int) else self.request.typical(a)[0] for a, d in enumerate(shape)
        ]

    @property
    def takes_constants(self) -> bool:
        """Whether its graph may hold new integers: a graph in initializers, a function in nodes."""
        is_in_function = self.info.place.function is not None
        return not is_in_function or self.request.opset >= SINCE["integers in Constant"]


class Matcher:
    """View of the graphs of a model.

    Args:
        known: the model before any edit, and what is known of its values.
        messages: graph and message of each node of its onnx_ir form, in the order of `traversal.nodes`.
        subjects: the spatial operators that may be rewritten.
        outputs: names of values of the main graph that nodes without an onnx_ir form read.
    """

    def __init__(
        self,
        known: Analysis,
        messages: dict[ir.Node, tuple[traversal.GraphLike, onnx.NodeProto]],
        subjects: Iterable[MatchedOp],
        outputs: Collection[str],
    ) -> None:
        self._messages = messages
        self._originals = dict(messages)  # with those of the nodes that others are copies of
        self._by_output = {
            (id(graph), name): node
            for node, (graph, message) in self._messages.items()
            for name in message.output
            if name
        }
        self._order = {node: number for number, node in enumerate(self._messages)}
        self._subjects = {subject.node: subject for subject in subjects}
        self._adopted: dict[ir.Node, traversal.GraphLike] = {}
        proto = known.model.model
        self._local = {(f.domain, f.name) for f in proto.functions}
        self._training = _read_in_training(proto)
        self._outputs = {id(proto.graph): _outer_names(proto.graph).union(outputs)}
        self._known = known

    def subject(self, node: ir.Node) -> MatchedOp | None:
        """Return the spatial operator of a node that is still in its graph; None for other nodes."""
        return self._subjects.get(node) if node.graph is not None else None

    def node_of(self, graph: traversal.GraphLike, message: onnx.NodeProto) -> ir.Node | None:
        """Return the node of a message; None if it has no named output."""
        nodes = (self.producer(graph, name) for name in message.output)
        return next((node for node in nodes if node is not None), None)

    def message(self, node: ir.Node) -> onnx.NodeProto | None:
        """Return the message of a node; None for a new node."""
        return self._messages.get(node, (None, None))[1]

    def adopt_nodes(self, nodes: Iterable[ir.Node], of: ir.Node) -> None:
        """Add new nodes in the place of a node of the graph."""
        graph = self.graph(of)
        assert graph is not None
        self._adopted.update((node, graph) for node in nodes)

    def standard_type(self, node: ir.Node) -> str | None:
        """Return the type of a standard operator of the model, or an adopted one; None for others."""
        is_known = self.graph(node) is not None and self.is_standard(node)
        return node.op_type if is_known else None

    def attributes(self, node: ir.Node) -> dict[str, AttributeValue]:
        """Return the attributes of a node as Python values, in a function those that all calls give."""
        message = self.message(node)
        if message is not None:
            values = read_attributes(message)
        else:
            values = {name: _plain_attribute(a) for name, a in node.attributes.items()}
        unknown = [name for name, value in values.items() if isinstance(value, Conflict)]
        if unknown and node in self._originals:
            graph, original = self._originals[node]
            in_calls = self.view(graph).scope.producer(next(filter(None, original.output), ""))
            if in_calls is not None and in_calls.op_type == original.op_type:
                given = read_attributes(in_calls)
                values |= {name: given[name] for name in unknown if name in given}
        return values

    def copy(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Node:
        """Copy a node for other inputs; the copy is in no graph."""
        copy = copy_node(node, inputs, self.message(node))
        if node in self._originals:
            self._originals[copy] = self._originals[node]
        return copy

    def graph(self, node: ir.Node | None) -> traversal.GraphLike | None:
        """Return the graph of a node; None for a node that is neither of the model nor adopted."""
        if node is None:
            return None
        return self._messages[node][0] if node in self._messages else self._adopted.get(node)

    @cached_property
    def _views(self) -> dict[int, GraphView]:
        pairs = zip(self._known.model.graphs, self._known.facts, strict=True)
        return {
            id(graph): GraphView(self, f.scope, f.sizes, f.scope.opset) for (_, graph), f in pairs
        }

    def view(self, graph: traversal.GraphLike) -> GraphView:
        """Return what is known of the values of a graph."""
        return self._views[id(graph)]

    def producer(self, graph: traversal.GraphLike, name: str) -> ir.Node | None:
        """Return the node that computes a value of that name in the original graph."""
        return self._by_output.get((id(graph), name))

    def is_standard(self, node: onnx.NodeProto | ir.Node) -> bool:
        """Return whether a node is a standard operator, which no function of the model hides."""
        return op_traits.is_standard(node) and (node.domain, node.op_type) not in self._local

    def is_of_file(self, node: ir.Node, *op_types: str) -> bool:
        """Return whether a node of the file is there still, and a standard operator of these types."""
        is_there = node.graph is not None and self.message(node) is not None
        return is_there and node.op_type in op_types and self.is_standard(node)

    def readers(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """Return the nodes that read a value, in the order of the file, with the index of the input."""
        # Drafts that were compared and not taken are in no graph.
        uses = [(node, index) for node, index in value.uses() if node.graph is not None]
        last = len(self._order)
        return sorted(uses, key=lambda use: (self._order.get(use[0], last), use[1]))

    def is_named(self, value: ir.Value) -> bool:
        """Return whether a value is used by name: as a graph output, in a graph inside, in training,
        or in a quantization annotation.
        """
        producer = value.producer()
        return self.is_output(value) or any(
            producer is None or reader.graph is not producer.graph
            for reader, _ in self.readers(value)
        )

    def is_output(self, value: ir.Value) -> bool:
        """Return whether anything but nodes uses a value by its name, here or in a graph inside."""
        graph = self.graph(value.producer())
        if graph is None or value.name is None:
            return True
        if id(graph) not in self._outputs:
            self._outputs[id(graph)] = _outer_names(graph)
        return value.name in self._outputs[id(graph)] or value.name in self._training

    def follows_window(self, node: ir.Node) -> bool:
        """Return whether a convolution or pool feeds a Transpose, elementwise operators ignored."""
        while True:
            value = node.inputs[0]
            producer = value.producer() if value is not None else None
            kind = None if producer is None else self.standard_type(producer)
            if producer is None or kind not in _ELEMENTWISE:
                return kind in _WINDOWS
            node = producer

    def leads_to_window(self, node: ir.Node) -> bool:
        """Return whether only convolutions and pools read the output of a Transpose."""
        readers = [n for n, _ in self.readers(node.outputs[0]) if self.graph(n) is not None]
        return bool(readers) and _WINDOWS.issuperset(map(self.standard_type, readers))

    def look_at(self, node: ir.Node) -> NodeInfo:
        """Return a view of a node of the model, or an adopted one, and of its inputs."""
        graph = self.graph(node)
        assert graph is not None
        return NodeInfo(node, self.view(graph))

    def perm(self, node: ir.Node | None, rank: int) -> tuple[int, ...] | None:
        """Return the permutation of a Transpose of `rank` axes, else None. The default is reversed."""
        if node is None or node.graph is None or self.standard_type(node) != "Transpose":
            return None
        if len(node.inputs) != 1 or node.inputs[0] is None:
            return None
        perm = self.look_at(node).integers("perm", tuple(reversed(range(rank))))
        return perm if perm is not None and sorted(perm) == list(range(rank)) else None


def _plain_attribute(attribute: ir.Attr) -> AttributeValue:
    if attribute.is_ref():
        return Conflict()
    value = attribute.value
    return tuple(value) if isinstance(value, list | tuple) else value


def _outer_names(graph: traversal.GraphLike) -> set[str]:
    """Return the names of outputs and of annotated values, those of the graphs inside included.

    onnx_ir does not link a graph's outputs to values of the graphs around it.
    """
    names = set(traversal.value_names(graph.output))
    names.update(a.tensor_name for a in getattr(graph, "quantization_annotation", ()))
    bodies = (body for node in graph.node for _, body in traversal.subgraphs(node))
    return names.union(*map(_outer_names, bodies))


def _read_in_training(proto: onnx.ModelProto) -> set[str]:
    graphs = (g for t in proto.training_info for g in (t.initialization, t.algorithm))
    return {
        name
        for graph in graphs
        for _, _, node in traversal.graph_nodes(traversal.Place(), graph)
        for name in traversal.needs(node)
    }


@dataclass(frozen=True)
class GraphView:
    """What is known of the values of one graph, by the names of the original.

    Attributes:
        matcher: the nodes.
        scope: types and known values.
        sizes: sizes as polynomials.
        opset: version of the default domain.
    """

    matcher: Matcher
    scope: constant_folding.ConstantScope
    sizes: SymbolicValues
    opset: int

    def known(self, value: ir.Value | None) -> Array | None:
        """Return the elements of a small tensor that is known before the model runs."""
        if value is None:
            return None
        if value.const_value is not None:
            return value.const_value.numpy()
        node = value.producer()
        if node is not None and self.matcher.message(node) is None:
            if node.op_type != "Constant" or "value" not in node.attributes:
                return None
            tensor = node.attributes["value"].value
            return None if tensor is None else tensor.numpy()
        return self.scope.value(value.name) if value.name else None

    def dims(self, name: str | None) -> tuple[Polynomial, ...] | None:
        """Return the dims of a value; None if not even the rank is known."""
        return self.sizes.dims(name) if name else None

    def lengths(self, name: str | None, axes: Sequence[int]) -> list[int | None]:
        """Return the lengths of some axes of a value, None where unknown."""
        dims = self.dims(name)
        return [None if dims is None else dims[axis].constant for axis in axes]

    def element_types(self, name: str) -> frozenset[int]:
        """Return the ONNX element type of a value; empty if it is unknown."""
        known = shape_inference.element_type(self.scope.type(name))
        return frozenset() if known is None else frozenset({known})


@dataclass(frozen=True)
class NodeInfo:
    """A node of the graph, and what is known of its inputs before the model runs.

    Attributes:
        node: the node.
        graph: the graph that holds it.
    """

    node: ir.Node
    graph: GraphView

    @property
    def op_type(self) -> str:
        """The operator type."""
        return self.node.op_type

    @property
    def opset(self) -> int:
        """The version of the default domain."""
        return self.graph.opset

    @cached_property
    def input_names(self) -> list[str]:
        """Names of the inputs; "" for one that is missing."""
        return ["" if value is None else value.name or "" for value in self.node.inputs]

    @cached_property
    def output_names(self) -> list[str]:
        """Names of the outputs; "" for one that is missing."""
        return [value.name or "" for value in self.node.outputs]

    @cached_property
    def attributes(self) -> dict[str, AttributeValue]:
        """The attributes as Python values; one that differs between calls of a function is no number."""
        return self.graph.matcher.attributes(self.node)

    @property
    def differing(self) -> list[str]:
        """Names of the attributes without a common value in all calls of the function.

        Those of type FLOAT are left out: rules need no value of theirs, or ask for it themselves.
        """
        message = self.graph.matcher.message(self.node)
        floats = {a.name for a in message.attribute if a.type == a.FLOAT} if message else set()
        return [
            name
            for name, value in self.attributes.items()
            if isinstance(value, Conflict) and name not in floats
        ]

    def input(self, index: int) -> ir.Value | None:
        """Return an input; None if it is missing."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def has(self, index: int) -> bool:
        """Return whether there is an input of this index."""
        return self.input(index) is not None

    def known(self, index: int) -> Array | None:
        """Return the elements of an input; None if they are unknown."""
        return self.graph.known(self.input(index))

    def dims(self, index: int) -> tuple[Polynomial, ...] | None:
        """Return the dims of an input; None if the rank is unknown."""
        value = self.input(index)
        return None if value is None else self.graph.dims(value.name)

    def entries(self, index: int) -> tuple[Polynomial, ...] | None:
        """Return the elements of an input that is a vector of sizes; None if it is none."""
        value, known = self.input(index), self.known(index)
        if known is not None:
            return tuple(Polynomial.of(int(entry)) for entry in known.reshape(-1))
        entries = self.graph.sizes.entries(value.name) if value is not None and value.name else None
        return None if entries is None else tuple(entries)

    def integer(self, name: str, default: int) -> int | None:
        """Return an INT attribute; None if it is of another type or differs between the calls of the
        function.
        """
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else None

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an INTS attribute; None as for `integer`."""
        value = self.attributes.get(name, default)
        if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            return tuple(int(v) for v in value)
        return None

    def sizes(self, name: str, index: int) -> tuple[Polynomial, ...] | None:
        """Return what an attribute lists, or in newer opsets an input; None if it is unknown."""
        if name in self.attributes:
            listed = self.integers(name, ())
            return None if listed is None else tuple(map(Polynomial.of, listed))
        return self.entries(index)

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Return what the attribute `axes` lists, or in newer opsets an input; None if unknown."""
        if "axes" in self.attributes:
            return self.integers("axes", ())
        known = self.known(index)
        return None if known is None else tuple(int(v) for v in known.reshape(-1))
