"""Number the values of two models by their definitions: equal numbers are equal computations.

    original    x -> [Mul, w] -> m -> [Tanh] -> y      w is an initializer
    converted   x -> [Mul, k] -> v -> [Tanh] -> y      k is a Constant node with the bytes of w

A definition is an operator in one meaning, its attributes, and the numbers of its inputs. Names of
values and nodes, attributes that state a default, Identity, and the way that a constant is stored do
not count. A shared value, which nodes of both models compute under one name in the same graph, is a
number of its own where it is read, and is judged by its own definition: a changed node changes neither
its readers nor the nodes that hold its graph or call its function.

Tools that write a model anew may number its values. Then both models share the names of inputs and
outputs alone, and the whole of each is one part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeVar

import onnx

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.io import external_data
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.match.graphs import Graphs, is_dense_constant, scopes
from onnx_spatial.verification.values import STRING, constant_value

T = TypeVar("T")
#: A value by its graph and name.
Key = tuple[traversal.Place, str]
#: A local function: its domain, name and overload.
_Function = tuple[str, str, str]
#: Numbers of what is no value: an input that is left out, and a name that nothing produces.
_OMITTED, _UNKNOWN = -2, -1

_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_RANDOM = op_traits.having(Trait.RANDOM)


class Definitions:
    """The definitions of all values of two models.

    Args:
        original, converted: the graphs of the models.
        folders: of the external data of each.
        renamed: values that are not the same in both models, though they have one name.

    Attributes:
        before, after: numbers of the values of the original and of the converted model.
    """

    def __init__(
        self,
        original: Graphs,
        converted: Graphs,
        folders: tuple[Path | None, Path | None],
        renamed: frozenset[Key] = frozenset(),
    ) -> None:
        self.original, self.converted = original, converted
        self.folders, self.renamed = folders, renamed
        numbers: dict[Hashable, int] = {}
        stored = _stored_keys((original, converted), folders)
        self._shared = {
            place: computed & converted.computed.get(place, set())
            for place, computed in original.computed.items()
        }
        for place, name in renamed:
            self._shared[place].discard(name)
        self.before, self.after = (
            Numbering(self, graphs, folder, numbers, known)
            for graphs, folder, known in zip((original, converted), folders, stored, strict=True)
        )

    def is_shared(self, name: str, place: traversal.Place) -> bool:
        """Return whether nodes of both models compute a value under one name in the same graph."""
        return name in self._shared.get(place, ())

    def is_fed(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value is an input of the graph at `place` in both models."""
        return self.original.is_fed(name, place) and self.converted.is_fed(name, place)

    def defined_alike(self, name: str, place: traversal.Place) -> bool:
        """Return whether both models define a value by the same computation."""
        number = self.before.values.get(place, {}).get(name)
        return number is not None and self.after.values.get(place, {}).get(name) == number

    def read_alike(self, name: str, place: traversal.Place) -> bool:
        """Return whether the graph at `place` reads the same value under a name in both models.

        A shared value is taken for the same, however it is defined.
        """
        number = self.before.read(name, place)
        return number != _UNKNOWN and self.after.read(name, place) == number


def _stored_keys(
    models: tuple[Graphs, Graphs], folders: tuple[Path | None, Path | None]
) -> list[dict[Key, Hashable]]:
    """Return keys of the stored tensors of both models: equal where type, shape and bytes are.

    Tensors of one name are compared with each other; only those that differ there, and others of their
    type and shape, are read and hashed.
    """
    before, after = (dict(_stored_tensors(*each)) for each in zip(models, folders, strict=True))
    equal = {
        key
        for key in before.keys() & after.keys()
        if external_data.are_same(before[key], folders[0], after[key], folders[1])
    }
    # A tensor of such a type and shape may be in the other model under another name.
    kinds_to_hash = {
        _tensor_kind(tensor)
        for tensors in (before, after)
        for key, tensor in tensors.items()
        if key not in equal
    }

    def key_of(key: Key, tensor: onnx.TensorProto, side: int) -> Hashable:
        if key in equal and _tensor_kind(tensor) not in kinds_to_hash:
            return key
        return _digest_tensor(tensor, folders[side]) or (side, key)

    return [
        {key: key_of(key, tensor, side) for key, tensor in tensors.items()}
        for side, tensors in enumerate((before, after))
    ]


def _tensor_kind(tensor: onnx.TensorProto) -> tuple[int, ...]:
    return tensor.data_type, *tensor.dims


