"""Number the values of two models by their definitions: equal numbers are equal computations.

    original    x -> [Mul, w] -> m -> [Tanh] -> y      w is an initializer
    converted   x -> [Mul, k] -> v -> [Tanh] -> y      k is a Constant node with the bytes of w

A definition is an operator in one meaning, its attributes, and the numbers of its inputs. Names of
values and nodes, attributes that state a default, Identity, and the way that a constant is stored do
not count. A value that nodes of both models compute under one name in the same graph is a number of its
own where it is read, and is judged by its own definition: a changed node changes neither its readers nor
the nodes that hold its graph or call its function.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import onnx

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.io import external_data
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import STRING, constant_value
from onnx_spatial.verification.match.graphs import (
    Graphs,
    is_computed,
    is_dense_constant,
    scopes,
)

#: A value by its graph and name.
Key = tuple[traversal.Place, str]

_RANDOM = op_traits.having(Trait.RANDOM)


class Definitions:
    """The definitions of all values of two models.

    Args:
        original, converted: the graphs of the models.
        folders: of the external data of each.
    """

    def __init__(
        self, original: Graphs, converted: Graphs, folders: tuple[Path | None, Path | None]
    ) -> None:
        self.original, self.converted = original, converted
        numbers: dict[Hashable, int] = {}
        stored = _Stored((original, converted), folders)

        def both_feed(name: str, place: traversal.Place) -> bool:
            return original.is_fed(name, place) and converted.is_fed(name, place)

        self._before, self._after = (
            _Numbering(
                graphs, folders[side], numbers, stored.tensors[side], self.is_shared, both_feed
            )
            for side, graphs in enumerate((original, converted))
        )
        for numbering in (self._before, self._after):
            numbering.run()

    def same(self, name: str, place: traversal.Place) -> bool:
        """Return whether both models define a value alike."""
        number = self._before.values.get((place, name))
        return number is not None and self._after.values.get((place, name)) == number

    def is_shared(self, name: str, place: traversal.Place) -> bool:
        """Return whether nodes of both models compute a value under one name in the same graph."""
        return all(
            g.computes(name, place) and is_computed(g.find(name, place))
            for g in (self.original, self.converted)
        )

    def alike(self, name: str, place: traversal.Place) -> bool:
        """Return whether the graph at `place` reads the same value under a name in both models.

        A shared value is taken for the same, however it is defined.
        """
        number = self._before.read_as(name, place)
        return number is not None and self._after.read_as(name, place) == number

    def same_results(self, place: traversal.Place) -> bool:
        """Return whether the outputs of a graph are the same values in both models."""
        results = self._before.results.get(place)
        return results is not None and self._after.results.get(place) == results

    def same_inputs(self, place: traversal.Place) -> bool:
        """Return whether the inputs of a graph that have a name in both models are in the same order."""
        return self._before.fed.get(place) == self._after.fed.get(place)

    def equal(self, mine: Key, other: Key) -> bool:
        """Return whether a value of the original is one of the converted model, each read in a graph."""
        number = self._before.number_of(mine)
        return number is not None and self._after.number_of(other) == number

    def same_operator(self, mine: Key, other: Key) -> bool:
        """Return whether the nodes of two values are equal but for inputs and graphs inside."""
        number = self._before.operators.get(mine)
        return number is not None and self._after.operators.get(other) == number

    def numbers(
        self, here: traversal.Place, there: traversal.Place
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the numbers of the values in a graph of the original and of the converted model."""
        pairs = ((self._before, here), (self._after, there))
        before, after = (
            {name: number for (own, name), number in side.values.items() if own == place}
            for side, place in pairs
        )
        return before, after


class _Stored:
    """Keys of stored tensors: equal where type, shape and bytes are.

    Tensors of one name are compared with each other; only those that differ there, and others of their
    type and shape, are read and hashed.
    """

    def __init__(
        self, models: tuple[Graphs, Graphs], folders: tuple[Path | None, Path | None]
    ) -> None:
        found = [
            dict(_tensors(graphs, folder)) for graphs, folder in zip(models, folders, strict=True)
        ]
        before, after = found
        equal = {
            key
            for key in before.keys() & after.keys()
            if external_data.same(before[key], folders[0], after[key], folders[1])
        }
        odd = {
            (t.data_type, tuple(t.dims))
            for tensors in found
            for key, t in tensors.items()
            if key not in equal
        }
        self.tensors: list[dict[Key, Hashable]] = [
            {
                key: key
                if key in equal and (t.data_type, tuple(t.dims)) not in odd
                else _digest(t, folder) or (side, key)
                for key, t in tensors.items()
            }
            for side, (tensors, folder) in enumerate(zip(found, folders, strict=True))
        ]


