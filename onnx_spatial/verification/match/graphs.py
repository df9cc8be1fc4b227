"""Index producers and types of values by graph and name, and extract the part that computes a value.

    stops -> [ nodes with their constants ] -> output

Values of outer graphs are followed, too: a part may reach from a branch into the main graph. Converted
models keep the value names of the original, in the same graph: the nodes that replace an operator are
those between its inputs and its output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import onnx

from onnx_spatial.analysis import GraphFacts, OperatorInfo
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.remove_unused import remove_named
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.match import foreign
from onnx_spatial.verification.options import Array
from onnx_spatial.verification.values import constant_value

#: Produces a value: a node, an initializer, a sparse initializer.
Producer = onnx.NodeProto | onnx.TensorProto | onnx.SparseTensorProto

MAIN = traversal.Place()
_RANDOM = op_traits.having(Trait.RANDOM)
_SIZES = op_traits.having(Trait.SIZES)

#: Element types of the attributes of Constant that hold numbers.
_CONSTANT_TYPES = {
    "value_int": onnx.TensorProto.INT64,
    "value_ints": onnx.TensorProto.INT64,
    "value_float": onnx.TensorProto.FLOAT,
    "value_floats": onnx.TensorProto.FLOAT,
}


class NoPartError(Exception):
    """No part computes a value; the message says why, as the rest of a sentence."""


@dataclass(frozen=True)
class Imports:
    """The opsets by domain ("" is the default) and functions that a part takes from its model."""

    ir_version: int
    opsets: Mapping[str, int]
    functions: Sequence[onnx.FunctionProto] = ()

    @classmethod
    def of(cls, model: onnx.ModelProto, body: traversal.GraphLike | None = None) -> Imports:
        """Return the imports of a model, or of its function `body`."""
        holder = body if isinstance(body, onnx.FunctionProto) else model
        assumed = {"": op_traits.assumed_opset(model.ir_version)}
        opsets = assumed | op_traits.opsets_of(holder.opset_import)
        return cls(model.ir_version, opsets, list(model.functions))


@dataclass(frozen=True)
class Computation:
    """Nodes that compute a value.

    Attributes:
        nodes: in the order of computation.
        read: names that they read from outside.
        stored: initializers that they read.
        sparse: sparse initializers that they read.
        imports: of the model or function that holds them.
    """

    nodes: list[onnx.NodeProto]
    read: set[str]
    stored: list[onnx.TensorProto]
    sparse: list[onnx.SparseTensorProto]
    imports: Imports

    def model(self, inputs: Mapping[str, onnx.TypeProto], output: str) -> onnx.ModelProto:
        """Make the part a model with some inputs; the runtime infers the type of its output."""
        model = onnx.ModelProto(ir_version=self.imports.ir_version)
        graph = model.graph
        graph.name = "part"
        graph.node.extend(self.nodes)
        for node in graph.node:
            node.name = traversal.label(node)  # for messages
        graph.initializer.extend(self.stored)
        graph.sparse_initializer.extend(self.sparse)
        graph.input.extend(onnx.ValueInfoProto(name=n, type=t) for n, t in inputs.items())
        graph.output.append(onnx.ValueInfoProto(name=output))
        functions = self.imports.functions
        model.functions.extend(
            functions[i] for i in sorted(called_functions(graph.node, functions))
        )
        domains = {op_traits.canonical_domain(n.domain) for _, _, n in traversal.nodes(model)}
        for function in model.functions:
            domains |= {op_traits.canonical_domain(o.domain) for o in function.opset_import}
        for domain in sorted(domains | {""}):
            version = self.imports.opsets.get(domain, 1)
            model.opset_import.append(onnx.helper.make_opsetid(domain, version))
        return model


class Graphs:
    """The graphs of a model, by place and value name.

    Args:
        model: the model.
        facts: what is known of its graphs. Inputs and attributes of a function are constants if all
            calls give them the same value.
        folder: of its external data; with it, what nodes compute from constants is a constant, too.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        facts: Sequence[GraphFacts] = (),
        folder: Path | Literal[False] | None = False,
    ) -> None:
        self.model = model
        graphs = list(traversal.graphs(model))
        self.graphs: dict[traversal.Place, traversal.GraphLike] = dict(graphs)
        known = {place: f for (place, _), f in zip(graphs, facts, strict=False)}
        self.nodes = [(place, node) for place, _, node in traversal.nodes(model)]
        if read := _attributes_read(model):
            self.nodes = [
                (place, _with_attributes(_without_unread(node, read), known.get(place)))
                for place, node in self.nodes
            ]
        # Ids are valid as long as the messages are kept.
        self._positions = {id(node): position for position, (_, node) in enumerate(self.nodes)}
        self.producers: dict[traversal.Place, dict[str, onnx.NodeProto]]
        self.producers = {place: {} for place in self.graphs}
        for place, node in self.nodes:
            self.producers[place].update((name, node) for name in node.output if name)
        self.stored = {place: _stored_names(graph) for place, graph in self.graphs.items()}
        for place, graph_facts in known.items():
            constants = graph_facts.given.items()
            self.stored[place] |= {n: onnx.numpy_helper.from_array(v, n) for n, v in constants}
        self.fed = {
            place: set(traversal.value_names(graph.input)) for place, graph in self.graphs.items()
        }
        self._imports: dict[tuple[str, str, str] | None, Imports] = {}
        self._read: dict[traversal.Place, set[str]] = {}
        #: The values that nodes compute from constants alone.
        self._constant: set[tuple[traversal.Place, str]] = set()
        #: The values that nodes compute from sizes and constants alone.
        self._sized: set[tuple[traversal.Place, str]] = set()
        #: Those of `_constant` that were computed here.
        self.folded: dict[traversal.Place, dict[str, onnx.TensorProto]] = {}
        if folder is not False:
            self._fold_constants(folder)
        #: The values that nodes of each graph compute from others.
        self.computed = {
            place: {name for name, node in producers.items() if node.input}
            - self.folded.get(place, {}).keys()
            for place, producers in self.producers.items()
        }

    def _fold_constants(self, folder: Path | None) -> None:
        """Find the nodes that compute constants or sizes, and the values of constants."""
        # Names of any graph: a quick test before the one that looks in the right graphs.
        maybe_known = {""}.union(*self.stored.values())
        for place, node in self.nodes:
            gives_sizes = node.op_type in _SIZES
            if not gives_sizes and not maybe_known.issuperset(node.input):
                continue
            if not _is_determined(node):
                continue
            inputs = [name for name in node.input if name]
            outputs = [name for name in node.output if name]
            if all(self.is_constant(name, place) for name in inputs):
                self._constant.update((place, name) for name in outputs)
                if foreign.is_foldable(node):
                    self._fold(place, node, folder)
            elif not gives_sizes and not all(self.is_size(name, place) for name in inputs):
                continue
            self._sized.update((place, name) for name in outputs)
            maybe_known.update(outputs)

    def _fold(self, place: traversal.Place, node: onnx.NodeProto, folder: Path | None) -> None:
        """Note the outputs of a node if the values of its inputs are known."""
        arrays: dict[str, Array] = {}
        for name in filter(None, node.input):
            producer = self.find(name, place)
            array = None
            if isinstance(producer, onnx.NodeProto) and is_dense_constant(producer):
                array = constant_folding.held(producer, lambda t: constant_value(t, folder))
            elif isinstance(producer, onnx.TensorProto):
                array = constant_value(producer, folder)
            if array is None:
                return
            arrays[name] = array
        results = foreign.folded(node, arrays, self.imports(place).opsets) if arrays else ()
        self.folded.setdefault(place, {}).update((t.name, t) for t in results)

    def is_size(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value is computed from sizes and constants alone, or a constant."""
        sized = any((scope, name) in self._sized for scope in scopes(place))
        return sized or self.is_constant(name, place)

    def position(self, node: onnx.NodeProto) -> int:
        """Return the position in `traversal.nodes` of a node of a part."""
        return self._positions[id(node)]

    def imports(self, place: traversal.Place) -> Imports:
        """Return the imports of the model or function that holds the graph at `place`."""
        if place.function not in self._imports:
            body = self.graphs[traversal.Place(place.function)]
            self._imports[place.function] = Imports.of(self.model, body)
        return self._imports[place.function]

    def computes(self, name: str, place: traversal.Place = MAIN) -> bool:
        """Return whether a node of the graph at `place` computes a value."""
        return name in self.producers.get(place, ())

    def reads(self, place: traversal.Place) -> set[str]:
        """Return the names that the nodes and outputs of the graph at `place` read."""
        if place not in self._read:
            graph = self.graphs[place]
            names = set(traversal.value_names(graph.output)).union(
                *map(traversal.needs, graph.node)
            )
            self._read[place] = names
        return self._read[place]

    def is_constant(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value is stored, or computed from such values alone."""
        if any((scope, name) in self._constant for scope in scopes(place)):
            return True
        producer = self.find(name, place)
        return producer is not None and is_constant(producer) and not self.is_replaceable(producer)

    def is_fed(self, name: str, place: traversal.Place) -> bool:
        """Return whether a name is an input of the graph at `place` itself."""
        return name in self.fed.get(place, ())

    @cached_property
    def overridable(self) -> set[str]:
        """Names of the inputs that have an initializer for a default."""
        if not traversal.has_defaults(self.model):
            return set()
        return {t.name for t in self.model.graph.initializer if t.name in self.fed[MAIN]}

    def find(self, name: str, place: traversal.Place) -> Producer | None:
        """Return the producer of a value that a graph reads; None for inputs and unknown names."""
        for scope in scopes(place):
            if scope not in self.graphs:
                continue
            known = self.folded.get(scope, {}).get(name)
            producer = known or self.producers[scope].get(name) or self.stored[scope].get(name)
            if producer is not None:
                return producer
            if name in self.fed[scope]:
                return None
        return None

    def is_replaceable(self, producer: Producer | None) -> bool:
        """Return whether a caller of the model may feed another value than this one."""
        return (
            isinstance(producer, onnx.TensorProto)
            and producer.name in self.overridable
            and self.stored[MAIN].get(producer.name) is producer
        )

    def order(self, node: onnx.NodeProto) -> tuple[int, int]:
        """Return depth and position of a node: nodes of an outer graph come first."""
        position = self._positions[id(node)]
        return len(self.nodes[position][0].steps), position


class GrowingPart:
    """A part that grows back from a value, as far as the values where it stops.

    Args:
        graphs: of the model.
        place: of the graph that holds the value.
        stops: whether the part reads a value from outside, by its name and producer; values without a
            producer are read from outside in any case.
        most_nodes: number of nodes that it may have.

    Attributes:
        read: names of the values that it reads from outside so far.
    """

    def __init__(
        self,
        graphs: Graphs,
        place: traversal.Place,
        stops: Callable[[str, Producer | None], bool],
        most_nodes: int = sys.maxsize,
    ) -> None:
        self.read: set[str] = set()
        self._graphs, self._place, self._stops = graphs, place, stops
        self._most_nodes = most_nodes
        self._nodes: dict[int, onnx.NodeProto] = {}
        self._stored: dict[str, onnx.TensorProto] = {}
        self._sparse: dict[str, onnx.SparseTensorProto] = {}
        self._seen: set[str] = set()

    @property
    def nodes(self) -> Iterable[onnx.NodeProto]:
        """Its nodes so far."""
        return self._nodes.values()

    def include(self, value: str) -> None:
        """Add what computes a value.

        Raises:
            NoPartError: nothing does; it has too many nodes; it cannot be taken out of its function.
        """
        self.read.discard(value)
        self._seen.add(value)
        todo = [value]
        while todo:
            name = todo.pop()
            producer = self._graphs.find(name, self._place)
            outside = producer is None or is_set_by_call(producer) or self._stops(name, producer)
            if name != value and outside:
                self.read.add(name)
            elif producer is None:
                raise NoPartError(f"no node, input or initializer produces {name!r}")
            elif isinstance(producer, onnx.TensorProto):
                self._stored[name] = producer
            elif isinstance(producer, onnx.SparseTensorProto):
                self._sparse[name] = producer
            else:
                self._add_node(producer)
                new = traversal.needs(producer) - self._seen
                self._seen |= new
                todo.extend(new)

    def _add_node(self, node: onnx.NodeProto) -> None:
        if self._place.function and any(a.ref_attr_name for a in node.attribute):
            raise NoPartError("it uses attributes of its function")
        self._nodes[id(node)] = node
        if len(self._nodes) > self._most_nodes:
            raise NoPartError("it was merged with too many nodes")

    def part(self) -> Computation:
        """Return the part as it is now."""
        nodes = sorted(self._nodes.values(), key=self._graphs.order)
        imports = self._graphs.imports(self._place)
        stored, sparse = list(self._stored.values()), list(self._sparse.values())
        return Computation(nodes, self.read, stored, sparse, imports)


class KnownTypes:
    """Types by graph and value name, in a model with names for unknown dims of its inputs.

    Args:
        model: the model.
        infos: its spatial operators.
        facts: what is known of its graphs.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        infos: Sequence[OperatorInfo],
        facts: Sequence[GraphFacts],
    ) -> None:
        self._types = {
            place: {n: t for n, t in known.scope.types.items() if _is_complete(t)}
            for (place, _), known in zip(traversal.graphs(model), facts, strict=True)
        }
        for info in infos:  # the data of an operator in a function has the type of the calls
            if (
                not info.facts.inputs
                or info.facts.inputs[0] is None
                or len(info.element_types) != 1
            ):
                continue
            name = info.node.input[0]
            if shape_inference.dims(self.find(name, info.place)) is None:
                (element_type,) = info.element_types
                shape = info.facts.inputs[0].shape
                known = onnx.helper.make_tensor_type_proto(element_type, shape)
                self._types.setdefault(info.place, {})[name] = known

    def find(self, name: str, place: traversal.Place) -> onnx.TypeProto | None:
        """Return the type of a value that the graph at `place` can read, as far as it is known."""
        known = (self._types.get(scope, {}).get(name) for scope in scopes(place))
        return next((each for each in known if each is not None), None)


def called_functions(
    nodes: Iterable[onnx.NodeProto], functions: Sequence[onnx.FunctionProto]
) -> set[int]:
    """Return the positions of the functions that nodes call, directly or through other functions."""
    positions: dict[tuple[str, str], list[int]] = {}
    for position, function in enumerate(functions):
        positions.setdefault((function.domain, function.name), []).append(position)
    result: set[int] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        for position in positions.get((node.domain, node.op_type), ()):
            if position not in result:
                result.add(position)
                todo.extend(functions[position].node)
        for _, graph in traversal.subgraphs(node):
            todo.extend(graph.node)
    return result


def described(node: onnx.NodeProto, place: traversal.Place) -> str:
    """Return a node in messages: its type, name and graph."""
    return f"{node.op_type} node {traversal.label(node)!r} ({place})"


def _is_determined(node: onnx.NodeProto) -> bool:
    """Return whether the inputs of a node, which holds no graphs, decide what it computes."""
    return (
        op_traits.is_standard(node)
        and node.op_type not in _RANDOM
        and not is_set_by_call(node)
        and not any(traversal.subgraphs(node))
    )


def is_computed(producer: Producer | None) -> bool:
    """Return whether a value is computed from others, and not a constant or an input."""
    return isinstance(producer, onnx.NodeProto) and bool(producer.input)


def is_constant(producer: Producer) -> bool:
    """Return whether a value is stored in the model: an initializer or a Constant node."""
    if not isinstance(producer, onnx.NodeProto):
        return True
    return _is_constant_node(producer) and not is_set_by_call(producer)


def is_set_by_call(producer: Producer | None) -> bool:
    """Return whether a value is a Constant that each call of a function gives as an attribute."""
    return (
        isinstance(producer, onnx.NodeProto)
        and _is_constant_node(producer)
        and any(attribute.ref_attr_name for attribute in producer.attribute)
    )


def type_set_by_call(node: onnx.NodeProto) -> onnx.TypeProto:
    """Return what is known of the type of a Constant that each call gives."""
    held = node.attribute[0].name
    if held not in _CONSTANT_TYPES:
        return onnx.TypeProto()
    shape = [None] if held.endswith("s") else []  # "value_ints" is 1-D, "value_int" a scalar
    return onnx.helper.make_tensor_type_proto(_CONSTANT_TYPES[held], shape)


def is_dense_constant(node: onnx.NodeProto) -> bool:
    """Return whether a node is a Constant with a plain tensor or numbers."""
    held = [attribute.name for attribute in node.attribute]
    return _is_constant_node(node) and len(held) == 1 and held[0] in constant_folding.HELD


def _is_constant_node(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and op_traits.is_standard(node)


def scopes(place: traversal.Place) -> list[traversal.Place]:
    """Return the place of a graph and of its outer graphs, inner before outer."""
    if not place.steps:
        return [place]  # quick: most graphs are in no other
    counts = range(len(place.steps), -1, -1)
    return [traversal.Place(place.function, place.steps[:count]) for count in counts]


def _attributes_read(model: onnx.ModelProto) -> dict[tuple[str, str], set[str]]:
    """Return the names of the attributes that the body of each function reads."""
    read: dict[tuple[str, str], set[str]] = {(f.domain, f.name): set() for f in model.functions}
    if read:
        for place, _, node in traversal.nodes(model):
            if place.function is not None:
                read[place.function[:2]].update(a.ref_attr_name for a in node.attribute)
    return read


def _without_unread(
    node: onnx.NodeProto, read: Mapping[tuple[str, str], set[str]]
) -> onnx.NodeProto:
    """Return a call without attributes of a caller that no node of its function reads; else `node`."""
    read_by_body = read.get((node.domain, node.op_type))
    if read_by_body is None:
        return node
    unread = {a.name for a in node.attribute if a.ref_attr_name} - read_by_body
    if not unread:
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    remove_named(result.attribute, unread)
    return result


def _with_attributes(node: onnx.NodeProto, known: GraphFacts | None) -> onnx.NodeProto:
    """Return a node with the attributes of its function that all calls give alike; else `node`."""
    references = {a.name for a in node.attribute if a.ref_attr_name}
    found = known.scope.producer(node.output[0]) if known and references and node.output else None
    if found is None or found.op_type not in (node.op_type, shape_inference.PROBE):
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    remove_named(result.attribute, references)
    result.attribute.extend(a for a in found.attribute if a.name in references)
    return result


def _is_complete(known: onnx.TypeProto) -> bool:
    """Return whether a type has an element type, as each of another kind than tensors has."""
    return not known.HasField("tensor_type") or bool(known.tensor_type.elem_type)


def _stored_names(
    graph: traversal.GraphLike,
) -> dict[str, onnx.TensorProto | onnx.SparseTensorProto]:
    if not isinstance(graph, onnx.GraphProto):
        return {}
    return {
        **{t.name: t for t in graph.initializer},
        **{s.values.name: s for s in graph.sparse_initializer},
    }
