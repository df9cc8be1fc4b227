"""Refuse invalid models with a one-line message before any other code walks through them.

No function recurses deeper than a file can be nested, and all are linear in the size of the model:
the first code that looks at a file must survive whatever is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter

import onnx

from onnx_spatial.errors import Code, ModelFileError, list_names
from onnx_spatial.model import op_traits, traversal

#: Most levels of nested graphs. Protobuf readers stop at 100 nested messages, and each graph takes
#: three of them (node, attribute, graph): no file can be nested deeper.
MAX_DEPTH = 33

#: Most nodes that inlined function calls may have; 40 functions that call the next one twice each
#: would have 2^40.
MAX_INLINED = 200_000

#: Opset versions that onnx's functions take: those of 32-bit integers.
VERSIONS = range(-(2**31), 2**31)

_ELEMENT_TYPES = frozenset(onnx.TensorProto.DataType.values())

_NO_PRODUCER = "which no node, input or initializer produces"

Identity = tuple[str, str, str]


def check(model: onnx.ModelProto, name: str) -> None:
    """Check nesting, functions, signatures of nodes, producers of values, and cycles.

    Later code may read each input and output that the schema of a standard operator requires.

    Args:
        model: the model; it is not changed.
        name: name of the model in messages.

    Raises:
        ModelFileError: graphs are nested too deep; the version of an opset has more than 32 bits; a
            function is defined twice, calls itself, or has too many nodes when inlined; a standard
            node lacks an input or output, or has an attribute of another type; a value has no
            producer or two; nodes form a cycle.
        UnicodeDecodeError: a name is not UTF-8 text.
    """
    try:
        shadowed = {f.name for f in model.functions if op_traits.is_standard_domain(f.domain)}
        for graph in (*model.functions, model.graph):
            is_function = isinstance(graph, onnx.FunctionProto)
            place = traversal.Place(_identity_of(graph) if is_function else None)
            opset = _standard_opset((graph if is_function else model).opset_import, place)
            _Dataflow(place, opset, shadowed).check_graph(graph)
        _check_functions(model)
    except _InvalidError as error:
        raise ModelFileError(f"{name}: {error}", code=Code.INVALID_GRAPH) from None


class _InvalidError(Exception):
    """Rule that the model breaks, and where."""


def _identity_of(function: onnx.FunctionProto) -> Identity:
    return function.domain, function.name, function.overload


def _function_label(identity: Identity) -> str:
    return str(traversal.Place(identity)).removeprefix("function ")


def _check_functions(model: onnx.ModelProto) -> None:
    """Check that functions are defined once, form no cycle and stay small when inlined."""
    bodies: dict[Identity, onnx.FunctionProto] = {}
    for function in model.functions:
        if bodies.setdefault(_identity_of(function), function) is not function:
            raise _InvalidError(
                f"function {_function_label(_identity_of(function))} is defined twice"
            )
    if not bodies:
        return
    calls = {identity: list(_called_functions(body, bodies)) for identity, body in bodies.items()}
    sizes: dict[Identity, int] = {}
    try:
        for identity in TopologicalSorter(calls).static_order():
            nodes = sum(1 for _ in traversal.graph_nodes(traversal.Place(), bodies[identity]))
            sizes[identity] = nodes + sum(sizes[callee] for callee in calls[identity])
    except CycleError as error:
        cycle = sorted(map(_function_label, set(error.args[1])))
        raise _InvalidError(
            f"functions call each other in a cycle: {list_names(cycle, 5)}"
        ) from None
    total = sum(sizes[callee] for callee in _called_functions(model.graph, bodies))
    if total > MAX_INLINED:
        count = f"{total} nodes, " if total < 10**15 else ""
        raise _InvalidError(f"its inlined function calls have {count}more than {MAX_INLINED} nodes")


def _called_functions(
    graph: traversal.GraphLike, bodies: dict[Identity, onnx.FunctionProto]
) -> Iterator[Identity]:
    for _, _, node in traversal.graph_nodes(traversal.Place(), graph):
        identity = (node.domain, node.op_type, node.overload)
        if identity in bodies:
            yield identity


def _standard_opset(imports: Iterable[onnx.OperatorSetIdProto], place: traversal.Place) -> int:
    """Return the version of the standard operators; 0 if they are not imported.

    Raises:
        _InvalidError: the version of an opset has more than 32 bits.
    """
    imports = list(imports)
    for entry in imports:
        if entry.version not in VERSIONS:
            raise _InvalidError(
                f"{place} imports version {entry.version} of the opset {entry.domain!r}: a version has "
                "32 bits at most"
            )
    return op_traits.opset_of(imports) or 0


@dataclass(frozen=True)
class _Signature:
    """What a standard operator requires.

    Attributes:
        inputs, outputs: whether each of the first ones, which must be there, must have a name, too.
        attribute_types: by name.
    """

    inputs: tuple[bool, ...] = ()
    outputs: tuple[bool, ...] = ()
    attribute_types: Mapping[str, int] = field(default_factory=dict)


@cache
def _signature_of(op_type: str, opset: int) -> _Signature:
    """Return what the schema of a standard operator says; no requirements if there is none."""
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:  # none of this name
        return _Signature()
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    inputs, outputs = (
        tuple(parameter.option == single for parameter in parameters[:least])
        for parameters, least in (
            (schema.inputs, schema.min_input),
            (schema.outputs, schema.min_output),
        )
    )
    types = {name: int(a.type) for name, a in schema.attributes.items()}  # type: ignore[call-overload]
    return _Signature(inputs, outputs, types)


class _Dataflow:
    """Producers and readers of the values in a graph and its subgraphs."""

    def __init__(self, place: traversal.Place, opset: int, shadowed: set[str]) -> None:
        """Prepare for a graph; `shadowed` has the standard operators that functions define anew."""
        self._place = place
        self._opset = opset
        self._shadowed = shadowed
        #: The names that each graph defines, from the outermost to the one that is checked.
        self._visible: list[set[str]] = []
        #: Operator, domain, number of inputs and of outputs of legal nodes without attributes.
        self._legal = set[tuple[str, str, int, int]]()

    def check_graph(self, graph: traversal.GraphLike) -> set[str]:
        """Check one graph; return the names that it captures from its outer graphs.

        Raises:
            _InvalidError: graphs are nested too deep, a value has no producer or two, a standard node
                is not as its schema says, or nodes form a cycle.
        """
        if len(self._visible) > MAX_DEPTH:
            raise _InvalidError(
                f"graphs are nested more than {MAX_DEPTH} deep, which no file can hold"
            )
        nodes = list(graph.node)
        declared, results = _declared_names(graph, self._place)
        defined = declared | self._produced_names(nodes, declared)
        self._visible.append(defined)
        captured = set(results)
        computed = declared - {""}  # by the nodes up to here
        waiting: list[tuple[onnx.NodeProto, set[str]]] = []
        for node in nodes:
            inputs, outputs = node.input, node.output
            is_plain = not node.attribute and all(outputs)
            form = (node.op_type, node.domain, len(inputs), len(outputs))
            if is_plain and form in self._legal and computed.issuperset(inputs):
                computed.update(outputs)
                continue
            names = set(inputs)
            if not is_plain or "" in names or form not in self._legal:
                self._check_signature(node)
                if is_plain and "" not in names:
                    self._legal.add(form)
            names.discard("")
            if not names <= defined:
                for name in names:
                    if not self._is_visible(name):
                        raise _InvalidError(f"{self._locate(node)} reads {name!r}, {_NO_PRODUCER}")
            subgraphs = list(traversal.subgraphs(node))
            if len({attribute for attribute, _ in subgraphs}) < len(subgraphs):
                raise _InvalidError(f"{self._locate(node)} has two graphs of one name")
            for attribute, inner in subgraphs:
                outer_place = self._place
                self._place = outer_place.inside(traversal.step(node.op_type, outputs, attribute))
                names |= self.check_graph(inner)
                self._place = outer_place
            captured |= names
            names &= defined
            if names <= computed:
                computed.update(filter(None, outputs))
            else:
                waiting.append((node, names))
        for name in results:
            if not self._is_visible(name):
                raise _InvalidError(f"{self._place} returns {name!r}, {_NO_PRODUCER}")
        self._check_order(waiting)
        return captured - self._visible.pop()

    def _check_signature(self, node: onnx.NodeProto) -> None:
        """Check that a standard node has what its schema requires; runtimes refuse other nodes.

        More inputs than the schema has, and a missing attribute, are left to later code: tf2onnx
        leaves spatial operators with such nodes under the names of standard operators.
        """
        if not op_traits.is_standard(node) or node.op_type in self._shadowed:
            return
        if isinstance(node.op_type, bytes):  # protobuf's form of invalid UTF-8
            raise _InvalidError("is damaged: the name of an operator is not UTF-8 text")
        signature = _signature_of(node.op_type, self._opset)
        for what, names, required in (
            ("input", node.input, signature.inputs),
            ("output", node.output, signature.outputs),
        ):
            for index, is_single in enumerate(required):
                if index >= len(names) or (is_single and not names[index]):
                    raise _InvalidError(
                        f"{self._locate(node)} has no {what} {index}, which opset {self._opset} requires"
                    )
        for attribute in node.attribute:
            expected = signature.attribute_types.get(attribute.name, attribute.type)
            # Without a type: IR version 1. A reference gets its value where the function is called.
            if attribute.type and not attribute.ref_attr_name and attribute.type != expected:
                raise _InvalidError(
                    f"{self._locate(node)}: the attribute {attribute.name!r} does not have the type "
                    f"{onnx.AttributeProto.AttributeType.Name(expected)} of opset {self._opset}"
                )
            count = len(node.output)
            if (
                node.op_type == "Split"
                and attribute.name == "num_outputs"
                and 0 < attribute.i < count
            ):
                # onnx's shape inference, which onnxruntime loads models with, ends the process there.
                raise _InvalidError(
                    f"{self._locate(node)} has {count} outputs, not {attribute.i} as it says itself"
                )

    def _locate(self, node: onnx.NodeProto) -> str:
        return f"{_named_node(node)} in {self._place}"

    def _produced_names(self, nodes: Sequence[onnx.NodeProto], declared: set[str]) -> set[str]:
        """Return the names of the outputs of nodes, each of which has one producer."""
        producers: dict[str, onnx.NodeProto] = {}
        for node in nodes:
            for name in filter(None, node.output):
                if name in producers or name in declared:
                    first = producers.get(name)
                    raise _InvalidError(
                        f"{name!r} in {self._place} has two producers: "
                        f"{_named_node(first) if first else 'an input or initializer'} and "
                        f"{_named_node(node)}"
                    )
                producers[name] = node
        return set(producers)

    def _is_visible(self, name: str) -> bool:
        return any(name in names for names in reversed(self._visible))

    def _check_order(self, waiting: Sequence[tuple[onnx.NodeProto, set[str]]]) -> None:
        """Check that nodes, which may be listed in any order, form no cycle.

        Args:
            waiting: nodes in front of a node that they read, and the names that they read.
        """
        if not waiting:
            return
        try:
            traversal.sort_waiting(
                [node for node, _ in waiting], [names for _, names in waiting]
            ).prepare()
        except CycleError as error:
            # Each reads a result of the next; the last repeats the first.
            cycle = error.args[1][:0:-1]
            first = cycle.index(min(cycle))
            nodes = [waiting[index][0] for index in (*cycle[first:], *cycle[:first])]
            labels = list_names([*map(traversal.label, nodes)], 5)
            raise _InvalidError(f"{self._locate(nodes[0])} is part of a cycle: {labels}") from None


def _named_node(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {traversal.label(node)!r}"


def _declared_names(
    graph: traversal.GraphLike, place: traversal.Place
) -> tuple[set[str], list[str]]:
    """Return the names of inputs and initializers, and the names of outputs.

    Raises:
        _InvalidError: two inputs have the same name; the element type of an input or output does not
            exist; the name of a dim is not text.
    """
    inputs = traversal.value_names(graph.input)
    declared = set(inputs)
    if len(declared) < len(inputs):
        twice = next(name for name in inputs if inputs.count(name) > 1)
        raise _InvalidError(f"{place} has two inputs of the name {twice!r}")
    if isinstance(graph, onnx.FunctionProto):
        return declared, list(graph.output)
    for what, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            element_type = value.type.tensor_type.elem_type
            if element_type not in _ELEMENT_TYPES:
                raise _InvalidError(
                    f"{what} {value.name!r} of {place} has element type {element_type}, which onnx "
                    f"{onnx.__version__} does not know"
                )
    for value in traversal.declared_values(graph):
        for dim in value.type.tensor_type.shape.dim:
            if isinstance(dim.dim_param, bytes):  # protobuf's form of invalid UTF-8
                raise _InvalidError(
                    f"is damaged: the name of a dim of {value.name!r} in {place} is not UTF-8 text"
                )
    return declared | traversal.stored_names(graph), traversal.value_names(graph.output)