def _stored_tensors(graphs: Graphs, folder: Path | None) -> Iterator[tuple[Key, onnx.TensorProto]]:
    """Yield the initializers and dense Constant nodes of a model."""
    for place, graph in graphs.graphs.items():
        for tensor in (*graphs.folded.get(place, {}).values(), *getattr(graph, "initializer", ())):
            yield (place, tensor.name), tensor
        for node in graph.node:
            if node.input or not is_dense_constant(node) or not node.output:
                continue
            attribute = node.attribute[0]
            if attribute.HasField("t") and not attribute.ref_attr_name:
                yield (place, node.output[0]), attribute.t
            elif attribute.name != "value" and not attribute.ref_attr_name:
                array = constant_folding.held(node, lambda t: constant_value(t, folder))
                if array is not None:
                    yield (place, node.output[0]), onnx.numpy_helper.from_array(array)


def _digest_tensor(tensor: onnx.TensorProto, folder: Path | None) -> Hashable | None:
    """Return type, shape and a hash of the bytes; None if they cannot be read."""
    try:
        array = constant_value(tensor, folder)
    except ModelFileError:
        return None
    is_text = tensor.data_type == STRING
    content = repr(array.tolist()).encode() if is_text else array.tobytes()
    return tensor.data_type, array.shape, hashlib.blake2b(content, digest_size=16).digest()