def _tensors(graphs: Graphs, folder: Path | None) -> Iterator[tuple[Key, onnx.TensorProto]]:
    """Yield the initializers and dense Constant nodes of a model."""
    for place, graph in traversal.graphs(graphs.model):
        for tensor in getattr(graph, "initializer", ()):
            yield (place, tensor.name), tensor
        for node in graph.node:
            if not is_dense_constant(node) or not node.output or node.attribute[0].ref_attr_name:
                continue
            attribute = node.attribute[0]
            if attribute.HasField("t"):
                yield (place, node.output[0]), attribute.t
            elif attribute.name != "value":
                array = constant_folding.held(node, lambda t: constant_value(t, folder))
                if array is not None:
                    yield (place, node.output[0]), onnx.numpy_helper.from_array(array)


def _digest(tensor: onnx.TensorProto, folder: Path | None) -> Hashable | None:
    """Return type, shape and a hash of the bytes; None if they cannot be read."""
    try:
        array = constant_value(tensor, folder)
    except ModelFileError:
        return None
    text = tensor.data_type == STRING
    content = repr(array.tolist()).encode() if text else array.tobytes()
    return tensor.data_type, array.shape, hashlib.blake2b(content, digest_size=16).digest()


@dataclass
class _Numbering:
    """Numbers of the values of one model.

    Attributes:
        graphs, folder: the model, and the folder of its external data.
        numbers: the number of each definition so far, shared by both models.
        stored: keys of its stored tensors.
        is_shared, both_feed: tell whether nodes of both models compute a value, or both have it as
            an input of the graph.
        values: number of the definition of each value.
        reads: number of each value where it is read.
        results: numbers of the outputs of each graph.
        operators: numbers of operator, attributes and count of outputs of the node of each value.
        fed: names of the inputs of each graph; None in the place of a name that only one model has.
    """

    graphs: Graphs
    folder: Path | None
    numbers: dict[Hashable, int]
    stored: Mapping[Key, Hashable]
    is_shared: Callable[[str, traversal.Place], bool]
    both_feed: Callable[[str, traversal.Place], bool]
    values: dict[Key, int] = field(default_factory=dict)
    reads: dict[Key, int] = field(default_factory=dict)
    results: dict[traversal.Place, tuple[int, ...]] = field(default_factory=dict)
    fed: dict[traversal.Place, tuple[str | None, ...]] = field(default_factory=dict)
    operators: dict[Key, int] = field(default_factory=dict)

    def number_of(self, key: Key) -> int | None:
        """Return the number of a value that a graph reads."""
        known = (self.values.get((scope, key[1])) for scope in scopes(key[0]))
        return next((number for number in known if number is not None), None)

    def read_as(self, name: str, place: traversal.Place) -> int | None:
        """Return the number of a value where the graph at `place` reads it."""
        known = (self.reads.get((scope, name)) for scope in scopes(place))
        return next((number for number in known if number is not None), None)

    def run(self) -> None:
        """Number the main graph and the functions."""
        model = self.graphs.model
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._bodies: dict[tuple[str, str, str], int] = {}
        self._overridable = self.graphs.overridable
        for key in TopologicalSorter(self._calls()).static_order():  # a chain of any length
            self._body(self._functions[key])
        self._graph(traversal.Place(), model.graph, ChainMap(), _versions(model))

    def _calls(self) -> dict[tuple[str, str, str], set[tuple[str, str, str]]]:
        """Return the functions that each function calls; no valid model has a cycle."""
        return {
            key: {
                called
                for _, _, node in traversal.graph_nodes(traversal.Place(), function)
                if (called := (node.domain, node.op_type, node.overload)) in self._functions
            }
            for key, function in self._functions.items()
        }

    def _number(self, *definition: Hashable) -> int:
        return self.numbers.setdefault(definition, len(self.numbers))

    def _graph(
        self,
        place: traversal.Place,
        graph: traversal.GraphLike,
        outer: ChainMap[str, int],
        versions: Mapping[str, int],
    ) -> tuple[int, ...]:
        """Number the values of a graph, and return the numbers of its outputs."""
        known = outer.new_child()
        defined: dict[str, int] = {}
        inputs = [v if isinstance(v, str) else v.name for v in graph.input]
        for position, name in enumerate(inputs):
            main = place == traversal.Place()
            known[name] = self._number("input", name if main else (len(place.steps), position))
        for tensor in getattr(graph, "initializer", ()):
            number = self._number("stored", self.stored.get((place, tensor.name)))
            fed = tensor.name in self._overridable and not place.steps
            known[tensor.name] = self._number("default", tensor.name, number) if fed else number
        for sparse in getattr(graph, "sparse_initializer", ()):
            parts = [_digest(t, self.folder) for t in (sparse.values, sparse.indices)]
            content = sparse.SerializeToString() if None in parts else None
            known[sparse.values.name] = self._number("sparse", *sparse.dims, *parts, content)
        defined.update(known.maps[0])
        for node in traversal.in_order(graph):
            numbers = self._node(place, node, known, versions)
            for name, number in zip(node.output, numbers, strict=False):
                if name:
                    defined[name] = number
                    shared = self.is_shared(name, place)
                    known[name] = self._number("shared", place, name) if shared else number
        outputs = (v if isinstance(v, str) else v.name for v in graph.output)
        results = tuple(known.get(n, -1) for n in outputs)
        self.values.update(((place, name), number) for name, number in defined.items())
        self.reads.update(((place, name), number) for name, number in known.maps[0].items())
        self.results[place] = results
        self.fed[place] = tuple(n if self.both_feed(n, place) else None for n in inputs)
        return results

    def _node(
        self,
        place: traversal.Place,
        node: onnx.NodeProto,
        known: ChainMap[str, int],
        versions: Mapping[str, int],
    ) -> list[int]:
        """Return the numbers of the definitions of a node's outputs."""
        inputs = [known.get(n, -1) if n else -2 for n in node.input]
        while inputs and inputs[-1] == -2:
            inputs.pop()
        name = next(iter(node.output), "")
        if is_dense_constant(node) and (place, name) in self.stored:
            return [self._number("stored", self.stored[place, name])]
        if node.op_type == "Identity" and op_traits.is_standard(node):
            return inputs[:1]
        domain = op_traits.canonical_domain(node.domain)
        function = self._functions.get((node.domain, node.op_type, node.overload))
        meaning: Hashable
        if function is not None:
            meaning = self._body(function)
        else:
            meaning = _meaning(domain, node.op_type, versions.get(domain))
        attributes: list[Hashable] = []
        for attribute in sorted(node.attribute, key=lambda a: a.name):
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                continue
            if not (isinstance(meaning, _Schema) and meaning.is_default(attribute)):
                attributes.append(self._attribute(attribute))
        outputs = list(node.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        operator = self._number(domain, node.op_type, meaning, *attributes, len(outputs))
        bodies: list[Hashable] = []
        for attribute_name, body in traversal.subgraphs(node):
            inner = place.inside(traversal.step(node.op_type, node.output, attribute_name))
            results = self._graph(inner, body, known, versions)
            bodies.append((attribute_name, self.fed[inner], results))
        self.operators.update({(place, n): operator for n in outputs})
        draw = name if op_traits.is_standard(node) and node.op_type in _RANDOM else ""
        key = self._number("node", operator, *bodies, "of", *inputs, draw)
        return [self._number("output", key, i) for i in range(len(node.output))]

    def _attribute(self, attribute: onnx.AttributeProto) -> Hashable:
        if attribute.ref_attr_name:
            return attribute.name, "of the function", attribute.ref_attr_name
        if attribute.HasField("t"):
            tensor = attribute.t
            return attribute.name, _digest(tensor, self.folder) or tensor.SerializeToString()
        copy = attribute
        if attribute.doc_string:
            copy = onnx.AttributeProto()
            copy.CopyFrom(attribute)
            copy.ClearField("doc_string")
        return attribute.name, copy.SerializeToString(deterministic=True)

    def _body(self, function: onnx.FunctionProto) -> int:
        """Return the number of a function: of its results, as they depend on inputs and attributes."""
        key = (function.domain, function.name, function.overload)
        if key not in self._bodies:
            self._bodies[key] = -1  # a function that calls itself is not valid
            place = traversal.Place(key)
            results = self._graph(place, function, ChainMap(), _versions(function))
            defaults = sorted(
                a.SerializeToString(deterministic=True) for a in function.attribute_proto
            )
            self._bodies[key] = self._number(
                "function", self.fed[place], *function.attribute, *defaults, results
            )
        return self._bodies[key]


@dataclass(frozen=True)
class _Schema:
    """An operator in one meaning: versions that only accept further types have the same one."""

    name: str
    text: str
    schema: onnx.defs.OpSchema = field(compare=False)

    def is_default(self, attribute: onnx.AttributeProto) -> bool:
        """Return whether an attribute has the value that it has if it is omitted."""
        declared = self.schema.attributes.get(attribute.name)
        if declared is None or attribute.ref_attr_name or not declared.default_value.name:
            return False
        values = (onnx.helper.get_attribute_value(a) for a in (declared.default_value, attribute))
        return len({repr(value) for value in values}) == 1


@cache
def _meaning(domain: str, op_type: str, version: int | None) -> Hashable:
    """Return the meaning of an operator in a version of its domain."""
    if version is None or not onnx.defs.has(op_type, version, domain):
        return "version", version
    schema = onnx.defs.get_schema(op_type, version, domain)
    declared = (
        [
            (name, a.required, str(a.type), a.default_value.SerializeToString(deterministic=True))
            for name, a in sorted(schema.attributes.items())
        ],
        [(i.name, str(i.option), i.is_homogeneous, i.min_arity) for i in schema.inputs],
        [(o.name, str(o.option)) for o in schema.outputs],
    )
    return _Schema(op_type, repr(declared), schema)


def _versions(holder: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Return the versions of the domains that a model or a function imports."""
    versions = op_traits.opsets_of(holder.opset_import)
    if isinstance(holder, onnx.ModelProto):
        versions.setdefault("", op_traits.assumed_opset(holder.ir_version))
    return versions