class Numbering:
    """Numbers of the values of one model.

    Args:
        both: what both models share.
        graphs, folder: the model, and the folder of its external data.
        numbers: the number of each definition so far; both models add to it.
        stored: keys of its stored tensors.

    Attributes:
        values: number of the definition of each value, by graph and name.
        holders: number of the operator of each node with the graphs inside of it, by its first output;
            of those that draw no random numbers.
        fed: names of the inputs of each graph; None in the place of a name that only one model has.
    """

    def __init__(
        self,
        both: Definitions,
        graphs: Graphs,
        folder: Path | None,
        numbers: dict[Hashable, int],
        stored: Mapping[Key, Hashable],
    ) -> None:
        self.values: dict[traversal.Place, dict[str, int]] = {}
        self._reads: dict[traversal.Place, dict[str, int]] = {}
        self.holders: dict[Key, int] = {}
        self.fed: dict[traversal.Place, tuple[str | None, ...]] = {}
        self._both, self._graphs, self._folder = both, graphs, folder
        self._numbers, self._stored = numbers, stored
        model = graphs.model
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._bodies: dict[_Function, int] = {}
        self._random: set[_Function] = set()
        for key in TopologicalSorter(
            self._function_calls()
        ).static_order():  # a chain of any length
            self._bodies[key] = self._number_body(key)
        self._number_graph(traversal.Place(), model.graph)

    def _function_calls(self) -> dict[_Function, set[_Function]]:
        """Return the functions that each function calls; no valid model has a cycle."""
        return {
            key: {
                called
                for _, _, node in traversal.graph_nodes(traversal.Place(), function)
                if (called := (node.domain, node.op_type, node.overload)) in self._functions
            }
            for key, function in self._functions.items()
        }

    def _number_body(self, key: _Function) -> int:
        """Return the number of a function: of its results, as they depend on inputs and attributes."""
        function, place = self._functions[key], traversal.Place(key)
        results = self._number_graph(place, function)
        if any(self._is_random(node) for node in function.node):
            self._random.add(key)
        defaults = sorted(a.SerializeToString(deterministic=True) for a in function.attribute_proto)
        return self._number("function", self.fed[place], *function.attribute, *defaults, results)

    def _is_random(self, node: onnx.NodeProto) -> bool:
        """Return whether a node draws random numbers: one of another name draws others."""
        return any(
            (each.domain, each.op_type, each.overload) in self._random
            or (op_traits.is_standard(each) and (each.op_type in _RANDOM or _may_train(each)))
            for each in (node, *traversal.inner_nodes(node))
        )

    def _number(self, *definition: Hashable) -> int:
        return self._numbers.setdefault(definition, len(self._numbers))

    def read(self, name: str, place: traversal.Place) -> int:
        """Return the number of a value where the graph at `place` reads it."""
        for scope in scopes(place):
            if self._both.is_shared(name, scope):
                return self._number("shared", scope, name)
            number = self._reads.get(scope, {}).get(name)
            if number is not None:
                return number
        return _UNKNOWN

    def _number_graph(self, place: traversal.Place, graph: traversal.GraphLike) -> tuple[int, ...]:
        """Number the values of a graph, and return the numbers of its outputs."""
        is_main = place == traversal.Place()
        reads = self._reads[place] = {}
        inputs = traversal.value_names(graph.input)
        for position, name in enumerate(inputs):
            reads[name] = self._number("input", name if is_main else (len(place.steps), position))
        for tensor in getattr(graph, "initializer", ()):
            number = self._number("stored", self._stored.get((place, tensor.name)))
            fed = is_main and tensor.name in self._graphs.overridable
            reads[tensor.name] = self._number("default", tensor.name, number) if fed else number
        for sparse in getattr(graph, "sparse_initializer", ()):
            parts = [_digest_tensor(t, self._folder) for t in (sparse.values, sparse.indices)]
            content = sparse.SerializeToString() if None in parts else None
            reads[sparse.values.name] = self._number("sparse", *sparse.dims, *parts, content)
        values = dict(reads)
        for node in traversal.in_order(graph):
            for name, number in zip(node.output, self._number_node(place, node), strict=False):
                if name:
                    values[name] = number
                    if not self._both.is_shared(name, place):
                        reads[name] = number
        self.values[place] = values
        self.fed[place] = tuple(n if self._both.is_fed(n, place) else None for n in inputs)
        return tuple(self.read(name, place) for name in traversal.value_names(graph.output))

    def _number_node(self, place: traversal.Place, node: onnx.NodeProto) -> list[int]:
        """Return the numbers of the definitions of a node's outputs."""
        inputs = _trim_empty([self.read(n, place) if n else _OMITTED for n in node.input], _OMITTED)
        outputs = _trim_empty(list(node.output), "")
        name = named_output(node)
        if name and name in self._graphs.folded.get(place, ()):
            keys = [self._stored.get((place, output)) for output in node.output]
            return [self._number("stored", key) for key in keys]
        if is_dense_constant(node) and (place, name) in self._stored:
            return [self._number("stored", self._stored[place, name])]
        if node.op_type == "Identity" and op_traits.is_standard(node):
            return inputs[:1]
        domain = op_traits.canonical_domain(node.domain)
        meaning: Hashable = self._bodies.get((node.domain, node.op_type, node.overload))
        if meaning is None:
            version = self._graphs.imports(place).opsets.get(domain)
            meaning = _operator_meaning(domain, node.op_type, version)
        attributes = [
            self._attribute_key(attribute)
            for attribute in sorted(node.attribute, key=lambda a: a.name)
            if (attribute.ref_attr_name or attribute.type not in _GRAPHS)
            and not (isinstance(meaning, _Schema) and meaning.is_default(attribute))
        ]
        operator = self._number(
            "operator", domain, node.op_type, meaning, *attributes, len(outputs)
        )
        bodies: list[Hashable] = []
        for attribute_name, body in sorted(traversal.subgraphs(node), key=lambda named: named[0]):
            inner = place.inside(traversal.step(node.op_type, node.output, attribute_name))
            results = self._number_graph(inner, body)
            bodies.append((attribute_name, self.fed[inner], results))
        draw = name if self._is_random(node) else ""
        if bodies and not draw:
            self.holders[place, name] = self._number("holder", operator, *bodies)
        key = self._number("node", operator, *bodies, "of", *inputs, draw)
        return [self._number("output", key, position) for position in range(len(node.output))]

    def _attribute_key(self, attribute: onnx.AttributeProto) -> Hashable:
        if attribute.ref_attr_name:
            return attribute.name, "of the function", attribute.ref_attr_name
        if attribute.HasField("t"):
            tensor = attribute.t
            return attribute.name, _digest_tensor(
                tensor, self._folder
            ) or tensor.SerializeToString()
        copy = onnx.AttributeProto()
        copy.CopyFrom(attribute)
        copy.ClearField("doc_string")
        return attribute.name, copy.SerializeToString(deterministic=True)


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
def _operator_meaning(domain: str, op_type: str, version: int | None) -> Hashable:
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


def named_output(node: onnx.NodeProto) -> str:
    """Return the first output of a node that is not left out: its name tells nodes of a graph apart."""
    return next((name for name in node.output if name), "")


def _may_train(node: onnx.NodeProto) -> bool:
    """Return whether a node is a Dropout that may draw random numbers."""
    return node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])


def _trim_empty(values: list[T], empty: T) -> list[T]:
    """Return a list without empty values at its end."""
    while values and values[-1] == empty:
        values.pop()
    return values
